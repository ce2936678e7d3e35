# Written by `python -m tests.surface`; do not edit.

"""The published functions under their torch names."""

from builtins import complex as _complex
from builtins import type as _type
from collections.abc import Callable
from collections.abc import Sequence
from tracecomp.eager import device as devices
from tracecomp.eager.device import Device
from tracecomp.eager.device import Layout
from tracecomp.eager.device import MemoryFormat
from tracecomp.eager.rng import Generator
from tracecomp.eager.size import Size
from tracecomp.eager.tensor import Tensor
from tracecomp.functional.creation.legacy import _TypedMeta as _TypedMeta
from tracecomp.functional.dims import Dim
from tracecomp.functional.dims import Sizes
from tracecomp.functional.elementwise.conversion import finfo as finfo
from tracecomp.functional.elementwise.conversion import iinfo as iinfo
from tracecomp.functional.linalg.factors import OldSVD
from tracecomp.functional.linalg.factors import PLU
from tracecomp.functional.linalg.factors import QR
from tracecomp.functional.linalg.factors import Reflections
from tracecomp.functional.linalg.linalg import SignLogabsdet
from tracecomp.functional.linalg.solving import SolutionCoefficient
from tracecomp.functional.named_results import CountsAllEdges
from tracecomp.functional.named_results import CountsEdges
from tracecomp.functional.named_results import MantissaExponent
from tracecomp.functional.named_results import MinMax
from tracecomp.functional.named_results import ValuesIndices
from tracecomp.functional.promotion import Number
from tracecomp.functional.promotion import Operand
from tracecomp.functional.settings import _HasDLPack
from tracecomp.functional.storage import TypedStorage as TypedStorage
from tracecomp.functional.storage import UntypedStorage as UntypedStorage
from tracecomp.functional.symbols import OutOfMemoryError as OutOfMemoryError
from tracecomp.functional.symbols import SymBool as SymBool
from tracecomp.functional.symbols import SymFloat as SymFloat
from tracecomp.functional.symbols import SymInt as SymInt
from tracecomp.functional.typed_storages import _StorageMeta as _StorageMeta
from tracecomp.ir.types import DType
from typing import Any
from typing import Literal
from typing import overload
import numpy as np

class BFloat16Storage(metaclass=_StorageMeta): ...
class BFloat16Tensor(metaclass=_TypedMeta): ...
class BoolStorage(metaclass=_StorageMeta): ...
class BoolTensor(metaclass=_TypedMeta): ...
class ByteStorage(metaclass=_StorageMeta): ...
class ByteTensor(metaclass=_TypedMeta): ...
class CharStorage(metaclass=_StorageMeta): ...
class CharTensor(metaclass=_TypedMeta): ...
class ComplexDoubleStorage(metaclass=_StorageMeta): ...
class ComplexFloatStorage(metaclass=_StorageMeta): ...
class DoubleStorage(metaclass=_StorageMeta): ...
class DoubleTensor(metaclass=_TypedMeta): ...
class Event(metaclass=_type): ...
class FloatStorage(metaclass=_StorageMeta): ...
class FloatTensor(metaclass=_TypedMeta): ...
class HalfStorage(metaclass=_StorageMeta): ...
class HalfTensor(metaclass=_TypedMeta): ...
class IntStorage(metaclass=_StorageMeta): ...
class IntTensor(metaclass=_TypedMeta): ...
class LongStorage(metaclass=_StorageMeta): ...
class LongTensor(metaclass=_TypedMeta): ...
class ShortStorage(metaclass=_StorageMeta): ...
class ShortTensor(metaclass=_TypedMeta): ...
class Stream(metaclass=_type): ...
def _assert_async(input: Tensor, assert_msg: str = 'Expected Tensor with single nonzero value, but got zero') -> None:
    """RuntimeError unless the single element of ``input`` is true."""
def _check(cond: object, message: Callable[[], object] | None = None) -> None:
    """Raise with ``message()`` unless ``cond`` is true."""
def _check_index(cond: object, message: Callable[[], object] | None = None) -> None:
    """Raise with ``message()`` unless ``cond`` is true."""
def _check_is_size(i: Any, message: Callable[[], object] | None = None, **options: Any) -> None:
    """RuntimeError unless ``i`` is a valid size."""
def _check_not_implemented(cond: object, message: Callable[[], object] | None = None) -> None:
    """Raise with ``message()`` unless ``cond`` is true."""
def _check_tensor_all(cond: Tensor, message: Callable[[], object] | None = None) -> None:
    """RuntimeError unless all elements are true."""
def _check_tensor_all_with(error: type[Exception], cond: Tensor, message: Callable[[], object] | None = None) -> None:
    """Raise ``error`` unless all elements are true."""
def _check_type(cond: object, message: Callable[[], object] | None = None) -> None:
    """Raise with ``message()`` unless ``cond`` is true."""
def _check_value(cond: object, message: Callable[[], object] | None = None) -> None:
    """Raise with ``message()`` unless ``cond`` is true."""
def _check_with(error: type[Exception], cond: object, message: Callable[[], object] | None = None) -> None:
    """Raise ``error`` unless ``cond`` is true."""
def _convert_indices_from_coo_to_csr(input: Tensor, size: int, *, out_int32: bool = False) -> Tensor:
    """The start of each of ``size`` rows among sorted row numbers, and the end."""
def _convert_indices_from_csr_to_coo(crow_indices: Tensor, col_indices: Tensor, *, out_int32: bool = False, transpose: bool = False) -> Tensor:
    """Rows and columns, or columns and rows, of the elements of compressed rows."""
def _foreach_abs(self: Any, *args: Any, **kwargs: Any) -> Any:
    """``abs`` of every tensor of a list."""
def _foreach_abs_(self: Tensor, *args: Any, **kwargs: Any) -> Any:
    """``abs_`` of every tensor of a list."""
def _foreach_acos(self: Any, *args: Any, **kwargs: Any) -> Any:
    """``acos`` of every tensor of a list."""
def _foreach_acos_(self: Tensor, *args: Any, **kwargs: Any) -> Any:
    """``acos_`` of every tensor of a list."""
def _foreach_add(self: Any, *args: Any, **kwargs: Any) -> Any:
    """``add`` of every tensor of a list."""
def _foreach_add_(self: Tensor, *args: Any, **kwargs: Any) -> Any:
    """``add_`` of every tensor of a list."""
def _foreach_addcdiv(self: Any, *args: Any, **kwargs: Any) -> Any:
    """``addcdiv`` of every tensor of a list."""
def _foreach_addcdiv_(self: Tensor, *args: Any, **kwargs: Any) -> Any:
    """``addcdiv_`` of every tensor of a list."""
def _foreach_addcmul(self: Any, *args: Any, **kwargs: Any) -> Any:
    """``addcmul`` of every tensor of a list."""
def _foreach_addcmul_(self: Tensor, *args: Any, **kwargs: Any) -> Any:
    """``addcmul_`` of every tensor of a list."""
def _foreach_asin(self: Any, *args: Any, **kwargs: Any) -> Any:
    """``asin`` of every tensor of a list."""
def _foreach_asin_(self: Tensor, *args: Any, **kwargs: Any) -> Any:
    """``asin_`` of every tensor of a list."""
def _foreach_atan(self: Any, *args: Any, **kwargs: Any) -> Any:
    """``atan`` of every tensor of a list."""
def _foreach_atan_(self: Tensor, *args: Any, **kwargs: Any) -> Any:
    """``atan_`` of every tensor of a list."""
def _foreach_ceil(self: Any, *args: Any, **kwargs: Any) -> Any:
    """``ceil`` of every tensor of a list."""
def _foreach_ceil_(self: Tensor, *args: Any, **kwargs: Any) -> Any:
    """``ceil_`` of every tensor of a list."""
def _foreach_clamp_max(self: Any, *args: Any, **kwargs: Any) -> Any:
    """``clamp_max`` of every tensor of a list."""
def _foreach_clamp_max_(self: Tensor, *args: Any, **kwargs: Any) -> Any:
    """``clamp_max_`` of every tensor of a list."""
def _foreach_clamp_min(self: Any, *args: Any, **kwargs: Any) -> Any:
    """``clamp_min`` of every tensor of a list."""
def _foreach_clamp_min_(self: Tensor, *args: Any, **kwargs: Any) -> Any:
    """``clamp_min_`` of every tensor of a list."""
def _foreach_clone(self: Any, *args: Any, **kwargs: Any) -> Any:
    """``clone`` of every tensor of a list."""
def _foreach_copy_(self: Tensor, *args: Any, **kwargs: Any) -> Any:
    """``copy_`` of every tensor of a list."""
def _foreach_cos(self: Any, *args: Any, **kwargs: Any) -> Any:
    """``cos`` of every tensor of a list."""
def _foreach_cos_(self: Tensor, *args: Any, **kwargs: Any) -> Any:
    """``cos_`` of every tensor of a list."""
def _foreach_cosh(self: Any, *args: Any, **kwargs: Any) -> Any:
    """``cosh`` of every tensor of a list."""
def _foreach_cosh_(self: Tensor, *args: Any, **kwargs: Any) -> Any:
    """``cosh_`` of every tensor of a list."""
def _foreach_div(self: Any, *args: Any, **kwargs: Any) -> Any:
    """``div`` of every tensor of a list."""
def _foreach_div_(self: Tensor, *args: Any, **kwargs: Any) -> Any:
    """``div_`` of every tensor of a list."""
def _foreach_erf(self: Any, *args: Any, **kwargs: Any) -> Any:
    """``erf`` of every tensor of a list."""
def _foreach_erf_(self: Tensor, *args: Any, **kwargs: Any) -> Any:
    """``erf_`` of every tensor of a list."""
def _foreach_erfc(self: Any, *args: Any, **kwargs: Any) -> Any:
    """``erfc`` of every tensor of a list."""
def _foreach_erfc_(self: Tensor, *args: Any, **kwargs: Any) -> Any:
    """``erfc_`` of every tensor of a list."""
def _foreach_exp(self: Any, *args: Any, **kwargs: Any) -> Any:
    """``exp`` of every tensor of a list."""
def _foreach_exp_(self: Tensor, *args: Any, **kwargs: Any) -> Any:
    """``exp_`` of every tensor of a list."""
def _foreach_expm1(self: Any, *args: Any, **kwargs: Any) -> Any:
    """``expm1`` of every tensor of a list."""
def _foreach_expm1_(self: Tensor, *args: Any, **kwargs: Any) -> Any:
    """``expm1_`` of every tensor of a list."""
def _foreach_floor(self: Any, *args: Any, **kwargs: Any) -> Any:
    """``floor`` of every tensor of a list."""
def _foreach_floor_(self: Tensor, *args: Any, **kwargs: Any) -> Any:
    """``floor_`` of every tensor of a list."""
def _foreach_frac(self: Any, *args: Any, **kwargs: Any) -> Any:
    """``frac`` of every tensor of a list."""
def _foreach_frac_(self: Tensor, *args: Any, **kwargs: Any) -> Any:
    """``frac_`` of every tensor of a list."""
def _foreach_lerp(self: Any, *args: Any, **kwargs: Any) -> Any:
    """``lerp`` of every tensor of a list."""
def _foreach_lerp_(self: Tensor, *args: Any, **kwargs: Any) -> Any:
    """``lerp_`` of every tensor of a list."""
def _foreach_lgamma(self: Any, *args: Any, **kwargs: Any) -> Any:
    """``lgamma`` of every tensor of a list."""
def _foreach_lgamma_(self: Tensor, *args: Any, **kwargs: Any) -> Any:
    """``lgamma_`` of every tensor of a list."""
def _foreach_log(self: Any, *args: Any, **kwargs: Any) -> Any:
    """``log`` of every tensor of a list."""
def _foreach_log10(self: Any, *args: Any, **kwargs: Any) -> Any:
    """``log10`` of every tensor of a list."""
def _foreach_log10_(self: Tensor, *args: Any, **kwargs: Any) -> Any:
    """``log10_`` of every tensor of a list."""
def _foreach_log1p(self: Any, *args: Any, **kwargs: Any) -> Any:
    """``log1p`` of every tensor of a list."""
def _foreach_log1p_(self: Tensor, *args: Any, **kwargs: Any) -> Any:
    """``log1p_`` of every tensor of a list."""
def _foreach_log2(self: Any, *args: Any, **kwargs: Any) -> Any:
    """``log2`` of every tensor of a list."""
def _foreach_log2_(self: Tensor, *args: Any, **kwargs: Any) -> Any:
    """``log2_`` of every tensor of a list."""
def _foreach_log_(self: Tensor, *args: Any, **kwargs: Any) -> Any:
    """``log_`` of every tensor of a list."""
def _foreach_max(self: Any, *args: Any, **kwargs: Any) -> Any:
    """``max`` of every tensor of a list."""
