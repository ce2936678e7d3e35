"""Methods that overwrite a tensor: ``fill_``, ``copy_``, ``zero_``, ``set_``, ``apply_``, ``map_``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from tracecomp.eager.device import use
from tracecomp.eager.modes import modes
from tracecomp.eager.tensor import Tensor, assign_, shared, wrap
from tracecomp.functional.creation.creation import constant
from tracecomp.functional.dtype_support import ALL
from tracecomp.functional.elementwise.pointwise import abs, neg, positive
from tracecomp.functional.primitives import prim
from tracecomp.functional.promotion import Number, Operand, cast, operand, with_zero_gradient
from tracecomp.functional.publish import function, publish
from tracecomp.functional.shape.shaping import clone
from tracecomp.functional.shape.strided import as_strided, counted
from tracecomp.functional.storage import TypedStorage, UntypedStorage
from tracecomp.ir.types import DType

_MANY = 4096
"""Elements above which avoiding an array of equal ones pays."""


@function(to="Tensor", takes=ALL)
def copy__(input: Tensor, src: Operand, non_blocking: bool = False) -> Tensor:
    """Write elements of ``src`` (broadcast, converted), or a number, into this tensor."""
    value = operand(src, "copy_", "src")
    if not isinstance(value, Tensor):
        value = constant((), value, input.dtype)
    value = cast(value, input.dtype)
    history = modes.recorder is not None or (modes.grad and value.requires_grad)
    # A source with a history becomes a separate result, as the write moves that.
    if history or value._data.shape != input._data.shape:
        value = prim.expand(value, shape=tuple(input.shape))
    assign_(input, value)
    return input


def _each_once(x: Tensor) -> Tensor:
    """``x``, or the part of an expanded tensor with each element of its memory once."""
    stops = tuple(min(n, 1) if s == 0 else n for n, s in zip(x.shape, x._data.strides, strict=True))
    if stops == x.shape:
        return x
    part: Tensor = prim.slice(x, starts=(0,) * x.ndim, stops=stops, steps=(1,) * x.ndim)
    return part


def _filled(x: Tensor, value: Operand) -> Tensor:
    if isinstance(value, Tensor):
        if value.ndim:
            raise RuntimeError(
                f"fill_ only supports 0-dimension value tensor but got tensor with {value.ndim} dimensions."
            )
        return prim.expand(cast(value, x.dtype), shape=tuple(x.shape))
    return constant(tuple(x.shape), value, x.dtype)


def _shown_everywhere(x: Tensor, value: Operand) -> Tensor:
    """The result of ``_filled`` if it is copied at once: a single element that is broadcast without memory."""
    few = x._data.size < _MANY
    if few or isinstance(value, Tensor) or modes.recorder is not None or use.begun:
        return _filled(x, value)
    one, shape = constant((), value, x.dtype)._data, x._data.shape
    if one.dtype.kind == "V":  # no buffer protocol
        return Tensor._wrap(np.broadcast_to(one, shape))
    return Tensor._wrap(np.ndarray(shape, one.dtype, one, 0, (0,) * len(shape)))  # a faster ``broadcast_to``


@function(takes=ALL)
def fill(input: Tensor, value: Operand) -> Tensor:
    """A copy with every element ``value``."""
    return with_zero_gradient(clone(_filled(input, value)), input)


@function(takes=ALL)
def fill__(input: Tensor, value: Operand) -> Tensor:
    """Set every element to ``value``."""
    place = _each_once(input)
    assign_(place, _shown_everywhere(place, value))
    return input


@function(takes=ALL)
def zero__(input: Tensor) -> Tensor:
    """Set every element to 0."""
    place = _each_once(input)
    assign_(place, _shown_everywhere(place, 0))
    return input


@function(to="Tensor", takes=ALL)
def set__(
    input: Tensor, source: Tensor | TypedStorage | UntypedStorage | None = None, storage_offset: int = 0,
    size: Sequence[int] | None = None, stride: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """Make this tensor view the memory of ``source``: all of it, or a strided part; without ``source`` an empty one.

    RuntimeError for another dtype, and for positions outside the memory.
    """
    if source is None:
        source = wrap(np.empty(0, input.dtype.numpy))
    if not isinstance(source, Tensor | TypedStorage | UntypedStorage):
        raise TypeError(f"set_(): argument 'source' must be a Tensor or a storage, not {type(source).__name__}")
    flat = source.detach() if isinstance(source, Tensor) else _elements(source, input.dtype)
    if flat.dtype is not input.dtype:
        raise RuntimeError(f"set_(): expected a source of {input.dtype}, but got one of {flat.dtype}")
    if size is not None:
        row_major = tuple(math.prod(size[d + 1 :]) for d in range(len(size)))
        flat = as_strided(flat, size, row_major if stride is None else stride, storage_offset)
    elif storage_offset and not isinstance(source, Tensor):
        flat = flat[storage_offset:]
    version = input._version
    input.data = flat
    return counted(input, version)


def _elements(source: TypedStorage | UntypedStorage, dtype: DType) -> Tensor:
    """The memory of a storage as a flat tensor."""
    if isinstance(source, TypedStorage):
        return shared(source._array)
    if source.nbytes() % dtype.itemsize:
        raise RuntimeError(f"set_(): a storage of {source.nbytes()} bytes does not consist of elements of {dtype}")
    return shared(source._array.view(dtype.numpy))


@function(to="Tensor")
def apply__(input: Tensor, callable: Callable[[Number], Number]) -> Tensor:
    """Every element replaced by ``callable`` of it, on the CPU and slow."""
    values = [callable(v) for v in input._data.ravel().tolist()]
    assign_(input, wrap(np.asarray(values, input._data.dtype).reshape(input._data.shape)))
    return input


@function(to="Tensor")
def map__(input: Tensor, other: Tensor, callable: Callable[[Number, Number], Number]) -> Tensor:
    """Every element replaced by ``callable`` of it and that of ``other``."""
    shape = input._data.shape
    others = np.broadcast_to(other._data, shape).ravel().tolist()
    values = [callable(a, b) for a, b in zip(input._data.ravel().tolist(), others, strict=True)]
    assign_(input, wrap(np.asarray(values, input._data.dtype).reshape(shape)))
    return input


publish(neg, "Tensor.__neg__")
publish(positive, "Tensor.__pos__")
publish(abs, "Tensor.__abs__")
