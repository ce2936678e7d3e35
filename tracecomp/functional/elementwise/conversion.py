"""Types and devices of tensors: conversions, queries, ``iinfo`` and ``finfo``."""

from __future__ import annotations

from typing import Any, NamedTuple, overload

import numpy as np

from tracecomp.eager import device as devices
from tracecomp.eager.device import Device, MemoryFormat, preserve_format
from tracecomp.eager.memory_formats import suggested
from tracecomp.eager.meta import MetaArray, memory_or
from tracecomp.eager.tensor import Tensor, to_place
from tracecomp.functional.default_dtype import get_default_dtype, set_default_dtype
from tracecomp.functional.dtype_support import ALL
from tracecomp.functional.memory_formats import copied
from tracecomp.functional.primitives import prim
from tracecomp.functional.promotion import Operand, cast, dtype_argument, operand
from tracecomp.functional.promotion import can_cast as _can_cast
from tracecomp.functional.promotion import result_dtype as _result_dtype
from tracecomp.functional.publish import function, publish
from tracecomp.ir import types
from tracecomp.ir.types import DType, promote, type_word

_CONVERSIONS = {
    "float": types.float32, "double": types.float64, "half": types.float16, "bfloat16": types.bfloat16,
    "int": types.int32, "long": types.int64, "short": types.int16, "char": types.int8, "byte": types.uint8,
    "bool": types.bool_, "cfloat": types.complex64, "cdouble": types.complex128,
}  # fmt: skip


def _converted(input: Tensor, dtype: DType | None, copy: bool, format: MemoryFormat) -> Tensor:
    """``input`` in a dtype and order; itself if it has both."""
    same = dtype is None or dtype is input.dtype
    if same and not copy and format in (None, preserve_format, suggested(input._data)):
        return input
    return copied(input, prim.cast(input, dtype=dtype or input.dtype), format)


def _publish_conversion(name: str, dtype: DType) -> None:
    def convert(input: Tensor, memory_format: MemoryFormat = None) -> Tensor:
        return _converted(input, dtype, False, memory_format)

    convert.__name__, convert.__doc__ = name, f"``input`` as {dtype.name}; itself when it is already."
    function(to="Tensor", takes=ALL)(convert)


for _name, _dtype in _CONVERSIONS.items():
    _publish_conversion(_name, _dtype)


