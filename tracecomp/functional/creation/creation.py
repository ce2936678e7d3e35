"""Creation of tensors: from data, filled, sequences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache, reduce
from itertools import groupby
from typing import Any

import numpy as np

from tracecomp.base.capture_guide import Section
from tracecomp.base.user_warnings import warn_as_pytorch
from tracecomp.eager.device import (
    Device,
    Layout,
    MemoryFormat,
    check_device,
    contiguous_format,
    preserve_format,
    use,
)
from tracecomp.eager.evaluate import quietly
from tracecomp.eager.foreign import taken
from tracecomp.eager.memory_formats import order_of
from tracecomp.eager.meta import memory_or
from tracecomp.eager.meta import new_array as new_meta_array
from tracecomp.eager.modes import modes
from tracecomp.eager.tensor import Tensor, create, to_place, wrap, wrap_shared
from tracecomp.functional.default_dtype import default_dtype
from tracecomp.functional.dims import Sizes, new_shape
from tracecomp.functional.dtype_support import ALL, REAL
from tracecomp.functional.memory_formats import copied, lay
from tracecomp.functional.primitives import prim
from tracecomp.functional.promotion import (
    Number,
    bring_exact,
    cast,
    check_range,
    exact_scalar,
    followed_tensor,
    operand,
    scalar_dtype,
)
from tracecomp.functional.publish import function
from tracecomp.ir.arrays import at_line, new_array
from tracecomp.ir.op import OPS
from tracecomp.ir.special import converted
from tracecomp.ir.types import DType, bool_, from_numpy_dtype, int64, promote


def finish(t: Tensor, requires_grad: bool = False, device: Device = None) -> Tensor:
    """Apply the arguments that all factories share to a factory's result."""
    if device is not None:
        t = to_place(t, memory_or(check_device(device)))
    elif modes.place is not None:
        t = to_place(t, modes.place)
    return t.requires_grad_(True) if requires_grad else t


_new, _full = Tensor._wrap, OPS["full"].impl


def _is_told_apart(value: object) -> bool:
    """Whether ``value`` has no other equal value of its type: zeros of floats have signs."""
    kind = type(value)
    return kind is int or kind is bool or (kind is float and value != 0.0)


@lru_cache(1024)
def _exact(value: Number, kind: str, dtype: DType) -> Any:
    """``exact_scalar``; ``kind`` distinguishes equal numbers of different types."""
    return exact_scalar(value, dtype)


def constant(shape: Sequence[int], value: Number | complex, dtype: DType) -> Tensor:
    """A tensor of one value."""
    if modes.recorder is None and not use.begun and not modes.inference and _is_told_apart(value):
        return _new(_full(value=_exact(value, type(value).__name__, dtype), shape=tuple(shape), dtype=dtype))
    number = bring_exact(value, dtype)
    if isinstance(number, Tensor):
        return prim.cast(prim.expand(number, shape=tuple(shape)), dtype=dtype)
    return create("full", value=number, shape=tuple(shape), dtype=dtype)


def _first_leaf(data: object) -> Any:
    while isinstance(data, list | tuple) and data:
        data = data[0]
    return data


_NUMBERS = frozenset((bool, int, float, complex))


def _plain(data: object) -> Any:
    """Nested data with tensors, which must have one element, replaced by numbers."""
    if isinstance(data, Tensor):
        if data._data.size != 1:
            raise ValueError("only one element tensors can be converted to Python scalars")
        return data.item()
    if isinstance(data, Sequence) and not isinstance(data, str) and not _NUMBERS.issuperset(map(type, data)):
        return [_plain(x) for x in data]
    return data


def _type_of(data: Any) -> DType:
    """The type of an element, or that to which the elements of nested sequences promote."""
    if isinstance(data, Sequence):
        numbers = _NUMBERS.intersection(map(type, data))
        others = {_type_of(x) for x in data if type(x) not in numbers}
        return reduce(promote, others.union(scalar_dtype(kind(0)) for kind in numbers)) if data else default_dtype()
    if isinstance(data, Tensor):
        return data.dtype
    return from_numpy_dtype(data.dtype) if isinstance(data, np.ndarray | np.generic) else scalar_dtype(data)


def array_of(data: object, dtype: DType | None) -> np.ndarray[Any, Any]:
    """A fresh array of Python data, with PyTorch's choice of dtype."""
    if dtype is None:
        found = _array_of_one_kind(data)
        if found is not None:
            return found
    if isinstance(data, str | bytes):
        raise TypeError(f"new(): invalid data type '{type(data).__name__}'")
    if isinstance(data, Tensor):
        data = data._read("a copy")
    elif hasattr(data, "__array__") or hasattr(data, "__array_interface__"):
        data = np.asarray(data)
    if isinstance(data, np.ndarray):
        dtype = dtype or from_numpy_dtype(data.dtype)
        array = new_array(data.shape, data.dtype)
        np.copyto(array, data)
    else:
        array = _array_of_numbers(_plain(data))
        if dtype is None:
            dtype = _type_of(data)
        else:
            check_range(array, dtype)
    if array.dtype is not dtype.numpy:
        array = converted(array, dtype.numpy)
    return at_line(np.ascontiguousarray(array).reshape(array.shape))


