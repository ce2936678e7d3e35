"""Factorizations of matrices: Cholesky, LU, QR, eigenvalues and singular values."""

from __future__ import annotations

from tracecomp.eager.modes import grad_enabled
from tracecomp.eager.tensor import Tensor, create
from tracecomp.functional.creation.creation import constant
from tracecomp.functional.dtype_support import ALL, COMPLEX, FLOATS
from tracecomp.functional.linalg.matmul import identity
from tracecomp.functional.named_results import NamedTuple, result_type
from tracecomp.functional.plain_arguments import need_tensor
from tracecomp.functional.primitives import prim
from tracecomp.functional.promotion import cast, is_half, not_implemented, scalar, with_zero_gradient
from tracecomp.functional.publish import function, publish
from tracecomp.functional.shape.shaping import adjoint, to_shape
from tracecomp.functional.shape.triangles import tril, triu
from tracecomp.ir.types import broadcast_shapes, int32, int64


class QR(NamedTuple):
    Q: Tensor
    R: Tensor


QrResult = result_type("linalg_qr", QR)


OldQrResult = result_type("qr", QR)


class Eigen(NamedTuple):
    eigenvalues: Tensor
    eigenvectors: Tensor


EighResult = result_type("linalg_eigh", Eigen)


EigResult = result_type("linalg_eig", Eigen)


class SVD(NamedTuple):
    U: Tensor
    S: Tensor
    Vh: Tensor


SvdResult = result_type("linalg_svd", SVD)


class OldSVD(NamedTuple):
    U: Tensor
    S: Tensor
    V: Tensor


OldSvdResult = result_type("svd", OldSVD)


class PLU(NamedTuple):
    P: Tensor
    L: Tensor
    U: Tensor


LuResult = result_type("linalg_lu", PLU)


class LUFactor(NamedTuple):
    LU: Tensor
    pivots: Tensor


LuFactorResult = result_type("linalg_lu_factor", LUFactor)


class LUFactorInfo(NamedTuple):
    LU: Tensor
    pivots: Tensor
    info: Tensor


LuFactorExResult = result_type("linalg_lu_factor_ex", LUFactorInfo)


class LDLFactor(NamedTuple):
    LD: Tensor
    pivots: Tensor


LdlFactorResult = result_type("linalg_ldl_factor", LDLFactor)


class LDLFactorInfo(NamedTuple):
    LD: Tensor
    pivots: Tensor
    info: Tensor


LdlFactorExResult = result_type("linalg_ldl_factor_ex", LDLFactorInfo)


class CholeskyInfo(NamedTuple):
    L: Tensor
    info: Tensor


CholeskyExResult = result_type("linalg_cholesky_ex", CholeskyInfo)


class Reflections(NamedTuple):
    a: Tensor
    tau: Tensor


GeqrfResult = result_type("geqrf", Reflections)


def matrices(x: Tensor, name: str, square: bool = False, half: bool = False) -> Tensor:
    """A floating or complex tensor of at least two dimensions, square if ``square``; PyTorch's errors otherwise.

    NotImplementedError for types of 16 bits unless ``half`` is set.
    """
    need_tensor(name, x, "A")
    if x.ndim < 2:
        raise RuntimeError(f"{name}: The input tensor A must have at least 2 dimensions.")
    if square and x.shape[-1] != x.shape[-2]:
        raise RuntimeError(
            f"{name}: A must be batches of square matrices, but they are {x.shape[-2]} by {x.shape[-1]} matrices"
        )
    if not x.dtype.differentiable:
        raise RuntimeError(f"{name}: Expected a floating point or complex tensor as input. Got {x.dtype.name}")
    if not half and is_half(x):
        raise not_implemented(name, x.dtype)
    return x


def no_errors(x: Tensor) -> Tensor:
    """``info`` of the ``_ex`` forms: zero for every matrix."""
    return constant(tuple(x.shape[:-2]), 0, int32)


@function(to="linalg", takes=ALL, composite=True)
def cholesky(A: Tensor, *, upper: bool = False) -> Tensor:
    """Lower (or upper) triangular factor of Hermitian positive-definite matrices; LinAlgError for others."""
    return cholesky_ex(A, upper=upper, check_errors=True)[0]


