"""Methods that overwrite a tensor: ``fill_``, ``copy_``, ``zero_``, ``set_``, ``apply_``, ``map_``."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tracecomp.eager.tensor import Tensor, assign_, wrap
from tracecomp.functional.creation.creation import constant
from tracecomp.functional.dtype_support import ALL
from tracecomp.functional.elementwise.pointwise import abs, neg, positive
from tracecomp.functional.primitives import prim
from tracecomp.functional.promotion import Number, Operand, cast, operand, with_zero_gradient
from tracecomp.functional.publish import function, publish
from tracecomp.functional.shape.shaping import clone


@function(to="Tensor", takes=ALL)
def copy__(input: Tensor, src: Operand, non_blocking: bool = False) -> Tensor:
    """Elements of ``src`` (broadcast, converted), or a number, written into this tensor."""
    value = operand(src, "copy_", "src")
    if not isinstance(value, Tensor):
        value = constant((), value, input.dtype)
    assign_(input, prim.expand(cast(value, input.dtype), shape=tuple(input.shape)))
    return input


def _each_once(x: Tensor) -> Tensor:
    """``x``, or the part of an expanded tensor that has each element of its memory once."""
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


@function(takes=ALL)
def fill(input: Tensor, value: Operand) -> Tensor:
    """A copy with every element ``value``."""
    return with_zero_gradient(clone(_filled(input, value)), input)


@function(takes=ALL)
def fill__(input: Tensor, value: Operand) -> Tensor:
    """Every element becomes ``value``."""
    place = _each_once(input)
    assign_(place, _filled(place, value))
    return input


@function(takes=ALL)
def zero__(input: Tensor) -> Tensor:
    """Every element becomes 0."""
    place = _each_once(input)
    assign_(place, _filled(place, 0))
    return input


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
