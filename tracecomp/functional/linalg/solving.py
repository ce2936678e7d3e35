"""Systems of linear equations over the last two dimensions: solutions and inverses."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tracecomp.eager.tensor import Tensor
from tracecomp.functional.dtype_support import ALL, COMPLEX, FLOATS
from tracecomp.functional.linalg.factors import differentiated, lu_factor_ex, matrices, no_errors
from tracecomp.functional.linalg.matmul import identity
from tracecomp.functional.named_results import NamedTuple, result_type
from tracecomp.functional.primitives import prim
from tracecomp.functional.publish import function
from tracecomp.functional.shape.shaping import adjoint, matrix_transpose, movedim, to_shape
from tracecomp.functional.shape.triangles import tril, triu
from tracecomp.ir.types import broadcast_shapes, int32


class InverseInfo(NamedTuple):
    inverse: Tensor
    info: Tensor


InvExResult = result_type("linalg_inv_ex", InverseInfo)


class ResultInfo(NamedTuple):
    result: Tensor
    info: Tensor


SolveExResult = result_type("linalg_solve_ex", ResultInfo)


class SolutionCoefficient(NamedTuple):
    solution: Tensor
    cloned_coefficient: Tensor


TriangularResult = result_type("triangular_solve", SolutionCoefficient)


@function(takes=FLOATS + COMPLEX, composite=True)
def cholesky_solve(input: Tensor, L: Tensor, upper: bool = False) -> Tensor:
    """X with (L L*) X = input, or (U* U) X = input."""
    for x, name in ((input, "b"), (L, "u")):
        if x.ndim < 2:
            raise RuntimeError(f"{name} should have at least 2 dimensions, but has {x.ndim} dimensions instead")
    _fitting("cholesky_solve", L, input)
    if not differentiated(L):
        outer, inner = (L, L.conj()) if upper else (L.conj(), L)
        return _substituted(outer, _substituted(inner, input, upper, turn=upper), upper, turn=not upper)
    factor = _reading(L, triu(L.detach()) if upper else tril(L.detach()))
    first, second = (adjoint(factor), factor) if upper else (factor, adjoint(factor))
    return _solved(second, _solved(first, input))


def _reading(full: Tensor, triangle: Tensor) -> Tensor:
    """The triangle's values, with the gradient of the whole matrix, as in PyTorch."""
    return prim.add(full, prim.sub(triangle, full.detach()))


@function(takes=ALL, composite=True)
def cholesky_inverse(input: Tensor, upper: bool = False) -> Tensor:
    """Inverse of L L*, or of U* U."""
    matrices(input, "cholesky_inverse", square=True)
    return cholesky_solve(identity(input), input, upper)


def _fitting(name: str, a: Tensor, b: Tensor) -> None:
    """Check a X = b: RuntimeError naming the function unless ``a`` is square, and ``b`` has its rows and dtype."""
    matrices(a, name, square=True)
    if a.dtype is not b.dtype:
        raise RuntimeError(
            f"{name}: Expected A and B to have the same dtype, but found A of type {a.dtype} and B of type {b.dtype} "
            "instead"
        )
    if b.ndim < 2:
        raise RuntimeError(f"{name}: The input tensor B must have at least 2 dimensions.")
    if a.shape[-1] != b.shape[-2]:
        raise RuntimeError(
            f"{name}: Incompatible shapes of A and B for the equation AX = B ({a.shape[-2]}x{a.shape[-1]} and "
            f"{b.shape[-2]}x{b.shape[-1]})"
        )


def _solved(a: Tensor, b: Tensor) -> Tensor:
    """The solution for broadcast batches of matrices."""
    return prim.matrix_solve(*_batches(a, b))


def _batches(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    lead = broadcast_shapes(tuple(a.shape[:-2]), tuple(b.shape[:-2]))
    return prim.expand(a, shape=(*lead, *a.shape[-2:])), prim.expand(b, shape=(*lead, *b.shape[-2:]))


def _substituted(a: Tensor, b: Tensor, above: bool, ones: bool = False, turn: bool = False) -> Tensor:
    """The solution for broadcast batches of triangles, transposed if ``turn``."""
    a, b = _batches(a, b)
    return prim.triangular_solve(a, b, above=above, ones=ones, turn=turn)


@function(to="linalg", takes=ALL, composite=True)
def solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor:
    """X with A X = B (or X A = B); ``B`` may be vectors. LinAlgError for singular matrices."""
    vector = B.ndim == 1 or (A.ndim - 1 == B.ndim and tuple(B.shape) == tuple(A.shape[:-1]))
    b = to_shape(B, (*B.shape, 1)) if vector else B
    a = A
    if not left:
        if vector:
            raise RuntimeError(
                "linalg.solve: Vector broadcasting of the left hand side is not supported for left=False."
            )
        a, b = matrix_transpose(A), matrix_transpose(b)
    _fitting("linalg.solve", a, b)
    x = _solved(a, b)
    if not left:
        return matrix_transpose(x)
    return to_shape(x, tuple(x.shape[:-1])) if vector else x


@function(to="linalg", takes=ALL, composite=True)
def solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False) -> ResultInfo:
    """(solution, info): for a singular matrix the index of the first zero pivot, from 1, and a solution of NaN.

    LinAlgError if ``check_errors``.
    """
    _fitting("linalg.solve_ex", A, A)
    if check_errors:
        return SolveExResult(solve(A, B, left=left), no_errors(A))
    safe, info, singular = _regular(A)
    x = solve(safe, B, left=left)
    own = to_shape(singular, (*singular.shape, *((1,) if x.ndim < A.ndim else (1, 1))))
    return SolveExResult(prim.where(own, math.nan, x), info)