def _foreach_maximum(self: Any, *args: Any, **kwargs: Any) -> Any:
    """``maximum`` of every tensor of a list."""
def _foreach_maximum_(self: Tensor, *args: Any, **kwargs: Any) -> Any:
    """``maximum_`` of every tensor of a list."""
def _foreach_minimum(self: Any, *args: Any, **kwargs: Any) -> Any:
    """``minimum`` of every tensor of a list."""
def _foreach_minimum_(self: Tensor, *args: Any, **kwargs: Any) -> Any:
    """``minimum_`` of every tensor of a list."""
def _foreach_mm(self: Any, *args: Any, **kwargs: Any) -> Any:
    """``mm`` of every tensor of a list."""
def _foreach_mul(self: Any, *args: Any, **kwargs: Any) -> Any:
    """``mul`` of every tensor of a list."""
def _foreach_mul_(self: Tensor, *args: Any, **kwargs: Any) -> Any:
    """``mul_`` of every tensor of a list."""
def _foreach_neg(self: Any, *args: Any, **kwargs: Any) -> Any:
    """``neg`` of every tensor of a list."""
def _foreach_neg_(self: Tensor, *args: Any, **kwargs: Any) -> Any:
    """``neg_`` of every tensor of a list."""
def _foreach_norm(self: Any, *args: Any, **kwargs: Any) -> Any:
    """``norm`` of every tensor of a list."""
def _foreach_pow(self: Any, *args: Any, **kwargs: Any) -> Any:
    """``pow`` of every tensor of a list."""
def _foreach_pow_(self: Tensor, *args: Any, **kwargs: Any) -> Any:
    """``pow_`` of every tensor of a list."""
def _foreach_powsum(self: Any, *args: Any, **kwargs: Any) -> Any:
    """``powsum`` of every tensor of a list."""
def _foreach_reciprocal(self: Any, *args: Any, **kwargs: Any) -> Any:
    """``reciprocal`` of every tensor of a list."""
def _foreach_reciprocal_(self: Tensor, *args: Any, **kwargs: Any) -> Any:
    """``reciprocal_`` of every tensor of a list."""
def _foreach_round(self: Any, *args: Any, **kwargs: Any) -> Any:
    """``round`` of every tensor of a list."""
def _foreach_round_(self: Tensor, *args: Any, **kwargs: Any) -> Any:
    """``round_`` of every tensor of a list."""
def _foreach_rsqrt(self: Any, *args: Any, **kwargs: Any) -> Any:
    """``rsqrt`` of every tensor of a list."""
def _foreach_rsqrt_(self: Tensor, *args: Any, **kwargs: Any) -> Any:
    """``rsqrt_`` of every tensor of a list."""
def _foreach_sigmoid(self: Any, *args: Any, **kwargs: Any) -> Any:
    """``sigmoid`` of every tensor of a list."""
def _foreach_sigmoid_(self: Tensor, *args: Any, **kwargs: Any) -> Any:
    """``sigmoid_`` of every tensor of a list."""
def _foreach_sign(self: Any, *args: Any, **kwargs: Any) -> Any:
    """``sign`` of every tensor of a list."""
def _foreach_sign_(self: Tensor, *args: Any, **kwargs: Any) -> Any:
    """``sign_`` of every tensor of a list."""
def _foreach_sin(self: Any, *args: Any, **kwargs: Any) -> Any:
    """``sin`` of every tensor of a list."""
def _foreach_sin_(self: Tensor, *args: Any, **kwargs: Any) -> Any:
    """``sin_`` of every tensor of a list."""
def _foreach_sinh(self: Any, *args: Any, **kwargs: Any) -> Any:
    """``sinh`` of every tensor of a list."""
def _foreach_sinh_(self: Tensor, *args: Any, **kwargs: Any) -> Any:
    """``sinh_`` of every tensor of a list."""
def _foreach_sqrt(self: Any, *args: Any, **kwargs: Any) -> Any:
    """``sqrt`` of every tensor of a list."""
def _foreach_sqrt_(self: Tensor, *args: Any, **kwargs: Any) -> Any:
    """``sqrt_`` of every tensor of a list."""
def _foreach_sub(self: Any, *args: Any, **kwargs: Any) -> Any:
    """``sub`` of every tensor of a list."""
def _foreach_sub_(self: Tensor, *args: Any, **kwargs: Any) -> Any:
    """``sub_`` of every tensor of a list."""
def _foreach_tan(self: Any, *args: Any, **kwargs: Any) -> Any:
    """``tan`` of every tensor of a list."""
def _foreach_tan_(self: Tensor, *args: Any, **kwargs: Any) -> Any:
    """``tan_`` of every tensor of a list."""
def _foreach_tanh(self: Any, *args: Any, **kwargs: Any) -> Any:
    """``tanh`` of every tensor of a list."""
def _foreach_tanh_(self: Tensor, *args: Any, **kwargs: Any) -> Any:
    """``tanh_`` of every tensor of a list."""
def _foreach_trunc(self: Any, *args: Any, **kwargs: Any) -> Any:
    """``trunc`` of every tensor of a list."""
def _foreach_trunc_(self: Tensor, *args: Any, **kwargs: Any) -> Any:
    """``trunc_`` of every tensor of a list."""
def _foreach_zero_(self: Tensor, *args: Any, **kwargs: Any) -> Any:
    """``zero_`` of every tensor of a list."""
def _grouped_mm(input: Tensor, mat2: Tensor, offs: Tensor | None = None, bias: Tensor | None = None, out_dtype: DType | None = None) -> Tensor:
    """:func:`torch.nn.functional.grouped_mm`."""
def _log_softmax_backward_data(grad_output: Tensor, output: Tensor, dim: int, input_dtype: DType) -> Tensor:
    """The gradient of log_softmax along ``dim`` from its result."""
def _shape_as_tensor(input: Tensor) -> Tensor:
    """The sizes of ``input`` as int64."""
def _softmax_backward_data(grad_output: Tensor, output: Tensor, dim: int, input_dtype: DType) -> Tensor:
    """The gradient of softmax along ``dim`` from its result."""
def abs(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Absolute value."""
def abs_(input: Tensor) -> Tensor:
    """Absolute value."""
def absolute(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Absolute value."""
def absolute_(input: Tensor) -> Tensor:
    """Absolute value."""
def acos(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Elementwise acos; integers and bools become the default float dtype."""
def acos_(input: Tensor) -> Tensor:
    """Elementwise acos; integers and bools become the default float dtype."""
def acosh(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Elementwise acosh; integers and bools become the default float dtype."""
def acosh_(input: Tensor) -> Tensor:
    """Elementwise acosh; integers and bools become the default float dtype."""
def add(input: Operand, other: Operand, *, alpha: Number = 1, out: Tensor | None = None) -> Tensor:
    """``input + alpha * other``, broadcast."""
def add_(input: Tensor, other: Operand, *, alpha: Number = 1) -> Tensor:
    """``input + alpha * other``, broadcast."""
def addbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Number = 1, alpha: Number = 1, out: Tensor | None = None) -> Tensor:
    """beta * input + alpha * (the sum of the products of the batch)."""
def addbmm_(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """beta * input + alpha * (the sum of the products of the batch)."""
def addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1, out: Tensor | None = None) -> Tensor:
    """``input + value * tensor1 / tensor2``; RuntimeError on integer operands."""
def addcdiv_(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1) -> Tensor:
    """``input + value * tensor1 / tensor2``; RuntimeError on integer operands."""
def addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1, out: Tensor | None = None) -> Tensor:
    """``input + value * tensor1 * tensor2``."""
def addcmul_(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1) -> Tensor:
    """``input + value * tensor1 * tensor2``."""
def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Number = 1, alpha: Number = 1, out: Tensor | None = None) -> Tensor:
    """beta * input + alpha * (mat1 @ mat2)."""
