# Written by `python -m tests.surface`; do not edit.

"""The methods of ``Tensor`` that are published above."""

from builtins import bool as _bool
from builtins import float as _float
from builtins import int as _int
from builtins import type as _type
from collections.abc import Callable
from collections.abc import Sequence
from tracecomp.autograd.api import Tensors
from tracecomp.eager import device as devices
from tracecomp.eager.device import Device
from tracecomp.eager.device import Layout
from tracecomp.eager.device import MemoryFormat
from tracecomp.eager.rng import Generator
from tracecomp.eager.tensor import Tensor
from tracecomp.eager.tensor_base import TensorBase
from tracecomp.functional.dims import Dim
from tracecomp.functional.dims import Sizes
from tracecomp.functional.indexing.indexing import Index
from tracecomp.functional.linalg.factors import OldSVD
from tracecomp.functional.linalg.factors import PLU
from tracecomp.functional.linalg.factors import QR
from tracecomp.functional.linalg.factors import Reflections
from tracecomp.functional.linalg.linalg import SignLogabsdet
from tracecomp.functional.linalg.solving import SolutionCoefficient
from tracecomp.functional.named_results import CountsEdges
from tracecomp.functional.named_results import MantissaExponent
from tracecomp.functional.named_results import MinMax
from tracecomp.functional.named_results import ValuesIndices
from tracecomp.functional.promotion import Number
from tracecomp.functional.promotion import Operand
from tracecomp.functional.storage import Array
from tracecomp.functional.storage import TypedStorage
from tracecomp.functional.storage import UntypedStorage
from tracecomp.ir.types import DType
from typing import Any
from typing import Literal
from typing import NoReturn
from typing import overload
import numpy as np