@function(to="linalg", takes=ALL, composite=True)
def solve_triangular(A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Tensor:
    """:func:`solve` reading one triangle only."""
    b = B if left else matrix_transpose(B)
    _fitting("linalg.solve_triangular", A, b)
    x = _substituted(A, b, upper, unitriangular, not left)
    return x if left else matrix_transpose(x)


@function(takes=ALL, composite=True)
def triangular_solve(
    input: Tensor, A: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> SolutionCoefficient:
    """(X, A) with A X = input for triangular A."""
    if transpose:
        x = solve_triangular(matrix_transpose(A), input, upper=not upper, unitriangular=unitriangular)
    else:
        x = solve_triangular(A, input, upper=upper, unitriangular=unitriangular)
    return TriangularResult(x, A.clone())


@function(to="linalg", takes=ALL, composite=True)
def inv(A: Tensor) -> Tensor:
    """Inverse of square matrices; LinAlgError for singular ones."""
    return prim.matrix_inverse(matrices(A, "linalg.inv", square=True))


@function(to="linalg", takes=ALL, composite=True)
def inv_ex(A: Tensor, *, check_errors: bool = False) -> InverseInfo:
    """(inverse, info): for a singular matrix the index of the first zero pivot, from 1, and an inverse of NaN.

    LinAlgError if ``check_errors``.
    """
    if check_errors:
        return InvExResult(inv(A), no_errors(A))
    safe, info, singular = _regular(matrices(A, "linalg.inv_ex", square=True))
    return InvExResult(prim.where(to_shape(singular, (*singular.shape, 1, 1)), math.nan, inv(safe)), info)


def _regular(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Replace singular matrices in ``a`` by the identity; return them, ``info``, and which ones are singular."""
    info = lu_factor_ex(a.detach()).info
    singular = prim.ne(info, 0)
    return prim.where(to_shape(singular, (*singular.shape, 1, 1)), identity(a), a), info, singular


@function(takes=ALL)
def inverse(input: Tensor) -> Tensor:
    """:func:`linalg.inv`."""
    return inv(input)


@function(to="linalg", takes=FLOATS + COMPLEX, composite=True)
def lu_solve(LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False) -> Tensor:
    """The solution of A X = B (X A = B unless ``left``) from :func:`lu_factor` of A, or of A* if ``adjoint``."""
    b = B if left else matrix_transpose(B)
    _fitting("linalg.lu_solve", LU, b)
    if pivots.dtype is not int32:
        raise RuntimeError(f"linalg.lu_solve: pivots should be a Tensor of scalar type torch.int32, got {pivots.dtype}")
    if tuple(pivots.shape) != tuple(LU.shape[:-1]):
        raise RuntimeError(
            "linalg.lu_solve: Number of pivots per batch should be same as the dimension of the matrix, got pivots "
            f"{list(pivots.shape)} for {list(LU.shape)}"
        )
    order = prim.pivot_order(pivots, size=LU.shape[-1])
    factors = LU.conj() if adjoint else LU
    if adjoint == left:
        x = _substituted(factors, _substituted(factors, b, True, turn=True), False, ones=True, turn=True)
        x = _rows_at(x, prim.sort(order, axis=order.ndim - 1, descending=False)[1])
    else:
        x = _substituted(factors, _substituted(factors, _rows_at(b, order), False, ones=True), True)
    return x if left else matrix_transpose(x)


def _rows_at(x: Tensor, order: Tensor) -> Tensor:
    """The rows of broadcast batches of matrices in the given order."""
    lead = broadcast_shapes(tuple(x.shape[:-2]), tuple(order.shape[:-1]))
    shape = (*lead, *x.shape[-2:])
    places = prim.expand(to_shape(order, (*order.shape, 1)), shape=shape)
    return prim.gather(prim.expand(x, shape=shape), places, axis=len(shape) - 2)


@function(takes=FLOATS + COMPLEX)
def lu_solve_(input: Tensor, LU_data: Tensor, LU_pivots: Tensor) -> Tensor:
    """:func:`linalg.lu_solve` with the right-hand side first."""
    return lu_solve(LU_data, LU_pivots, input)


@function(to="linalg", takes=ALL, composite=True)
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


@function(to="linalg", takes=ALL, composite=True)
def tensorsolve(A: Tensor, B: Tensor, dims: Sequence[int] | None = None) -> Tensor:
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
