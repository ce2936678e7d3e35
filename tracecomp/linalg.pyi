# Written by `python -m tests.surface`; do not edit.

"""Linear algebra under the names of ``torch.linalg``."""

from collections.abc import Sequence
from tracecomp.base.errors import LinAlgError as LinAlgError
from tracecomp.eager.tensor import Tensor
from tracecomp.functional.dims import Dim
from tracecomp.functional.linalg.factors import CholeskyInfo
from tracecomp.functional.linalg.factors import Eigen
from tracecomp.functional.linalg.factors import LDLFactor
from tracecomp.functional.linalg.factors import LDLFactorInfo
from tracecomp.functional.linalg.factors import LUFactor
from tracecomp.functional.linalg.factors import LUFactorInfo
from tracecomp.functional.linalg.factors import PLU
from tracecomp.functional.linalg.factors import QR
from tracecomp.functional.linalg.factors import SVD
from tracecomp.functional.linalg.linalg import LeastSquares
from tracecomp.functional.linalg.linalg import SignLogabsdet
from tracecomp.functional.linalg.solving import InverseInfo
from tracecomp.functional.linalg.solving import ResultInfo
from tracecomp.ir.types import DType

def cholesky(A: Tensor, *, upper: bool = False, out: Tensor | None = None) -> Tensor:
    """Lower (or upper) triangular factor of Hermitian positive-definite matrices; LinAlgError for others."""
def cholesky_ex(A: Tensor, *, upper: bool = False, check_errors: bool = False) -> CholeskyInfo:
    """(factor, info): the order of the first leading minor that is not positive-definite, 0 if all are.

    If there is such a minor, the factor is that of the previous minors. The rest equals LAPACK's: the non-positive
    pivot, and the triangle of ``A`` that was not reached.
    """
def cond(A: Tensor, p: int | float | str | None = None, *, out: Tensor | None = None) -> Tensor:
    """Condition number in the norm ``p`` (2 by default)."""
def cross(input: Tensor, other: Tensor, *, dim: int = -1, out: Tensor | None = None) -> Tensor:
    """Cross product of 3-vectors along ``dim``."""
