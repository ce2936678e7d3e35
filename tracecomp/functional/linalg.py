"""Decompositions, solvers and determinants over the last two dimensions, under the names of ``torch.linalg``."""

from __future__ import annotations

import math
from typing import Any

from tracecomp.errors import LinAlgError
from tracecomp.functional.creation import constant
from tracecomp.functional.factors import (
    differentiated,
    matrices,
    no_errors,
    svdvals,
)
from tracecomp.functional.matmul import identity, matmul, matrix_power, multi_dot
from tracecomp.functional.method import function, namespaced, share
from tracecomp.functional.norms import matrix_norm
from tracecomp.functional.promotion import cast
from tracecomp.functional.results import result_type_named
from tracecomp.functional.shaping import diagonal, matrix_transpose, movedim, to_shape
from tracecomp.functional.triangles import tril, triu
from tracecomp.ir.types import broadcast_shapes, float64, int64
from tracecomp.ops.prim import prim
from tracecomp.tensor import Tensor

share("linalg", "LinAlgError", LinAlgError)

SlogdetResult = result_type_named("linalg_slogdet", "sign logabsdet")
OldSlogdetResult = result_type_named("slogdet", "sign logabsdet")
InvExResult = result_type_named("linalg_inv_ex", "inverse info")
SolveExResult = result_type_named("linalg_solve_ex", "result info")
LstsqResult = result_type_named("linalg_lstsq", "solution residuals rank singular_values")
TriangularResult = result_type_named("triangular_solve", "solution cloned_coefficient")


@function(composite=True)
def cholesky_solve(input: Tensor, L: Tensor, upper: bool = False) -> Tensor:
    """X with (L L') X = input, or (U' U) X = input."""
    for x, name in ((input, "b"), (L, "u")):
        if x.ndim < 2:
            raise RuntimeError(f"{name} should have at least 2 dimensions, but has {x.ndim} dimensions instead")
    if not differentiated(L):
        return _substituted(L, _substituted(L, input, upper, turn=upper), upper, turn=not upper)
    factor = _reading(L, triu(L.detach()) if upper else tril(L.detach()))
    first, second = (matrix_transpose(factor), factor) if upper else (factor, matrix_transpose(factor))
    return _solved(second, _solved(first, input))


def _reading(full: Tensor, triangle: Tensor) -> Tensor:
    """The triangle's values, with the gradient of the whole matrix, as PyTorch has it here."""
    return prim.add(full, prim.sub(triangle, full.detach()))


@function(composite=True)
def cholesky_inverse(input: Tensor, upper: bool = False) -> Tensor:
    """Inverse of L L', or of U' U."""
    matrices(input, "cholesky_inverse", square=True)
    return cholesky_solve(identity(input), input, upper)


def _solved(a: Tensor, b: Tensor) -> Tensor:
    """The solution for broadcast batches of matrices."""
    return prim.matrix_solve(*_batches(a, b))


def _batches(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    lead = broadcast_shapes(tuple(a.shape[:-2]), tuple(b.shape[:-2]))
    return tuple(prim.expand(x, shape=(*lead, *x.shape[-2:])) for x in (a, b))


def _substituted(a: Tensor, b: Tensor, above: bool, ones: bool = False, turn: bool = False) -> Tensor:
    """The solution for broadcast batches of triangles, transposed if ``turn``."""
    a, b = _batches(a, b)
    return prim.triangular_solve(a, b, above=above, ones=ones, turn=turn)


@namespaced("linalg")
def solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor:
    """X with A X = B (or X A = B); ``B`` may be vectors. LinAlgError for singular matrices."""
    matrices(A, "linalg.solve", square=True)
    if A.dtype is not B.dtype:
        raise RuntimeError(
            f"linalg.solve: Expected A and B to have the same dtype, but found A of type {A.dtype} and B of type "
            f"{B.dtype} instead"
        )
    vector = B.ndim == 1 or (A.ndim - 1 == B.ndim and tuple(B.shape) == tuple(A.shape[:-1]))
    b = to_shape(B, (*B.shape, 1)) if vector else B
    a = A
    if not left:
        if vector:
            raise RuntimeError(
                "linalg.solve: Vector broadcasting of the left hand side is not supported for left=False."
            )
        a, b = matrix_transpose(A), matrix_transpose(b)
    if a.shape[-1] != b.shape[-2]:
        raise RuntimeError(
            f"linalg.solve: Incompatible shapes of A and B for the equation AX = B ({a.shape[-2]}x{a.shape[-1]} and "
            f"{b.shape[-2]}x{b.shape[-1]})"
        )
    x = _solved(a, b)
    if not left:
        return matrix_transpose(x)
    return to_shape(x, tuple(x.shape[:-1])) if vector else x


@namespaced("linalg")
def solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False) -> Any:
    """(solution, info)."""
    return SolveExResult(solve(A, B, left=left), no_errors(A))