@overload
def to(
    input: Tensor, dtype: DType | type, non_blocking: bool = False, copy: bool = False, *,
    memory_format: MemoryFormat = None,
) -> Tensor: ...  # fmt: skip
@overload
def to(
    input: Tensor, device: Device = None, dtype: DType | type | None = None, non_blocking: bool = False,
    copy: bool = False, *, memory_format: MemoryFormat = None,
) -> Tensor: ...  # fmt: skip
@overload
def to(
    input: Tensor, other: Tensor, non_blocking: bool = False, copy: bool = False, *,
    memory_format: MemoryFormat = None,
) -> Tensor: ...  # fmt: skip
@function(to="Tensor", takes=ALL)
def to(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Convert to a dtype, device or ``memory_format``, or to those of another tensor; return the tensor if nothing
    changes.

    A tensor on ``meta`` has no elements and cannot be moved to another device: NotImplementedError.
    """
    dtype, copy = kwargs.get("dtype"), kwargs.get("copy", False)
    where = kwargs.get("device")
    plain = []
    for arg in args:
        if isinstance(arg, DType):
            dtype = arg
        elif isinstance(arg, Tensor):
            dtype, where = arg.dtype, arg.device
        elif isinstance(arg, type):
            dtype = dtype_argument(arg, "to")
        elif isinstance(arg, bool) or arg is None:
            plain.append(arg)
        else:
            where = arg
    if len(plain) > 1:
        copy = plain[1]
    if isinstance(kwargs.get("other"), Tensor):
        dtype, where = kwargs["other"].dtype, kwargs["other"].device
    if where is not None:
        moved = to_place(input, memory_or(devices.check_device(where)))
        input, copy = moved, copy and moved is input
    return _converted(input, dtype, copy, kwargs.get("memory_format"))


@function(to="Tensor", takes=ALL)
def type_as(input: Tensor, other: Tensor) -> Tensor:
    """``input`` in the dtype of ``other``."""
    return cast(input, other.dtype)


_TYPES = {f"{type_word(t)}Tensor": t for t in types.DTYPES}


def dtype_of_type(kind: object) -> DType:
    """The dtype of ``torch.FloatTensor`` (class or string) or of a dtype itself."""
    if isinstance(kind, DType):
        return kind
    found = getattr(kind, "dtype", None)
    if isinstance(found, DType):
        return found
    dtype = _TYPES.get(str(kind).rpartition(".")[2])
    if dtype is None:
        raise ValueError(f"invalid type: {kind!r}")
    return dtype


@overload
def type_(input: Tensor) -> str: ...
@overload
def type_(input: Tensor, dtype: DType | str | type, non_blocking: bool = False) -> Tensor: ...
@function(to="Tensor", takes=ALL)
def type_(input: Tensor, dtype: DType | str | type | None = None, non_blocking: bool = False) -> Tensor | str:
    """The type's name, as ``torch.FloatTensor``; with an argument, a conversion."""
    if dtype is None:
        return f"torch.{type_word(input.dtype)}Tensor"
    return cast(input, dtype_of_type(dtype))


@function(to="Tensor", takes=ALL)
def cpu(input: Tensor, memory_format: MemoryFormat = None) -> Tensor:
    """``input`` itself; NotImplementedError for a meta tensor, which has no data."""
    return _converted(to_place(input, None), None, False, memory_format)


@function(to="Tensor", takes=ALL)
def cuda(input: Tensor, device: Device = None, non_blocking: bool = False) -> Tensor:
    """AssertionError: there is no accelerator."""
    devices.check_device(device if device is not None else "cuda")
    return input


@function(to="Tensor", takes=ALL)
def pin_memory(input: Tensor) -> Tensor:
    """``input`` itself: host memory needs no pinning."""
    return input


@function(to="Tensor", takes=ALL)
def is_pinned(input: Tensor, device: Device = None) -> bool:
    return False


@function(to="Tensor", takes=ALL)
def get_device(input: Tensor) -> int:
    """Return -1, for the CPU."""
    return -1


@function(to="Tensor", takes=ALL)
def is_set_to(input: Tensor, tensor: Tensor) -> bool:
    """Whether both are the same view of the same memory."""
    a, b = input._data, tensor._data
    return (a.shape, a.strides, input._address()) == (b.shape, b.strides, tensor._address())


def _constant(value: bool) -> property:
    """A property that has one value for all tensors."""

    def has(self: Tensor) -> bool:
        return value

    return property(has, doc=f"{value}: tensors are dense and on the CPU.")


for _name, _value in (("is_cuda", False), ("is_sparse", False), ("is_quantized", False),
                      ("is_mps", False), ("is_mkldnn", False), ("is_nested", False)):  # fmt: skip
    publish(_constant(_value), f"Tensor.{_name}")


def _device(self: Tensor) -> devices.device:
    """The device: the CPU or, without memory, ``meta``."""
    array = self._data
    return array.place if isinstance(array, MetaArray) else devices.CPU


def _is_meta(self: Tensor) -> bool:
    """Whether this is a tensor without elements."""
    return _device(self).type == "meta"


def _is_cpu(self: Tensor) -> bool:
    """Whether the tensor is in the CPU's memory."""
    return _device(self).type == "cpu"


def _layout(self: Tensor) -> devices.layout:
    """Return strided: tensors are dense."""
    return devices.strided


def _names(self: Tensor) -> tuple[None, ...]:
    """Return None for every dimension: dimensions have no names."""
    return (None,) * self.ndim


def _has_names(self: Tensor) -> bool:
    """Return False: dimensions have no names."""
    return False


publish(property(_device, doc=_device.__doc__), "Tensor.device")
publish(property(_is_meta, doc=_is_meta.__doc__), "Tensor.is_meta")
publish(property(_is_cpu, doc=_is_cpu.__doc__), "Tensor.is_cpu")
publish(property(_layout, doc=_layout.__doc__), "Tensor.layout")
publish(property(_names, doc=_names.__doc__), "Tensor.names")
publish(_has_names, "Tensor.has_names")


@function(takes=ALL)
def is_floating_point(input: Tensor) -> bool:
    """Whether the dtype is floating."""
    return input.dtype.is_floating_point


@function(takes=ALL)
def is_signed(input: Tensor) -> bool:
    """Whether the dtype has negative numbers."""
    return input.dtype.is_signed


@function(takes=ALL)
def is_conj(input: Tensor) -> bool:
    """Return False: conjugation is never lazy."""
    return False


@function(takes=ALL)
def is_neg(input: Tensor) -> bool:
    """Return False: negation is never lazy."""
    return False


@function(to="torch", takes=ALL)
def is_tensor(obj: object) -> bool:
    """Whether ``obj`` is a tensor."""
    return isinstance(obj, Tensor)


@function(to="torch", takes=ALL)
def is_storage(obj: object) -> bool:
    """Return False: storages are not separate objects."""
    return False


@function(to="torch", takes=ALL)
def is_nonzero(input: Tensor) -> bool:
    """The truth value of a one-element tensor."""
    return bool(input)


@function(to="torch", takes=ALL)
def numel(input: Tensor) -> int:
    """The number of elements."""
    return input.numel()


@function(to="torch", takes=ALL)
def result_type(tensor1: Operand, tensor2: Operand) -> DType:
    """The dtype of arithmetic on both."""
    return _result_dtype(operand(tensor1, "result_type"), operand(tensor2, "result_type"))


@function(to="torch")
def promote_types(type1: DType, type2: DType) -> DType:
    """The smallest dtype that contains both."""
    return promote(dtype_argument(type1, "promote_types"), dtype_argument(type2, "promote_types"))


@function(to="torch")
def can_cast(from_: DType, to: DType) -> bool:
    """Whether in-place results of ``from_`` may be stored in ``to``."""
    return _can_cast(dtype_argument(from_, "can_cast"), dtype_argument(to, "can_cast"))


@function(to="torch")
def set_default_tensor_type(t: DType | str | type) -> None:
    """Set the default dtype by a tensor type."""
    set_default_dtype(dtype_of_type(t))


publish(set_default_dtype, "torch.set_default_dtype")
publish(get_default_dtype, "torch.get_default_dtype")


class finfo:
    """Limits of a floating dtype, or of the parts of a complex one."""

    def __init__(self, type: DType | None = None) -> None:
        dtype = get_default_dtype() if type is None else dtype_argument(type, "finfo", "type")
        if not dtype.differentiable:
            raise TypeError(
                f"torch.finfo() requires a floating point input type. Use torch.iinfo to handle '{dtype.name}'"
            )
        real = dtype.to_real()
        info: Any = _LIMITS.get(real.name) or np.finfo(real.numpy)
        self.bits = real.itemsize * 8
        self.eps, self.max, self.min = float(info.eps), float(info.max), float(info.min)
        self.tiny = self.smallest_normal = float(info.tiny)
        self.resolution = 10.0**-info.precision
        self.dtype = real.name

    def __repr__(self) -> str:
        return (
            f"finfo(resolution={self.resolution:g}, min={self.min:g}, max={self.max:g}, eps={self.eps:g}, "
            f"smallest_normal={self.smallest_normal:g}, tiny={self.tiny:g}, dtype={self.dtype})"
        )


class _Limits(NamedTuple):
    """Limits as in numpy's ``finfo``; ``precision`` is the number of decimal digits."""

    eps: float
    max: float
    min: float
    tiny: float
    precision: int = 0


_LIMITS = {
    "bfloat16": _Limits(2.0**-7, 3.3895313892515355e38, -3.3895313892515355e38, 2.0**-126, 2),
    "float8_e4m3fn": _Limits(2.0**-3, 448.0, -448.0, 2.0**-6),
    "float8_e4m3fnuz": _Limits(2.0**-3, 240.0, -240.0, 2.0**-7),
    "float8_e5m2": _Limits(2.0**-2, 57344.0, -57344.0, 2.0**-14),
    "float8_e5m2fnuz": _Limits(2.0**-3, 57344.0, -57344.0, 2.0**-15),  # PyTorch's eps; numbers are 2**-2 apart
    "float8_e8m0fnu": _Limits(1.0, 2.0**127, 2.0**-127, 2.0**-127),
}
"""Limits of types of ml_dtypes, which libraries ask for when they are imported: they need no ml_dtypes."""


class iinfo:
    """Limits of an integer dtype."""

    def __init__(self, type: DType) -> None:
        if type.kind != "int":
            raise TypeError(f"torch.iinfo() requires an integer input type. Use torch.finfo to handle '{type.name}'")
        info = np.iinfo(type.numpy)
        self.bits, self.max, self.min, self.dtype = type.itemsize * 8, int(info.max), int(info.min), type.name

    def __repr__(self) -> str:
        return f"iinfo(min={self.min:g}, max={self.max:g}, dtype={self.dtype})"


publish(finfo, "torch.finfo")
publish(iinfo, "torch.iinfo")