def _array_of_one_kind(data: Any) -> np.ndarray[Any, Any] | None:
    """``array_of`` a number, or a list or matrix of numbers of one plain type; None for anything else."""
    kinds = {*map(type, data)} if type(data) is list else {type(data)}
    if kinds == _ROWS:
        kinds = {type(x) for row in data for x in row}
    if len(kinds) != 1:
        return None
    (kind,) = kinds
    wanted = (default_dtype() if kind is float else _DTYPES.get(kind)) if kind in _NUMBERS else None
    if wanted is None or wanted.itemsize == 2:
        return None
    try:
        array = np.array(data)
    except ValueError:  # ragged rows: the general path reports the error
        return None
    if array.dtype is not _GIVEN[kind]:
        return None
    if array.dtype is not wanted.numpy:
        array = quietly(array.astype, (wanted.numpy,), {})
    return at_line(array)


_ROWS = {list}
_DTYPES = {int: int64, bool: bool_}
_GIVEN = {float: np.dtype(np.float64), int: np.dtype(np.int64), bool: np.dtype(np.bool_), complex: None}


def _array_of_numbers(data: object) -> np.ndarray[Any, Any]:
    try:
        array = np.array(data)
    except ValueError:
        raise (_ragged(data) or ValueError("expected sequences of equal length")) from None
    if array.dtype.kind in "US":
        if isinstance(_first_leaf(data), str | bytes):
            raise ValueError(f"too many dimensions '{type(_first_leaf(data)).__name__}'")
        raise TypeError("new(): invalid data type 'str'")
    if array.dtype == object:
        strange = [x for x in array.ravel() if not isinstance(x, int | float | complex)]
        if strange:
            raise RuntimeError(f"Could not infer dtype of {type(strange[0]).__name__}")
    if array.dtype in (object, np.uint64):
        raise ValueError("new(): an integer must fit 64 bits")
    return array


def tensor_of(data: object, dtype: DType | None) -> Tensor:
    """Return a new tensor of Python data; dynamic sizes and numbers of the current recording stay dynamic."""
    flat = None if modes.recorder is None else _flat(data)
    if flat is not None and 0 < sum(map(_is_followed, flat[1])) <= _MOST_FOLLOWED:
        shape, numbers = flat
        kind = reduce(promote, map(scalar_dtype, numbers))
        if _is_rounded_once(kind, dtype or kind):
            return _assembled(shape, numbers, dtype or kind)
    return wrap(array_of(data, dtype))


_MOST_FOLLOWED = 64
"""Most dynamic numbers in data; more become static: each is an operand of one concatenation."""


def _is_followed(x: object) -> bool:
    return hasattr(type(x), "__tracecomp_tensor__") and followed_tensor(x) is not None


def _flat(data: object) -> tuple[tuple[int, ...], list[Any]] | None:
    """Return the shape and the real numbers of nested lists and tuples, or None for other data."""
    if isinstance(data, int | float):
        return (), [data]
    if not isinstance(data, list | tuple) or not data:
        return None
    parts = [_flat(x) for x in data]
    shape = parts[0] and parts[0][0]
    numbers: list[Any] = []
    for part in parts:
        if part is None or part[0] != shape:
            return None
        numbers += part[1]
    return (len(data), *(shape or ())), numbers


def _is_rounded_once(kind: DType, dtype: DType) -> bool:
    """Whether a graph converts numbers like numpy; other types need range checks, or round twice."""
    return (dtype is int64 and kind is int64) or (dtype.is_floating_point and dtype.itemsize > 2)


def _assembled(shape: tuple[int, ...], numbers: list[Any], dtype: DType) -> Tensor:
    """Return a tensor of ``numbers``, some of which are dynamic: the graph joins their values in every call."""
    parts = []
    for follow, run in groupby(numbers, _is_followed):
        if follow:
            parts += [constant((1,), x, dtype) for x in run]
        else:
            parts.append(wrap(array_of(list(run), dtype)))
    return prim.reshape(prim.concat(*parts, axis=0), shape=shape)


def _ragged(data: Any, depth: int = 0) -> Exception | None:
    """Return the error for nested sequences that are not an array; None if they are valid."""
    sizes = [len(item) if hasattr(item, "__len__") else None for item in data]
    for size in sizes[1:]:
        if None in (size, sizes[0]) and size != sizes[0]:
            return TypeError(f"expected numbers or sequences at dim {depth + 1}, got a mix of both")
        if size != sizes[0]:
            return ValueError(f"expected sequence of length {sizes[0]} at dim {depth + 1} (got {size})")
    parts = (_ragged(item, depth + 1) for item, size in zip(data, sizes, strict=True) if size is not None)
    return next((found for found in parts if found), None)