@namespaced("linalg")
def solve_triangular(
    A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    """:func:`solve` reading one triangle only."""
    matrices(A, "linalg.solve_triangular", square=True)
    x = _substituted(A, B if left else matrix_transpose(B), upper, unitriangular, not left)
    return x if left else matrix_transpose(x)


@function(composite=True)
def triangular_solve(
    input: Tensor, A: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> Any:
    """(X, A) with A X = input for triangular A."""
    if transpose:
        x = solve_triangular(matrix_transpose(A), input, upper=not upper, unitriangular=unitriangular)
    else:
        x = solve_triangular(A, input, upper=upper, unitriangular=unitriangular)
    return TriangularResult(x, A.clone())


@namespaced("linalg")
def inv(A: Tensor) -> Tensor:
    """Inverse of square matrices; LinAlgError for singular ones."""
    return prim.matrix_inverse(matrices(A, "linalg.inv", square=True))


@namespaced("linalg")
def inv_ex(A: Tensor, *, check_errors: bool = False) -> Any:
    """(inverse, info)."""
    return InvExResult(inv(A), no_errors(A))


@function()
def inverse(input: Tensor) -> Tensor:
    """:func:`linalg.inv`."""
    return inv(input)


@namespaced("linalg")
def det(A: Tensor) -> Tensor:
    """Determinants of square matrices."""
    return prim.det(matrices(A, "linalg.det", square=True))


@namespaced("linalg")
def slogdet(A: Tensor) -> Any:
    """(sign, log of the absolute value) of determinants."""
    return SlogdetResult(*prim.slogdet(matrices(A, "linalg.slogdet", square=True)))


@function()
def slogdet_(input: Tensor) -> Any:
    """:func:`linalg.slogdet`."""
    return OldSlogdetResult(*slogdet(input))


@function(composite=True)
def logdet(input: Tensor) -> Tensor:
    """log of determinants; NaN for negative ones."""
    sign, log = slogdet(input)
    return prim.add(log, prim.where(prim.lt(sign, 0.0), math.nan, prim.mul(sign, 0.0)))


@namespaced("linalg")
def lu_solve(LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False) -> Tensor:
    """The solution of A X = B from :func:`lu_factor` of A."""
    order = prim.pivot_order(pivots, size=LU.shape[-1])
    b = B if left else matrix_transpose(B)
    if adjoint == left:
        x = _substituted(LU, _substituted(LU, b, True, turn=True), False, ones=True, turn=True)
        x = _rows_at(x, prim.sort(order, axis=order.ndim - 1, descending=False)[1])
    else:
        x = _substituted(LU, _substituted(LU, _rows_at(b, order), False, ones=True), True)
    return x if left else matrix_transpose(x)


def _rows_at(x: Tensor, order: Tensor) -> Tensor:
    """The rows of broadcast batches of matrices in the order given."""
    lead = broadcast_shapes(tuple(x.shape[:-2]), tuple(order.shape[:-1]))
    shape = (*lead, *x.shape[-2:])
    places = prim.expand(to_shape(order, (*order.shape, 1)), shape=shape)
    return prim.gather(prim.expand(x, shape=shape), places, axis=len(shape) - 2)


@function()
def lu_solve_(input: Tensor, LU_data: Tensor, LU_pivots: Tensor) -> Tensor:
    """:func:`linalg.lu_solve` with the right-hand side first."""
    return lu_solve(LU_data, LU_pivots, input)


def _tolerance(A: Tensor, rtol: Any, rcond: Any) -> float:
    if rcond is not None:
        rtol = rcond
    if rtol is None:
        return max(A.shape[-2:]) * (2.220446049250313e-16 if A.dtype.itemsize == 8 else 1.1920928955078125e-07)
    return float(rtol)


@namespaced("linalg")
def pinv(
    A: Tensor, rcond: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None
) -> Tensor:
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
    scaled = prim.mul(matrix_transpose(v), to_shape(inverse_s, (*s.shape[:-1], 1, s.shape[-1])))
    return matmul(scaled, matrix_transpose(u))


def _limit(A: Tensor, s: Tensor, atol: Any, rtol: Any) -> Tensor:
    """The singular value that counts as zero, per matrix."""
    top = to_shape(prim.max(s, axes=(s.ndim - 1,)), (*s.shape[:-1], 1))
    if rtol is None:
        rtol = 0.0 if atol is not None else _tolerance(A, None, None)

    def spread(x: Any) -> Any:
        return to_shape(cast(x, s.dtype), (*x.shape, 1)) if isinstance(x, Tensor) else float(x)

    limit = prim.mul(top, spread(rtol))
    return limit if atol is None else prim.maximum(limit, spread(atol))


@function()
def pinverse(input: Tensor, rcond: float = 1e-15) -> Tensor:
    """:func:`linalg.pinv`."""
    return pinv(input, rcond=rcond)


@namespaced("linalg")
def matrix_rank(
    A: Tensor, tol: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None
) -> Tensor:
    """How many singular values (absolute eigenvalues if ``hermitian``) count as not zero."""
    matrices(A, "linalg.matrix_rank", square=hermitian)
    lead = tuple(A.shape[:-2])
    if A.numel() == 0:
        return constant(lead, 0, int64)
    x = A.detach()
    s = prim.abs(prim.eigvalsh(x, uplo="L")) if hermitian else prim.svdvals(x)
    limit = _limit(A, s, atol if tol is None else tol, rtol if tol is None else 0.0)
    return prim.sum(cast(prim.gt(s, limit), int64), axes=(s.ndim - 1,))


@namespaced("linalg")
def cond(A: Tensor, p: Any = None) -> Tensor:
    """Condition number in the norm ``p`` (2 by default)."""
    matrices(A, "linalg.cond")
    if p in (None, 2, -2):
        s = svdvals(A)
        if s.shape[-1] == 0:
            return constant(tuple(A.shape[:-2]), 0, A.dtype)
        first, last = s[..., 0], s[..., -1]
        return prim.div(last, first) if p == -2 else prim.div(first, last)
    if A.numel() == 0:
        return constant(tuple(A.shape[:-2]), 0, A.dtype)
    return prim.mul(matrix_norm(A, p), matrix_norm(inv(A), p))


@namespaced("linalg")
def lstsq(A: Tensor, B: Tensor, rcond: float | None = None, *, driver: str | None = None) -> Any:
    """(solution, residuals, rank, singular values) of the least-squares problem, by the pseudo-inverse."""
    matrices(A, "linalg.lstsq")
    m, n = A.shape[-2:]
    vector = B.ndim == 1 or (A.ndim - 1 == B.ndim and tuple(B.shape) == tuple(A.shape[:-1]))
    b = to_shape(B, (*B.shape, 1)) if vector else B
    x = matmul(pinv(A, rcond=rcond), b)
    rank = matrix_rank(A)
    full = m > n and driver not in (None, "gelsy") and bool((rank == n).all())
    gap = prim.sub(matmul(A, x), b) if full else None
    residuals = constant((0,), 0, A.dtype) if gap is None else prim.sum(prim.mul(gap, gap), axes=(gap.ndim - 2,))
    values = svdvals(A.detach()) if driver in ("gelsd", "gelss") else constant((0,), 0, A.dtype)
    if driver == "gels":
        rank = constant((0,), 0, int64)
    solution = to_shape(x, tuple(x.shape[:-1])) if vector else x
    return LstsqResult(solution, residuals, rank, values)


@function(composite=True)
def matrix_exp(input: Tensor) -> Tensor:
    """Exponential of square matrices: a Taylor polynomial of a halved matrix, squared back."""
    matrices(input, "linalg.matrix_exp", square=True)
    if input.numel() == 0:
        return input.clone()
    x = cast(input, float64)
    size = prim.max(prim.sum(prim.abs(x.detach()), axes=(x.ndim - 2,)).reshape(-1), axes=(0,))
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


@namespaced("linalg")
def multi_dot_(tensors: Any) -> Tensor:
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


@namespaced("linalg")
def tensorinv(A: Tensor, ind: int = 2) -> Tensor:
    """Inverse of the map from the last to the first ``ind`` dimensions."""
    if ind <= 0:
        raise RuntimeError("Expected a strictly positive integer for 'ind'")
    front, back = tuple(A.shape[:ind]), tuple(A.shape[ind:])
    if math.prod(front) != math.prod(back):
        raise RuntimeError(
            f"Expected self to satisfy the requirement prod(self.shape[ind:]) == prod(self.shape[:ind]), but got "
            f"{math.prod(back)} != {math.prod(front)}"
        )
    return to_shape(inv(to_shape(A, (math.prod(front), math.prod(back)))), (*back, *front))


@namespaced("linalg")
def tensorsolve(A: Tensor, B: Tensor, dims: Any = None) -> Tensor:
    """X with tensordot(A, X, X.ndim) = B."""
    if dims is not None:
        A = movedim(A, tuple(dims), tuple(range(A.ndim - len(dims), A.ndim)))
    shape = tuple(A.shape[B.ndim :])
    flat = to_shape(A, (B.numel(), math.prod(shape)))
    if flat.shape[0] != flat.shape[1]:
        raise RuntimeError(
            "Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == prod(self.shape[:other.ndim])"
        )
    return to_shape(solve(flat, to_shape(B, (B.numel(),))), shape)


@namespaced("linalg")
def vander(x: Tensor, *, N: int | None = None) -> Tensor:
    """Powers 0 ... N - 1 of each element along a new last dimension."""
    x = x if x.ndim else to_shape(x, (1,))
    count = x.shape[-1] if N is None else N
    if count <= 1:
        raise RuntimeError("N must be greater than 1.")
    base = prim.cast(x, dtype=int64) if not x.dtype.is_floating_point else x
    ones = prim.add(prim.mul(base, 0), 1)
    parts = [ones]
    for _ in range(count - 1):
        parts.append(prim.mul(parts[-1], base))
    return prim.concat(*(prim.reshape(p, shape=(*p.shape, 1)) for p in parts), axis=x.ndim)


@function(method=False, composite=True)
def vander_(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """Powers of a vector's elements as columns, falling unless ``increasing``."""
    if x.ndim != 1:
        raise RuntimeError("x must be a one-dimensional tensor.")
    powers = vander(x, N=N)
    return powers if increasing else powers.flip(1)


@namespaced("linalg")
def diagonal_(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The diagonal of the last two dimensions, as a view."""
    return diagonal(A, offset, dim1, dim2)


@namespaced("linalg")
def matmul_(input: Tensor, other: Tensor) -> Tensor:
    """:func:`torch.matmul`."""
    return matmul(input, other)


@function()
def det_(input: Tensor) -> Tensor:
    """:func:`linalg.det`."""
    return det(input)


share("linalg", "matrix_power", matrix_power)
share("linalg", "matrix_exp", matrix_exp)
