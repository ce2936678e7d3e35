"""Machine code for eager calls whose operands are not row-major: it runs on row-major copies.

The values of a function do not depend on the layouts of its operands; the layouts of its results do, and match the
eager ones. Copies cost time: this path is used only if a trial was faster.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tracecomp.compiled.served_kinds import ServedKinds
from tracecomp.compiled.trial_runs import Array, Unfit, all_random, same, tensors_in
from tracecomp.eager.modes import modes
from tracecomp.eager.tensor import Tensor
from tracecomp.functional.warm import Run, Statics, Warm
from tracecomp.ir.arrays import row_major_copy

_TRIES = 5
"""Calls of which the shortest counts: others are interrupted by the machine's other work."""
_new = Tensor._wrap


def row_major(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Row-major copies of those that are not; Unfit if one of them is repeated."""
    places = [id(t) for t in tensors if not t._data.flags.c_contiguous]
    if len({*places}) < len(places):
        raise Unfit("an operand that is not row-major is passed twice")
    return [t if t._data.flags.c_contiguous else _copied(t) for t in tensors]


def _copied(t: Tensor) -> Tensor:
    return _new(row_major_copy(t._data))


def add_turned(warm: Warm, statics: Statics, tensors: list[Tensor], builtin: Run, eager: Callable[..., Any]) -> None:
    """Serve calls like this one by ``builtin``, which takes row-major operands; Unfit if that is not faster."""
    served = _Served(builtin, [_order(t._data) for t in tensors_in(eager(*tensors))])
    for given in (tensors, all_random(tensors)):
        found, wanted = served.call(given), eager(*given)
        same([t._data for t in tensors_in(found)], [t._data for t in tensors_in(wanted)])
    if _seconds(lambda: served.call(tensors)) > _seconds(lambda: eager(*tensors)):
        raise Unfit("copying its operands takes longer")
    turned = warm.turned
    if turned is None:
        turned = warm.turned = _Turned(warm)
    assert isinstance(turned, _Turned)
    turned.add(statics, tensors, served)


def _seconds(call: Callable[[], Any]) -> float:
    """Processor time of this thread: the least of some calls."""
    least = float("inf")
    for _ in range(_TRIES):
        began = time.thread_time()
        call()
        least = min(least, time.thread_time() - began)
    return least


def _order(array: Array) -> tuple[int, ...] | None:
    """The axes of a result in memory order; None: row-major."""
    if array.flags.c_contiguous:
        return None
    order = tuple(sorted(range(array.ndim), key=lambda axis: -array.strides[axis]))
    if not array.transpose(order).flags.c_contiguous:
        raise Unfit("a result has gaps")
    return order


class _Turned(ServedKinds["_Served"]):
    """The calls of a function that are served so, by kinds."""

    def __call__(self, args: tuple[object, ...]) -> Any:
        """The result; None where the call is not one that is served."""
        if modes.inference:
            return None
        found = self.find(args)
        if found is None:
            return None
        served, tensors = found
        if modes.grad and any(t.requires_grad for t in tensors):
            return None
        return served.call(tensors)


class _Served:
    """Calls by ``builtin``, whose results are laid out as ``orders`` say."""

    def __init__(self, builtin: Run, orders: Sequence[tuple[int, ...] | None]) -> None:
        self._builtin = builtin
        self._orders = orders

    def call(self, tensors: Sequence[Tensor]) -> Any:
        result = self._builtin(*[t if t._data.flags.c_contiguous else _copied(t) for t in tensors])
        if not any(self._orders):
            return result
        for t, order in zip(tensors_in(result), self._orders, strict=True):
            if order is not None:
                t._data = _laid_out(t._data, order)
        return result


def _laid_out(array: Array, order: tuple[int, ...]) -> Array:
    """``array`` with its axes in memory in this order."""
    back = [order.index(axis) for axis in range(len(order))]
    return np.ascontiguousarray(array.transpose(order)).transpose(back)
