"""Determinants, ranks, pseudo-inverses, least squares and the exponential of matrices in the last two dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tracecomp.base.errors import LinAlgError
from tracecomp.eager.tensor import Tensor
from tracecomp.functional.creation.creation import constant
from tracecomp.functional.dtype_support import ALL, COMPLEX, FLOATS, NUMBERS
from tracecomp.functional.elementwise.arithmetic import mul
from tracecomp.functional.elementwise.complexes import argument
from tracecomp.functional.linalg.factors import matrices, svdvals
from tracecomp.functional.linalg.matmul import identity, matmul, multi_dot
from tracecomp.functional.linalg.norms import matrix_norm
from tracecomp.functional.linalg.solving import inv
from tracecomp.functional.named_results import NamedTuple, result_type
from tracecomp.functional.primitives import prim
from tracecomp.functional.promotion import cast
from tracecomp.functional.publish import function, publish
from tracecomp.functional.reductions.cumulative import cumprod
from tracecomp.functional.reductions.reduction import squared
from tracecomp.functional.shape.shaping import adjoint, diagonal, matrix_transpose, to_shape
from tracecomp.ir.types import bool_, complex128, float64, int64, type_word

publish(LinAlgError, "linalg.LinAlgError")


class SignLogabsdet(NamedTuple):
    sign: Tensor
    logabsdet: Tensor


SlogdetResult = result_type("linalg_slogdet", SignLogabsdet)
OldSlogdetResult = result_type("slogdet", SignLogabsdet)


class LeastSquares(NamedTuple):
    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


LstsqResult = result_type("linalg_lstsq", LeastSquares)


@function(to="linalg", takes=ALL, composite=True)
def det(A: Tensor) -> Tensor:
    """Determinants of square matrices."""
    return prim.det(matrices(A, "linalg.det", square=True))


@function(to="linalg", takes=ALL, composite=True)
def slogdet(A: Tensor) -> SignLogabsdet:
    """(sign, log of the absolute value) of determinants."""
    return SlogdetResult(*prim.slogdet(matrices(A, "linalg.slogdet", square=True)))


@function(takes=ALL)
def slogdet_(input: Tensor) -> SignLogabsdet:
    """:func:`linalg.slogdet`."""
    return OldSlogdetResult(*slogdet(input))


@function(takes=ALL, composite=True)
def logdet(input: Tensor) -> Tensor:
    """log of determinants; NaN for negative ones of real matrices."""
    sign, log = slogdet(input)
    if sign.dtype.is_complex:
        return prim.complex(log, argument(sign))
    return prim.add(log, prim.where(prim.lt(sign, 0.0), math.nan, prim.mul(sign, 0.0)))


def _tolerance(A: Tensor, rtol: Any, rcond: object) -> float:
    if rcond is not None:
        rtol = rcond
    if rtol is None:
        double = A.dtype.to_real().itemsize == 8
        return float(max(A.shape[-2:])) * (2.220446049250313e-16 if double else 1.1920928955078125e-07)
    return float(rtol)


@function(to="linalg", takes=ALL, composite=True)
def pinv(
    A: Tensor, rcond: float | Tensor | None = None, hermitian: bool = False, *, atol: float | Tensor | None = None,
    rtol: float | Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Pseudo-inverse; singular values up to max(atol, rtol * the largest) count as zero."""
    matrices(A, "linalg.pinv", square=hermitian)
    if A.numel() == 0:
        return matrix_transpose(A).clone()
    if atol is None and not isinstance(rtol, Tensor) and not isinstance(rcond, Tensor):
        return prim.pinv(A, rtol=_tolerance(A, rtol, rcond), hermitian=hermitian)
    u, s, v = prim.svd(A, full=False)
    limit = _limit(A, s, atol, rtol if rcond is None else rcond)
    kept = prim.gt(s, limit)
    inverse_s = prim.where(kept, prim.div(1.0, prim.where(kept, s, 1.0)), 0.0)
    scaled = mul(adjoint(v), to_shape(inverse_s, (*s.shape[:-1], 1, s.shape[-1])))
    return matmul(scaled, adjoint(u))


