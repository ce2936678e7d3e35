"""Randomised decompositions of low rank (Halko, Martinsson and Tropp, 2009)."""

from __future__ import annotations

from tracecomp.eager.tensor import Tensor
from tracecomp.functional.dtype_support import ALL
from tracecomp.functional.linalg.factors import matrices, qr, svd
from tracecomp.functional.linalg.matmul import matmul
from tracecomp.functional.primitives import prim
from tracecomp.functional.publish import function
from tracecomp.functional.sampling import gaussian
from tracecomp.functional.shape.shaping import adjoint
from tracecomp.ir.types import DType, Shape


def _range(A: Tensor, q: int, niter: int, M: Tensor | None) -> Tensor:
    """An orthonormal basis that approximately spans the columns of ``A - M``."""

    def times(x: Tensor, turned: bool) -> Tensor:
        a = adjoint(A) if turned else A
        product = matmul(a, x)
        if M is None:
            return product
        m = adjoint(M) if turned else M
        return prim.sub(product, matmul(m, x))

    basis = qr(times(_directions((A.shape[-1], q), A.dtype), False))[0]
    for _ in range(niter):
        basis = qr(times(qr(times(basis, True))[0], False))[0]
    return basis


def _directions(shape: Shape, dtype: DType) -> Tensor:
    if dtype.is_complex:
        return prim.view_as_complex(gaussian((*shape, 2), dtype.to_real()))
    return gaussian(shape, dtype)


@function(to="torch", takes=ALL, composite=True)
def svd_lowrank(A: Tensor, q: int | None = 6, niter: int = 2, M: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """(U, S, V) of rank ``q``, approximately, of ``A`` (minus ``M``)."""
    matrices(A, "svd_lowrank")
    rank = 6 if q is None else q
    m, n = A.shape[-2:]
    if m < n:
        u, s, v = svd_lowrank(adjoint(A), rank, niter, None if M is None else adjoint(M))
        return v, s, u
    basis = _range(A, rank, niter, None if M is None else prim.expand(M, shape=tuple(A.shape)))
    inner = A if M is None else prim.sub(A, M)
    u, s, v = svd(matmul(adjoint(basis), inner), full_matrices=False)
    return matmul(basis, u), s, adjoint(v)


@function(to="torch", takes=ALL, composite=True)
def pca_lowrank(A: Tensor, q: int | None = None, center: bool = True, niter: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    """(U, S, V) of the columns' principal components, ``q`` of them."""
    m, n = A.shape[-2:]
    rank = min(6, m, n) if q is None else q
    if not 0 <= rank <= min(m, n):
        raise ValueError(f"q(={rank}) must be non-negative integer and not greater than min(m, n)={min(m, n)}")
    if not center:
        return svd_lowrank(A, rank, niter)
    mean = prim.div(prim.sum(A, axes=(A.ndim - 2,)), float(m))
    return svd_lowrank(prim.sub(A, mean.unsqueeze(-2)), rank, niter)