def det(A: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Determinants of square matrices."""
def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The diagonal of the last two dimensions, as a view."""
def eig(A: Tensor) -> Eigen:
    """Eigenvalues, in no order, and eigenvectors of length 1, both complex, of general matrices.

    Eigenvectors are determined up to a factor of absolute value 1. Results that depend on that factor have no gradient:
    RuntimeError. Gradients by vectors of equal eigenvalues are infinite or NaN.
    """
def eigh(A: Tensor, UPLO: str = 'L') -> Eigen:
    """Eigenvalues, ascending, and eigenvectors of symmetric (Hermitian) matrices, read from one triangle."""
def eigvals(A: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Eigenvalues, complex and in no order, of general matrices."""
def eigvalsh(A: Tensor, UPLO: str = 'L', *, out: Tensor | None = None) -> Tensor:
    """Eigenvalues, ascending, of symmetric (Hermitian) matrices."""
def householder_product(A: Tensor, tau: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The first columns of the product of reflections I - tau v v* given below the diagonal of ``A``."""
def inv(A: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Inverse of square matrices; LinAlgError for singular ones."""
def inv_ex(A: Tensor, *, check_errors: bool = False) -> InverseInfo:
    """(inverse, info): for a singular matrix the index of the first zero pivot, from 1, and an inverse of NaN.

    LinAlgError if ``check_errors``.
    """
def ldl_factor(A: Tensor, *, hermitian: bool = False) -> LDLFactor:
    """(L and D in one matrix, LAPACK's row swaps) of symmetric or ``hermitian`` matrices, read from the lower triangle.

    A = P L D L' P', for ``hermitian`` ones P L D L* P'. L is unit lower triangular, and D has blocks of one or two
    rows. RuntimeError for singular ones. Not differentiable.
    """
def ldl_factor_ex(A: Tensor, *, hermitian: bool = False, check_errors: bool = False) -> LDLFactorInfo:
    """(LD, pivots, info) of :func:`ldl_factor`; info is the first block of D, from 1, that is zero, or 0."""
def ldl_solve(LD: Tensor, pivots: Tensor, B: Tensor, *, hermitian: bool = False, out: Tensor | None = None) -> Tensor:
    """The solution of A X = B from :func:`ldl_factor` of A; batches are broadcast. Not differentiable."""
def lstsq(A: Tensor, B: Tensor, rcond: float | None = None, *, driver: str | None = None) -> LeastSquares:
    """(solution, residuals, rank, singular values) of the least-squares problem, by the pseudo-inverse."""
def lu(A: Tensor, *, pivot: bool = True) -> PLU:
    """(P, L, U) with A = P L U."""
def lu_factor(A: Tensor, *, pivot: bool = True) -> LUFactor:
    """(L and U in one matrix, LAPACK's row swaps counted from 1); a RuntimeError for zeros on U's diagonal."""
def lu_factor_ex(A: Tensor, *, pivot: bool = True, check_errors: bool = False) -> LUFactorInfo:
    """(LU, pivots, info): the first zero on U's diagonal, from 1, or 0; a RuntimeError if ``check_errors``."""
def lu_solve(LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False, out: Tensor | None = None) -> Tensor:
    """The solution of A X = B (X A = B unless ``left``) from :func:`lu_factor` of A, or of A* if ``adjoint``."""
def matmul(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """:func:`torch.matmul`."""
def matrix_exp(input: Tensor) -> Tensor:
    """Exponential of square matrices: a Taylor polynomial of a scaled matrix, squared back."""
def matrix_norm(A: Tensor, ord: float | str = 'fro', dim: Sequence[int] = ..., keepdim: bool = False, *, dtype: DType | None = None, out: Tensor | None = None) -> Tensor:
    """Matrix norms: "fro", "nuc", inf, -inf, 1, -1, 2, -2 over two dimensions."""
def matrix_power(input: Tensor, n: int, *, out: Tensor | None = None) -> Tensor:
    """``input`` multiplied ``n`` times with itself (n >= 0), by squaring."""
def matrix_rank(A: Tensor, tol: float | Tensor | None = None, hermitian: bool = False, *, atol: float | Tensor | None = None, rtol: float | Tensor | None = None, out: Tensor | None = None) -> Tensor:
    """The number of nonzero singular values (absolute eigenvalues if ``hermitian``)."""
def multi_dot(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """Product of several matrices, the first and last possibly vectors, in the cheapest order."""
def norm(A: Tensor, ord: int | float | str | None = None, dim: Dim = None, keepdim: bool = False, *, dtype: DType | None = None, out: Tensor | None = None) -> Tensor:
    """A vector norm or, for two dims, a matrix norm; without ``ord`` the 2-norm of all elements."""
def pinv(A: Tensor, rcond: float | Tensor | None = None, hermitian: bool = False, *, atol: float | Tensor | None = None, rtol: float | Tensor | None = None, out: Tensor | None = None) -> Tensor:
    """Pseudo-inverse; singular values up to max(atol, rtol * the largest) count as zero."""
def qr(A: Tensor, mode: str = 'reduced') -> QR:
    """Orthogonal (unitary) and upper triangular factors; mode "reduced", "complete" or "r" (empty Q)."""
def slogdet(A: Tensor) -> SignLogabsdet:
    """(sign, log of the absolute value) of determinants."""
def solve(A: Tensor, B: Tensor, *, left: bool = True, out: Tensor | None = None) -> Tensor:
    """X with A X = B (or X A = B); ``B`` may be vectors. LinAlgError for singular matrices."""
def solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False, out: tuple[Tensor, ...] | None = None) -> ResultInfo:
    """(solution, info): for a singular matrix the index of the first zero pivot, from 1, and a solution of NaN.

    LinAlgError if ``check_errors``.
    """
def solve_triangular(A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False, out: Tensor | None = None) -> Tensor:
    """:func:`solve` reading one triangle only."""
def svd(A: Tensor, full_matrices: bool = True, *, driver: str | None = None) -> SVD:
    """(U, singular values descending, V transposed and conjugated)."""
def svdvals(A: Tensor, *, driver: str | None = None, out: Tensor | None = None) -> Tensor:
    """Singular values, descending."""
def tensorinv(A: Tensor, ind: int = 2, *, out: Tensor | None = None) -> Tensor:
    """Inverse of the map from the last to the first ``ind`` dimensions."""
def tensorsolve(A: Tensor, B: Tensor, dims: Sequence[int] | None = None, *, out: Tensor | None = None) -> Tensor:
    """X with tensordot(A, X, X.ndim) = B."""
def vander(x: Tensor, *, N: int | None = None) -> Tensor:
    """Powers 0 ... N - 1 of each element along a new last dimension."""
def vecdot(x: Tensor, y: Tensor, *, dim: int = -1, out: Tensor | None = None) -> Tensor:
    """Sum of products along ``dim``, broadcast."""
def vector_norm(x: Tensor, ord: float = 2, dim: Dim = None, keepdim: bool = False, *, dtype: DType | None = None, out: Tensor | None = None) -> Tensor:
    """The p-norm over ``dim`` (all dimensions by default)."""