def _limit(A: Tensor, s: Tensor, atol: Any, rtol: Any) -> Tensor:
    """The largest singular value that counts as zero, per matrix."""
    top = to_shape(prim.max(s, axes=(s.ndim - 1,)), (*s.shape[:-1], 1))
    if rtol is None:
        rtol = 0.0 if atol is not None else _tolerance(A, None, None)

    def spread(x: Tensor) -> Any:
        return to_shape(cast(x, s.dtype), (*x.shape, 1)) if isinstance(x, Tensor) else float(x)

    limit = prim.mul(top, spread(rtol))
    return limit if atol is None else prim.maximum(limit, spread(atol))


@function(takes=ALL)
def pinverse(input: Tensor, rcond: float = 1e-15) -> Tensor:
    """:func:`linalg.pinv`."""
    return pinv(input, rcond=rcond)


@function(to="linalg", takes=ALL, composite=True)
def matrix_rank(
    A: Tensor, tol: float | Tensor | None = None, hermitian: bool = False, *, atol: float | Tensor | None = None,
    rtol: float | Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The number of nonzero singular values (absolute eigenvalues if ``hermitian``)."""
    matrices(A, "linalg.matrix_rank", square=hermitian)
    lead = tuple(A.shape[:-2])
    if A.numel() == 0:
        return constant(lead, 0, int64)
    x = A.detach()
    s = prim.abs(prim.eigvalsh(x, uplo="L")) if hermitian else prim.svdvals(x)
    limit = _limit(A, s, atol if tol is None else tol, rtol if tol is None else 0.0)
    return prim.sum(cast(prim.gt(s, limit), int64), axes=(s.ndim - 1,))


@function(to="linalg", takes=ALL, composite=True)
def cond(A: Tensor, p: int | float | str | None = None) -> Tensor:
    """Condition number in the norm ``p`` (2 by default)."""
    matrices(A, "linalg.cond")
    if p in (None, 2, -2):
        s = svdvals(A)
        if s.shape[-1] == 0:
            return constant(tuple(A.shape[:-2]), 0, A.dtype.to_real())
        first, last = s[..., 0], s[..., -1]
        return prim.div(last, first) if p == -2 else prim.div(first, last)
    if A.numel() == 0:
        return constant(tuple(A.shape[:-2]), 0, A.dtype.to_real())
    return prim.mul(matrix_norm(A, p), matrix_norm(inv(A), p))


@function(to="linalg", takes=ALL, composite=True)
def lstsq(A: Tensor, B: Tensor, rcond: float | None = None, *, driver: str | None = None) -> LeastSquares:
    """(solution, residuals, rank, singular values) of the least-squares problem, by the pseudo-inverse."""
    matrices(A, "linalg.lstsq")
    if A.dtype is not B.dtype:
        raise RuntimeError(
            f"torch.linalg.lstsq: Expected input and other to have the same dtype, but got input's dtype "
            f"{type_word(A.dtype)} and other's dtype {type_word(B.dtype)}"
        )
    if not B.ndim:
        raise RuntimeError("linalg.lstsq: other must have at least 1 dimension")
    m, n = A.shape[-2:]
    vector = B.ndim == 1 or (A.ndim - 1 == B.ndim and tuple(B.shape) == tuple(A.shape[:-1]))
    b = to_shape(B, (*B.shape, 1)) if vector else B
    if m != b.shape[-2]:
        raise RuntimeError(
            f"torch.linalg.lstsq: input.size(-2) should match other.size(-2), got {list(A.shape)} and {list(B.shape)}"
        )
    x = matmul(pinv(A, rcond=rcond), b)
    rank = matrix_rank(A)
    full = m > n and driver not in (None, "gelsy") and bool((rank == n).all())
    gap = prim.sub(matmul(A, x), b) if full else None
    real = A.dtype.to_real()
    residuals = constant((0,), 0, real) if gap is None else prim.sum(squared(gap), axes=(gap.ndim - 2,))
    values = svdvals(A.detach()) if driver in ("gelsd", "gelss") else constant((0,), 0, real)
    if driver == "gels":
        rank = constant((0,), 0, int64)
    solution = to_shape(x, tuple(x.shape[:-1])) if vector else x
    return LstsqResult(solution, residuals, rank, values)


@function("linalg.matrix_exp", takes=FLOATS + COMPLEX, composite=True)
def matrix_exp(input: Tensor) -> Tensor:
    """Exponential of square matrices: a Taylor polynomial of a scaled matrix, squared back."""
    matrices(input, "linalg.matrix_exp", square=True, half=True)
    if input.numel() == 0:
        return input.clone()
    x = cast(input, complex128 if input.dtype.is_complex else float64)
    size = prim.max(prim.sum(x.detach().abs(), axes=(x.ndim - 2,)).reshape(-1), axes=(0,))
    finite = prim.bitwise_and(prim.gt(size, 2.0), prim.lt(size, math.inf))
    halvings = int(prim.sub(prim.ceil(prim.log2(prim.where(finite, size, 2.0))), 1.0))
    scaled = prim.mul(x, 0.5**halvings)
    result = term = identity(x)
    for k in range(1, 19):
        term = prim.mul(matmul(term, scaled), 1.0 / k)
        result = prim.add(result, term)
    for _ in range(halvings):
        result = matmul(result, result)
    return cast(result, input.dtype)


@function(to="linalg", takes=NUMBERS + COMPLEX, composite=True)
def multi_dot_(tensors: Sequence[Tensor]) -> Tensor:
    """Product of several matrices, the first and last possibly vectors, in the cheapest order."""
    parts = list(tensors)
    if len(parts) < 2:
        raise RuntimeError("multi_dot(): expected at least 2 tensors but got " + str(len(parts)))
    first, last = parts[0].ndim == 1, parts[-1].ndim == 1
    if first:
        parts[0] = parts[0].unsqueeze(0)
    if last:
        parts[-1] = parts[-1].unsqueeze(-1)
    result = multi_dot(parts)
    shape = (() if first else (result.shape[0],)) + (() if last else (result.shape[1],))
    return to_shape(result, shape)


@function(to="linalg", takes=NUMBERS + COMPLEX, composite=True)
def vander(x: Tensor, *, N: int | None = None) -> Tensor:
    """Powers 0 ... N - 1 of each element along a new last dimension."""
    x = x if x.ndim else to_shape(x, (1,))
    count = x.shape[-1] if N is None else N
    if count <= 1:
        raise RuntimeError("N must be greater than 1.")
    base = x if x.dtype.differentiable else prim.cast(x, dtype=int64)
    column = to_shape(base, (*base.shape, 1))
    powers = cumprod(column.expand(*base.shape, count - 1), -1)
    return prim.concat(constant(column.shape, 1, base.dtype), powers, axis=x.ndim)


@function(to="torch", takes=ALL, composite=True)
def vander_(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """Powers of a vector's elements as columns, falling unless ``increasing``."""
    if x.ndim != 1:
        raise RuntimeError("x must be a one-dimensional tensor.")
    powers = vander(x if x.dtype is not bool_ else prim.cast(x, dtype=int64), N=N)
    return powers if increasing else powers.flip(1)


@function(to="linalg", takes=ALL, composite=True)
def diagonal_(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The diagonal of the last two dimensions, as a view."""
    return diagonal(A, offset, dim1, dim2)


@function(to="linalg", takes=NUMBERS + COMPLEX, composite=True)
def matmul_(input: Tensor, other: Tensor) -> Tensor:
    """:func:`torch.matmul`."""
    return matmul(input, other)


@function(takes=ALL)
def det_(input: Tensor) -> Tensor:
    """:func:`linalg.det`."""
    return det(input)