@function(to="torch", takes=ALL)
def tensor(
    data: object,
    *,
    dtype: DType | None = None,
    device: Device = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """A new tensor that copies ``data`` (nested sequences, scalars, arrays, tensors)."""
    data = taken(data)
    if isinstance(data, Tensor):
        warn_as_pytorch(
            "To copy construct from a tensor, it is recommended to use sourceTensor.detach().clone() or "
            "sourceTensor.detach().clone().requires_grad_(True), rather than torch.tensor(sourceTensor)."
        )
        copied = prim.cast(data.detach(), dtype=dtype or data.dtype)
        return finish(copied.detach(), requires_grad, device)
    if isinstance(data, int | float) and hasattr(data, "__tracecomp_tensor__"):
        return finish(constant((), data, dtype or scalar_dtype(data)), requires_grad, device)
    if isinstance(data, np.ndarray) and modes.recorder is not None and data.dtype.kind in "biufc":
        return finish(prim.cast(wrap(data), dtype=dtype or from_numpy_dtype(data.dtype)), requires_grad, device)
    return finish(tensor_of(data, dtype), requires_grad, device)


@function(to="torch")
def from_numpy(ndarray: np.ndarray[Any, Any]) -> Tensor:
    """A tensor that shares ``ndarray``'s memory; TypeError for element types without a dtype."""
    if not isinstance(ndarray, np.ndarray):
        raise TypeError(f"expected np.ndarray (got {type(ndarray).__name__})")
    from_numpy_dtype(ndarray.dtype)
    if any(s < 0 for s in ndarray.strides):
        raise ValueError(
            "At least one stride in the given numpy array is negative, and tensors with negative strides are not "
            "currently supported. (You can probably work around this by making a copy of your array with "
            "array.copy().)"
        )
    return wrap_shared(ndarray)


@function("asarray", to="torch", takes=ALL)
def as_tensor(
    data: object,
    dtype: DType | None = None,
    device: Device = None,
    *,
    copy: bool | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """``data`` as a tensor, sharing memory with arrays and tensors where the dtype allows."""
    result: Tensor
    data = taken(data)
    if not isinstance(data, Tensor | np.ndarray | np.generic) and hasattr(data, "__array_interface__"):
        data = np.asarray(data)  # a storage, or another library's array
    if isinstance(data, Tensor):
        result = data if dtype is None or dtype is data.dtype else prim.cast(data, dtype=dtype)
    elif isinstance(data, np.ndarray) and (dtype is None or dtype.numpy == data.dtype):
        result = from_numpy(data)
    else:
        result = tensor_of(data, dtype)
    if copy and result is data:
        result = prim.cast(result, dtype=result.dtype)
    return finish(result, requires_grad, device)


@function(to="torch")
def scalar_tensor(
    s: Number, *, dtype: DType | None = None, device: Device = None, layout: Layout = None, requires_grad: bool = False
) -> Tensor:
    """A 0-d tensor of one number, float unless ``dtype`` is given."""
    return finish(constant((), s, dtype or default_dtype()), requires_grad, device)


def _publish_filled(name: str, value: Number) -> None:
    """``name(size)``, ``name_like(t)`` and ``t.new_name(size)`` of one value."""

    def sized(
        *size: Sizes, dtype: DType | None = None, layout: Layout = None, device: Device = None,
        requires_grad: bool = False, pin_memory: bool = False, memory_format: MemoryFormat = None,
    ) -> Tensor:  # fmt: skip
        made = constant(new_shape(size), value, dtype or default_dtype())
        if memory_format not in (None, contiguous_format, preserve_format):
            made = lay(made, order_of(memory_format, made.ndim))
        return finish(made, requires_grad, device)

    def like(
        input: Tensor, *, dtype: DType | None = None, layout: Layout = None, device: Device = None,
        requires_grad: bool = False, pin_memory: bool = False, memory_format: MemoryFormat = None,
    ) -> Tensor:  # fmt: skip
        made = constant(tuple(input.shape), value, dtype or input.dtype)
        return finish(copied(input, made, memory_format), requires_grad, device)

    def new(
        input: Tensor, *size: Sizes, dtype: DType | None = None, layout: Layout = None, device: Device = None,
        requires_grad: bool = False, pin_memory: bool = False,
    ) -> Tensor:  # fmt: skip
        return finish(constant(new_shape(size), value, dtype or input.dtype), requires_grad, device)

    for fn, public, to, takes in ((sized, name, "torch", REAL), (like, f"{name}_like", "torch", ALL),
                                  (new, f"new_{name}", "Tensor", ALL)):  # fmt: skip
        fn.__name__ = public
        fn.__doc__ = f"A tensor of {name}."
        function(to=to, takes=takes, makes=fn is sized)(fn)


for _name, _value in (("zeros", 0), ("ones", 1), ("empty", 0)):
    _publish_filled(_name, _value)


@function(to="torch", makes=True)
def full(
    size: Sequence[int], fill_value: Number, *, dtype: DType | None = None, layout: Layout = None,
    device: Device = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """A tensor of ``fill_value``, in its dtype unless given."""
    if not isinstance(size, Sequence):
        raise TypeError(f"full(): argument 'size' (position 1) must be tuple of ints, not {type(size).__name__}")
    return finish(_filled(new_shape((size,)), fill_value, dtype), requires_grad, device)


def _filled(shape: tuple[int, ...], fill_value: object, dtype: DType | None) -> Tensor:
    if isinstance(fill_value, Tensor):
        if fill_value.ndim:
            raise RuntimeError(f"fill_value must be a number or a 0-d tensor, not of shape {list(fill_value.shape)}")
        return prim.expand(cast(fill_value, dtype or fill_value.dtype), shape=shape).clone()
    number: Any = operand(fill_value, "full", "fill_value")
    return constant(shape, number, dtype or scalar_dtype(number))


@function(to="torch", takes=ALL)
def full_like(
    input: Tensor, fill_value: Number, *, dtype: DType | None = None, layout: Layout = None, device: Device = None,
    requires_grad: bool = False, memory_format: MemoryFormat = None,
) -> Tensor:  # fmt: skip
    """A tensor of ``fill_value`` with the shape, dtype and memory order of ``input``."""
    made = _filled(tuple(input.shape), fill_value, dtype or input.dtype)
    return finish(copied(input, made, memory_format), requires_grad, device)


@function(to="Tensor", takes=ALL)
def new_full(
    input: Tensor, size: Sequence[int], fill_value: Number, *, dtype: DType | None = None, layout: Layout = None,
    device: Device = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """A tensor of ``fill_value`` with ``input``'s dtype."""
    return finish(_filled(new_shape((size,)), fill_value, dtype or input.dtype), requires_grad, device)


@function(to="Tensor", takes=ALL)
def new_tensor(
    input: Tensor, data: object, *, dtype: DType | None = None, device: Device = None, requires_grad: bool = False
) -> Tensor:
    """``tensor(data)`` with ``input``'s dtype."""
    return tensor(data, dtype=dtype or input.dtype, device=device, requires_grad=requires_grad)


@function(to="torch")
def empty_strided(
    size: Sequence[int], stride: Sequence[int], *, dtype: DType | None = None, layout: Layout = None,
    device: Device = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Zeros with the given strides, in elements."""
    kind = (dtype or default_dtype()).numpy
    if modes.place is not None:
        if modes.recorder is not None:
            modes.recorder.refuse_here(f"makes a tensor on device {modes.place}, which has no data", Section.EXCLUDE)
        array = new_meta_array(size, kind, [s * kind.itemsize for s in stride], modes.place)
        return finish(wrap(array), requires_grad, device)
    if any(s < 0 for s in stride):
        raise RuntimeError(
            f"empty_strided: Storage size calculation overflowed with sizes={list(size)} and strides={list(stride)}"
        )
    extent = 1 + sum((n - 1) * s for n, s in zip(size, stride, strict=True)) if math.prod(size) else 0
    flat = np.zeros(extent, kind)
    strides = tuple(s * kind.itemsize for s in stride)
    return finish(wrap(np.lib.stride_tricks.as_strided(flat, tuple(size), strides)), requires_grad, device)


@function(to="Tensor", takes=ALL)
def new_empty_strided(
    input: Tensor, size: Sequence[int], stride: Sequence[int], *, dtype: DType | None = None, layout: Layout = None,
    device: Device = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """:func:`empty_strided` with ``input``'s dtype."""
    return empty_strided(size, stride, dtype=dtype or input.dtype, device=device, requires_grad=requires_grad)


@function(to="torch")
def empty_permuted(
    size: Sequence[int], physical_layout: Sequence[int], *, dtype: DType | None = None, layout: Layout = None,
    device: Device = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Zeros whose memory order of dimensions is ``physical_layout``."""
    order = tuple(physical_layout)
    if sorted(order) != list(range(len(size))):
        raise RuntimeError(f"Number of dimensions in size does not match the physical_layout {list(order)}")
    strides, step = [0] * len(size), 1
    for axis in reversed(order):
        strides[axis] = step
        step *= max(size[axis], 1)
    return empty_strided(size, strides, dtype=dtype, device=device, requires_grad=requires_grad)