@function(to="linalg", takes=ALL, composite=True)
def cholesky_ex(A: Tensor, *, upper: bool = False, check_errors: bool = False) -> CholeskyInfo:
    """(factor, info): the order of the first leading minor that is not positive-definite, 0 if all are.

    If there is such a minor, the factor is that of the previous minors. The rest equals LAPACK's: the non-positive
    pivot, and the triangle of ``A`` that was not reached.
    """
    matrices(A, "linalg.cholesky", square=True)
    factor, info = prim.cholesky(A, strict=check_errors, above=upper)
    if not check_errors and A.numel():
        factor = _as_far_as_it_went(A, factor, info, upper)
    return CholeskyExResult(factor, info)


def _as_far_as_it_went(a: Tensor, factor: Tensor, info: Tensor, upper: bool) -> Tensor:
    """``factor``, with LAPACK's partial result from the failing step of ``info`` on."""
    axes = (-1, -2) if upper else (-2, -1)
    row, column = (create("iota", shape=tuple(a.shape[-2:]), axis=axis % 2, dtype=int32) for axis in axes)
    failed = prim.sub(prim.reshape(info, shape=(*info.shape, 1, 1)), 1)
    done = prim.bitwise_or(prim.lt(failed, 0), prim.lt(column, failed))
    found = prim.where(done, factor, scalar(0, a.dtype))
    squares = prim.mul(found, found.conj()).sum(axes[1], keepdim=True)
    at_pivot = prim.bitwise_and(prim.eq(row, column), prim.eq(column, failed))
    rest = prim.where(at_pivot, prim.sub(a, squares), a)
    return prim.where(done, factor, prim.where(prim.ge(row, column), rest, scalar(0, a.dtype)))


@function(takes=ALL)
def cholesky_(input: Tensor, upper: bool = False) -> Tensor:
    """:func:`linalg.cholesky` with ``upper`` positional."""
    return cholesky(input, upper=upper)


@function(to="linalg", takes=ALL, composite=True)
def qr(A: Tensor, mode: str = "reduced") -> QR:
    """Orthogonal (unitary) and upper triangular factors; mode "reduced", "complete" or "r" (empty Q)."""
    if mode not in ("reduced", "complete", "r"):
        raise RuntimeError(
            f"qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), 'r', or 'complete'"
        )
    q, r = prim.qr(matrices(A, "linalg.qr"), full=mode == "complete")
    return QrResult(constant((0,), 0, A.dtype) if mode == "r" else q, r)


@function(takes=ALL)
def qr_(input: Tensor, some: bool = True) -> QR:
    """Orthogonal (unitary) and upper triangular factors, reduced if ``some``."""
    return OldQrResult(*qr(input, "reduced" if some else "complete"))


@function(to="linalg", takes=ALL, composite=True)
def eigh(A: Tensor, UPLO: str = "L") -> Eigen:
    """Eigenvalues, ascending, and eigenvectors of symmetric (Hermitian) matrices, read from one triangle."""
    return EighResult(*prim.eigh(_symmetric(A, UPLO), uplo=UPLO.upper()))


def _symmetric(A: Tensor, uplo: str) -> Tensor:
    if uplo.upper() not in ("L", "U"):
        raise RuntimeError(f"Expected UPLO argument to be 'L' or 'U', but got {uplo}")
    return matrices(A, "linalg.eigh", square=True)


@function(to="linalg", takes=ALL, composite=True)
def eigvalsh(A: Tensor, UPLO: str = "L") -> Tensor:
    """Eigenvalues, ascending, of symmetric (Hermitian) matrices."""
    return eigh(A, UPLO)[0] if differentiated(A) else prim.eigvalsh(_symmetric(A, UPLO), uplo=UPLO.upper())


@function(to="linalg", takes=FLOATS + COMPLEX, composite=True)
def eig(A: Tensor) -> Eigen:
    """Eigenvalues, in no order, and eigenvectors of length 1, both complex, of general matrices.

    Eigenvectors are determined up to a factor of absolute value 1. Results that depend on that factor have no gradient:
    RuntimeError. Gradients by vectors of equal eigenvalues are infinite or NaN.
    """
    return EigResult(*prim.eig(matrices(A, "linalg.eig", square=True)))