def addmm_(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """beta * input + alpha * (mat1 @ mat2)."""
def addmv(input: Tensor, mat: Tensor, vec: Tensor, *, beta: Number = 1, alpha: Number = 1, out: Tensor | None = None) -> Tensor:
    """beta * input + alpha * (mat @ vec)."""
def addmv_(input: Tensor, mat: Tensor, vec: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """beta * input + alpha * (mat @ vec)."""
def addr(input: Tensor, vec1: Tensor, vec2: Tensor, *, beta: Number = 1, alpha: Number = 1, out: Tensor | None = None) -> Tensor:
    """beta * input + alpha * outer(vec1, vec2)."""
def addr_(input: Tensor, vec1: Tensor, vec2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """beta * input + alpha * outer(vec1, vec2)."""
def adjoint(input: Tensor) -> Tensor:
    """The last two dimensions swapped, and the conjugate of complex tensors."""
def alias_copy(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """A view of everything."""
def all(input: Tensor, dim: Dim = None, keepdim: bool = False, *, out: Tensor | None = None) -> Tensor:
    """Whether every element is nonzero."""
def allclose(input: Tensor, other: Tensor, rtol: float = ..., atol: float = ..., equal_nan: bool = False) -> bool:
    """Whether every pair is close (:func:`isclose`)."""
def amax(input: Tensor, dim: Dim = ..., keepdim: bool = False, *, out: Tensor | None = None) -> Tensor:
    """Largest over ``dim``; equal extremes share the gradient."""
def amin(input: Tensor, dim: Dim = ..., keepdim: bool = False, *, out: Tensor | None = None) -> Tensor:
    """Smallest over ``dim``; equal extremes share the gradient."""
def aminmax(input: Tensor, *, dim: int | None = None, keepdim: bool = False) -> MinMax:
    """Smallest and largest."""
def angle(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The angle in the complex plane: of real numbers pi for negative ones, 0 for others, NaN for NaN."""
def any(input: Tensor, dim: Dim = None, keepdim: bool = False, *, out: Tensor | None = None) -> Tensor:
    """Whether some element is nonzero."""
def arange(start: Number, end: Number | None = None, step: Number = 1, *, dtype: DType | None = None, layout: Layout = None, device: Device = None, requires_grad: bool = False, pin_memory: bool = False, out: Tensor | None = None) -> Tensor:
    """start, start + step, ... below ``end``; ``arange(end)`` starts at 0."""
def arccos(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Elementwise acos; integers and bools become the default float dtype."""
def arccos_(input: Tensor) -> Tensor:
    """Elementwise acos; integers and bools become the default float dtype."""
def arccosh(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Elementwise acosh; integers and bools become the default float dtype."""
def arccosh_(input: Tensor) -> Tensor:
    """Elementwise acosh; integers and bools become the default float dtype."""
def arcsin(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Elementwise asin; integers and bools become the default float dtype."""
def arcsin_(input: Tensor) -> Tensor:
    """Elementwise asin; integers and bools become the default float dtype."""
def arcsinh(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Elementwise asinh; integers and bools become the default float dtype."""
def arcsinh_(input: Tensor) -> Tensor:
    """Elementwise asinh; integers and bools become the default float dtype."""
def arctan(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Elementwise atan; integers and bools become the default float dtype."""
def arctan2(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The angle of the point (other, input)."""
def arctan2_(input: Tensor, other: Tensor) -> Tensor:
    """The angle of the point (other, input)."""
def arctan_(input: Tensor) -> Tensor:
    """Elementwise atan; integers and bools become the default float dtype."""
def arctanh(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Elementwise atanh; integers and bools become the default float dtype."""
def arctanh_(input: Tensor) -> Tensor:
    """Elementwise atanh; integers and bools become the default float dtype."""
def are_deterministic_algorithms_enabled() -> bool:
    """The last argument of :func:`use_deterministic_algorithms`.

    Example:
        >>> torch.are_deterministic_algorithms_enabled()
        False
    """
def argmax(input: Tensor, dim: int | None = None, keepdim: bool = False, *, out: Tensor | None = None) -> Tensor:
    """The first position of the largest element, in the flattened order without ``dim``."""
def argmin(input: Tensor, dim: int | None = None, keepdim: bool = False, *, out: Tensor | None = None) -> Tensor:
    """The first position of the smallest element, in the flattened order without ``dim``."""
def argsort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Tensor:
    """The indices that sort ``input`` along ``dim``."""
def argwhere(input: Tensor) -> Tensor:
    """:func:`nonzero` as a matrix."""
def as_strided(input: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> Tensor:
    """A view of ``input``'s memory: element i is at ``storage_offset`` + i * ``stride``.

    RuntimeError for a negative size or stride, and for positions outside the memory.
    """
def as_strided_copy(input: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None, *, out: Tensor | None = None) -> Tensor:
    """A view of ``input``'s memory: element i is at ``storage_offset`` + i * ``stride``.

    RuntimeError for a negative size or stride, and for positions outside the memory.
    """
def as_strided_scatter(input: Tensor, src: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> Tensor:
    """A copy of ``input`` with the elements of :func:`as_strided` replaced by ``src``."""
def as_tensor(data: object, dtype: DType | None = None, device: Device = None, *, copy: bool | None = None, requires_grad: bool = False) -> Tensor:
    """``data`` as a tensor, sharing memory with arrays and tensors where the dtype allows."""
def asarray(data: object, dtype: DType | None = None, device: Device = None, *, copy: bool | None = None, requires_grad: bool = False) -> Tensor:
    """``data`` as a tensor, sharing memory with arrays and tensors where the dtype allows."""
def asin(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Elementwise asin; integers and bools become the default float dtype."""
def asin_(input: Tensor) -> Tensor:
    """Elementwise asin; integers and bools become the default float dtype."""
def asinh(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Elementwise asinh; integers and bools become the default float dtype."""
def asinh_(input: Tensor) -> Tensor:
    """Elementwise asinh; integers and bools become the default float dtype."""
def atan(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Elementwise atan; integers and bools become the default float dtype."""
def atan2(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The angle of the point (other, input)."""
def atan2_(input: Tensor, other: Tensor) -> Tensor:
    """The angle of the point (other, input)."""
def atan_(input: Tensor) -> Tensor:
    """Elementwise atan; integers and bools become the default float dtype."""
def atanh(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Elementwise atanh; integers and bools become the default float dtype."""
def atanh_(input: Tensor) -> Tensor:
    """Elementwise atanh; integers and bools become the default float dtype."""
def atleast_1d(*tensors: Tensor | Sequence[Tensor]) -> Tensor | tuple[Tensor, ...]:
    """Tensors with dimensions of size 1 added so that each has at least 1."""
def atleast_2d(*tensors: Tensor | Sequence[Tensor]) -> Tensor | tuple[Tensor, ...]:
    """Tensors with dimensions of size 1 added so that each has at least 2."""
def atleast_3d(*tensors: Tensor | Sequence[Tensor]) -> Tensor | tuple[Tensor, ...]:
    """Tensors with dimensions of size 1 added so that each has at least 3."""
def baddbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Number = 1, alpha: Number = 1, out: Tensor | None = None) -> Tensor:
    """beta * input + alpha * bmm(batch1, batch2)."""
def baddbmm_(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """beta * input + alpha * bmm(batch1, batch2)."""
def bartlett_window(window_length: int, periodic: bool = True, *, dtype: DType | None = None, layout: Layout = None, device: Device = None, requires_grad: bool = False) -> Tensor:
    """Bartlett window, symmetric unless ``periodic``."""
def bernoulli(input: Tensor, p: float | None = None, *, generator: Generator | None = None, out: Tensor | None = None) -> Tensor:
    """Draw 1 with the probabilities of ``input`` (or with ``p``), else 0."""
def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """The number of occurrences of each non-negative integer, or the sums of their ``weights``."""
def binomial(count: Tensor, prob: Tensor, generator: Generator | None = None) -> Tensor:
    """Binomial numbers; drawn by numpy from a key of the generator.

    A negative count gives 0, and probabilities outside [0, 1] are clipped. NaN gives NaN.
    """
def bitwise_and(input: Operand, other: Operand, *, out: Tensor | None = None) -> Tensor:
    """Elementwise bitwise and of integers or bools."""
def bitwise_and_(input: Tensor, other: Operand) -> Tensor:
    """Elementwise bitwise and of integers or bools."""
def bitwise_left_shift(input: Operand, other: Operand, *, out: Tensor | None = None) -> Tensor:
    """Elementwise bitwise left shift of integers or bools."""
def bitwise_left_shift_(input: Tensor, other: Operand) -> Tensor:
    """Elementwise bitwise left shift of integers or bools."""
def bitwise_not(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Bits inverted; logical not on bools."""
def bitwise_not_(input: Tensor) -> Tensor:
    """Bits inverted; logical not on bools."""
def bitwise_or(input: Operand, other: Operand, *, out: Tensor | None = None) -> Tensor:
    """Elementwise bitwise or of integers or bools."""
def bitwise_or_(input: Tensor, other: Operand) -> Tensor:
    """Elementwise bitwise or of integers or bools."""
def bitwise_right_shift(input: Operand, other: Operand, *, out: Tensor | None = None) -> Tensor:
    """Elementwise bitwise right shift of integers or bools."""
def bitwise_right_shift_(input: Tensor, other: Operand) -> Tensor:
    """Elementwise bitwise right shift of integers or bools."""
def bitwise_xor(input: Operand, other: Operand, *, out: Tensor | None = None) -> Tensor:
    """Elementwise bitwise xor of integers or bools."""
def bitwise_xor_(input: Tensor, other: Operand) -> Tensor:
    """Elementwise bitwise xor of integers or bools."""
def blackman_window(window_length: int, periodic: bool = True, *, dtype: DType | None = None, layout: Layout = None, device: Device = None, requires_grad: bool = False) -> Tensor:
    """Blackman window, symmetric unless ``periodic``."""
def block_diag(*tensors: Tensor) -> Tensor:
    """Matrices placed along the diagonal of a matrix of zeros."""
def bmm(input: Tensor, mat2: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Products of two batches of matrices, without broadcasting."""
def broadcast_shapes(*shapes: Sizes) -> Size:
    """The shape that all broadcast to; RuntimeError if they do not broadcast."""
def broadcast_tensors(*tensors: Tensor | Sequence[Tensor]) -> tuple[Tensor, ...]:
    """All tensors expanded to their common shape."""
def broadcast_to(input: Tensor, size: Sequence[int]) -> Tensor:
    """:func:`expand` to ``size``."""
def bucketize(input: Tensor | Number, boundaries: Tensor, *, out_int32: bool = False, right: bool = False, out: Tensor | None = None) -> Tensor:
    """:func:`searchsorted` of ``input`` in 1-d ``boundaries``."""
def can_cast(from_: DType, to: DType) -> bool:
    """Whether in-place results of ``from_`` may be stored in ``to``."""
def cartesian_prod(*tensors: Tensor | Sequence[Tensor]) -> Tensor:
    """Every combination of one element of each tensor, as rows."""
def cat(tensors: Sequence[Tensor], dim: int = 0, *, out: Tensor | None = None) -> Tensor:
    """Joined along an existing dimension, in the promoted dtype; 1-d empty tensors are skipped."""
def cdist(x1: Tensor, x2: Tensor, p: float = ..., compute_mode: str = 'use_mm_for_euclid_dist_if_necessary') -> Tensor:
    """Distances in the p-norm between every row of ``x1`` and every row of ``x2``.

    Euclidean ones of more than 25 rows use matrix products, as in PyTorch (``compute_mode`` selects it): faster, with
    fewer digits if rows are nearly equal.
    """
def ceil(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Rounded up."""
def ceil_(input: Tensor) -> Tensor:
    """Rounded up."""
def chain_matmul(*matrices: Tensor | Sequence[Tensor], out: Tensor | None = None) -> Tensor:
    """Product of several matrices in the cheapest order."""
def cholesky(input: Tensor, upper: bool = False, *, out: Tensor | None = None) -> Tensor:
    """:func:`linalg.cholesky` with ``upper`` positional."""
def cholesky_inverse(input: Tensor, upper: bool = False, *, out: Tensor | None = None) -> Tensor:
    """Inverse of L L*, or of U* U."""
def cholesky_solve(input: Tensor, L: Tensor, upper: bool = False, *, out: Tensor | None = None) -> Tensor:
    """X with (L L*) X = input, or (U* U) X = input."""
def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """At most ``chunks`` pieces of equal size (the last may be smaller), as views."""
def clamp(input: Tensor, min: Operand | None = None, max: Operand | None = None, *, out: Tensor | None = None) -> Tensor:
    """Limit ``input`` to [min, max], which are numbers or tensors. Gradients are zero outside; NaN propagates."""
def clamp_(input: Tensor, min: Operand | None = None, max: Operand | None = None) -> Tensor:
    """Limit ``input`` to [min, max], which are numbers or tensors. Gradients are zero outside; NaN propagates."""
def clamp_max(input: Tensor, max: Operand, *, out: Tensor | None = None) -> Tensor:
    """:func:`clamp` from above."""
def clamp_max_(input: Tensor, max: Operand) -> Tensor:
    """:func:`clamp` from above."""
def clamp_min(input: Tensor, min: Operand, *, out: Tensor | None = None) -> Tensor:
    """:func:`clamp` from below."""
def clamp_min_(input: Tensor, min: Operand) -> Tensor:
    """:func:`clamp` from below."""
def clip(input: Tensor, min: Operand | None = None, max: Operand | None = None, *, out: Tensor | None = None) -> Tensor:
    """Limit ``input`` to [min, max], which are numbers or tensors. Gradients are zero outside; NaN propagates."""
def clip_(input: Tensor, min: Operand | None = None, max: Operand | None = None) -> Tensor:
    """Limit ``input`` to [min, max], which are numbers or tensors. Gradients are zero outside; NaN propagates."""
def clone(input: Tensor, *, memory_format: MemoryFormat = None) -> Tensor:
    """A copy, in ``memory_format`` or in the order of ``input``; gradients flow through it."""
def column_stack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """1-d tensors become columns, then joined along columns."""
def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """Combinations of ``r`` elements of a 1-d tensor, as rows."""
def complex(real: Tensor, imag: Tensor, *, out: Tensor | None = None) -> Tensor:
    """real + i imag, of float32 or float64 tensors, broadcast."""
def concat(tensors: Sequence[Tensor], dim: int = 0, *, out: Tensor | None = None) -> Tensor:
    """Joined along an existing dimension, in the promoted dtype; 1-d empty tensors are skipped."""
def concatenate(tensors: Sequence[Tensor], dim: int = 0, *, out: Tensor | None = None) -> Tensor:
    """Joined along an existing dimension, in the promoted dtype; 1-d empty tensors are skipped."""
def conj(input: Tensor) -> Tensor:
    """The conjugate, computed at once; real tensors are returned unchanged."""
def conj_physical(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The conjugate, also a copy for real tensors."""
def conj_physical_(input: Tensor) -> Tensor:
    """The conjugate, also a copy for real tensors."""
def copysign(input: Tensor, other: Operand, *, out: Tensor | None = None) -> Tensor:
    """The magnitude of ``input`` with the sign of ``other``."""
def copysign_(input: Tensor, other: Operand) -> Tensor:
    """The magnitude of ``input`` with the sign of ``other``."""
def corrcoef(input: Tensor) -> Tensor:
    """Correlation of the rows."""
def cos(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Elementwise cos; integers and bools become the default float dtype."""
def cos_(input: Tensor) -> Tensor:
    """Elementwise cos; integers and bools become the default float dtype."""
def cosh(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Elementwise cosh; integers and bools become the default float dtype."""
def cosh_(input: Tensor) -> Tensor:
    """Elementwise cosh; integers and bools become the default float dtype."""
def count_nonzero(input: Tensor, dim: Dim = None) -> Tensor:
    """The number of nonzero elements."""
def cov(input: Tensor, *, correction: int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None) -> Tensor:
    """Covariance of the rows, with integer repetitions ``fweights`` and observation weights ``aweights``."""
def cross(input: Tensor, other: Tensor, dim: int | None = None, *, out: Tensor | None = None) -> Tensor:
    """Cross product of 3-vectors along ``dim`` (the first dimension of size 3 by default)."""
def cummax(input: Tensor, dim: int) -> ValuesIndices:
    """Running maximum along ``dim`` and its positions."""
def cummin(input: Tensor, dim: int) -> ValuesIndices:
    """Running minimum along ``dim`` and its positions."""
def cumprod(input: Tensor, dim: int, *, dtype: DType | None = None, out: Tensor | None = None) -> Tensor:
    """Running products along ``dim``."""
def cumprod_(input: Tensor, dim: int, *, dtype: DType | None = None) -> Tensor:
    """Running products along ``dim``."""
def cumsum(input: Tensor, dim: int, *, dtype: DType | None = None, out: Tensor | None = None) -> Tensor:
    """Running sums along ``dim``."""
def cumsum_(input: Tensor, dim: int, *, dtype: DType | None = None) -> Tensor:
    """Running sums along ``dim``."""
def cumulative_trapezoid(y: Tensor, x: Tensor | None = None, *, dx: Number | Tensor = ..., dim: int = -1) -> Tensor:
    """Running integrals along ``dim`` by the trapezoidal rule."""
def deg2rad(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Degrees to radians."""
def deg2rad_(input: Tensor) -> Tensor:
    """Degrees to radians."""
def det(input: Tensor) -> Tensor:
    """:func:`linalg.det`."""
def detach(input: Tensor) -> Tensor:
    """``input`` without history, sharing its memory."""
def detach_copy(input: Tensor) -> Tensor:
    """``input`` without history."""
def diag(input: Tensor, diagonal: int = 0, *, out: Tensor | None = None) -> Tensor:
    """A matrix with a vector on a diagonal, or the diagonal of a matrix."""
def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The last dimension spread on a diagonal of two new dimensions."""
def diagflat(input: Tensor, offset: int = 0) -> Tensor:
    """A matrix with the flattened elements on a diagonal."""
def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """A view of the diagonal of the plane of ``dim1`` and ``dim2``, as the last dimension."""
def diagonal_copy(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1, *, out: Tensor | None = None) -> Tensor:
    """A view of the diagonal of the plane of ``dim1`` and ``dim2``, as the last dimension."""
def diagonal_scatter(input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """A copy of ``input`` with ``src`` on a diagonal."""
def diff(input: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None, *, out: Tensor | None = None) -> Tensor:
    """Differences of neighbours along ``dim``, ``n`` times."""
def digamma(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Elementwise digamma; integers and bools become the default float dtype."""
def digamma_(input: Tensor) -> Tensor:
    """Elementwise digamma; integers and bools become the default float dtype."""
def dist(input: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """The p-norm of ``input - other``."""
def div(input: Operand, other: Operand, *, rounding_mode: str | None = None, out: Tensor | None = None) -> Tensor:
    """True division; with ``rounding_mode`` ``"trunc"`` or ``"floor"`` in the promoted dtype."""
def div_(input: Tensor, other: Operand, *, rounding_mode: str | None = None) -> Tensor:
    """True division; with ``rounding_mode`` ``"trunc"`` or ``"floor"`` in the promoted dtype."""
def divide(input: Operand, other: Operand, *, rounding_mode: str | None = None, out: Tensor | None = None) -> Tensor:
    """True division; with ``rounding_mode`` ``"trunc"`` or ``"floor"`` in the promoted dtype."""
def divide_(input: Tensor, other: Operand, *, rounding_mode: str | None = None) -> Tensor:
    """True division; with ``rounding_mode`` ``"trunc"`` or ``"floor"`` in the promoted dtype."""
def dot(input: Tensor, tensor: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Inner product of two vectors of one size."""
def dsplit(input: Tensor, *indices_or_sections: Sizes) -> tuple[Tensor, ...]:
    """Pieces along the third dimension, as views."""
def dstack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """Joined along the third dimension."""
def einsum(*args: str | Tensor | Sequence[Tensor] | Sequence[int]) -> Tensor:
    """Sums of products by Einstein's convention: ``einsum("bij,bjk->bik", x, y)`` or with lists of labels."""
def empty(*size: Sizes, dtype: DType | None = None, layout: Layout = None, device: Device = None, requires_grad: bool = False, pin_memory: bool = False, memory_format: MemoryFormat = None, out: Tensor | None = None) -> Tensor:
    """A tensor of empty."""
def empty_like(input: Tensor, *, dtype: DType | None = None, layout: Layout = None, device: Device = None, requires_grad: bool = False, pin_memory: bool = False, memory_format: MemoryFormat = None) -> Tensor:
    """A tensor of empty."""
def empty_permuted(size: Sequence[int], physical_layout: Sequence[int], *, dtype: DType | None = None, layout: Layout = None, device: Device = None, requires_grad: bool = False, pin_memory: bool = False) -> Tensor:
    """Zeros whose memory order of dimensions is ``physical_layout``."""
def empty_strided(size: Sequence[int], stride: Sequence[int], *, dtype: DType | None = None, layout: Layout = None, device: Device = None, requires_grad: bool = False, pin_memory: bool = False) -> Tensor:
    """Zeros with the given strides, in elements."""
def eq(input: Tensor, other: Operand, *, out: Tensor | None = None) -> Tensor:
    """Elementwise comparison eq, as bools."""
def equal(input: Tensor, other: Tensor) -> bool:
    """Whether both have the same shape and elements."""
def erf(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Elementwise erf; integers and bools become the default float dtype."""
def erf_(input: Tensor) -> Tensor:
    """Elementwise erf; integers and bools become the default float dtype."""
def erfc(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Elementwise erfc; integers and bools become the default float dtype."""
def erfc_(input: Tensor) -> Tensor:
    """Elementwise erfc; integers and bools become the default float dtype."""
def erfinv(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Elementwise erfinv; integers and bools become the default float dtype."""
def erfinv_(input: Tensor) -> Tensor:
    """Elementwise erfinv; integers and bools become the default float dtype."""
def exp(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Elementwise exp; integers and bools become the default float dtype."""
def exp2(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Elementwise exp2; integers and bools become the default float dtype."""
def exp2_(input: Tensor) -> Tensor:
    """Elementwise exp2; integers and bools become the default float dtype."""
def exp_(input: Tensor) -> Tensor:
    """Elementwise exp; integers and bools become the default float dtype."""
def expand_copy(input: Tensor, *size: Sizes, implicit: bool = False, out: Tensor | None = None) -> Tensor:
    """Repeated along new leading dimensions and dimensions of size 1 (-1 keeps a size), as a view."""
def expm1(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Elementwise expm1; integers and bools become the default float dtype."""
def expm1_(input: Tensor) -> Tensor:
    """Elementwise expm1; integers and bools become the default float dtype."""
def eye(n: int, m: int | None = None, *, dtype: DType | None = None, layout: Layout = None, device: Device = None, requires_grad: bool = False, pin_memory: bool = False, out: Tensor | None = None) -> Tensor:
    """The identity matrix, ``n`` x ``m``."""
def fake_quantize_per_channel_affine(input: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int) -> Tensor:
    """:func:`fake_quantize_per_tensor_affine` with a scale and a zero point for every index of ``axis``."""
def fake_quantize_per_tensor_affine(input: Tensor, scale: float | Tensor, zero_point: int | Tensor, quant_min: int, quant_max: int) -> Tensor:
    """``input`` in steps of ``scale`` from ``quant_min`` to ``quant_max`` around ``zero_point``.

    Gradients pass where nothing is clamped. RuntimeError for integers and when ``quant_min > quant_max``.
    """
def fill(input: Tensor, value: Operand) -> Tensor:
    """A copy with every element ``value``."""
def fill_(input: Tensor, value: Operand) -> Tensor:
    """Set every element to ``value``."""
def fill_diagonal(input: Tensor, fill_value: Number, wrap: bool = False) -> Tensor:
    """A copy with ``fill_value`` on the main diagonal."""
def fill_diagonal_(input: Tensor, fill_value: Number, wrap: bool = False) -> Tensor:
    """A copy with ``fill_value`` on the main diagonal."""
def fix(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Rounded towards zero."""
def fix_(input: Tensor) -> Tensor:
    """Rounded towards zero."""
def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Dimensions ``start_dim`` to ``end_dim`` merged into one."""
def flip(input: Tensor, *dims: Sizes) -> Tensor:
    """The order of elements reversed along ``dims``, as a copy."""
def fliplr(input: Tensor) -> Tensor:
    """Columns reversed."""
def flipud(input: Tensor) -> Tensor:
    """Rows reversed."""
def float_power(input: Operand, exponent: Operand, *, out: Tensor | None = None) -> Tensor:
    """:func:`pow` computed in float64."""
def float_power_(input: Tensor, exponent: Operand) -> Tensor:
    """:func:`pow` computed in float64."""
def floor(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Rounded down."""
def floor_(input: Tensor) -> Tensor:
    """Rounded down."""
def floor_divide(input: Operand, other: Operand, *, out: Tensor | None = None) -> Tensor:
    """Division rounded down."""
def floor_divide_(input: Tensor, other: Operand) -> Tensor:
    """Division rounded down."""
def fmax(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The greater of each pair; a number wins over NaN."""
def fmin(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The smaller of each pair; a number wins over NaN."""
def fmod(input: Tensor, other: Operand, *, out: Tensor | None = None) -> Tensor:
    """Remainder with the dividend's sign."""
def fmod_(input: Tensor, other: Operand) -> Tensor:
    """Remainder with the dividend's sign."""
def frac(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The part after the point, with the sign of ``input``."""
def frac_(input: Tensor) -> Tensor:
    """The part after the point, with the sign of ``input``."""
def frexp(input: Tensor) -> MantissaExponent:
    """(mantissa in [0.5, 1), exponent) with input = mantissa * 2**exponent."""
def from_dlpack(ext_tensor: _HasDLPack, *, device: Device = None, copy: bool | None = None) -> Tensor:
    """A tensor over the memory of any object with ``__dlpack__``, or over a copy if ``copy`` is true.

    BufferError for tensors that require gradients, and for a ``device`` other than the CPU.
    """
def from_file(filename: str, shared: bool | None = False, size: int | None = 0, *, dtype: DType = ..., **options: Any) -> Tensor:
    """``size`` numbers of a file, mapped into memory: writes go to the file if ``shared``.

    A shared file that is too short or missing is extended. RuntimeError if another is too short.
    """
def from_numpy(ndarray: np.ndarray[Any, Any]) -> Tensor:
    """A tensor that shares ``ndarray``'s memory; TypeError for element types without a dtype."""
def frombuffer(buffer: bytes | bytearray | memoryview | np.ndarray[Any, Any], *, dtype: DType, count: int = -1, offset: int = 0, requires_grad: bool = False) -> Tensor:
    """A 1-d tensor that shares the memory of a buffer."""
def full(size: Sequence[int], fill_value: Number, *, dtype: DType | None = None, layout: Layout = None, device: Device = None, requires_grad: bool = False, pin_memory: bool = False, out: Tensor | None = None) -> Tensor:
    """A tensor of ``fill_value``, in its dtype unless given."""
def full_like(input: Tensor, fill_value: Number, *, dtype: DType | None = None, layout: Layout = None, device: Device = None, requires_grad: bool = False, memory_format: MemoryFormat = None) -> Tensor:
    """A tensor of ``fill_value`` with the shape, dtype and memory order of ``input``."""
def gammainc(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Lower regularised incomplete gamma function."""
def gammainc_(input: Tensor, other: Tensor) -> Tensor:
    """Lower regularised incomplete gamma function."""
def gammaincc(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Upper regularised incomplete gamma function."""
def gammaincc_(input: Tensor, other: Tensor) -> Tensor:
    """Upper regularised incomplete gamma function."""
def gather(input: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False, out: Tensor | None = None) -> Tensor:
    """out[i, j] = input[index[i, j], j] for dim 0, and so on."""
def gcd(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Greatest common divisor of integers."""
def gcd_(input: Tensor, other: Tensor) -> Tensor:
    """Greatest common divisor of integers."""
def ge(input: Tensor, other: Operand, *, out: Tensor | None = None) -> Tensor:
    """Elementwise comparison ge, as bools."""
def geqrf(input: Tensor) -> Reflections:
    """(reflections below the diagonal with R above, their factors tau), in LAPACK's form."""
def ger(input: Tensor, vec2: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Every product of an element of each vector."""
def get_default_device() -> devices.device:
    """The device of factories without an explicit device: that of the innermost ``with torch.device(...)``.

    Example:
        >>> torch.get_default_device()
        device(type='cpu')
    """
def get_default_dtype() -> DType:
    """The dtype of tensors from Python floats.

    Example:
        >>> torch.get_default_dtype()
        torch.float32
    """
def get_deterministic_debug_mode() -> int:
    """The last mode of :func:`set_deterministic_debug_mode`, as a number.

    Example:
        >>> torch.get_deterministic_debug_mode()
        0
    """
def get_float32_matmul_precision() -> str:
    """The last argument of :func:`set_float32_matmul_precision`.

    Example:
        >>> torch.get_float32_matmul_precision()
        'highest'
    """
def gradient(input: Tensor, *, spacing: Number | Sequence[Number] | Sequence[Tensor] = 1, dim: int | Sequence[int] | None = None, edge_order: int = 1) -> tuple[Tensor, ...]:
    """Slopes by central differences inside and one-sided ones (of order 1 or 2) at the edges."""
def greater(input: Tensor, other: Operand, *, out: Tensor | None = None) -> Tensor:
    """Elementwise comparison gt, as bools."""
def greater_equal(input: Tensor, other: Operand, *, out: Tensor | None = None) -> Tensor:
    """Elementwise comparison ge, as bools."""
def gt(input: Tensor, other: Operand, *, out: Tensor | None = None) -> Tensor:
    """Elementwise comparison gt, as bools."""
def hamming_window(window_length: int, periodic: bool = True, alpha: float = ..., beta: float = ..., *, dtype: DType | None = None, layout: Layout = None, device: Device = None, requires_grad: bool = False) -> Tensor:
    """alpha - beta cos, symmetric unless ``periodic``."""
def hann_window(window_length: int, periodic: bool = True, *, dtype: DType | None = None, layout: Layout = None, device: Device = None, requires_grad: bool = False) -> Tensor:
    """Hann window, symmetric unless ``periodic``."""
def heaviside(input: Tensor, values: Tensor, *, out: Tensor | None = None) -> Tensor:
    """0 below zero, 1 above, ``values`` at zero."""
def heaviside_(input: Tensor, values: Tensor) -> Tensor:
    """0 below zero, 1 above, ``values`` at zero."""
def histc(input: Tensor, bins: int = 100, min: Number = 0, max: Number = 0, *, out: Tensor | None = None) -> Tensor:
    """Counts in ``bins`` equal bins of [min, max] (of the data's range when both are equal)."""
def histogram(input: Tensor, bins: int | Tensor, *, range: Sequence[float] | None = None, weight: Tensor | None = None, density: bool = False) -> CountsEdges:
    """(counts, edges) of bins, defined by their number and range, or by their edges."""
def histogramdd(input: Tensor, bins: int | Sequence[int] | Sequence[Tensor], *, range: Sequence[float] | None = None, weight: Tensor | None = None, density: bool = False) -> CountsAllEdges:
    """(counts, list of edges) over the last dimension's coordinates."""
def hsplit(input: Tensor, *indices_or_sections: Sizes) -> tuple[Tensor, ...]:
    """Pieces along columns, as views."""
def hstack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """Joined along columns (along the only dimension of 1-d tensors)."""
def hypot(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """``sqrt(input^2 + other^2)`` without overflow."""
def hypot_(input: Tensor, other: Tensor) -> Tensor:
    """``sqrt(input^2 + other^2)`` without overflow."""
def i0(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Modified Bessel function of the first kind, order 0."""
def i0_(input: Tensor) -> Tensor:
    """Modified Bessel function of the first kind, order 0."""
def igamma(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Lower regularised incomplete gamma function."""
def igamma_(input: Tensor, other: Tensor) -> Tensor:
    """Lower regularised incomplete gamma function."""
def igammac(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Upper regularised incomplete gamma function."""
def igammac_(input: Tensor, other: Tensor) -> Tensor:
    """Upper regularised incomplete gamma function."""
def imag(input: Tensor) -> Tensor:
    """The imaginary part, as a view; RuntimeError for real tensors.

    Args:
        input (Tensor): the operand.

    Example:
        >>> x = torch.tensor([3 + 4j, 1j])
        >>> torch.imag(x)
        tensor([4., 1.])
    """
def index_add(input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Number = 1, out: Tensor | None = None) -> Tensor:
    """A copy of ``input`` with alpha * source added at the positions ``index`` of a dimension."""
def index_add_(input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Number = 1) -> Tensor:
    """A copy of ``input`` with alpha * source added at the positions ``index`` of a dimension."""
def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor, *, out: Tensor | None = None) -> Tensor:
    """A copy of ``input`` with ``source`` at the positions ``index`` of a dimension."""
def index_copy_(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """A copy of ``input`` with ``source`` at the positions ``index`` of a dimension."""
def index_fill(input: Tensor, dim: int, index: Tensor, value: Operand) -> Tensor:
    """A copy of ``input`` with ``value`` at the positions ``index`` of a dimension."""
def index_fill_(input: Tensor, dim: int, index: Tensor, value: Operand) -> Tensor:
    """A copy of ``input`` with ``value`` at the positions ``index`` of a dimension."""
def index_put(input: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Tensor:
    """A copy of ``input`` with ``values`` set (or added) at the index tensors."""
def index_put_(input: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Tensor:
    """In-place form of :func:`index_put`."""
def index_reduce(input: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True, out: Tensor | None = None) -> Tensor:
    """Rows of ``source`` combined into ``input`` by prod, mean, amax or amin."""
def index_reduce_(input: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True) -> Tensor:
    """Rows of ``source`` combined into ``input`` by prod, mean, amax or amin."""
def index_select(input: Tensor, dim: int, index: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The positions ``index`` (1-d) of a dimension."""
def inner(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Sum of products over the last dimension of both."""
def inverse(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """:func:`linalg.inv`."""
def is_anomaly_check_nan_enabled() -> bool:
    """Whether anomaly mode, while it is on, also looks for NaN in gradients.

    Example:
        >>> torch.is_anomaly_check_nan_enabled()
        True
    """
def is_anomaly_enabled() -> bool:
    """Whether backward passes look for the forward line of what fails.

    Example:
        >>> with torch.autograd.set_detect_anomaly(True):
        ...     torch.is_anomaly_enabled()
        True
    """
def is_complex(input: Tensor) -> bool:
    """Whether the dtype is complex."""
def is_conj(input: Tensor) -> bool:
    """Return False: conjugation is never lazy."""
def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """Example:
        >>> torch.is_deterministic_algorithms_warn_only_enabled()
        False
    """
def is_floating_point(input: Tensor) -> bool:
    """Whether the dtype is floating."""
def is_neg(input: Tensor) -> bool:
    """Return False: negation is never lazy."""
def is_nonzero(input: Tensor) -> bool:
    """The truth value of a one-element tensor."""
def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether both have one shape."""
def is_signed(input: Tensor) -> bool:
    """Whether the dtype has negative numbers."""
def is_storage(obj: object) -> bool:
    """Return False: storages are not separate objects."""
def is_tensor(obj: object) -> bool:
    """Whether ``obj`` is a tensor."""
def is_warn_always_enabled() -> bool:
    """The last argument of :func:`set_warn_always`.

    Example:
        >>> torch.is_warn_always_enabled()
        False
    """
def isclose(input: Tensor, other: Tensor, rtol: float = ..., atol: float = ..., equal_nan: bool = False) -> Tensor:
    """|input - other| <= atol + rtol * |other|, infinities equal to themselves."""
def isfinite(input: Tensor) -> Tensor:
    """Whether each is neither infinite nor NaN."""
def isin(elements: Tensor | Number, test_elements: Tensor | Number, *, assume_unique: bool = False, invert: bool = False, out: Tensor | None = None) -> Tensor:
    """Whether each element is among ``test_elements``."""
def isinf(input: Tensor) -> Tensor:
    """Whether each element is infinite."""
def isnan(input: Tensor) -> Tensor:
    """Whether each element is NaN."""
def isneginf(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Whether each element is negative infinity."""
def isposinf(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Whether each element is positive infinity."""
def isreal(input: Tensor) -> Tensor:
    """Whether the imaginary part is 0."""
def istft(input: Tensor, n_fft: int, hop_length: int | None = None, win_length: int | None = None, window: Tensor | None = None, center: bool = True, normalized: bool = False, onesided: bool | None = None, length: int | None = None, return_complex: bool = False) -> Tensor:
    """The signal whose :func:`stft` is ``input``, by least squares (Griffin and Lim 1984)."""
def kaiser_window(window_length: int, periodic: bool = True, beta: float = ..., *, dtype: DType | None = None, layout: Layout = None, device: Device = None, requires_grad: bool = False) -> Tensor:
    """Kaiser window, symmetric unless ``periodic``."""
def kron(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Kronecker product."""
def kthvalue(input: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> ValuesIndices:
    """The ``k``-th smallest element (counted from 1) along ``dim`` and its position."""
def lcm(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Least common multiple of integers."""
def lcm_(input: Tensor, other: Tensor) -> Tensor:
    """Least common multiple of integers."""
def ldexp(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """input * 2**other; floating numbers with integer exponents keep their dtype and are scaled exactly.

    Such an exponent may exceed the range of ``exp2``, so it is split in three. The first step of a very negative one is
    -969: a number that becomes subnormal there vanishes in the next step. The result is therefore rounded once.
    """
def ldexp_(input: Tensor, other: Tensor) -> Tensor:
    """input * 2**other; floating numbers with integer exponents keep their dtype and are scaled exactly.

    Such an exponent may exceed the range of ``exp2``, so it is split in three. The first step of a very negative one is
    -969: a number that becomes subnormal there vanishes in the next step. The result is therefore rounded once.
    """
def le(input: Tensor, other: Operand, *, out: Tensor | None = None) -> Tensor:
    """Elementwise comparison le, as bools."""
def lerp(input: Tensor, end: Tensor, weight: Tensor | Number, *, out: Tensor | None = None) -> Tensor:
    """``input + weight * (end - input)``, accurate at both ends."""
def lerp_(input: Tensor, end: Tensor, weight: Tensor | Number) -> Tensor:
    """``input + weight * (end - input)``, accurate at both ends."""
def less(input: Tensor, other: Operand, *, out: Tensor | None = None) -> Tensor:
    """Elementwise comparison lt, as bools."""
def less_equal(input: Tensor, other: Operand, *, out: Tensor | None = None) -> Tensor:
    """Elementwise comparison le, as bools."""
def lgamma(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Elementwise lgamma; integers and bools become the default float dtype."""
def lgamma_(input: Tensor) -> Tensor:
    """Elementwise lgamma; integers and bools become the default float dtype."""
def linspace(start: Number | _complex | Tensor, end: Number | _complex | Tensor, steps: int, *, dtype: DType | None = None, layout: Layout = None, device: Device = None, requires_grad: bool = False, pin_memory: bool = False, out: Tensor | None = None) -> Tensor:
    """``steps`` evenly spaced numbers from ``start`` to ``end``, both included."""
def log(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Elementwise log; integers and bools become the default float dtype."""
def log10(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Elementwise log10; integers and bools become the default float dtype."""
def log10_(input: Tensor) -> Tensor:
    """Elementwise log10; integers and bools become the default float dtype."""
def log1p(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Elementwise log1p; integers and bools become the default float dtype."""
def log1p_(input: Tensor) -> Tensor:
    """Elementwise log1p; integers and bools become the default float dtype."""
def log2(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Elementwise log2; integers and bools become the default float dtype."""
def log2_(input: Tensor) -> Tensor:
    """Elementwise log2; integers and bools become the default float dtype."""
def log_(input: Tensor) -> Tensor:
    """Elementwise log; integers and bools become the default float dtype."""
def log_softmax(input: Tensor, dim: int, dtype: DType | None = None, *, out: Tensor | None = None) -> Tensor:
    """log(softmax(x)) along ``dim``, computed without the quotient."""
def logaddexp(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """log(exp(input) + exp(other)) without overflow."""
def logaddexp2(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """log2(2**input + 2**other) without overflow."""
def logcumsumexp(input: Tensor, dim: int, *, out: Tensor | None = None) -> Tensor:
    """log of the running sum of exp(x): computed relative to the running maximum, and rescaled where it grows."""
def logdet(input: Tensor) -> Tensor:
    """log of determinants; NaN for negative ones of real matrices."""
def logical_and(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Whether both are nonzero."""
def logical_not(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Whether each element is zero."""
def logical_or(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Whether either is nonzero."""
def logical_xor(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Whether exactly one is nonzero."""
def logit(input: Tensor, eps: float | None = None, *, out: Tensor | None = None) -> Tensor:
    """log(x / (1 - x)), with x first clamped to [eps, 1 - eps]."""
def logit_(input: Tensor, eps: float | None = None) -> Tensor:
    """log(x / (1 - x)), with x first clamped to [eps, 1 - eps]."""
def logspace(start: Number | _complex | Tensor, end: Number | _complex | Tensor, steps: int, base: float = ..., *, dtype: DType | None = None, layout: Layout = None, device: Device = None, requires_grad: bool = False, pin_memory: bool = False, out: Tensor | None = None) -> Tensor:
    """``base`` to the powers of :func:`linspace`."""
def logsumexp(input: Tensor, dim: Dim, keepdim: bool = False, *, out: Tensor | None = None) -> Tensor:
    """log(sum(exp(input))) over ``dim``, shifted by the maximum so that it does not overflow."""
def lt(input: Tensor, other: Operand, *, out: Tensor | None = None) -> Tensor:
    """Elementwise comparison lt, as bools."""
def lu(input: Tensor, pivot: bool = True, get_infos: bool = False, *, out: tuple[Tensor, ...] | None = None) -> tuple[Tensor, ...]:
    """(LU, pivots) and, on request, infos."""
def lu_solve(input: Tensor, LU_data: Tensor, LU_pivots: Tensor, *, out: Tensor | None = None) -> Tensor:
    """:func:`linalg.lu_solve` with the right-hand side first."""
def lu_unpack(LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True) -> PLU:
    """(P, L, U) of :func:`linalg.lu_factor`'s results."""
def masked_fill(input: Tensor, mask: Tensor, value: Operand) -> Tensor:
    """``value`` where ``mask`` (broadcast) is true."""
def masked_fill_(input: Tensor, mask: Tensor, value: Operand) -> Tensor:
    """``value`` where ``mask`` (broadcast) is true."""
def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """Elements of ``source``, in order, where ``mask`` (broadcast) is true."""
def masked_scatter_(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """Elements of ``source``, in order, where ``mask`` (broadcast) is true."""
def masked_select(input: Tensor, mask: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The elements where ``mask`` (broadcast) is true, in one dimension."""
def matmul(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Matrix product: vectors, matrices, and batches of matrices with broadcast batch dimensions."""
def matrix_exp(input: Tensor) -> Tensor:
    """Exponential of square matrices: a Taylor polynomial of a scaled matrix, squared back."""
def matrix_power(input: Tensor, n: int, *, out: Tensor | None = None) -> Tensor:
    """``input`` multiplied ``n`` times with itself (n >= 0), by squaring."""
@overload
def max(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The largest element; with ``dim``, (values, indices) along it; with a tensor, :func:`maximum`."""
@overload
def max(input: Tensor, dim: int, keepdim: bool = False) -> ValuesIndices: ...
@overload
def max(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def maximum(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The greater of each pair; NaN wins."""
def mean(input: Tensor, dim: Dim = None, keepdim: bool = False, *, dtype: DType | None = None, out: Tensor | None = None) -> Tensor:
    """Mean over ``dim``; RuntimeError for integers without a floating ``dtype``."""
@overload
def median(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The lower median; with ``dim``, (values, indices). NaN if there is any."""
@overload
def median(input: Tensor, dim: int, keepdim: bool = False) -> ValuesIndices: ...
def meshgrid(*tensors: Tensor | Sequence[Tensor], indexing: str | None = None) -> tuple[Tensor, ...]:
    """Coordinate grids of 1-d tensors; ``indexing`` is ``"ij"`` (default) or ``"xy"``."""
@overload
def min(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The smallest element; with ``dim``, (values, indices) along it; with a tensor, :func:`minimum`."""
@overload
def min(input: Tensor, dim: int, keepdim: bool = False) -> ValuesIndices: ...
@overload
def min(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def minimum(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The smaller of each pair; NaN wins."""
def mm(input: Tensor, mat2: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Product of two matrices, without broadcasting."""
def mode(input: Tensor, dim: int = -1, keepdim: bool = False) -> ValuesIndices:
    """The most frequent value along ``dim`` (the smallest of several) and the position of its last occurrence."""
def moveaxis(input: Tensor, source: int | Sequence[int], destination: int | Sequence[int]) -> Tensor:
    """Dimensions ``source`` moved to positions ``destination``, the others in order."""
def movedim(input: Tensor, source: int | Sequence[int], destination: int | Sequence[int]) -> Tensor:
    """Dimensions ``source`` moved to positions ``destination``, the others in order."""
def msort(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Sorted along the first dimension."""
def mul(input: Operand, other: Operand, *, out: Tensor | None = None) -> Tensor:
    """``input * other``, broadcast."""
def mul_(input: Tensor, other: Operand) -> Tensor:
    """``input * other``, broadcast."""
def multigammaln(input: Tensor, p: int, *, out: Tensor | None = None) -> Tensor:
    """log of the multivariate gamma function of dimension ``p``."""
def multigammaln_(input: Tensor, p: int) -> Tensor:
    """log of the multivariate gamma function of dimension ``p``."""
def multinomial(input: Tensor, num_samples: int, replacement: bool = False, *, generator: Generator | None = None, out: Tensor | None = None) -> Tensor:
    """Indices drawn with the weights of each row, with or without replacement."""
def multiply(input: Operand, other: Operand, *, out: Tensor | None = None) -> Tensor:
    """``input * other``, broadcast."""
def multiply_(input: Tensor, other: Operand) -> Tensor:
    """``input * other``, broadcast."""
def mv(input: Tensor, vec: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Product of a matrix and a vector."""
def mvlgamma(input: Tensor, p: int, *, out: Tensor | None = None) -> Tensor:
    """log of the multivariate gamma function of dimension ``p``."""
def mvlgamma_(input: Tensor, p: int) -> Tensor:
    """log of the multivariate gamma function of dimension ``p``."""
def nan_to_num(input: Tensor, nan: float | None = None, posinf: float | None = None, neginf: float | None = None, *, out: Tensor | None = None) -> Tensor:
    """NaN and infinities replaced (by 0 and the extreme finite numbers unless given)."""
def nan_to_num_(input: Tensor, nan: float | None = None, posinf: float | None = None, neginf: float | None = None) -> Tensor:
    """NaN and infinities replaced (by 0 and the extreme finite numbers unless given)."""
def nanmean(input: Tensor, dim: Dim = None, keepdim: bool = False, *, dtype: DType | None = None, out: Tensor | None = None) -> Tensor:
    """:func:`mean` over elements that are not NaN."""
@overload
def nanmedian(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The lower median of elements that are not NaN; with ``dim``, (values, indices)."""
@overload
def nanmedian(input: Tensor, dim: int, keepdim: bool = False) -> ValuesIndices: ...
def nanquantile(input: Tensor, q: float | Tensor, dim: int | None = None, keepdim: bool = False, *, interpolation: str = 'linear', out: Tensor | None = None) -> Tensor:
    """:func:`quantile` of elements that are not NaN."""
def nansum(input: Tensor, dim: Dim = None, keepdim: bool = False, *, dtype: DType | None = None, out: Tensor | None = None) -> Tensor:
    """:func:`sum` with NaN as zero."""
def narrow(input: Tensor, dim: int, start: int | Tensor, length: int) -> Tensor:
    """``length`` positions of ``dim`` from ``start`` on, as a view."""
def narrow_copy(input: Tensor, dim: int, start: int | Tensor, length: int, *, out: Tensor | None = None) -> Tensor:
    """``length`` positions of ``dim`` from ``start`` on, as a view."""
def ne(input: Tensor, other: Operand, *, out: Tensor | None = None) -> Tensor:
    """Elementwise comparison ne, as bools."""
def neg(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return -input; RuntimeError on bools."""
def neg_(input: Tensor) -> Tensor:
    """Return -input; RuntimeError on bools."""
def negative(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return -input; RuntimeError on bools."""
def negative_(input: Tensor) -> Tensor:
    """Return -input; RuntimeError on bools."""
def nextafter(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The next representable float after ``input`` towards ``other``."""
def nextafter_(input: Tensor, other: Tensor) -> Tensor:
    """The next representable float after ``input`` towards ``other``."""
@overload
def nonzero(input: Tensor, *, as_tuple: Literal[False] = False, out: Tensor | None = None) -> Tensor:
    """Positions of the nonzero elements: rows of a matrix, or one tensor per dimension."""
@overload
def nonzero(input: Tensor, *, as_tuple: Literal[True], out: tuple[Tensor, ...] | None = None) -> tuple[Tensor, ...]: ...
def nonzero_static(input: Tensor, *, size: int, fill_value: int = -1, out: Tensor | None = None) -> Tensor:
    """:func:`nonzero` with exactly ``size`` rows: truncated, or padded."""
def norm(input: Tensor, p: int | float | str | None = 'fro', dim: Dim = None, keepdim: bool = False, dtype: DType | None = None, *, out: Tensor | None = None) -> Tensor:
    """The p-norm over ``dim``; "fro" is the 2-norm and "nuc" the sum of singular values."""
def normal(mean: float | Tensor = ..., std: float | Tensor = ..., size: Sequence[int] | None = None, *, generator: Generator | None = None, dtype: DType | None = None, layout: Layout = None, device: Device = None, requires_grad: bool = False, pin_memory: bool = False, out: Tensor | None = None) -> Tensor:
    """Normal numbers with the given means and deviations: tensors, numbers, or numbers with a size."""
def not_equal(input: Tensor, other: Operand, *, out: Tensor | None = None) -> Tensor:
    """Elementwise comparison ne, as bools."""
def numel(input: Tensor) -> int:
    """The number of elements."""
def ones(*size: Sizes, dtype: DType | None = None, layout: Layout = None, device: Device = None, requires_grad: bool = False, pin_memory: bool = False, memory_format: MemoryFormat = None, out: Tensor | None = None) -> Tensor:
    """A tensor of ones."""
def ones_like(input: Tensor, *, dtype: DType | None = None, layout: Layout = None, device: Device = None, requires_grad: bool = False, pin_memory: bool = False, memory_format: MemoryFormat = None) -> Tensor:
    """A tensor of ones."""
def orgqr(A: Tensor, tau: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The first columns of the product of reflections I - tau v v* given below the diagonal of ``A``."""
def ormqr(input: Tensor, tau: Tensor, other: Tensor, left: bool = True, transpose: bool = False, *, out: Tensor | None = None) -> Tensor:
    """Q other, Q* other, other Q or other Q* for the reflections of :func:`geqrf`; Q* is transposed and conjugated."""
def outer(input: Tensor, vec2: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Every product of an element of each vector."""
def pca_lowrank(A: Tensor, q: int | None = None, center: bool = True, niter: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    """(U, S, V) of the columns' principal components, ``q`` of them."""
def permute(input: Tensor, *dims: Sizes) -> Tensor:
    """Dimensions in the given order, as a view."""
def permute_copy(input: Tensor, *dims: Sizes, out: Tensor | None = None) -> Tensor:
    """Dimensions in the given order, as a view."""
def pinverse(input: Tensor, rcond: float = ...) -> Tensor:
    """:func:`linalg.pinv`."""
def poisson(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Poisson numbers with the rates ``input``; drawn by numpy from a key of the generator."""
def polar(abs: Tensor, angle: Tensor, *, out: Tensor | None = None) -> Tensor:
    """abs * (cos(angle) + i sin(angle)), broadcast."""
def polygamma(input: int | Tensor, other: int | Tensor, *, out: Tensor | None = None) -> Tensor:
    """The n-th derivative of digamma: ``polygamma(n, x)`` or ``x.polygamma(n)``."""
def polygamma_(input: Tensor, other: int | Tensor) -> Tensor:
    """The n-th derivative of digamma: ``polygamma(n, x)`` or ``x.polygamma(n)``."""
def positive(input: Tensor) -> Tensor:
    """Return ``input``; RuntimeError on bools."""
def pow(input: Operand, exponent: Operand, *, out: Tensor | None = None) -> Tensor:
    """``input ** exponent``; RuntimeError for an integer to a negative Python power."""
def pow_(input: Tensor, exponent: Operand) -> Tensor:
    """``input ** exponent``; RuntimeError for an integer to a negative Python power."""
def prod(input: Tensor, dim: int | None = None, keepdim: bool = False, *, dtype: DType | None = None, out: Tensor | None = None) -> Tensor:
    """Product over ``dim`` (all dimensions by default); integers and bools multiply in int64."""
def promote_types(type1: DType, type2: DType) -> DType:
    """The smallest dtype that contains both."""
def put(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """A copy of ``input`` with ``source`` set (or added) by position in the flattened order."""
def put_(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """A copy of ``input`` with ``source`` set (or added) by position in the flattened order."""
def qr(input: Tensor, some: bool = True) -> QR:
    """Orthogonal (unitary) and upper triangular factors, reduced if ``some``."""
def quantile(input: Tensor, q: float | Tensor, dim: int | None = None, keepdim: bool = False, *, interpolation: str = 'linear', out: Tensor | None = None) -> Tensor:
    """Quantiles at levels ``q`` along ``dim``; NaN if there is any."""
def rad2deg(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Radians to degrees."""
def rad2deg_(input: Tensor) -> Tensor:
    """Radians to degrees."""
def rand(*size: Sizes, dtype: DType | None = None, generator: Generator | None = None, layout: Layout = None, device: Device = None, requires_grad: bool = False, pin_memory: bool = False, out: Tensor | None = None) -> Tensor:
    """Uniform numbers of [0, 1)."""
def rand_like(input: Tensor, *, dtype: DType | None = None, generator: Generator | None = None, layout: Layout = None, device: Device = None, requires_grad: bool = False, pin_memory: bool = False, memory_format: MemoryFormat = None) -> Tensor:
    """Uniform numbers of [0, 1)."""
@overload
def randint(high: int, size: Sequence[int], *, dtype: DType | None = None, generator: Generator | None = None, layout: Layout = None, device: Device = None, requires_grad: bool = False, pin_memory: bool = False, out: Tensor | None = None) -> Tensor:
    """``randint(low=0, high, size)``: uniform integers of [low, high)."""
@overload
def randint(low: int, high: int, size: Sequence[int], *, dtype: DType | None = None, generator: Generator | None = None, layout: Layout = None, device: Device = None, requires_grad: bool = False, pin_memory: bool = False, out: Tensor | None = None) -> Tensor: ...
@overload
def randint_like(input: Tensor, high: int | Tensor, *, dtype: DType | None = None, generator: Generator | None = None, layout: Layout = None, device: Device = None, requires_grad: bool = False, pin_memory: bool = False, memory_format: MemoryFormat = None) -> Tensor:
    """Uniform integers of [low, high) in the shape and dtype of ``input``."""
@overload
def randint_like(input: Tensor, low: int, high: int, *, dtype: DType | None = None, generator: Generator | None = None, layout: Layout = None, device: Device = None, requires_grad: bool = False, pin_memory: bool = False, memory_format: MemoryFormat = None) -> Tensor: ...
def randn(*size: Sizes, dtype: DType | None = None, generator: Generator | None = None, layout: Layout = None, device: Device = None, requires_grad: bool = False, pin_memory: bool = False, out: Tensor | None = None) -> Tensor:
    """Standard normal numbers."""
def randn_like(input: Tensor, *, dtype: DType | None = None, generator: Generator | None = None, layout: Layout = None, device: Device = None, requires_grad: bool = False, pin_memory: bool = False, memory_format: MemoryFormat = None) -> Tensor:
    """Standard normal numbers."""
def randperm(n: int, *, generator: Generator | None = None, dtype: DType = ..., layout: Layout = None, device: Device = None, requires_grad: bool = False, pin_memory: bool = False, out: Tensor | None = None) -> Tensor:
    """A random permutation of 0 ... n - 1: the order of random keys."""
def range(start: Number, end: Number | None = None, step: Number = 1, *, dtype: DType | None = None, layout: Layout = None, device: Device = None, requires_grad: bool = False, out: Tensor | None = None) -> Tensor:
    """Like :func:`arange` but including ``end``."""
def ravel(input: Tensor) -> Tensor:
    """All elements in one dimension, dense: a view of ``input`` when it is."""
def real(input: Tensor) -> Tensor:
    """The real part, as a view; real tensors are returned unchanged.

    Args:
        input (Tensor): the operand.

    Example:
        >>> x = torch.tensor([3 + 4j, 1j])
        >>> torch.real(x)
        tensor([3., 0.])
    """
def reciprocal(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """1 / x."""
def reciprocal_(input: Tensor) -> Tensor:
    """1 / x."""
def relu(input: Tensor) -> Tensor:
    """max(0, input); the gradient at 0 is 0."""
def relu_(input: Tensor) -> Tensor:
    """max(0, input); the gradient at 0 is 0."""
def remainder(input: Operand, other: Operand, *, out: Tensor | None = None) -> Tensor:
    """Remainder with the divisor's sign."""
def remainder_(input: Tensor, other: Operand) -> Tensor:
    """Remainder with the divisor's sign."""
def renorm(input: Tensor, p: float, dim: int, maxnorm: float, *, out: Tensor | None = None) -> Tensor:
    """Slices along ``dim`` scaled down where their p-norm exceeds ``maxnorm``."""
def renorm_(input: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    """Slices along ``dim`` scaled down where their p-norm exceeds ``maxnorm``."""
def repeat_interleave(input: Tensor, repeats: int | Tensor | None = None, dim: int | None = None, *, output_size: int | None = None) -> Tensor:
    """Every position of a dimension repeated ``repeats`` times (a number, or one per position)."""
def reshape(input: Tensor, *shape: Sizes) -> Tensor:
    """The same elements under another shape (one -1 is inferred); a view when strides allow, else a copy."""
def resize_as_(input: Tensor, other: Tensor, memory_format: MemoryFormat = None) -> Tensor:
    """:func:`resize_` to the size of ``other``."""
def resolve_conj(input: Tensor) -> Tensor:
    """``input`` itself: neither conjugation nor negation is lazy."""
def resolve_neg(input: Tensor) -> Tensor:
    """``input`` itself: neither conjugation nor negation is lazy."""
def result_type(tensor1: Operand, tensor2: Operand) -> DType:
    """The dtype of arithmetic on both."""
def roll(input: Tensor, shifts: Sizes, dims: Dim = None) -> Tensor:
    """Elements moved around by ``shifts`` along ``dims``; without dims, in the flattened order."""
def rot90(input: Tensor, k: int = 1, dims: Sequence[int] = ...) -> Tensor:
    """Rotated by 90 degrees ``k`` times in the plane of ``dims``, from the first towards the second."""
def round(input: Tensor, *, decimals: int = 0, out: Tensor | None = None) -> Tensor:
    """Rounded half to even, at ``decimals`` digits after the point."""
def round_(input: Tensor, *, decimals: int = 0) -> Tensor:
    """Rounded half to even, at ``decimals`` digits after the point."""
def row_stack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """Joined along rows."""
def rsqrt(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Elementwise rsqrt; integers and bools become the default float dtype."""
def rsqrt_(input: Tensor) -> Tensor:
    """Elementwise rsqrt; integers and bools become the default float dtype."""
def rsub(input: Tensor, other: Operand, *, alpha: Number = 1) -> Tensor:
    """``other - alpha * input``."""
def scalar_tensor(s: Number, *, dtype: DType | None = None, device: Device = None, layout: Layout = None, requires_grad: bool = False) -> Tensor:
    """A 0-d tensor of one number, float unless ``dtype`` is given."""
def scatter(input: Tensor, dim: int, index: Tensor, src: Tensor | Number | None = None, *, value: Number | None = None, reduce: str | None = None, out: Tensor | None = None) -> Tensor:
    """A copy of ``input`` with out[index[i, j], j] = src[i, j] for dim 0 (``reduce``: add or multiply)."""
def scatter_(input: Tensor, dim: int, index: Tensor, src: Tensor | Number | None = None, *, value: Number | None = None, reduce: str | None = None) -> Tensor:
    """A copy of ``input`` with out[index[i, j], j] = src[i, j] for dim 0 (``reduce``: add or multiply)."""
def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor, *, out: Tensor | None = None) -> Tensor:
    """A copy of ``input`` with out[index[i, j], j] += src[i, j] for dim 0."""
def scatter_add_(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """A copy of ``input`` with out[index[i, j], j] += src[i, j] for dim 0."""
def scatter_reduce(input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True, out: Tensor | None = None) -> Tensor:
    """Scatter combined by sum, prod, mean, amax or amin; ``include_self``: with the elements of ``input``."""
def scatter_reduce_(input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True) -> Tensor:
    """Scatter combined by sum, prod, mean, amax or amin; ``include_self``: with the elements of ``input``."""
def searchsorted(sorted_sequence: Tensor, input: Tensor | Number, *, out_int32: bool = False, right: bool = False, side: str | None = None, sorter: Tensor | None = None, out: Tensor | None = None) -> Tensor:
    """Positions at which to insert values so that the last axis of ``sorted_sequence`` stays sorted."""
def segment_reduce(data: Tensor, reduce: str, *, lengths: Tensor | None = None, indices: Tensor | None = None, offsets: Tensor | None = None, axis: int = 0, unsafe: bool = False, initial: Number | None = None) -> Tensor:
    """Reduce each segment of ``axis`` to one element: "sum", "mean", "max", "min" or "prod".

    Segments are consecutive: ``lengths`` (..., S) has their lengths, or ``offsets`` (..., S + 1) their starts and the
    end of the last one. The leading dimensions are those of ``data`` before ``axis``. ``initial`` takes part in every
    segment, and is the result of empty ones. RuntimeError when they do not fit; ``unsafe`` skips the check of values.
    """
def select(input: Tensor, dim: int, index: int) -> Tensor:
    """The slice at ``index`` of ``dim``, without the dimension, as a view."""
def select_copy(input: Tensor, dim: int, index: int) -> Tensor:
    """The slice at ``index`` of ``dim``, without the dimension, as a view."""
def select_scatter(input: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """A copy of ``input`` with ``src`` at ``index`` of ``dim``."""
def set_default_device(device: Device) -> None:
    """Set the device of factories without an explicit one, outside of ``with torch.device(...)``; None: the CPU.

    Args:
        device (Device): the CPU, by any of its names.

    Example:
        >>> torch.set_default_device("cpu")
        >>> torch.get_default_device()
        device(type='cpu')
    """
def set_default_dtype(d: DType) -> None:
    """Set the default dtype; TypeError unless floating.

    Args:
        d (DType): the dtype, or the distance between samples.

    Example:
        >>> torch.set_default_dtype(torch.float64)
        >>> torch.ones(1).dtype
        torch.float64
        >>> torch.set_default_dtype(torch.float32)
    """
def set_default_tensor_type(t: DType | str | type) -> None:
    """Set the default dtype by a tensor type."""
def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """:func:`use_deterministic_algorithms` by number or word: 0 "default", 1 "warn", 2 "error".

    TypeError for other types, RuntimeError for other values.

    Args:
        debug_mode (int | str): 0 or "default", 1 or "warn", 2 or "error".

    Example:
        >>> torch.set_deterministic_debug_mode("warn")
        >>> torch.get_deterministic_debug_mode()
        1
        >>> torch.set_deterministic_debug_mode("default")
    """
def set_float32_matmul_precision(precision: str) -> None:
    """Accepted ("highest", "high", "medium") without effect: products are always computed in float32.

    Args:
        precision (str): how many digits after the point.

    Example:
        >>> torch.set_float32_matmul_precision("highest")
        >>> torch.get_float32_matmul_precision()
        'highest'
    """
def set_flush_denormal(mode: bool) -> bool:
    """Return False: denormal numbers are kept.

    Args:
        mode (bool): which form is wanted: see the text.

    Example:
        >>> torch.set_flush_denormal(False)
        False
    """
def set_printoptions(precision: int | None = None, threshold: float | None = None, edgeitems: int | None = None, linewidth: int | None = None, profile: str | None = None, sci_mode: bool | None = None) -> None:
    """Set digits, summary threshold and size, line width; ``profile`` is ``default``, ``short`` or ``full``.

    Args:
        precision (int | None, optional): how many digits after the point.
        threshold (float | None, optional): the limit; for printing, from how many elements on some are left out.
        edgeitems (int | None, optional): how many elements are shown at each end.
        linewidth (int | None, optional): how many characters a line has.
        profile (str | None, optional): "default", "short" or "full".
        sci_mode (bool | None, optional): whether numbers are shown in scientific notation.

    Example:
        >>> torch.set_printoptions(precision=2)
        >>> torch.tensor([1.23456])
        tensor([1.23])
        >>> torch.set_printoptions(profile="default")
    """
def set_warn_always(b: bool) -> None:
    """Set whether every warning is shown; Python's own filters decide the output.

    Args:
        b (bool): the second operand; for initializers, the upper limit.

    Example:
        >>> torch.set_warn_always(False)
        >>> torch.is_warn_always_enabled()
        False
    """
def sgn(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """:func:`sign`; of complex numbers the number of size 1 in their direction, 0 for 0."""
def sgn_(input: Tensor) -> Tensor:
    """:func:`sign`; of complex numbers the number of size 1 in their direction, 0 for 0."""
def sigmoid(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Elementwise sigmoid; integers and bools become the default float dtype."""
def sigmoid_(input: Tensor) -> Tensor:
    """Elementwise sigmoid; integers and bools become the default float dtype."""
def sign(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return -1, 0 or 1 with the sign of ``input``."""
def sign_(input: Tensor) -> Tensor:
    """Return -1, 0 or 1 with the sign of ``input``."""
def signbit(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Whether the sign bit is set (also of -0.0)."""
def sin(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Elementwise sin; integers and bools become the default float dtype."""
def sin_(input: Tensor) -> Tensor:
    """Elementwise sin; integers and bools become the default float dtype."""
def sinc(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """sin(pi x) / (pi x), 1 at 0."""
def sinc_(input: Tensor) -> Tensor:
    """sin(pi x) / (pi x), 1 at 0."""
def sinh(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Elementwise sinh; integers and bools become the default float dtype."""
def sinh_(input: Tensor) -> Tensor:
    """Elementwise sinh; integers and bools become the default float dtype."""
def slice_copy(input: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Tensor:
    """``input[start:end:step]`` along ``dim``, as a view."""
def slice_scatter(input: Tensor, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1, *, out: Tensor | None = None) -> Tensor:
    """A copy of ``input`` with ``src`` in the slice start:end:step of ``dim``."""
def slogdet(input: Tensor) -> SignLogabsdet:
    """:func:`linalg.slogdet`."""
def softmax(input: Tensor, dim: int, dtype: DType | None = None, *, out: Tensor | None = None) -> Tensor:
    """exp(x) / sum(exp(x)) along ``dim``."""
@overload
def sort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool | None = None) -> ValuesIndices:
    """``sort(dim=-1, descending=False, stable=False)``: (values, indices), equal elements in their old order."""
@overload
def sort(input: Tensor, stable: bool | None = None, dim: int = -1, descending: bool = False) -> ValuesIndices: ...
def split(tensor: Tensor, split_size_or_sections: Sizes, dim: int = 0) -> tuple[Tensor, ...]:
    """Pieces of a size (the last may be smaller), or of the listed sizes, as views."""
def split_copy(tensor: Tensor, split_size_or_sections: Sizes, dim: int = 0) -> tuple[Tensor, ...]:
    """Pieces of a size (the last may be smaller), or of the listed sizes, as views."""
def split_with_sizes(tensor: Tensor, split_sizes: Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Pieces of the listed sizes, which must add up to the extent, as views."""
def split_with_sizes_copy(tensor: Tensor, split_sizes: Sequence[int], dim: int = 0, *, out: tuple[Tensor, ...] | None = None) -> tuple[Tensor, ...]:
    """Pieces of the listed sizes, which must add up to the extent, as views."""
def sqrt(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Elementwise sqrt; integers and bools become the default float dtype."""
def sqrt_(input: Tensor) -> Tensor:
    """Elementwise sqrt; integers and bools become the default float dtype."""
def square(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """input * input."""
def square_(input: Tensor) -> Tensor:
    """input * input."""
def squeeze(input: Tensor, dim: int | Sequence[int] | None = None) -> Tensor:
    """Dimensions of size 1 removed: all, or those named."""
def squeeze_copy(input: Tensor, dim: int | Sequence[int] | None = None, *, out: Tensor | None = None) -> Tensor:
    """Dimensions of size 1 removed: all, or those named."""
def stack(tensors: Sequence[Tensor], dim: int = 0, *, out: Tensor | None = None) -> Tensor:
    """Tensors of one shape joined along a new dimension."""
def std(input: Tensor, dim: Dim | bool = None, unbiased: bool | None = None, keepdim: bool = False, *, correction: Number | None = None, out: Tensor | None = None) -> Tensor:
    """Standard deviation over ``dim``."""
def std_mean(input: Tensor, dim: Dim | bool = None, unbiased: bool | None = None, keepdim: bool = False, *, correction: Number | None = None) -> tuple[Tensor, Tensor]:
    """Standard deviation and mean over ``dim``."""
def stft(input: Tensor, n_fft: int, hop_length: int | None = None, win_length: int | None = None, window: Tensor | None = None, center: bool = True, pad_mode: str = 'reflect', normalized: bool = False, onesided: bool | None = None, return_complex: bool | None = None, align_to_window: bool | None = None) -> Tensor:
    """Transforms of windows of a signal (B?, T), ``hop_length`` apart: (B?, frequencies, windows)."""
def sub(input: Operand, other: Operand, *, alpha: Number = 1, out: Tensor | None = None) -> Tensor:
    """``input - alpha * other``, broadcast; RuntimeError for bools."""
def sub_(input: Tensor, other: Operand, *, alpha: Number = 1) -> Tensor:
    """``input - alpha * other``, broadcast; RuntimeError for bools."""
def subtract(input: Operand, other: Operand, *, alpha: Number = 1, out: Tensor | None = None) -> Tensor:
    """``input - alpha * other``, broadcast; RuntimeError for bools."""
def subtract_(input: Tensor, other: Operand, *, alpha: Number = 1) -> Tensor:
    """``input - alpha * other``, broadcast; RuntimeError for bools."""
def sum(input: Tensor, dim: Dim = None, keepdim: bool = False, *, dtype: DType | None = None, out: Tensor | None = None) -> Tensor:
    """Sum over ``dim`` (all dimensions by default); integers and bools add up in int64."""
def svd(input: Tensor, some: bool = True, compute_uv: bool = True) -> OldSVD:
    """(U, singular values, V), reduced if ``some``; U and V are zero unless ``compute_uv``."""
def svd_lowrank(A: Tensor, q: int | None = 6, niter: int = 2, M: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """(U, S, V) of rank ``q``, approximately, of ``A`` (minus ``M``)."""
def swapaxes(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """Two dimensions swapped, as a view."""
def swapdims(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """Two dimensions swapped, as a view."""
def sym_float(a: Any) -> float: ...
def sym_int(a: Any) -> int: ...
def sym_ite(b: object, t: object, f: object) -> Any: ...
def sym_max(a: Any, b: Any) -> Any: ...
def sym_min(a: Any, b: Any) -> Any: ...
def sym_not(a: object) -> bool: ...
def sym_sqrt(a: Any) -> float: ...
def sym_sum(args: Any) -> Any: ...
def t(input: Tensor) -> Tensor:
    """The transpose of a tensor of at most two dimensions."""
def t_copy(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The transpose of a tensor of at most two dimensions."""
def take(input: Tensor, index: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Elements by position in the flattened order, in the shape of ``index``."""
def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None, *, out: Tensor | None = None) -> Tensor:
    """:func:`gather` with broadcasting; in the flattened order without ``dim``."""
def tan(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Elementwise tan; integers and bools become the default float dtype."""
def tan_(input: Tensor) -> Tensor:
    """Elementwise tan; integers and bools become the default float dtype."""
def tanh(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Elementwise tanh; integers and bools become the default float dtype."""
def tanh_(input: Tensor) -> Tensor:
    """Elementwise tanh; integers and bools become the default float dtype."""
def tensor(data: object, *, dtype: DType | None = None, device: Device = None, requires_grad: bool = False, pin_memory: bool = False) -> Tensor:
    """A new tensor that copies ``data`` (nested sequences, scalars, arrays, tensors)."""
def tensor_split(input: Tensor, indices_or_sections: Sizes | Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """The given number of pieces of nearly equal size, or pieces split at the listed indices, as views."""
def tensordot(a: Tensor, b: Tensor, dims: int | Sequence[Sequence[int] | int] | Tensor = 2, *, out: Tensor | None = None) -> Tensor:
    """Sum of products over ``dims``: a number of last and first dimensions, or two lists of dimensions."""
def tile(input: Tensor, *dims: Sizes) -> Tensor:
    """Repeated ``dims`` times; missing leading entries are 1."""
def topk(input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> ValuesIndices:
    """The ``k`` largest (or smallest) elements along ``dim``, in order, and their positions."""
def trace(input: Tensor) -> Tensor:
    """Sum of the diagonal of a matrix."""
def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """Two dimensions swapped, as a view."""
def transpose_copy(input: Tensor, dim0: int, dim1: int, *, out: Tensor | None = None) -> Tensor:
    """Two dimensions swapped, as a view."""
def trapezoid(y: Tensor, x: Tensor | None = None, *, dx: Number | Tensor = ..., dim: int = -1) -> Tensor:
    """Integral along ``dim`` by the trapezoidal rule."""
def trapz(y: Tensor, x: Tensor | None = None, *, dx: Number | Tensor = ..., dim: int = -1) -> Tensor:
    """Integral along ``dim`` by the trapezoidal rule."""
def triangular_solve(input: Tensor, A: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False) -> SolutionCoefficient:
    """(X, A) with A X = input for triangular A."""
def tril(input: Tensor, diagonal: int = 0, *, out: Tensor | None = None) -> Tensor:
    """The lower triangle of matrices, the rest zero."""
def tril_(input: Tensor, diagonal: int = 0) -> Tensor:
    """The lower triangle of matrices, the rest zero."""
def tril_indices(row: int, col: int, offset: int = 0, *, dtype: DType = ..., device: Device = None, layout: Layout = None) -> Tensor:
    """Row and column indices of the lower triangle, shape (2, k)."""
def triu(input: Tensor, diagonal: int = 0, *, out: Tensor | None = None) -> Tensor:
    """The upper triangle of matrices, the rest zero."""
def triu_(input: Tensor, diagonal: int = 0) -> Tensor:
    """The upper triangle of matrices, the rest zero."""
def triu_indices(row: int, col: int, offset: int = 0, *, dtype: DType = ..., device: Device = None, layout: Layout = None) -> Tensor:
    """Row and column indices of the upper triangle, shape (2, k)."""
def true_divide(input: Operand, other: Operand, *, out: Tensor | None = None) -> Tensor:
    """:func:`div` without rounding."""
def true_divide_(input: Tensor, other: Operand) -> Tensor:
    """:func:`div` without rounding."""
def trunc(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Rounded towards zero."""
def trunc_(input: Tensor) -> Tensor:
    """Rounded towards zero."""
def typename(obj: object) -> str:
    """``torch.FloatTensor`` for a tensor, the qualified class name for others.

    Args:
        obj (object): any object.

    Example:
        >>> torch.typename(torch.ones(2))
        'torch.FloatTensor'
    """
def unbind(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """Every slice along a dimension, without that dimension, as views."""
def unbind_copy(input: Tensor, dim: int = 0, *, out: tuple[Tensor, ...] | None = None) -> tuple[Tensor, ...]:
    """Every slice along a dimension, without that dimension, as views."""
def unflatten(input: Tensor, dim: int, sizes: Sizes) -> Tensor:
    """Dimension ``dim`` split into ``sizes`` (one may be -1)."""
def unfold_copy(input: Tensor, dimension: int, size: int, step: int, *, out: Tensor | None = None) -> Tensor:
    """Windows of ``size`` every ``step`` positions of ``dimension``; the position in the window is the last
    dimension.
    """
@overload
def unique(input: Tensor, sorted: bool = True, return_inverse: Literal[False] = False, return_counts: Literal[False] = False, dim: int | None = None) -> Tensor:
    """Distinct elements (or slices along ``dim``), sorted; with their inverse indices and counts on request."""
@overload
def unique(input: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None) -> tuple[Tensor, ...]: ...
@overload
def unique_consecutive(input: Tensor, return_inverse: Literal[False] = False, return_counts: Literal[False] = False, dim: int | None = None) -> Tensor:
    """Runs of equal elements (or slices along ``dim``) reduced to one each."""
@overload
def unique_consecutive(input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None) -> tuple[Tensor, ...]: ...
def unravel_index(indices: Tensor, shape: int | Sequence[int]) -> tuple[Tensor, ...]:
    """Flat positions as one index tensor per dimension of ``shape``."""
def unsafe_chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """At most ``chunks`` pieces of equal size (the last may be smaller), as views."""
def unsafe_split(tensor: Tensor, split_size_or_sections: Sizes, dim: int = 0) -> tuple[Tensor, ...]:
    """Pieces of a size (the last may be smaller), or of the listed sizes, as views."""
def unsafe_split_with_sizes(tensor: Tensor, split_sizes: Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Pieces of the listed sizes, which must add up to the extent, as views."""
def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """A dimension of size 1 inserted at ``dim``."""
def unsqueeze_copy(input: Tensor, dim: int, *, out: Tensor | None = None) -> Tensor:
    """A dimension of size 1 inserted at ``dim``."""
def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Accepted without effect: every algorithm here is deterministic.

    Args:
        mode (bool): which form is wanted: see the text.
        warn_only (bool, optional): accepted: nothing is refused.

    Example:
        >>> torch.use_deterministic_algorithms(True)
        >>> torch.are_deterministic_algorithms_enabled()
        True
        >>> torch.use_deterministic_algorithms(False)
    """
def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """Powers of a vector's elements as columns, falling unless ``increasing``."""
def var(input: Tensor, dim: Dim | bool = None, unbiased: bool | None = None, keepdim: bool = False, *, correction: Number | None = None, out: Tensor | None = None) -> Tensor:
    """Variance over ``dim``."""
def var_mean(input: Tensor, dim: Dim | bool = None, unbiased: bool | None = None, keepdim: bool = False, *, correction: Number | None = None) -> tuple[Tensor, Tensor]:
    """Variance and mean over ``dim``."""
def vdot(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """:func:`dot` with the conjugate of the first vector."""
def view_as_complex(input: Tensor) -> Tensor:
    """View the same memory as complex numbers; the last dimension, of size 2, has their parts."""
def view_as_real(input: Tensor) -> Tensor:
    """View the same memory as real numbers: real and imaginary part along a new last dimension of size 2."""
def view_copy(input: Tensor, *size: Sizes | DType, dtype: DType | None = None, out: Tensor | None = None) -> Tensor:
    """A view under another shape or, with a dtype, of the same bytes. RuntimeError when memory does not allow it.

    A view of the bytes has no derivative, except between complex numbers and their parts.
    """
def vsplit(input: Tensor, *indices_or_sections: Sizes) -> tuple[Tensor, ...]:
    """Pieces along rows, as views."""
def vstack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """Joined along rows."""
@overload
def where(condition: Tensor, *, out: tuple[Tensor, ...] | None = None) -> tuple[Tensor, ...]:
    """``input`` where ``condition`` holds, else ``other``; with the condition alone, its nonzero positions."""
@overload
def where(condition: Tensor, input: Operand, other: Operand, *, out: Tensor | None = None) -> Tensor: ...
def xlogy(input: Operand, other: Operand, *, out: Tensor | None = None) -> Tensor:
    """input * log(other), zero where ``input`` is zero."""
def xlogy_(input: Tensor, other: Operand) -> Tensor:
    """input * log(other), zero where ``input`` is zero."""
def zero_(input: Tensor) -> Tensor:
    """Set every element to 0."""
def zeros(*size: Sizes, dtype: DType | None = None, layout: Layout = None, device: Device = None, requires_grad: bool = False, pin_memory: bool = False, memory_format: MemoryFormat = None, out: Tensor | None = None) -> Tensor:
    """A tensor of zeros."""
def zeros_like(input: Tensor, *, dtype: DType | None = None, layout: Layout = None, device: Device = None, requires_grad: bool = False, pin_memory: bool = False, memory_format: MemoryFormat = None) -> Tensor:
    """A tensor of zeros."""
