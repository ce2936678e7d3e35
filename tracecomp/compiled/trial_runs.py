"""Trial runs of machine code on copies, for calls with and without gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tracecomp.eager.tensor import Tensor
from tracecomp.eager.tensor_base import blank
from tracecomp.functional.warm import Statics, Warm
from tracecomp.ir.arrays import same_bits

Array = np.ndarray[Any, Any]


class Unfit(Exception):
    """Why a call is not served by machine code."""


def of_tensors(warm: Warm, statics: Statics) -> Callable[..., Any]:
    """The eager call as a function of tensors alone."""

    def call(*tensors: Any) -> Any:
        return warm(*warm.with_statics(statics, tensors))

    call.__name__ = getattr(warm.run, "__name__", "call")
    return call


def all_random(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Random numbers for every tensor; a repeated tensor stays one."""
    of = {id(t): random_like(t) for t in tensors}
    return [of[id(t)] for t in tensors]


def valid_random(call: Callable[..., Any], tensors: Sequence[Tensor]) -> list[Tensor]:
    """``all_random``, or fractions if ``call`` rejects negative numbers, as it does for probabilities."""
    found = all_random(tensors)
    try:
        call(*copies(found))
    except Exception:  # the function's own check
        of = {id(t): random_like(t, np.random.Generator.random) for t in tensors}
        return [of[id(t)] for t in tensors]
    return found


def copies(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Copies of tensors with the same layouts; a repeated tensor stays one."""
    of = {id(t): like(t, _copy(t._data)) for t in tensors}
    return [of[id(t)] for t in tensors]


def _copy(array: Array) -> Array:
    if array.flags.c_contiguous:
        return array.copy()
    if min(array.strides) < 0:
        turned = tuple([slice(None, None, -1 if step < 0 else 1) for step in array.strides])
        return _copy(array[turned])[turned]
    span = array.itemsize + sum((n - 1) * step for n, step in zip(array.shape, array.strides, strict=True))
    found: Array = np.ndarray(array.shape, array.dtype, np.empty(span, np.uint8), strides=array.strides)
    found[...] = array
    return found


def random_like(t: Tensor, draw: Callable[..., Array] = np.random.Generator.standard_normal) -> Tensor:
    """Random numbers in the place of floats, the same of everything else."""
    if t._data.dtype.kind != "f":
        return t
    array = _copy(t._data)
    array[...] = draw(np.random.default_rng(0), array.shape)
    return like(t, array)


def like(t: Tensor, array: Array) -> Tensor:
    """A leaf over ``array`` that guards take for ``t``."""
    found = blank(type(t))
    found._data, found._requires_grad = array, t.requires_grad
    return found


def tensors_in(value: object) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return [t for x in value for t in tensors_in(x)] if isinstance(value, tuple | list) else []


def same(found: list[Array], wanted: list[Array]) -> None:
    for a, b in zip(found, wanted, strict=True):
        if a.strides != b.strides or not same_bits(a, b, any_nan=True):
            raise Unfit("eager results differ in bits")