@function(to="linalg", takes=FLOATS + COMPLEX, composite=True)
def eigvals(A: Tensor) -> Tensor:
    """Eigenvalues, complex and in no order, of general matrices."""
    checked = matrices(A, "linalg.eigvals", square=True)
    return prim.eig(checked)[0] if differentiated(A) else prim.eigvals(checked)


def singular_values(x: Tensor) -> Tensor:
    """Singular values, descending. Derivatives also need the vectors, which take longer."""
    return prim.svd(x, full=False)[1] if differentiated(x) else prim.svdvals(x)


def differentiated(x: Tensor) -> bool:
    return grad_enabled() and x.requires_grad


@function(to="linalg", takes=ALL, composite=True)
def svd(A: Tensor, full_matrices: bool = True, *, driver: str | None = None) -> SVD:
    """(U, singular values descending, V transposed and conjugated)."""
    return SvdResult(*prim.svd(matrices(A, "linalg.svd"), full=full_matrices))


@function(to="linalg", takes=ALL, composite=True)
def svdvals(A: Tensor, *, driver: str | None = None) -> Tensor:
    """Singular values, descending."""
    return singular_values(matrices(A, "linalg.svdvals"))


@function(takes=ALL)
def svd_(input: Tensor, some: bool = True, compute_uv: bool = True) -> OldSVD:
    """(U, singular values, V), reduced if ``some``; U and V are zero unless ``compute_uv``."""
    u, s, v = prim.svd(matrices(input, "svd"), full=not some)
    if not compute_uv:
        m, n = input.shape[-2:]
        lead = tuple(input.shape[:-2])
        return OldSvdResult(constant((*lead, m, m), 0, input.dtype), s, constant((*lead, n, n), 0, input.dtype))
    return OldSvdResult(u, s, adjoint(v))


@function(to="linalg", takes=ALL, composite=True)
def lu_factor(A: Tensor, *, pivot: bool = True) -> LUFactor:
    """(L and U in one matrix, LAPACK's row swaps counted from 1); a RuntimeError for zeros on U's diagonal."""
    return LuFactorResult(*prim.lu_factor(matrices(A, "linalg.lu_factor"), fails="pivot"))


@function(to="linalg", takes=ALL, composite=True)
def lu_factor_ex(A: Tensor, *, pivot: bool = True, check_errors: bool = False) -> LUFactorInfo:
    """(LU, pivots, info): the first zero on U's diagonal, from 1, or 0; a RuntimeError if ``check_errors``."""
    lu, pivots = prim.lu_factor(matrices(A, "linalg.lu_factor"), fails="")
    info = _first_zero(lu.detach().diagonal(dim1=-2, dim2=-1))
    if check_errors and bool(prim.ne(info, 0).any()):
        raise RuntimeError(
            f"torch.linalg.lu_factor_ex: U[{int(info.max())},{int(info.max())}] is zero and using it on lu_solve would "
            "result in a division by zero. If you still want to perform the factorization, consider calling "
            "linalg.lu(A, pivot) or linalg.lu_factor_ex(A, pivot)"
        )
    return LuFactorExResult(lu, pivots, info)


def _first_zero(x: Tensor) -> Tensor:
    """The index of the first zero along the last axis, from 1; 0 if there is none."""
    n, axis = x.shape[-1], x.ndim - 1
    if x.numel() == 0:
        return constant(tuple(x.shape[:-1]), 0, int32)
    place = prim.add(create("iota", shape=tuple(x.shape), axis=axis, dtype=int32), 1)
    first = prim.min(prim.where(prim.eq(x, 0.0), place, n + 1), axes=(axis,))
    return prim.where(prim.gt(first, n), 0, first)


def lower_unit(x: Tensor) -> Tensor:
    k = min(x.shape[-2:])
    x = x[..., :k]
    square = identity(x) if x.shape[-2] == x.shape[-1] else tall_identity(x)
    return prim.add(tril(x, -1), square)


def tall_identity(x: Tensor) -> Tensor:
    shape = tuple(x.shape)
    row = create("iota", shape=shape, axis=len(shape) - 2, dtype=int64)
    return cast(prim.eq(row, create("iota", shape=shape, axis=len(shape) - 1, dtype=int64)), x.dtype)