class TensorMethods(TensorBase):
    @property
    def H(self) -> Tensor:
        """The transposed matrix, conjugate if complex."""
    @property
    def T(self) -> Tensor:
        """All dimensions reversed."""
    def __abs__(self) -> Tensor:
        """Absolute value."""
    def __add__(self, other: Operand) -> Tensor: ...
    def __and__(self, other: Operand) -> Tensor: ...
    def __array_wrap__(self, array: Array, context: object = None, return_scalar: _bool = False) -> Tensor:
        """Convert the result of a numpy function of ``self`` to a tensor."""
    def __contains__(self, element: object) -> _bool: ...
    def __delitem__(self, key: object) -> NoReturn:
        """TypeError: the elements of a tensor cannot be deleted."""
    def __eq__(self, other: Operand) -> Tensor: ...  # type: ignore[override]
    def __floordiv__(self, other: Operand) -> Tensor: ...
    def __ge__(self, other: Operand) -> Tensor: ...
    def __getitem__(self, key: Index) -> Tensor:
        """``self[key]``: a view for basic indices, a copy for index tensors and masks."""
    def __gt__(self, other: Operand) -> Tensor: ...
    def __iadd__(self, other: Operand) -> Tensor: ...
    def __iand__(self, other: Operand) -> Tensor: ...
    def __ifloordiv__(self, other: Operand) -> Tensor: ...
    def __ilshift__(self, other: Operand) -> Tensor: ...
    def __imatmul__(self, other: Operand) -> Tensor: ...
    def __imod__(self, other: Operand) -> Tensor: ...
    def __imul__(self, other: Operand) -> Tensor: ...
    def __invert__(self) -> Tensor: ...
    def __ior__(self, other: Operand) -> Tensor: ...
    def __ipow__(self, other: Operand) -> Tensor: ...
    def __irshift__(self, other: Operand) -> Tensor: ...
    def __isub__(self, other: Operand) -> Tensor: ...
    def __itruediv__(self, other: Operand) -> Tensor: ...
    def __ixor__(self, other: Operand) -> Tensor: ...
    def __le__(self, other: Operand) -> Tensor: ...
    def __lshift__(self, other: Operand) -> Tensor: ...
    def __lt__(self, other: Operand) -> Tensor: ...
    def __matmul__(self, other: Operand) -> Tensor: ...
    def __mod__(self, other: Operand) -> Tensor: ...
    def __mul__(self, other: Operand) -> Tensor: ...
    def __ne__(self, other: Operand) -> Tensor: ...  # type: ignore[override]
    def __neg__(self) -> Tensor:
        """Return -input; RuntimeError on bools."""
    def __or__(self, other: Operand) -> Tensor: ...
    def __pos__(self) -> Tensor:
        """Return ``input``; RuntimeError on bools."""
    def __pow__(self, other: Operand) -> Tensor: ...
    def __radd__(self, other: Operand) -> Tensor: ...
    def __rand__(self, other: Operand) -> Tensor: ...
    def __rdiv__(self, other: Operand) -> Tensor: ...
    def __reversed__(self) -> Tensor: ...
    def __rfloordiv__(self, other: Operand) -> Tensor: ...
    def __rlshift__(self, other: Operand) -> Tensor: ...
    def __rmatmul__(self, other: Operand) -> Tensor: ...
    def __rmod__(self, other: Operand) -> Tensor: ...
    def __rmul__(self, other: Operand) -> Tensor: ...
    def __ror__(self, other: Operand) -> Tensor: ...
    def __rpow__(self, other: Operand) -> Tensor: ...
    def __rrshift__(self, other: Operand) -> Tensor: ...
    def __rshift__(self, other: Operand) -> Tensor: ...
    def __rsub__(self, other: Operand) -> Tensor: ...
    def __rtruediv__(self, other: Operand) -> Tensor: ...
    def __rxor__(self, other: Operand) -> Tensor: ...
    def __setitem__(self, key: Index, value: Operand | np.ndarray[Any, Any] | Sequence[Any]) -> None:
        """``self[key] = value``, broadcast."""
    def __sub__(self, other: Operand) -> Tensor: ...
    def __truediv__(self, other: Operand) -> Tensor: ...
    def __xor__(self, other: Operand) -> Tensor: ...
    def _indices(self) -> Any:
        """Supported for sparse coordinate tensors only; RuntimeError for others.

        Example:
            >>> x = torch.sparse_coo_tensor([[0, 1, 0], [1, 0, 1]], [1.0, 2.0, 3.0], (2, 2))
            >>> x._indices()
            tensor([[0, 1, 0],
                    [1, 0, 1]])
        """
    def _nnz(self) -> Any:
        """Supported for sparse tensors only; RuntimeError for others.

        Example:
            >>> x = torch.sparse_coo_tensor([[0, 1, 0], [1, 0, 1]], [1.0, 2.0, 3.0], (2, 2))
            >>> x._nnz()
            3
        """
    def _values(self) -> Any:
        """Supported for sparse coordinate tensors only; RuntimeError for others.

        Example:
            >>> x = torch.sparse_coo_tensor([[0, 1, 0], [1, 0, 1]], [1.0, 2.0, 3.0], (2, 2))
            >>> x._values()
            tensor([1., 2., 3.])
        """
    def abs(self) -> Tensor:
        """Absolute value."""
    def abs_(self) -> Tensor:
        """Absolute value."""
    def absolute(self) -> Tensor:
        """Absolute value."""
    def absolute_(self) -> Tensor:
        """Absolute value."""
    def acos(self) -> Tensor:
        """Elementwise acos; integers and bools become the default float dtype."""
    def acos_(self) -> Tensor:
        """Elementwise acos; integers and bools become the default float dtype."""
    def acosh(self) -> Tensor:
        """Elementwise acosh; integers and bools become the default float dtype."""
    def acosh_(self) -> Tensor:
        """Elementwise acosh; integers and bools become the default float dtype."""
    def add(self, other: Operand, *, alpha: Number = 1) -> Tensor:
        """``input + alpha * other``, broadcast."""
    def add_(self, other: Operand, *, alpha: Number = 1) -> Tensor:
        """``input + alpha * other``, broadcast."""
    def addbmm(self, batch1: Tensor, batch2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
        """beta * input + alpha * (the sum of the products of the batch)."""
    def addbmm_(self, batch1: Tensor, batch2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
        """beta * input + alpha * (the sum of the products of the batch)."""
    def addcdiv(self, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1) -> Tensor:
        """``input + value * tensor1 / tensor2``; RuntimeError on integer operands."""
    def addcdiv_(self, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1) -> Tensor:
        """``input + value * tensor1 / tensor2``; RuntimeError on integer operands."""
    def addcmul(self, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1) -> Tensor:
        """``input + value * tensor1 * tensor2``."""
    def addcmul_(self, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1) -> Tensor:
        """``input + value * tensor1 * tensor2``."""
    def addmm(self, mat1: Tensor, mat2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
        """beta * input + alpha * (mat1 @ mat2)."""
    def addmm_(self, mat1: Tensor, mat2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
        """beta * input + alpha * (mat1 @ mat2)."""
    def addmv(self, mat: Tensor, vec: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
        """beta * input + alpha * (mat @ vec)."""
    def addmv_(self, mat: Tensor, vec: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
        """beta * input + alpha * (mat @ vec)."""
    def addr(self, vec1: Tensor, vec2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
        """beta * input + alpha * outer(vec1, vec2)."""
    def addr_(self, vec1: Tensor, vec2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
        """beta * input + alpha * outer(vec1, vec2)."""
    def adjoint(self) -> Tensor:
        """The last two dimensions swapped, and the conjugate of complex tensors."""
    def all(self, dim: Dim = None, keepdim: _bool = False) -> Tensor:
        """Whether every element is nonzero."""
    def allclose(self, other: Tensor, rtol: _float = ..., atol: _float = ..., equal_nan: _bool = False) -> _bool:
        """Whether every pair is close (:func:`isclose`)."""
    def amax(self, dim: Dim = ..., keepdim: _bool = False) -> Tensor:
        """Largest over ``dim``; equal extremes share the gradient."""
    def amin(self, dim: Dim = ..., keepdim: _bool = False) -> Tensor:
        """Smallest over ``dim``; equal extremes share the gradient."""
    def aminmax(self, *, dim: _int | None = None, keepdim: _bool = False) -> MinMax:
        """Smallest and largest."""
    def angle(self) -> Tensor:
        """The angle in the complex plane: of real numbers pi for negative ones, 0 for others, NaN for NaN."""
    def any(self, dim: Dim = None, keepdim: _bool = False) -> Tensor:
        """Whether some element is nonzero."""
    def apply_(self, callable: Callable[[Number], Number]) -> Tensor:
        """Every element replaced by ``callable`` of it, on the CPU and slow."""
    def arccos(self) -> Tensor:
        """Elementwise acos; integers and bools become the default float dtype."""
    def arccos_(self) -> Tensor:
        """Elementwise acos; integers and bools become the default float dtype."""
    def arccosh(self) -> Tensor:
        """Elementwise acosh; integers and bools become the default float dtype."""
    def arccosh_(self) -> Tensor:
        """Elementwise acosh; integers and bools become the default float dtype."""
    def arcsin(self) -> Tensor:
        """Elementwise asin; integers and bools become the default float dtype."""
    def arcsin_(self) -> Tensor:
        """Elementwise asin; integers and bools become the default float dtype."""
    def arcsinh(self) -> Tensor:
        """Elementwise asinh; integers and bools become the default float dtype."""
    def arcsinh_(self) -> Tensor:
        """Elementwise asinh; integers and bools become the default float dtype."""
    def arctan(self) -> Tensor:
        """Elementwise atan; integers and bools become the default float dtype."""
    def arctan2(self, other: Tensor) -> Tensor:
        """The angle of the point (other, input)."""
    def arctan2_(self, other: Tensor) -> Tensor:
        """The angle of the point (other, input)."""
    def arctan_(self) -> Tensor:
        """Elementwise atan; integers and bools become the default float dtype."""
    def arctanh(self) -> Tensor:
        """Elementwise atanh; integers and bools become the default float dtype."""
    def arctanh_(self) -> Tensor:
        """Elementwise atanh; integers and bools become the default float dtype."""
    def argmax(self, dim: _int | None = None, keepdim: _bool = False) -> Tensor:
        """The first position of the largest element, in the flattened order without ``dim``."""
    def argmin(self, dim: _int | None = None, keepdim: _bool = False) -> Tensor:
        """The first position of the smallest element, in the flattened order without ``dim``."""
    def argsort(self, dim: _int = -1, descending: _bool = False, stable: _bool = False) -> Tensor:
        """The indices that sort ``input`` along ``dim``."""
    def argwhere(self) -> Tensor:
        """:func:`nonzero` as a matrix."""
    def as_strided(self, size: Sequence[_int], stride: Sequence[_int], storage_offset: _int | None = None) -> Tensor:
        """A view of ``input``'s memory: element i is at ``storage_offset`` + i * ``stride``.

        RuntimeError for a negative size or stride, and for positions outside the memory.
        """
    def as_strided_(self, size: Sequence[_int], stride: Sequence[_int], storage_offset: _int | None = None) -> Tensor:
        """A view of ``input``'s memory: element i is at ``storage_offset`` + i * ``stride``.

        RuntimeError for a negative size or stride, and for positions outside the memory.
        """
    def as_strided_scatter(self, src: Tensor, size: Sequence[_int], stride: Sequence[_int], storage_offset: _int | None = None) -> Tensor:
        """A copy of ``input`` with the elements of :func:`as_strided` replaced by ``src``."""
    def asin(self) -> Tensor:
        """Elementwise asin; integers and bools become the default float dtype."""
    def asin_(self) -> Tensor:
        """Elementwise asin; integers and bools become the default float dtype."""
    def asinh(self) -> Tensor:
        """Elementwise asinh; integers and bools become the default float dtype."""
    def asinh_(self) -> Tensor:
        """Elementwise asinh; integers and bools become the default float dtype."""
    def atan(self) -> Tensor:
        """Elementwise atan; integers and bools become the default float dtype."""
    def atan2(self, other: Tensor) -> Tensor:
        """The angle of the point (other, input)."""
    def atan2_(self, other: Tensor) -> Tensor:
        """The angle of the point (other, input)."""
    def atan_(self) -> Tensor:
        """Elementwise atan; integers and bools become the default float dtype."""
    def atanh(self) -> Tensor:
        """Elementwise atanh; integers and bools become the default float dtype."""
    def atanh_(self) -> Tensor:
        """Elementwise atanh; integers and bools become the default float dtype."""
    def backward(self, gradient: Tensor | None = None, retain_graph: _bool | None = None, create_graph: _bool = False, inputs: Tensors | None = None) -> None:
        """Add the gradients of this tensor to ``.grad`` of the leaves. See :func:`tracecomp.autograd.backward`.

        Args:
            gradient (Tensor | None, optional): the gradient of the tensor; 1 for a single element.
            retain_graph (bool | None, optional): whether the graph can be run backwards again.
            create_graph (bool, optional): whether the gradients can be differentiated again.
            inputs (Tensors | None, optional): the leaves whose gradients are wanted.

        Example:
            >>> x = torch.tensor(3.0, requires_grad=True)
            >>> (x * x).backward()
            >>> x.grad
            tensor(6.)
        """
    def baddbmm(self, batch1: Tensor, batch2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
        """beta * input + alpha * bmm(batch1, batch2)."""
    def baddbmm_(self, batch1: Tensor, batch2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
        """beta * input + alpha * bmm(batch1, batch2)."""
    def bernoulli(self, p: _float | None = None, *, generator: Generator | None = None) -> Tensor:
        """Draw 1 with the probabilities of ``input`` (or with ``p``), else 0."""
    def bernoulli_(self, p: _float | Tensor = ..., *, generator: Generator | None = None) -> Tensor: ...
    def bfloat16(self, memory_format: MemoryFormat = None) -> Tensor:
        """``input`` as bfloat16; itself when it is already."""
    def bincount(self, weights: Tensor | None = None, minlength: _int = 0) -> Tensor:
        """The number of occurrences of each non-negative integer, or the sums of their ``weights``."""
    def binomial(self, prob: Tensor, generator: Generator | None = None) -> Tensor:
        """Binomial numbers; drawn by numpy from a key of the generator.

        A negative count gives 0, and probabilities outside [0, 1] are clipped. NaN gives NaN.
        """
    def bitwise_and(self, other: Operand) -> Tensor:
        """Elementwise bitwise and of integers or bools."""
    def bitwise_and_(self, other: Operand) -> Tensor:
        """Elementwise bitwise and of integers or bools."""
    def bitwise_left_shift(self, other: Operand) -> Tensor:
        """Elementwise bitwise left shift of integers or bools."""
    def bitwise_left_shift_(self, other: Operand) -> Tensor:
        """Elementwise bitwise left shift of integers or bools."""
    def bitwise_not(self) -> Tensor:
        """Bits inverted; logical not on bools."""
    def bitwise_not_(self) -> Tensor:
        """Bits inverted; logical not on bools."""
    def bitwise_or(self, other: Operand) -> Tensor:
        """Elementwise bitwise or of integers or bools."""
    def bitwise_or_(self, other: Operand) -> Tensor:
        """Elementwise bitwise or of integers or bools."""
    def bitwise_right_shift(self, other: Operand) -> Tensor:
        """Elementwise bitwise right shift of integers or bools."""
    def bitwise_right_shift_(self, other: Operand) -> Tensor:
        """Elementwise bitwise right shift of integers or bools."""
    def bitwise_xor(self, other: Operand) -> Tensor:
        """Elementwise bitwise xor of integers or bools."""
    def bitwise_xor_(self, other: Operand) -> Tensor:
        """Elementwise bitwise xor of integers or bools."""
    def bmm(self, mat2: Tensor) -> Tensor:
        """Products of two batches of matrices, without broadcasting."""
    def bool(self, memory_format: MemoryFormat = None) -> Tensor:
        """``input`` as bool; itself when it is already."""
    def broadcast_to(self, size: Sequence[_int]) -> Tensor:
        """:func:`expand` to ``size``."""
    def byte(self, memory_format: MemoryFormat = None) -> Tensor:
        """``input`` as uint8; itself when it is already."""
    def cauchy(self, median: _float = ..., sigma: _float = ..., *, generator: Generator | None = None) -> Tensor: ...
    def cauchy_(self, median: _float = ..., sigma: _float = ..., *, generator: Generator | None = None) -> Tensor: ...
    def ccol_indices(self) -> Any:
        """Supported for sparse compressed tensors only; RuntimeError for others.

        Example:
            >>> x = torch.tensor([[0.0, 1.0], [2.0, 0.0]])
            >>> x.to_sparse_csc().ccol_indices()
            tensor([0, 1, 2])
        """
    def cdouble(self, memory_format: MemoryFormat = None) -> Tensor:
        """``input`` as complex128; itself when it is already."""
    def ceil(self) -> Tensor:
        """Rounded up."""
    def ceil_(self) -> Tensor:
        """Rounded up."""
    def cfloat(self, memory_format: MemoryFormat = None) -> Tensor:
        """``input`` as complex64; itself when it is already."""
    def char(self, memory_format: MemoryFormat = None) -> Tensor:
        """``input`` as int8; itself when it is already."""
    def cholesky(self, upper: _bool = False) -> Tensor:
        """:func:`linalg.cholesky` with ``upper`` positional."""
    def cholesky_inverse(self, upper: _bool = False) -> Tensor:
        """Inverse of L L*, or of U* U."""
    def cholesky_solve(self, L: Tensor, upper: _bool = False) -> Tensor:
        """X with (L L*) X = input, or (U* U) X = input."""
    def chunk(self, chunks: _int, dim: _int = 0) -> tuple[Tensor, ...]:
        """At most ``chunks`` pieces of equal size (the last may be smaller), as views."""
    def clamp(self, min: Operand | None = None, max: Operand | None = None) -> Tensor:
        """Limit ``input`` to [min, max], which are numbers or tensors. Gradients are zero outside; NaN propagates."""
    def clamp_(self, min: Operand | None = None, max: Operand | None = None) -> Tensor:
        """Limit ``input`` to [min, max], which are numbers or tensors. Gradients are zero outside; NaN propagates."""
    def clamp_max(self, max: Operand) -> Tensor:
        """:func:`clamp` from above."""
    def clamp_max_(self, max: Operand) -> Tensor:
        """:func:`clamp` from above."""
    def clamp_min(self, min: Operand) -> Tensor:
        """:func:`clamp` from below."""
    def clamp_min_(self, min: Operand) -> Tensor:
        """:func:`clamp` from below."""
    def clip(self, min: Operand | None = None, max: Operand | None = None) -> Tensor:
        """Limit ``input`` to [min, max], which are numbers or tensors. Gradients are zero outside; NaN propagates."""
    def clip_(self, min: Operand | None = None, max: Operand | None = None) -> Tensor:
        """Limit ``input`` to [min, max], which are numbers or tensors. Gradients are zero outside; NaN propagates."""
    def clone(self, *, memory_format: MemoryFormat = None) -> Tensor:
        """A copy, in ``memory_format`` or in the order of ``input``; gradients flow through it."""
    def coalesce(self) -> Any:
        """Supported for sparse coordinate tensors only; RuntimeError for others.

        Example:
            >>> x = torch.sparse_coo_tensor([[0, 1, 0], [1, 0, 1]], [1.0, 2.0, 3.0], (2, 2))
            >>> x.coalesce().values()
            tensor([4., 2.])
        """
    def col_indices(self) -> Any:
        """Supported for sparse compressed tensors only; RuntimeError for others.

        Example:
            >>> x = torch.tensor([[0.0, 1.0], [2.0, 0.0]])
            >>> x.to_sparse_csr().col_indices()
            tensor([1, 0])
        """
    def conj(self) -> Tensor:
        """The conjugate, computed at once; real tensors are returned unchanged."""
    def conj_physical(self) -> Tensor:
        """The conjugate, also a copy for real tensors."""
    def conj_physical_(self) -> Tensor:
        """The conjugate, also a copy for real tensors."""
    def contiguous(self, memory_format: MemoryFormat = None) -> Tensor:
        """``input`` in row-major memory, or in ``memory_format``; unchanged if it already is."""
    def copy_(self, src: Operand, non_blocking: _bool = False) -> Tensor:
        """Write elements of ``src`` (broadcast, converted), or a number, into this tensor."""
    def copysign(self, other: Operand) -> Tensor:
        """The magnitude of ``input`` with the sign of ``other``."""
    def copysign_(self, other: Operand) -> Tensor:
        """The magnitude of ``input`` with the sign of ``other``."""
    def corrcoef(self) -> Tensor:
        """Correlation of the rows."""
    def cos(self) -> Tensor:
        """Elementwise cos; integers and bools become the default float dtype."""
    def cos_(self) -> Tensor:
        """Elementwise cos; integers and bools become the default float dtype."""
    def cosh(self) -> Tensor:
        """Elementwise cosh; integers and bools become the default float dtype."""
    def cosh_(self) -> Tensor:
        """Elementwise cosh; integers and bools become the default float dtype."""
    def count_nonzero(self, dim: Dim = None) -> Tensor:
        """The number of nonzero elements."""
    def cov(self, *, correction: _int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None) -> Tensor:
        """Covariance of the rows, with integer repetitions ``fweights`` and observation weights ``aweights``."""
    def cpu(self, memory_format: MemoryFormat = None) -> Tensor:
        """``input`` itself; NotImplementedError for a meta tensor, which has no data."""
    def cross(self, other: Tensor, dim: _int | None = None) -> Tensor:
        """Cross product of 3-vectors along ``dim`` (the first dimension of size 3 by default)."""
    def crow_indices(self) -> Any:
        """Supported for sparse compressed tensors only; RuntimeError for others.

        Example:
            >>> x = torch.tensor([[0.0, 1.0], [2.0, 0.0]])
            >>> x.to_sparse_csr().crow_indices()
            tensor([0, 1, 2])
        """
    def cuda(self, device: Device = None, non_blocking: _bool = False) -> Tensor:
        """AssertionError: there is no accelerator."""
    def cummax(self, dim: _int) -> ValuesIndices:
        """Running maximum along ``dim`` and its positions."""
    def cummin(self, dim: _int) -> ValuesIndices:
        """Running minimum along ``dim`` and its positions."""
    def cumprod(self, dim: _int, *, dtype: DType | None = None) -> Tensor:
        """Running products along ``dim``."""
    def cumprod_(self, dim: _int, *, dtype: DType | None = None) -> Tensor:
        """Running products along ``dim``."""
    def cumsum(self, dim: _int, *, dtype: DType | None = None) -> Tensor:
        """Running sums along ``dim``."""
    def cumsum_(self, dim: _int, *, dtype: DType | None = None) -> Tensor:
        """Running sums along ``dim``."""
    def cumulative_trapezoid(self, x: Tensor | None = None, *, dx: Number | Tensor = ..., dim: _int = -1) -> Tensor:
        """Running integrals along ``dim`` by the trapezoidal rule."""
    def deg2rad(self) -> Tensor:
        """Degrees to radians."""
    def deg2rad_(self) -> Tensor:
        """Degrees to radians."""
    def dense_dim(self) -> _int:
        """The number of dense dimensions: all.

        Example:
            >>> torch.zeros(2, 3).dense_dim()
            2
        """
    def det(self) -> Tensor:
        """:func:`linalg.det`."""
    @property
    def device(self) -> devices.device:
        """The device: the CPU or, without memory, ``meta``."""
    def diag(self, diagonal: _int = 0) -> Tensor:
        """A matrix with a vector on a diagonal, or the diagonal of a matrix."""
    def diag_embed(self, offset: _int = 0, dim1: _int = -2, dim2: _int = -1) -> Tensor:
        """The last dimension spread on a diagonal of two new dimensions."""
    def diagflat(self, offset: _int = 0) -> Tensor:
        """A matrix with the flattened elements on a diagonal."""
    def diagonal(self, offset: _int = 0, dim1: _int = 0, dim2: _int = 1) -> Tensor:
        """A view of the diagonal of the plane of ``dim1`` and ``dim2``, as the last dimension."""
    def diagonal_scatter(self, src: Tensor, offset: _int = 0, dim1: _int = 0, dim2: _int = 1) -> Tensor:
        """A copy of ``input`` with ``src`` on a diagonal."""
    def diff(self, n: _int = 1, dim: _int = -1, prepend: Tensor | None = None, append: Tensor | None = None) -> Tensor:
        """Differences of neighbours along ``dim``, ``n`` times."""
    def digamma(self) -> Tensor:
        """Elementwise digamma; integers and bools become the default float dtype."""
    def digamma_(self) -> Tensor:
        """Elementwise digamma; integers and bools become the default float dtype."""
    def dist(self, other: Tensor, p: _float = 2) -> Tensor:
        """The p-norm of ``input - other``."""
    def div(self, other: Operand, *, rounding_mode: str | None = None) -> Tensor:
        """True division; with ``rounding_mode`` ``"trunc"`` or ``"floor"`` in the promoted dtype."""
    def div_(self, other: Operand, *, rounding_mode: str | None = None) -> Tensor:
        """True division; with ``rounding_mode`` ``"trunc"`` or ``"floor"`` in the promoted dtype."""
    def divide(self, other: Operand, *, rounding_mode: str | None = None) -> Tensor:
        """True division; with ``rounding_mode`` ``"trunc"`` or ``"floor"`` in the promoted dtype."""
    def divide_(self, other: Operand, *, rounding_mode: str | None = None) -> Tensor:
        """True division; with ``rounding_mode`` ``"trunc"`` or ``"floor"`` in the promoted dtype."""
    def dot(self, tensor: Tensor) -> Tensor:
        """Inner product of two vectors of one size."""
    def double(self, memory_format: MemoryFormat = None) -> Tensor:
        """``input`` as float64; itself when it is already."""
    def dsplit(self, *indices_or_sections: Sizes) -> tuple[Tensor, ...]:
        """Pieces along the third dimension, as views."""
    def eq(self, other: Operand) -> Tensor:
        """Elementwise comparison eq, as bools."""
    def eq_(self, other: Operand) -> Tensor:
        """Elementwise comparison eq, as bools."""
    def equal(self, other: Tensor) -> _bool:
        """Whether both have the same shape and elements."""
    def erf(self) -> Tensor:
        """Elementwise erf; integers and bools become the default float dtype."""
    def erf_(self) -> Tensor:
        """Elementwise erf; integers and bools become the default float dtype."""
    def erfc(self) -> Tensor:
        """Elementwise erfc; integers and bools become the default float dtype."""
    def erfc_(self) -> Tensor:
        """Elementwise erfc; integers and bools become the default float dtype."""
    def erfinv(self) -> Tensor:
        """Elementwise erfinv; integers and bools become the default float dtype."""
    def erfinv_(self) -> Tensor:
        """Elementwise erfinv; integers and bools become the default float dtype."""
    def exp(self) -> Tensor:
        """Elementwise exp; integers and bools become the default float dtype."""
    def exp2(self) -> Tensor:
        """Elementwise exp2; integers and bools become the default float dtype."""
    def exp2_(self) -> Tensor:
        """Elementwise exp2; integers and bools become the default float dtype."""
    def exp_(self) -> Tensor:
        """Elementwise exp; integers and bools become the default float dtype."""
    def expand(self, *size: Sizes, implicit: _bool = False) -> Tensor:
        """Repeated along new leading dimensions and dimensions of size 1 (-1 keeps a size), as a view."""
    def expand_as(self, other: Tensor) -> Tensor:
        """:func:`expand` to the shape of ``other``."""
    def expm1(self) -> Tensor:
        """Elementwise expm1; integers and bools become the default float dtype."""
    def expm1_(self) -> Tensor:
        """Elementwise expm1; integers and bools become the default float dtype."""
    def exponential(self, lambd: _float = ..., *, generator: Generator | None = None) -> Tensor: ...
    def exponential_(self, lambd: _float = ..., *, generator: Generator | None = None) -> Tensor: ...
    def fill(self, value: Operand) -> Tensor:
        """A copy with every element ``value``."""
    def fill_(self, value: Operand) -> Tensor:
        """Set every element to ``value``."""
    def fill_diagonal(self, fill_value: Number, wrap: _bool = False) -> Tensor:
        """A copy with ``fill_value`` on the main diagonal."""
    def fill_diagonal_(self, fill_value: Number, wrap: _bool = False) -> Tensor:
        """A copy with ``fill_value`` on the main diagonal."""
    def fix(self) -> Tensor:
        """Rounded towards zero."""
    def fix_(self) -> Tensor:
        """Rounded towards zero."""
    def flatten(self, start_dim: _int = 0, end_dim: _int = -1) -> Tensor:
        """Dimensions ``start_dim`` to ``end_dim`` merged into one."""
    def flip(self, *dims: Sizes) -> Tensor:
        """The order of elements reversed along ``dims``, as a copy."""
    def fliplr(self) -> Tensor:
        """Columns reversed."""
    def flipud(self) -> Tensor:
        """Rows reversed."""
    def float(self, memory_format: MemoryFormat = None) -> Tensor:
        """``input`` as float32; itself when it is already."""
    def float_power(self, exponent: Operand) -> Tensor:
        """:func:`pow` computed in float64."""
    def float_power_(self, exponent: Operand) -> Tensor:
        """:func:`pow` computed in float64."""
    def floor(self) -> Tensor:
        """Rounded down."""
    def floor_(self) -> Tensor:
        """Rounded down."""
    def floor_divide(self, other: Operand) -> Tensor:
        """Division rounded down."""
    def floor_divide_(self, other: Operand) -> Tensor:
        """Division rounded down."""
    def fmax(self, other: Tensor) -> Tensor:
        """The greater of each pair; a number wins over NaN."""
    def fmin(self, other: Tensor) -> Tensor:
        """The smaller of each pair; a number wins over NaN."""
    def fmod(self, other: Operand) -> Tensor:
        """Remainder with the dividend's sign."""
    def fmod_(self, other: Operand) -> Tensor:
        """Remainder with the dividend's sign."""
    def frac(self) -> Tensor:
        """The part after the point, with the sign of ``input``."""
    def frac_(self) -> Tensor:
        """The part after the point, with the sign of ``input``."""
    def frexp(self) -> MantissaExponent:
        """(mantissa in [0.5, 1), exponent) with input = mantissa * 2**exponent."""
    def gammainc(self, other: Tensor) -> Tensor:
        """Lower regularised incomplete gamma function."""
    def gammainc_(self, other: Tensor) -> Tensor:
        """Lower regularised incomplete gamma function."""
    def gammaincc(self, other: Tensor) -> Tensor:
        """Upper regularised incomplete gamma function."""
    def gammaincc_(self, other: Tensor) -> Tensor:
        """Upper regularised incomplete gamma function."""
    def gather(self, dim: _int, index: Tensor, *, sparse_grad: _bool = False) -> Tensor:
        """out[i, j] = input[index[i, j], j] for dim 0, and so on."""
    def gcd(self, other: Tensor) -> Tensor:
        """Greatest common divisor of integers."""
    def gcd_(self, other: Tensor) -> Tensor:
        """Greatest common divisor of integers."""
    def ge(self, other: Operand) -> Tensor:
        """Elementwise comparison ge, as bools."""
    def ge_(self, other: Operand) -> Tensor:
        """Elementwise comparison ge, as bools."""
    def geometric(self, p: _float, *, generator: Generator | None = None) -> Tensor: ...
    def geometric_(self, p: _float, *, generator: Generator | None = None) -> Tensor: ...
    def geqrf(self) -> Reflections:
        """(reflections below the diagonal with R above, their factors tau), in LAPACK's form."""
    def ger(self, vec2: Tensor) -> Tensor:
        """Every product of an element of each vector."""
    def get_device(self) -> _int:
        """Return -1, for the CPU."""
    def greater(self, other: Operand) -> Tensor:
        """Elementwise comparison gt, as bools."""
    def greater_(self, other: Operand) -> Tensor:
        """Elementwise comparison gt, as bools."""
    def greater_equal(self, other: Operand) -> Tensor:
        """Elementwise comparison ge, as bools."""
    def greater_equal_(self, other: Operand) -> Tensor:
        """Elementwise comparison ge, as bools."""
    def gt(self, other: Operand) -> Tensor:
        """Elementwise comparison gt, as bools."""
    def gt_(self, other: Operand) -> Tensor:
        """Elementwise comparison gt, as bools."""
    def half(self, memory_format: MemoryFormat = None) -> Tensor:
        """``input`` as float16; itself when it is already."""
    def has_names(self) -> _bool:
        """Return False: dimensions have no names.

        Example:
            >>> torch.zeros(2).has_names()
            False
        """
    def heaviside(self, values: Tensor) -> Tensor:
        """0 below zero, 1 above, ``values`` at zero."""
    def heaviside_(self, values: Tensor) -> Tensor:
        """0 below zero, 1 above, ``values`` at zero."""
    def histc(self, bins: _int = 100, min: Number = 0, max: Number = 0) -> Tensor:
        """Counts in ``bins`` equal bins of [min, max] (of the data's range when both are equal)."""
    def histogram(self, bins: _int | Tensor, *, range: Sequence[_float] | None = None, weight: Tensor | None = None, density: _bool = False) -> CountsEdges:
        """(counts, edges) of bins, defined by their number and range, or by their edges."""
    def hsplit(self, *indices_or_sections: Sizes) -> tuple[Tensor, ...]:
        """Pieces along columns, as views."""
    def hypot(self, other: Tensor) -> Tensor:
        """``sqrt(input^2 + other^2)`` without overflow."""
    def hypot_(self, other: Tensor) -> Tensor:
        """``sqrt(input^2 + other^2)`` without overflow."""
    def i0(self) -> Tensor:
        """Modified Bessel function of the first kind, order 0."""
    def i0_(self) -> Tensor:
        """Modified Bessel function of the first kind, order 0."""
    def igamma(self, other: Tensor) -> Tensor:
        """Lower regularised incomplete gamma function."""
    def igamma_(self, other: Tensor) -> Tensor:
        """Lower regularised incomplete gamma function."""
    def igammac(self, other: Tensor) -> Tensor:
        """Upper regularised incomplete gamma function."""
    def igammac_(self, other: Tensor) -> Tensor:
        """Upper regularised incomplete gamma function."""
    @property
    def imag(self) -> Tensor:
        """The imaginary part, as a view; RuntimeError for real tensors."""
    @imag.setter
    def imag(self, value: Operand) -> None: ...
    def index_add(self, dim: _int, index: Tensor, source: Tensor, *, alpha: Number = 1) -> Tensor:
        """A copy of ``input`` with alpha * source added at the positions ``index`` of a dimension."""
    def index_add_(self, dim: _int, index: Tensor, source: Tensor, *, alpha: Number = 1) -> Tensor:
        """A copy of ``input`` with alpha * source added at the positions ``index`` of a dimension."""
    def index_copy(self, dim: _int, index: Tensor, source: Tensor) -> Tensor:
        """A copy of ``input`` with ``source`` at the positions ``index`` of a dimension."""
    def index_copy_(self, dim: _int, index: Tensor, source: Tensor) -> Tensor:
        """A copy of ``input`` with ``source`` at the positions ``index`` of a dimension."""
    def index_fill(self, dim: _int, index: Tensor, value: Operand) -> Tensor:
        """A copy of ``input`` with ``value`` at the positions ``index`` of a dimension."""
    def index_fill_(self, dim: _int, index: Tensor, value: Operand) -> Tensor:
        """A copy of ``input`` with ``value`` at the positions ``index`` of a dimension."""
    def index_put(self, indices: Sequence[Tensor | None], values: Tensor, accumulate: _bool = False) -> Tensor:
        """A copy of ``input`` with ``values`` set (or added) at the index tensors."""
    def index_put_(self, indices: Sequence[Tensor | None], values: Tensor, accumulate: _bool = False) -> Tensor:
        """In-place form of :func:`index_put`."""
    def index_reduce(self, dim: _int, index: Tensor, source: Tensor, reduce: str, *, include_self: _bool = True) -> Tensor:
        """Rows of ``source`` combined into ``input`` by prod, mean, amax or amin."""
    def index_reduce_(self, dim: _int, index: Tensor, source: Tensor, reduce: str, *, include_self: _bool = True) -> Tensor:
        """Rows of ``source`` combined into ``input`` by prod, mean, amax or amin."""
    def index_select(self, dim: _int, index: Tensor) -> Tensor:
        """The positions ``index`` (1-d) of a dimension."""
    def indices(self) -> Any:
        """Supported for sparse coordinate tensors only; RuntimeError for others.

        Example:
            >>> x = torch.sparse_coo_tensor([[0, 1, 0], [1, 0, 1]], [1.0, 2.0, 3.0], (2, 2))
            >>> x.coalesce().indices()
            tensor([[0, 1],
                    [1, 0]])
        """
    def inner(self, other: Tensor) -> Tensor:
        """Sum of products over the last dimension of both."""
    def int(self, memory_format: MemoryFormat = None) -> Tensor:
        """``input`` as int32; itself when it is already."""
    def inverse(self) -> Tensor:
        """:func:`linalg.inv`."""
    def is_coalesced(self) -> Any:
        """Supported for sparse coordinate tensors only; RuntimeError for others.

        Example:
            >>> x = torch.sparse_coo_tensor([[0, 1, 0], [1, 0, 1]], [1.0, 2.0, 3.0], (2, 2))
            >>> x.is_coalesced()
            False
        """
    def is_complex(self) -> _bool:
        """Whether the dtype is complex."""
    def is_conj(self) -> _bool:
        """Return False: conjugation is never lazy."""
    @property
    def is_cpu(self) -> _bool:
        """Whether the tensor is in the CPU's memory."""
    @property
    def is_cuda(self) -> _bool:
        """False: tensors are dense and on the CPU."""
    def is_floating_point(self) -> _bool:
        """Whether the dtype is floating."""
    @property
    def is_ipu(self) -> _bool:
        """Return False: tensors are dense and on the CPU."""
    @property
    def is_meta(self) -> _bool:
        """Whether this is a tensor without elements."""
    @property
    def is_mkldnn(self) -> _bool:
        """False: tensors are dense and on the CPU."""
    @property
    def is_mps(self) -> _bool:
        """False: tensors are dense and on the CPU."""
    @property
    def is_mtia(self) -> _bool:
        """Return False: tensors are dense and on the CPU."""
    def is_neg(self) -> _bool:
        """Return False: negation is never lazy."""
    @property
    def is_nested(self) -> _bool:
        """False: tensors are dense and on the CPU."""
    def is_nonzero(self) -> _bool:
        """The truth of a one-element tensor."""
    def is_pinned(self, device: Device = None) -> _bool: ...
    @property
    def is_quantized(self) -> _bool:
        """False: tensors are dense and on the CPU."""
    def is_same_size(self, other: Tensor) -> _bool:
        """Whether both have one shape."""
    def is_set_to(self, tensor: Tensor) -> _bool:
        """Whether both are the same view of the same memory."""
    def is_shared(self) -> _bool:
        """Whether other processes can refer to the memory: after ``share_memory_``."""
    def is_signed(self) -> _bool:
        """Whether the dtype has negative numbers."""
    @property
    def is_sparse(self) -> _bool:
        """False: tensors are dense and on the CPU."""
    @property
    def is_sparse_csr(self) -> _bool:
        """Return False: tensors are dense and on the CPU."""
    @property
    def is_vulkan(self) -> _bool:
        """Return False: tensors are dense and on the CPU."""
    @property
    def is_xla(self) -> _bool:
        """Return False: tensors are dense and on the CPU."""
    @property
    def is_xpu(self) -> _bool:
        """Return False: tensors are dense and on the CPU."""
    def isclose(self, other: Tensor, rtol: _float = ..., atol: _float = ..., equal_nan: _bool = False) -> Tensor:
        """|input - other| <= atol + rtol * |other|, infinities equal to themselves."""
    def isfinite(self) -> Tensor:
        """Whether each is neither infinite nor NaN."""
    def isinf(self) -> Tensor:
        """Whether each element is infinite."""
    def isnan(self) -> Tensor:
        """Whether each element is NaN."""
    def isneginf(self) -> Tensor:
        """Whether each element is negative infinity."""
    def isposinf(self) -> Tensor:
        """Whether each element is positive infinity."""
    def isreal(self) -> Tensor:
        """Whether the imaginary part is 0."""
    def istft(self, n_fft: _int, hop_length: _int | None = None, win_length: _int | None = None, window: Tensor | None = None, center: _bool = True, normalized: _bool = False, onesided: _bool | None = None, length: _int | None = None, return_complex: _bool = False) -> Tensor:
        """The signal whose :func:`stft` is ``input``, by least squares (Griffin and Lim 1984)."""
    def kron(self, other: Tensor) -> Tensor:
        """Kronecker product."""
    def kthvalue(self, k: _int, dim: _int = -1, keepdim: _bool = False) -> ValuesIndices:
        """The ``k``-th smallest element (counted from 1) along ``dim`` and its position."""
    @property
    def layout(self) -> devices.layout:
        """Return strided: tensors are dense."""
    def lcm(self, other: Tensor) -> Tensor:
        """Least common multiple of integers."""
    def lcm_(self, other: Tensor) -> Tensor:
        """Least common multiple of integers."""
    def ldexp(self, other: Tensor) -> Tensor:
        """input * 2**other; floating numbers with integer exponents keep their dtype and are scaled exactly.

        Such an exponent may exceed the range of ``exp2``, so it is split in three. The first step of a very negative one is
        -969: a number that becomes subnormal there vanishes in the next step. The result is therefore rounded once.
        """
    def ldexp_(self, other: Tensor) -> Tensor:
        """input * 2**other; floating numbers with integer exponents keep their dtype and are scaled exactly.

        Such an exponent may exceed the range of ``exp2``, so it is split in three. The first step of a very negative one is
        -969: a number that becomes subnormal there vanishes in the next step. The result is therefore rounded once.
        """
    def le(self, other: Operand) -> Tensor:
        """Elementwise comparison le, as bools."""
    def le_(self, other: Operand) -> Tensor:
        """Elementwise comparison le, as bools."""
    def lerp(self, end: Tensor, weight: Tensor | Number) -> Tensor:
        """``input + weight * (end - input)``, accurate at both ends."""
    def lerp_(self, end: Tensor, weight: Tensor | Number) -> Tensor:
        """``input + weight * (end - input)``, accurate at both ends."""
    def less(self, other: Operand) -> Tensor:
        """Elementwise comparison lt, as bools."""
    def less_(self, other: Operand) -> Tensor:
        """Elementwise comparison lt, as bools."""
    def less_equal(self, other: Operand) -> Tensor:
        """Elementwise comparison le, as bools."""
    def less_equal_(self, other: Operand) -> Tensor:
        """Elementwise comparison le, as bools."""
    def lgamma(self) -> Tensor:
        """Elementwise lgamma; integers and bools become the default float dtype."""
    def lgamma_(self) -> Tensor:
        """Elementwise lgamma; integers and bools become the default float dtype."""
    def log(self) -> Tensor:
        """Elementwise log; integers and bools become the default float dtype."""
    def log10(self) -> Tensor:
        """Elementwise log10; integers and bools become the default float dtype."""
    def log10_(self) -> Tensor:
        """Elementwise log10; integers and bools become the default float dtype."""
    def log1p(self) -> Tensor:
        """Elementwise log1p; integers and bools become the default float dtype."""
    def log1p_(self) -> Tensor:
        """Elementwise log1p; integers and bools become the default float dtype."""
    def log2(self) -> Tensor:
        """Elementwise log2; integers and bools become the default float dtype."""
    def log2_(self) -> Tensor:
        """Elementwise log2; integers and bools become the default float dtype."""
    def log_(self) -> Tensor:
        """Elementwise log; integers and bools become the default float dtype."""
    def log_normal(self, mean: _float = ..., std: _float = ..., *, generator: Generator | None = None) -> Tensor: ...
    def log_normal_(self, mean: _float = ..., std: _float = ..., *, generator: Generator | None = None) -> Tensor: ...
    def log_softmax(self, dim: _int, dtype: DType | None = None) -> Tensor:
        """log(softmax(x)) along ``dim``, computed without the quotient."""
    def logaddexp(self, other: Tensor) -> Tensor:
        """log(exp(input) + exp(other)) without overflow."""
    def logaddexp2(self, other: Tensor) -> Tensor:
        """log2(2**input + 2**other) without overflow."""
    def logcumsumexp(self, dim: _int) -> Tensor:
        """log of the running sum of exp(x): computed relative to the running maximum, and rescaled where it grows."""
    def logdet(self) -> Tensor:
        """log of determinants; NaN for negative ones of real matrices."""
    def logical_and(self, other: Tensor) -> Tensor:
        """Whether both are nonzero."""
    def logical_and_(self, other: Tensor) -> Tensor:
        """Whether both are nonzero."""
    def logical_not(self) -> Tensor:
        """Whether each element is zero."""
    def logical_not_(self) -> Tensor:
        """Whether each element is zero."""
    def logical_or(self, other: Tensor) -> Tensor:
        """Whether either is nonzero."""
    def logical_or_(self, other: Tensor) -> Tensor:
        """Whether either is nonzero."""
    def logical_xor(self, other: Tensor) -> Tensor:
        """Whether exactly one is nonzero."""
    def logical_xor_(self, other: Tensor) -> Tensor:
        """Whether exactly one is nonzero."""
    def logit(self, eps: _float | None = None) -> Tensor:
        """log(x / (1 - x)), with x first clamped to [eps, 1 - eps]."""
    def logit_(self, eps: _float | None = None) -> Tensor:
        """log(x / (1 - x)), with x first clamped to [eps, 1 - eps]."""
    def logsumexp(self, dim: Dim, keepdim: _bool = False) -> Tensor:
        """log(sum(exp(input))) over ``dim``, shifted by the maximum so that it does not overflow."""
    def long(self, memory_format: MemoryFormat = None) -> Tensor:
        """``input`` as int64; itself when it is already."""
    def lt(self, other: Operand) -> Tensor:
        """Elementwise comparison lt, as bools."""
    def lt_(self, other: Operand) -> Tensor:
        """Elementwise comparison lt, as bools."""
    def lu(self, pivot: _bool = True, get_infos: _bool = False) -> tuple[Tensor, ...]:
        """(LU, pivots) and, on request, infos."""
    def lu_solve(self, LU_data: Tensor, LU_pivots: Tensor) -> Tensor:
        """:func:`linalg.lu_solve` with the right-hand side first."""
    def lu_unpack(self, LU_pivots: Tensor, unpack_data: _bool = True, unpack_pivots: _bool = True) -> PLU:
        """(P, L, U) of :func:`linalg.lu_factor`'s results."""
    @property
    def mH(self) -> Tensor:
        """The last two dimensions swapped, conjugate if complex."""
    @property
    def mT(self) -> Tensor:
        """The last two dimensions swapped."""
    def map_(self, other: Tensor, callable: Callable[[Number, Number], Number]) -> Tensor:
        """Every element replaced by ``callable`` of it and that of ``other``."""
    def masked_fill(self, mask: Tensor, value: Operand) -> Tensor:
        """``value`` where ``mask`` (broadcast) is true."""
    def masked_fill_(self, mask: Tensor, value: Operand) -> Tensor:
        """``value`` where ``mask`` (broadcast) is true."""
    def masked_scatter(self, mask: Tensor, source: Tensor) -> Tensor:
        """Elements of ``source``, in order, where ``mask`` (broadcast) is true."""
    def masked_scatter_(self, mask: Tensor, source: Tensor) -> Tensor:
        """Elements of ``source``, in order, where ``mask`` (broadcast) is true."""
    def masked_select(self, mask: Tensor) -> Tensor:
        """The elements where ``mask`` (broadcast) is true, in one dimension."""
    def matmul(self, other: Tensor) -> Tensor:
        """Matrix product: vectors, matrices, and batches of matrices with broadcast batch dimensions."""
    def matrix_exp(self) -> Tensor:
        """Exponential of square matrices: a Taylor polynomial of a scaled matrix, squared back."""
    def matrix_power(self, n: _int) -> Tensor:
        """``input`` multiplied ``n`` times with itself (n >= 0), by squaring."""
    @overload
    def max(self) -> Tensor:
        """The largest element; with ``dim``, (values, indices) along it; with a tensor, :func:`maximum`."""
    @overload
    def max(self, dim: _int, keepdim: _bool = False) -> ValuesIndices: ...
    @overload
    def max(self, other: Tensor) -> Tensor: ...
    def maximum(self, other: Tensor) -> Tensor:
        """The greater of each pair; NaN wins."""
    def mean(self, dim: Dim = None, keepdim: _bool = False, *, dtype: DType | None = None) -> Tensor:
        """Mean over ``dim``; RuntimeError for integers without a floating ``dtype``."""
    @overload
    def median(self) -> Tensor:
        """The lower median; with ``dim``, (values, indices). NaN if there is any."""
    @overload
    def median(self, dim: _int, keepdim: _bool = False) -> ValuesIndices: ...
    @overload
    def min(self) -> Tensor:
        """The smallest element; with ``dim``, (values, indices) along it; with a tensor, :func:`minimum`."""
    @overload
    def min(self, dim: _int, keepdim: _bool = False) -> ValuesIndices: ...
    @overload
    def min(self, other: Tensor) -> Tensor: ...
    def minimum(self, other: Tensor) -> Tensor:
        """The smaller of each pair; NaN wins."""
    def mm(self, mat2: Tensor) -> Tensor:
        """Product of two matrices, without broadcasting."""
    def mode(self, dim: _int = -1, keepdim: _bool = False) -> ValuesIndices:
        """The most frequent value along ``dim`` (the smallest of several) and the position of its last occurrence."""
    def moveaxis(self, source: _int | Sequence[_int], destination: _int | Sequence[_int]) -> Tensor:
        """Dimensions ``source`` moved to positions ``destination``, the others in order."""
    def movedim(self, source: _int | Sequence[_int], destination: _int | Sequence[_int]) -> Tensor:
        """Dimensions ``source`` moved to positions ``destination``, the others in order."""
    def msort(self) -> Tensor:
        """Sorted along the first dimension."""
    def mul(self, other: Operand) -> Tensor:
        """``input * other``, broadcast."""
    def mul_(self, other: Operand) -> Tensor:
        """``input * other``, broadcast."""
    def multigammaln(self, p: _int) -> Tensor:
        """log of the multivariate gamma function of dimension ``p``."""
    def multigammaln_(self, p: _int) -> Tensor:
        """log of the multivariate gamma function of dimension ``p``."""
    def multinomial(self, num_samples: _int, replacement: _bool = False, *, generator: Generator | None = None) -> Tensor:
        """Indices drawn with the weights of each row, with or without replacement."""
    def multiply(self, other: Operand) -> Tensor:
        """``input * other``, broadcast."""
    def multiply_(self, other: Operand) -> Tensor:
        """``input * other``, broadcast."""
    def mv(self, vec: Tensor) -> Tensor:
        """Product of a matrix and a vector."""
    def mvlgamma(self, p: _int) -> Tensor:
        """log of the multivariate gamma function of dimension ``p``."""
    def mvlgamma_(self, p: _int) -> Tensor:
        """log of the multivariate gamma function of dimension ``p``."""
    @property
    def names(self) -> tuple[None, ...]:
        """Return None for every dimension: dimensions have no names."""
    def nan_to_num(self, nan: _float | None = None, posinf: _float | None = None, neginf: _float | None = None) -> Tensor:
        """NaN and infinities replaced (by 0 and the extreme finite numbers unless given)."""
    def nan_to_num_(self, nan: _float | None = None, posinf: _float | None = None, neginf: _float | None = None) -> Tensor:
        """NaN and infinities replaced (by 0 and the extreme finite numbers unless given)."""
    def nanmean(self, dim: Dim = None, keepdim: _bool = False, *, dtype: DType | None = None) -> Tensor:
        """:func:`mean` over elements that are not NaN."""
    @overload
    def nanmedian(self) -> Tensor:
        """The lower median of elements that are not NaN; with ``dim``, (values, indices)."""
    @overload
    def nanmedian(self, dim: _int, keepdim: _bool = False) -> ValuesIndices: ...
    def nanquantile(self, q: _float | Tensor, dim: _int | None = None, keepdim: _bool = False, *, interpolation: str = 'linear') -> Tensor:
        """:func:`quantile` of elements that are not NaN."""
    def nansum(self, dim: Dim = None, keepdim: _bool = False, *, dtype: DType | None = None) -> Tensor:
        """:func:`sum` with NaN as zero."""
    def narrow(self, dim: _int, start: _int | Tensor, length: _int) -> Tensor:
        """``length`` positions of ``dim`` from ``start`` on, as a view."""
    def narrow_copy(self, dim: _int, start: _int | Tensor, length: _int) -> Tensor:
        """``length`` positions of ``dim`` from ``start`` on, as a view."""
    def ne(self, other: Operand) -> Tensor:
        """Elementwise comparison ne, as bools."""
    def ne_(self, other: Operand) -> Tensor:
        """Elementwise comparison ne, as bools."""
    def neg(self) -> Tensor:
        """Return -input; RuntimeError on bools."""
    def neg_(self) -> Tensor:
        """Return -input; RuntimeError on bools."""
    def negative(self) -> Tensor:
        """Return -input; RuntimeError on bools."""
    def negative_(self) -> Tensor:
        """Return -input; RuntimeError on bools."""
    def new(self, *args: Any) -> Tensor:
        """A tensor of ``input``'s dtype: of a shape (integers or a ``torch.Size``), or of data."""
    def new_empty(self, *size: Sizes, dtype: DType | None = None, layout: Layout = None, device: Device = None, requires_grad: _bool = False, pin_memory: _bool = False) -> Tensor:
        """A tensor of empty."""
    def new_empty_strided(self, size: Sequence[_int], stride: Sequence[_int], *, dtype: DType | None = None, layout: Layout = None, device: Device = None, requires_grad: _bool = False, pin_memory: _bool = False) -> Tensor:
        """:func:`empty_strided` with ``input``'s dtype."""
    def new_full(self, size: Sequence[_int], fill_value: Number, *, dtype: DType | None = None, layout: Layout = None, device: Device = None, requires_grad: _bool = False, pin_memory: _bool = False) -> Tensor:
        """A tensor of ``fill_value`` with ``input``'s dtype."""
    def new_ones(self, *size: Sizes, dtype: DType | None = None, layout: Layout = None, device: Device = None, requires_grad: _bool = False, pin_memory: _bool = False) -> Tensor:
        """A tensor of ones."""
    def new_tensor(self, data: object, *, dtype: DType | None = None, device: Device = None, requires_grad: _bool = False) -> Tensor:
        """``tensor(data)`` with ``input``'s dtype."""
    def new_zeros(self, *size: Sizes, dtype: DType | None = None, layout: Layout = None, device: Device = None, requires_grad: _bool = False, pin_memory: _bool = False) -> Tensor:
        """A tensor of zeros."""
    def nextafter(self, other: Tensor) -> Tensor:
        """The next representable float after ``input`` towards ``other``."""
    def nextafter_(self, other: Tensor) -> Tensor:
        """The next representable float after ``input`` towards ``other``."""
    @overload
    def nonzero(self, *, as_tuple: Literal[False] = False) -> Tensor:
        """Positions of the nonzero elements: rows of a matrix, or one tensor per dimension."""
    @overload
    def nonzero(self, *, as_tuple: Literal[True]) -> tuple[Tensor, ...]: ...
    def nonzero_static(self, *, size: _int, fill_value: _int = -1) -> Tensor:
        """:func:`nonzero` with exactly ``size`` rows: truncated, or padded."""
    def norm(self, p: _int | _float | str | None = 'fro', dim: Dim = None, keepdim: _bool = False, dtype: DType | None = None) -> Tensor:
        """The p-norm over ``dim``; "fro" is the 2-norm and "nuc" the sum of singular values."""
    def normal_(self, mean: _float = ..., std: _float = ..., *, generator: Generator | None = None) -> Tensor: ...
    def not_equal(self, other: Operand) -> Tensor:
        """Elementwise comparison ne, as bools."""
    def not_equal_(self, other: Operand) -> Tensor:
        """Elementwise comparison ne, as bools."""
    def orgqr(self, tau: Tensor) -> Tensor:
        """The first columns of the product of reflections I - tau v v* given below the diagonal of ``A``."""
    def ormqr(self, tau: Tensor, other: Tensor, left: _bool = True, transpose: _bool = False) -> Tensor:
        """Q other, Q* other, other Q or other Q* for the reflections of :func:`geqrf`; Q* is transposed and conjugated."""
    def outer(self, vec2: Tensor) -> Tensor:
        """Every product of an element of each vector."""
    def permute(self, *dims: Sizes) -> Tensor:
        """Dimensions in the given order, as a view."""
    def pin_memory(self) -> Tensor:
        """``input`` itself: host memory needs no pinning."""
    def pinverse(self, rcond: _float = ...) -> Tensor:
        """:func:`linalg.pinv`."""
    def poisson(self, generator: Generator | None = None) -> Tensor:
        """Poisson numbers with the rates ``input``; drawn by numpy from a key of the generator."""
    def polygamma(self, other: _int | Tensor) -> Tensor:
        """The n-th derivative of digamma: ``polygamma(n, x)`` or ``x.polygamma(n)``."""
    def polygamma_(self, other: _int | Tensor) -> Tensor:
        """The n-th derivative of digamma: ``polygamma(n, x)`` or ``x.polygamma(n)``."""
    def positive(self) -> Tensor:
        """Return ``input``; RuntimeError on bools."""
    def pow(self, exponent: Operand) -> Tensor:
        """``input ** exponent``; RuntimeError for an integer to a negative Python power."""
    def pow_(self, exponent: Operand) -> Tensor:
        """``input ** exponent``; RuntimeError for an integer to a negative Python power."""
    def prod(self, dim: _int | None = None, keepdim: _bool = False, *, dtype: DType | None = None) -> Tensor:
        """Product over ``dim`` (all dimensions by default); integers and bools multiply in int64."""
    def put(self, index: Tensor, source: Tensor, accumulate: _bool = False) -> Tensor:
        """A copy of ``input`` with ``source`` set (or added) by position in the flattened order."""
    def put_(self, index: Tensor, source: Tensor, accumulate: _bool = False) -> Tensor:
        """A copy of ``input`` with ``source`` set (or added) by position in the flattened order."""
    def qr(self, some: _bool = True) -> QR:
        """Orthogonal (unitary) and upper triangular factors, reduced if ``some``."""
    def quantile(self, q: _float | Tensor, dim: _int | None = None, keepdim: _bool = False, *, interpolation: str = 'linear') -> Tensor:
        """Quantiles at levels ``q`` along ``dim``; NaN if there is any."""
    def rad2deg(self) -> Tensor:
        """Radians to degrees."""
    def rad2deg_(self) -> Tensor:
        """Radians to degrees."""
    def random_(self, from_: _int | None = None, to: _int | None = None, *, generator: Generator | None = None, **named: _int) -> Tensor: ...
    def ravel(self) -> Tensor:
        """All elements in one dimension, dense: a view of ``input`` when it is."""
    @property
    def real(self) -> Tensor:
        """The real part, as a view; real tensors are returned unchanged."""
    @real.setter
    def real(self, value: Operand) -> None: ...
    def reciprocal(self) -> Tensor:
        """1 / x."""
    def reciprocal_(self) -> Tensor:
        """1 / x."""
    def relu(self) -> Tensor:
        """max(0, input); the gradient at 0 is 0."""
    def relu_(self) -> Tensor:
        """max(0, input); the gradient at 0 is 0."""
    def remainder(self, other: Operand) -> Tensor:
        """Remainder with the divisor's sign."""
    def remainder_(self, other: Operand) -> Tensor:
        """Remainder with the divisor's sign."""
    def renorm(self, p: _float, dim: _int, maxnorm: _float) -> Tensor:
        """Slices along ``dim`` scaled down where their p-norm exceeds ``maxnorm``."""
    def renorm_(self, p: _float, dim: _int, maxnorm: _float) -> Tensor:
        """Slices along ``dim`` scaled down where their p-norm exceeds ``maxnorm``."""
    def repeat(self, *repeats: Sizes) -> Tensor:
        """Copies along every dimension."""
    def repeat_interleave(self, repeats: _int | Tensor | None = None, dim: _int | None = None, *, output_size: _int | None = None) -> Tensor:
        """Every position of a dimension repeated ``repeats`` times (a number, or one per position)."""
    def reshape(self, *shape: Sizes) -> Tensor:
        """The same elements under another shape (one -1 is inferred); a view when strides allow, else a copy."""
    def reshape_as(self, other: Tensor) -> Tensor:
        """:func:`reshape` with the shape of ``other``."""
    def resize_(self, *sizes: Sizes, memory_format: MemoryFormat = None) -> Tensor:
        """Resize over the same memory in row-major order, or in ``memory_format``.

        If the memory is too small, the tensor gets new memory, and new elements are zero. Earlier views keep the old
        memory; in PyTorch they would share the new one.
        """
    def resize_as_(self, other: Tensor, memory_format: MemoryFormat = None) -> Tensor:
        """:func:`resize_` to the size of ``other``."""
    def resolve_conj(self) -> Tensor:
        """``input`` itself: neither conjugation nor negation is lazy."""
    def resolve_neg(self) -> Tensor:
        """``input`` itself: neither conjugation nor negation is lazy."""
    def roll(self, shifts: Sizes, dims: Dim = None) -> Tensor:
        """Elements moved around by ``shifts`` along ``dims``; without dims, in the flattened order."""
    def rot90(self, k: _int = 1, dims: Sequence[_int] = ...) -> Tensor:
        """Rotated by 90 degrees ``k`` times in the plane of ``dims``, from the first towards the second."""
    def round(self, *, decimals: _int = 0) -> Tensor:
        """Rounded half to even, at ``decimals`` digits after the point."""
    def round_(self, *, decimals: _int = 0) -> Tensor:
        """Rounded half to even, at ``decimals`` digits after the point."""
    def row_indices(self) -> Any:
        """Supported for sparse compressed tensors only; RuntimeError for others.

        Example:
            >>> x = torch.tensor([[0.0, 1.0], [2.0, 0.0]])
            >>> x.to_sparse_csc().row_indices()
            tensor([1, 0])
        """
    def rsqrt(self) -> Tensor:
        """Elementwise rsqrt; integers and bools become the default float dtype."""
    def rsqrt_(self) -> Tensor:
        """Elementwise rsqrt; integers and bools become the default float dtype."""
    def rsub(self, other: Operand, *, alpha: Number = 1) -> Tensor:
        """``other - alpha * input``."""
    def scatter(self, dim: _int, index: Tensor, src: Tensor | Number | None = None, *, value: Number | None = None, reduce: str | None = None) -> Tensor:
        """A copy of ``input`` with out[index[i, j], j] = src[i, j] for dim 0 (``reduce``: add or multiply)."""
    def scatter_(self, dim: _int, index: Tensor, src: Tensor | Number | None = None, *, value: Number | None = None, reduce: str | None = None) -> Tensor:
        """A copy of ``input`` with out[index[i, j], j] = src[i, j] for dim 0 (``reduce``: add or multiply)."""
    def scatter_add(self, dim: _int, index: Tensor, src: Tensor) -> Tensor:
        """A copy of ``input`` with out[index[i, j], j] += src[i, j] for dim 0."""
    def scatter_add_(self, dim: _int, index: Tensor, src: Tensor) -> Tensor:
        """A copy of ``input`` with out[index[i, j], j] += src[i, j] for dim 0."""
    def scatter_reduce(self, dim: _int, index: Tensor, src: Tensor, reduce: str, *, include_self: _bool = True) -> Tensor:
        """Scatter combined by sum, prod, mean, amax or amin; ``include_self``: with the elements of ``input``."""
    def scatter_reduce_(self, dim: _int, index: Tensor, src: Tensor, reduce: str, *, include_self: _bool = True) -> Tensor:
        """Scatter combined by sum, prod, mean, amax or amin; ``include_self``: with the elements of ``input``."""
    def segment_reduce(self, reduce: str, *, lengths: Tensor | None = None, indices: Tensor | None = None, offsets: Tensor | None = None, axis: _int = 0, unsafe: _bool = False, initial: Number | None = None) -> Tensor:
        """Reduce each segment of ``axis`` to one element: "sum", "mean", "max", "min" or "prod".

        Segments are consecutive: ``lengths`` (..., S) has their lengths, or ``offsets`` (..., S + 1) their starts and the
        end of the last one. The leading dimensions are those of ``data`` before ``axis``. ``initial`` takes part in every
        segment, and is the result of empty ones. RuntimeError when they do not fit; ``unsafe`` skips the check of values.
        """
    def select(self, dim: _int, index: _int) -> Tensor:
        """The slice at ``index`` of ``dim``, without the dimension, as a view."""
    def select_scatter(self, src: Tensor, dim: _int, index: _int) -> Tensor:
        """A copy of ``input`` with ``src`` at ``index`` of ``dim``."""
    def set_(self, source: Tensor | TypedStorage | UntypedStorage | None = None, storage_offset: _int = 0, size: Sequence[_int] | None = None, stride: Sequence[_int] | None = None) -> Tensor:
        """Make this tensor view the memory of ``source``: all of it, or a strided part; without ``source`` an empty one.

        RuntimeError for another dtype, and for positions outside the memory.
        """
    def sgn(self) -> Tensor:
        """:func:`sign`; of complex numbers the number of size 1 in their direction, 0 for 0."""
    def sgn_(self) -> Tensor:
        """:func:`sign`; of complex numbers the number of size 1 in their direction, 0 for 0."""
    def share_memory_(self) -> Tensor:
        """Move the memory of ``input`` and its views to where other processes can read and write it.

        Forked processes, and tensors sent through ``multiprocessing``, then refer to the same elements. Arrays of
        ``numpy()`` keep the former memory.
        """
    def short(self, memory_format: MemoryFormat = None) -> Tensor:
        """``input`` as int16; itself when it is already."""
    def sigmoid(self) -> Tensor:
        """Elementwise sigmoid; integers and bools become the default float dtype."""
    def sigmoid_(self) -> Tensor:
        """Elementwise sigmoid; integers and bools become the default float dtype."""
    def sign(self) -> Tensor:
        """Return -1, 0 or 1 with the sign of ``input``."""
    def sign_(self) -> Tensor:
        """Return -1, 0 or 1 with the sign of ``input``."""
    def signbit(self) -> Tensor:
        """Whether the sign bit is set (also of -0.0)."""
    def sin(self) -> Tensor:
        """Elementwise sin; integers and bools become the default float dtype."""
    def sin_(self) -> Tensor:
        """Elementwise sin; integers and bools become the default float dtype."""
    def sinc(self) -> Tensor:
        """sin(pi x) / (pi x), 1 at 0."""
    def sinc_(self) -> Tensor:
        """sin(pi x) / (pi x), 1 at 0."""
    def sinh(self) -> Tensor:
        """Elementwise sinh; integers and bools become the default float dtype."""
    def sinh_(self) -> Tensor:
        """Elementwise sinh; integers and bools become the default float dtype."""
    def slice(self, dim: _int = 0, start: _int | None = None, end: _int | None = None, step: _int = 1) -> Tensor:
        """``input[start:end:step]`` along ``dim``, as a view."""
    def slice_scatter(self, src: Tensor, dim: _int = 0, start: _int | None = None, end: _int | None = None, step: _int = 1) -> Tensor:
        """A copy of ``input`` with ``src`` in the slice start:end:step of ``dim``."""
    def slogdet(self) -> SignLogabsdet:
        """:func:`linalg.slogdet`."""
    def softmax(self, dim: _int, dtype: DType | None = None) -> Tensor:
        """exp(x) / sum(exp(x)) along ``dim``."""
    @overload
    def sort(self, dim: _int = -1, descending: _bool = False, stable: _bool | None = None) -> ValuesIndices:
        """``sort(dim=-1, descending=False, stable=False)``: (values, indices), equal elements in their old order."""
    @overload
    def sort(self, stable: _bool | None = None, dim: _int = -1, descending: _bool = False) -> ValuesIndices: ...
    def sparse_dim(self) -> _int:
        """The number of sparse dimensions: none.

        Example:
            >>> x = torch.sparse_coo_tensor([[0, 1, 0], [1, 0, 1]], [1.0, 2.0, 3.0], (2, 2))
            >>> x.sparse_dim()
            2
        """
    def sparse_mask(self, *args: Any, **kwargs: Any) -> Any:
        """The elements at the indices of ``mask``, a sparse tensor.

        Args:
            args (Any): the operands, one by one.
            kwargs (Any): kwargs.

        Example:
            >>> x = torch.tensor([[0.0, 1.0], [2.0, 0.0]])
            >>> x.sparse_mask(x.to_sparse()).to_dense()
            tensor([[0., 1.],
                    [2., 0.]])
        """
    def split(self, split_size: Sizes, dim: _int = 0) -> tuple[Tensor, ...]:
        """:func:`split`, as a method, with another name of the second parameter.

        Args:
            split_size (Sizes): the size of the pieces, or one for each.
            dim (int, optional): the dimension, or several; negative ones count from the last.

        Example:
            >>> torch.arange(5).split([1, 4])
            (tensor([0]), tensor([1, 2, 3, 4]))
        """
    def split_with_sizes(self, split_sizes: Sequence[_int], dim: _int = 0) -> tuple[Tensor, ...]:
        """Pieces of the listed sizes, which must add up to the extent, as views."""
    def sqrt(self) -> Tensor:
        """Elementwise sqrt; integers and bools become the default float dtype."""
    def sqrt_(self) -> Tensor:
        """Elementwise sqrt; integers and bools become the default float dtype."""
    def square(self) -> Tensor:
        """input * input."""
    def square_(self) -> Tensor:
        """input * input."""
    def squeeze(self, dim: _int | Sequence[_int] | None = None) -> Tensor:
        """Dimensions of size 1 removed: all, or those named."""
    def squeeze_(self, dim: _int | Sequence[_int] | None = None) -> Tensor:
        """Dimensions of size 1 removed: all, or those named."""
    def std(self, dim: Dim | _bool = None, unbiased: _bool | None = None, keepdim: _bool = False, *, correction: Number | None = None) -> Tensor:
        """Standard deviation over ``dim``."""
    def std_mean(self, dim: Dim | _bool = None, unbiased: _bool | None = None, keepdim: _bool = False, *, correction: Number | None = None) -> tuple[Tensor, Tensor]:
        """Standard deviation and mean over ``dim``."""
    def stft(self, n_fft: _int, hop_length: _int | None = None, win_length: _int | None = None, window: Tensor | None = None, center: _bool = True, pad_mode: str = 'reflect', normalized: _bool = False, onesided: _bool | None = None, return_complex: _bool | None = None, align_to_window: _bool | None = None) -> Tensor:
        """Transforms of windows of a signal (B?, T), ``hop_length`` apart: (B?, frequencies, windows)."""
    def storage(self) -> TypedStorage:
        """The memory of ``self`` and its views, element by element.

        Example:
            >>> x = torch.tensor([1.0, 2.0, 3.0])
            >>> len(x.storage())
            3
        """
    def sub(self, other: Operand, *, alpha: Number = 1) -> Tensor:
        """``input - alpha * other``, broadcast; RuntimeError for bools."""
    def sub_(self, other: Operand, *, alpha: Number = 1) -> Tensor:
        """``input - alpha * other``, broadcast; RuntimeError for bools."""
    def subtract(self, other: Operand, *, alpha: Number = 1) -> Tensor:
        """``input - alpha * other``, broadcast; RuntimeError for bools."""
    def subtract_(self, other: Operand, *, alpha: Number = 1) -> Tensor:
        """``input - alpha * other``, broadcast; RuntimeError for bools."""
    def sum(self, dim: Dim = None, keepdim: _bool = False, *, dtype: DType | None = None) -> Tensor:
        """Sum over ``dim`` (all dimensions by default); integers and bools add up in int64."""
    def sum_to_size(self, *size: Sizes) -> Tensor:
        """Summed so that it has ``size``, which must broadcast to the present shape."""
    def svd(self, some: _bool = True, compute_uv: _bool = True) -> OldSVD:
        """(U, singular values, V), reduced if ``some``; U and V are zero unless ``compute_uv``."""
    def swapaxes(self, dim0: _int, dim1: _int) -> Tensor:
        """Two dimensions swapped, as a view."""
    def swapaxes_(self, dim0: _int, dim1: _int) -> Tensor:
        """Two dimensions swapped, as a view."""
    def swapdims(self, dim0: _int, dim1: _int) -> Tensor:
        """Two dimensions swapped, as a view."""
    def swapdims_(self, dim0: _int, dim1: _int) -> Tensor:
        """Two dimensions swapped, as a view."""
    def t(self) -> Tensor:
        """The transpose of a tensor of at most two dimensions."""
    def t_(self) -> Tensor:
        """The transpose of a tensor of at most two dimensions."""
    def take(self, index: Tensor) -> Tensor:
        """Elements by position in the flattened order, in the shape of ``index``."""
    def take_along_dim(self, indices: Tensor, dim: _int | None = None) -> Tensor:
        """:func:`gather` with broadcasting; in the flattened order without ``dim``."""
    def tan(self) -> Tensor:
        """Elementwise tan; integers and bools become the default float dtype."""
    def tan_(self) -> Tensor:
        """Elementwise tan; integers and bools become the default float dtype."""
    def tanh(self) -> Tensor:
        """Elementwise tanh; integers and bools become the default float dtype."""
    def tanh_(self) -> Tensor:
        """Elementwise tanh; integers and bools become the default float dtype."""
    def tensor_split(self, indices_or_sections: Sizes | Tensor, dim: _int = 0) -> tuple[Tensor, ...]:
        """The given number of pieces of nearly equal size, or pieces split at the listed indices, as views."""
    def tile(self, *dims: Sizes) -> Tensor:
        """Repeated ``dims`` times; missing leading entries are 1."""
    @overload
    def to(self, dtype: DType | _type, non_blocking: _bool = False, copy: _bool = False, *, memory_format: MemoryFormat = None) -> Tensor:
        """Convert to a dtype, device or ``memory_format``, or to those of another tensor; return the tensor if nothing
        changes.

        A tensor on ``meta`` has no elements and cannot be moved to another device: NotImplementedError.
        """
    @overload
    def to(self, device: Device = None, dtype: DType | _type | None = None, non_blocking: _bool = False, copy: _bool = False, *, memory_format: MemoryFormat = None) -> Tensor: ...
    @overload
    def to(self, other: Tensor, non_blocking: _bool = False, copy: _bool = False, *, memory_format: MemoryFormat = None) -> Tensor: ...
    def to_dense(self, dtype: DType | None = None) -> Tensor:
        """Return ``input``: tensors are dense."""
    def to_sparse(self, *args: Any, **kwargs: Any) -> Any:
        """The nonzero elements, as a sparse tensor (``to_sparse`` names the layout); see ``torch.sparse``.

        Args:
            args (Any): the operands, one by one.
            kwargs (Any): kwargs.

        Example:
            >>> x = torch.tensor([[0.0, 1.0], [2.0, 0.0]])
            >>> x.to_sparse().indices()
            tensor([[0, 1],
                    [1, 0]])
        """
    def to_sparse_bsc(self, *args: Any, **kwargs: Any) -> Any:
        """The nonzero elements, as a sparse tensor (``to_sparse_bsc`` names the layout); see ``torch.sparse``.

        Args:
            args (Any): the operands, one by one.
            kwargs (Any): kwargs.

        Example:
            >>> x = torch.tensor([[0.0, 1.0], [2.0, 0.0]])
            >>> x.to_sparse_bsc((2, 1)).values().shape
            torch.Size([2, 2, 1])
        """
    def to_sparse_bsr(self, *args: Any, **kwargs: Any) -> Any:
        """The nonzero elements, as a sparse tensor (``to_sparse_bsr`` names the layout); see ``torch.sparse``.

        Args:
            args (Any): the operands, one by one.
            kwargs (Any): kwargs.

        Example:
            >>> x = torch.tensor([[0.0, 1.0], [2.0, 0.0]])
            >>> x.to_sparse_bsr((1, 2)).values().shape
            torch.Size([2, 1, 2])
        """
    def to_sparse_coo(self, *args: Any, **kwargs: Any) -> Any:
        """The nonzero elements, as a sparse tensor (``to_sparse_coo`` names the layout); see ``torch.sparse``.

        Args:
            args (Any): the operands, one by one.
            kwargs (Any): kwargs.

        Example:
            >>> x = torch.tensor([[0.0, 1.0], [2.0, 0.0]])
            >>> x.to_sparse_coo().values()
            tensor([1., 2.])
        """
    def to_sparse_csc(self, *args: Any, **kwargs: Any) -> Any:
        """The nonzero elements, as a sparse tensor (``to_sparse_csc`` names the layout); see ``torch.sparse``.

        Args:
            args (Any): the operands, one by one.
            kwargs (Any): kwargs.

        Example:
            >>> x = torch.tensor([[0.0, 1.0], [2.0, 0.0]])
            >>> x.to_sparse_csc().ccol_indices()
            tensor([0, 1, 2])
        """
    def to_sparse_csr(self, *args: Any, **kwargs: Any) -> Any:
        """The nonzero elements, as a sparse tensor (``to_sparse_csr`` names the layout); see ``torch.sparse``.

        Args:
            args (Any): the operands, one by one.
            kwargs (Any): kwargs.

        Example:
            >>> x = torch.tensor([[0.0, 1.0], [2.0, 0.0]])
            >>> x.to_sparse_csr().crow_indices()
            tensor([0, 1, 2])
        """
    def topk(self, k: _int, dim: _int = -1, largest: _bool = True, sorted: _bool = True) -> ValuesIndices:
        """The ``k`` largest (or smallest) elements along ``dim``, in order, and their positions."""
    def trace(self) -> Tensor:
        """Sum of the diagonal of a matrix."""
    def transpose(self, dim0: _int, dim1: _int) -> Tensor:
        """Two dimensions swapped, as a view."""
    def transpose_(self, dim0: _int, dim1: _int) -> Tensor:
        """Two dimensions swapped, as a view."""
    def trapezoid(self, x: Tensor | None = None, *, dx: Number | Tensor = ..., dim: _int = -1) -> Tensor:
        """Integral along ``dim`` by the trapezoidal rule."""
    def trapz(self, x: Tensor | None = None, *, dx: Number | Tensor = ..., dim: _int = -1) -> Tensor:
        """Integral along ``dim`` by the trapezoidal rule."""
    def triangular_solve(self, A: Tensor, upper: _bool = True, transpose: _bool = False, unitriangular: _bool = False) -> SolutionCoefficient:
        """(X, A) with A X = input for triangular A."""
    def tril(self, diagonal: _int = 0) -> Tensor:
        """The lower triangle of matrices, the rest zero."""
    def tril_(self, diagonal: _int = 0) -> Tensor:
        """The lower triangle of matrices, the rest zero."""
    def triu(self, diagonal: _int = 0) -> Tensor:
        """The upper triangle of matrices, the rest zero."""
    def triu_(self, diagonal: _int = 0) -> Tensor:
        """The upper triangle of matrices, the rest zero."""
    def true_divide(self, other: Operand) -> Tensor:
        """:func:`div` without rounding."""
    def true_divide_(self, other: Operand) -> Tensor:
        """:func:`div` without rounding."""
    def trunc(self) -> Tensor:
        """Rounded towards zero."""
    def trunc_(self) -> Tensor:
        """Rounded towards zero."""
    @overload
    def type(self) -> str:
        """The type's name, as ``torch.FloatTensor``; with an argument, a conversion."""
    @overload
    def type(self, dtype: DType | str | _type, non_blocking: _bool = False) -> Tensor: ...
    def type_as(self, other: Tensor) -> Tensor:
        """``input`` in the dtype of ``other``."""
    def unbind(self, dim: _int = 0) -> tuple[Tensor, ...]:
        """Every slice along a dimension, without that dimension, as views."""
    def unflatten(self, dim: _int, sizes: Sizes) -> Tensor:
        """Dimension ``dim`` split into ``sizes`` (one may be -1)."""
    def unfold(self, dimension: _int, size: _int, step: _int) -> Tensor:
        """Windows of ``size`` every ``step`` positions of ``dimension``; the position in the window is the last
        dimension.
        """
    def uniform(self, from_: _float = ..., to: _float = ..., *, generator: Generator | None = None, **named: _float) -> Tensor: ...
    def uniform_(self, from_: _float = ..., to: _float = ..., *, generator: Generator | None = None, **named: _float) -> Tensor: ...
    @overload
    def unique(self, sorted: _bool = True, return_inverse: Literal[False] = False, return_counts: Literal[False] = False, dim: _int | None = None) -> Tensor:
        """Distinct elements (or slices along ``dim``), sorted; with their inverse indices and counts on request."""
    @overload
    def unique(self, sorted: _bool = True, return_inverse: _bool = False, return_counts: _bool = False, dim: _int | None = None) -> tuple[Tensor, ...]: ...
    @overload
    def unique_consecutive(self, return_inverse: Literal[False] = False, return_counts: Literal[False] = False, dim: _int | None = None) -> Tensor:
        """Runs of equal elements (or slices along ``dim``) reduced to one each."""
    @overload
    def unique_consecutive(self, return_inverse: _bool = False, return_counts: _bool = False, dim: _int | None = None) -> tuple[Tensor, ...]: ...
    def unsafe_chunk(self, chunks: _int, dim: _int = 0) -> tuple[Tensor, ...]:
        """At most ``chunks`` pieces of equal size (the last may be smaller), as views."""
    def unsafe_split(self, split_size_or_sections: Sizes, dim: _int = 0) -> tuple[Tensor, ...]:
        """Pieces of a size (the last may be smaller), or of the listed sizes, as views."""
    def unsafe_split_with_sizes(self, split_sizes: Sequence[_int], dim: _int = 0) -> tuple[Tensor, ...]:
        """Pieces of the listed sizes, which must add up to the extent, as views."""
    def unsqueeze(self, dim: _int) -> Tensor:
        """A dimension of size 1 inserted at ``dim``."""
    def unsqueeze_(self, dim: _int) -> Tensor:
        """A dimension of size 1 inserted at ``dim``."""
    def untyped_storage(self) -> UntypedStorage:
        """The memory of ``self`` and its views, byte by byte.

        Example:
            >>> x = torch.tensor([1.0, 2.0, 3.0])
            >>> x.untyped_storage().nbytes()
            12
        """
    def values(self) -> Any:
        """Supported for sparse tensors only; RuntimeError for others.

        Example:
            >>> x = torch.sparse_coo_tensor([[0, 1, 0], [1, 0, 1]], [1.0, 2.0, 3.0], (2, 2))
            >>> x.coalesce().values()
            tensor([4., 2.])
        """
    def var(self, dim: Dim | _bool = None, unbiased: _bool | None = None, keepdim: _bool = False, *, correction: Number | None = None) -> Tensor:
        """Variance over ``dim``."""
    def var_mean(self, dim: Dim | _bool = None, unbiased: _bool | None = None, keepdim: _bool = False, *, correction: Number | None = None) -> tuple[Tensor, Tensor]:
        """Variance and mean over ``dim``."""
    def vdot(self, other: Tensor) -> Tensor:
        """:func:`dot` with the conjugate of the first vector."""
    def view(self, *size: Sizes | DType, dtype: DType | None = None) -> Tensor:
        """A view under another shape or, with a dtype, of the same bytes. RuntimeError when memory does not allow it.

        A view of the bytes has no derivative, except between complex numbers and their parts.
        """
    def view_as(self, other: Tensor) -> Tensor:
        """:func:`view` with the shape of ``other``."""
    def vsplit(self, *indices_or_sections: Sizes) -> tuple[Tensor, ...]:
        """Pieces along rows, as views."""
    def where(self, condition: Tensor, other: Operand) -> Tensor:
        """``self`` where ``condition`` holds, else ``other``.

        Args:
            condition (Tensor): where `input` is taken, elsewhere `other`.
            other (Operand): the second operand.

        Example:
            >>> x = torch.tensor([-1.5, 0.0, 2.5])
            >>> x.where(x > 0, torch.zeros(3))
            tensor([0.0000, 0.0000, 2.5000])
        """
    def xlogy(self, other: Operand) -> Tensor:
        """input * log(other), zero where ``input`` is zero."""
    def xlogy_(self, other: Operand) -> Tensor:
        """input * log(other), zero where ``input`` is zero."""
    def zero_(self) -> Tensor:
        """Set every element to 0."""