def permutation_matrix(pivots: Tensor, size: int, like: Tensor) -> Tensor:
    """P with A = P L U."""
    order = prim.pivot_order(pivots, size=size)
    row = create("iota", shape=(size, 1), axis=0, dtype=int64)
    return cast(prim.eq(row, to_shape(order, (*order.shape[:-1], 1, size))), like.dtype)


@function(takes=ALL, composite=True)
def lu_unpack(LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True) -> PLU:
    """(P, L, U) of :func:`linalg.lu_factor`'s results."""
    matrices(LU_data, "lu_unpack")
    if LU_pivots.dtype is not int32:
        raise RuntimeError(f"lu_unpack(): LU_pivots must be of type torch.int32, got {LU_pivots.dtype}")
    nothing = constant((0,), 0, LU_data.dtype)
    m = LU_data.shape[-2]
    k = min(LU_data.shape[-2:])
    p = permutation_matrix(LU_pivots, m, LU_data) if unpack_pivots else nothing
    if not unpack_data:
        return LuResult(p, nothing, nothing)
    return LuResult(p, lower_unit(LU_data), triu(LU_data[..., :k, :]))


@function(to="linalg", takes=ALL, composite=True)
def lu(A: Tensor, *, pivot: bool = True) -> PLU:
    """(P, L, U) with A = P L U."""
    return lu_unpack(*prim.lu_factor(matrices(A, "linalg.lu"), fails=""))


@function(takes=ALL)
def lu_(input: Tensor, pivot: bool = True, get_infos: bool = False) -> tuple[Tensor, ...]:
    """(LU, pivots) and, on request, infos."""
    lu, pivots, info = lu_factor_ex(input, pivot=pivot)
    return (lu, pivots, info) if get_infos else (lu, pivots)


@function(to="linalg", takes=ALL, composite=True)
def ldl_factor(A: Tensor, *, hermitian: bool = False) -> LDLFactor:
    """(L and D in one matrix, LAPACK's row swaps) of symmetric or ``hermitian`` matrices, read from the lower triangle.

    A = P L D L' P', for ``hermitian`` ones P L D L* P'. L is unit lower triangular, and D has blocks of one or two
    rows. RuntimeError for singular ones. Not differentiable.
    """
    return LdlFactorResult(*_ldl(A, "linalg.ldl_factor", hermitian, strict=True)[:2])


@function(to="linalg", takes=ALL, composite=True)
def ldl_factor_ex(A: Tensor, *, hermitian: bool = False, check_errors: bool = False) -> LDLFactorInfo:
    """(LD, pivots, info) of :func:`ldl_factor`; info is the first block of D, from 1, that is zero, or 0."""
    return LdlFactorExResult(*_ldl(A, "linalg.ldl_factor_ex", hermitian, strict=check_errors))


def _ldl(A: Tensor, name: str, hermitian: bool, strict: bool) -> tuple[Tensor, ...]:
    conjugated = hermitian and A.dtype.is_complex
    factors, pivots, info = prim.ldl_factor(matrices(A, name, square=True), hermitian=conjugated)
    if strict and bool(prim.ne(info, 0).any()):
        raise RuntimeError(f"{name}: the matrix is singular: block {int(info.max())} of D is zero")
    return factors, pivots, info


@function(to="linalg", takes=ALL, composite=True)
def ldl_solve(LD: Tensor, pivots: Tensor, B: Tensor, *, hermitian: bool = False) -> Tensor:
    """The solution of A X = B from :func:`ldl_factor` of A; batches are broadcast. Not differentiable."""
    matrices(LD, "linalg.ldl_solve", square=True)
    if B.ndim < 2 or B.shape[-2] != LD.shape[-1]:
        raise RuntimeError(
            f"Incompatible matrix sizes for linalg.ldl_solve: each A matrix is {LD.shape[-1]} by {LD.shape[-1]} but "
            f"B has shape {list(B.shape)}"
        )
    if B.dtype != LD.dtype:
        raise RuntimeError(
            f"Expected b and A to have the same dtype, but found b of type {B.dtype} and A of type {LD.dtype} instead."
        )
    if pivots.dtype not in (int32, int64) or pivots.shape != LD.shape[:-1]:
        raise RuntimeError(
            f"linalg.ldl_solve: Expected pivots of dtype torch.int and shape {list(LD.shape[:-1])}, but got "
            f"{pivots.dtype} and {list(pivots.shape)}"
        )
    lead = broadcast_shapes(tuple(LD.shape[:-2]), tuple(B.shape[:-2]))
    parts = ((LD, LD.shape[-2:]), (B, B.shape[-2:]), (cast(pivots, int32), pivots.shape[-1:]))
    operands = (prim.expand(x, shape=(*lead, *own)) for x, own in parts)
    return prim.ldl_solve(*operands, hermitian=hermitian and LD.dtype.is_complex)


@function(to="linalg", takes=ALL, composite=True)
def householder_product(A: Tensor, tau: Tensor) -> Tensor:
    """The first columns of the product of reflections I - tau v v* given below the diagonal of ``A``."""
    matrices(A, "linalg.householder_product")
    _fitting("torch.linalg.householder_product", A, tau)
    if A.shape[-2] < A.shape[-1]:
        raise RuntimeError(
            "torch.linalg.householder_product: input.shape[-2] must be greater than or equal to input.shape[-1]"
        )
    if A.shape[-1] < tau.shape[-1]:
        raise RuntimeError(
            "torch.linalg.householder_product: input.shape[-1] must be greater than or equal to tau.shape[-1]"
        )
    return with_zero_gradient(prim.reflect(A, tau, tall_identity(A), turn=False), A)


publish(householder_product, "torch.orgqr", "Tensor.orgqr")


def _fitting(name: str, input: Tensor, tau: Tensor, other: Tensor | None = None) -> None:
    """Check that reflections, their factors and the operand have matching shapes."""
    for what, given in (("tau", tau), ("other", other)):
        if given is not None and given.dtype is not input.dtype:
            raise RuntimeError(
                f"{name}: Expected input and {what} to have the same dtype, but got {input.dtype} and {given.dtype}"
            )
    if tau.ndim != input.ndim - 1:
        raise RuntimeError(
            f"{name}: Expected tau to have one dimension less than input, but got tau.ndim equal to {tau.ndim} and "
            f"input.ndim is equal to {input.ndim}"
        )
    if other is not None and other.ndim != input.ndim:
        raise RuntimeError(
            f"{name}: Expected other to have the same number of dimensions as input, but got other.ndim equal to "
            f"{other.ndim} and input.ndim is equal to {input.ndim}"
        )
    lead = tuple(input.shape[:-2])
    for what, found in (("tau", tau.shape[:-1]), ("other", lead if other is None else other.shape[:-2])):
        if tuple(found) != lead:
            raise RuntimeError(
                f"{name}: Expected batch dimensions of {what} to be equal to input.shape[:-2], but got {list(found)}"
            )


@function(takes=ALL)
def geqrf(input: Tensor) -> Reflections:
    """(reflections below the diagonal with R above, their factors tau), in LAPACK's form."""
    return GeqrfResult(*prim.geqrf(matrices(input, "geqrf")))


@function(takes=FLOATS + COMPLEX, composite=True)
def ormqr(input: Tensor, tau: Tensor, other: Tensor, left: bool = True, transpose: bool = False) -> Tensor:
    """Q other, Q* other, other Q or other Q* for the reflections of :func:`geqrf`; Q* is transposed and conjugated."""
    if input.ndim < 2:
        raise RuntimeError("torch.ormqr: input must have at least 2 dimensions.")
    _fitting("torch.ormqr", input, tau, other)
    m = input.shape[-2]
    inner = other.shape[-2 if left else -1]
    if tau.shape[-1] > min(inner, input.shape[-1]) or m != inner:
        raise RuntimeError("torch.ormqr: tau.shape[-1] must be equal to min(other.shape[-2], input.shape[-1])")
    wide = input if input.shape[-1] <= m else input[..., :m]
    if left:
        return prim.reflect(wide, tau, other, turn=transpose)
    return adjoint(prim.reflect(wide, tau, adjoint(other), turn=not transpose))
