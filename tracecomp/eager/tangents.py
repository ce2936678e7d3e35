"""Forward derivatives: the tangents of dual tensors, carried through every operator while a level is active.

A tensor holds its tangent in each level (``_tangents``); a view has that of its base, seen through the view. Tangents
are tensors that nothing writes to. The levels outside a level see what computes its tangents, so levels nest.

The rule of an operator is the transpose of its vector-Jacobian product, which is linear: no operator needs another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

from tracecomp.eager.device import use
from tracecomp.eager.grad_fn import NUMBERS, OpNode
from tracecomp.eager.modes import modes
from tracecomp.eager.overrides import unwatch_calls, watch_calls
from tracecomp.eager.tensor_base import TensorBase, base_of, end_view
from tracecomp.eager.views import look, write
from tracecomp.eager.vjp_program import pushforward
from tracecomp.ir.op import OPS, Attrs, Op
from tracecomp.ir.types import from_numpy_dtype


class _Tangent:
    """A tensor's tangent in one level; ``value`` is None when the level has ended."""

    __slots__ = ("__weakref__", "value")

    def __init__(self, value: TensorBase) -> None:
        self.value: TensorBase | None = value


class Level:
    """One forward derivative: tensors have tangents in it between ``begin`` and ``end``."""

    def __init__(self) -> None:
        self._held: WeakSet[_Tangent] = WeakSet()

    def begin(self) -> None:
        """Carry tangents from now on. Machine code for frequent calls ignores them, so functions check each call."""
        use.begin()
        watch_calls()
        modes.levels = (*modes.levels, self)

    def end(self) -> None:
        """Forget the tangents of this level."""
        modes.levels = tuple(x for x in modes.levels if x is not self)
        unwatch_calls()
        use.end()
        for held in self._held:
            held.value = None

    def __enter__(self) -> Level:
        self.begin()
        return self

    def __exit__(self, *error: object) -> None:
        self.end()

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Run in the levels that this one is in."""
        before = modes.levels
        modes.levels = before[: before.index(self)] if self in before else before
        try:
            yield
        finally:
            modes.levels = before

    def hold(self, value: TensorBase) -> _Tangent:
        """``value`` as what a tensor holds until the level ends."""
        held = _Tangent(value)
        self._held.add(held)
        return held


@contextmanager
def without_levels() -> Iterator[None]:
    """Carry no tangents inside."""
    before, modes.levels = modes.levels, ()
    try:
        yield
    finally:
        modes.levels = before


def tangent(t: object, level: Level) -> Any:
    """The tangent of ``t``, None where it does not depend on a dual tensor of ``level``."""
    if not isinstance(t, TensorBase):
        return None
    if not t._linked:
        held = None if t._tangents is None else t._tangents.get(level)
        return None if held is None else held.value
    seen = tangent(base_of(t), level)
    if seen is None:
        return None
    with level.outside():
        return look(seen, t._chain)


def set_tangent(t: TensorBase, level: Level, value: TensorBase) -> None:
    """Make ``value`` the tangent of ``t``; for a view, write it into the tangent of the base."""
    if t._linked:
        base = base_of(t)
        old = tangent(base, level)
        with level.outside():
            value = write(_zeros(base) if old is None else old, t._chain, value)
        t = base
    if t._tangents is None:
        t._tangents = {}
    t._tangents[level] = level.hold(value)


def held_tangents(t: object) -> dict[Level, _Tangent]:
    """The tangents of ``t`` in the active levels, in the form of ``_tangents`` of a tensor that is not a view."""
    found = ((level, tangent(t, level)) for level in modes.levels)
    return {level: level.hold(value) for level, value in found if value is not None}


def has_tangent(values: Sequence[object]) -> bool:
    """Whether one of ``values`` has a tangent in an active level."""
    return any(isinstance(t, TensorBase) and _is_dual(t) for t in values)


def _is_dual(t: TensorBase) -> bool:
    t = base_of(t) if t._linked else t
    return t._tangents is not None and any(level in t._tangents for level in modes.levels)


def apart(t: TensorBase, history: bool) -> Any:
    """The memory of ``t`` with its tangents, and with its history or without, as a tensor that is not a view."""
    before, modes.grad = modes.grad, history
    try:
        found = t.__tracecomp_apply__(OPS["reshape"], (t,), {"shape": tuple(t.shape)})
    finally:
        modes.grad = before
    tangents = [(level, tangent(found, level)) for level in modes.levels]
    end_view(found)
    found._requires_grad = False
    for level, value in tangents:
        if value is not None:
            set_tangent(found, level, value)
    return found


def push(op: Op, operands: tuple[object, ...], attrs: Attrs, like: type[TensorBase]) -> Any:
    """The results of ``op``, with tangents."""
    with without_levels():
        result = like.__tracecomp_apply__(op, operands, attrs)
    outs = result if isinstance(result, tuple) else (result,)
    if op.vjp is None or not all(isinstance(t, TensorBase) for t in outs):
        return result
    if all(t._linked for t in outs):  # views have the tangents of their base
        return result
    # The outermost first: what computes the tangents of an inner level reads the results, with their tangents.
    for level in modes.levels:
        given = [tangent(x, level) for x in operands]
        if any(t is not None for t in given):
            with level.outside():
                values = _pushed(op, operands, attrs, outs, given)
            for t, value in zip(outs, values, strict=True):
                if value is not None:
                    set_tangent(t, level, value)
    for t in outs:
        # A backward pass inside the level reads the saved results of a node together with their tangents.
        if isinstance(t._grad_fn, OpNode):
            t._grad_fn.note_tangents(t, [held_tangents(x) for x in operands] if modes.save_hooks else ())
    return result


def _pushed(
    op: Op, operands: tuple[object, ...], attrs: Attrs, outs: Sequence[TensorBase], given: Sequence[object]
) -> list[Any]:
    """Tangents of the results of ``op``, from those of its operands; zeros where none of these reaches a result."""
    last = next(x._data.dtype for x in reversed(operands) if isinstance(x, TensorBase))
    dtypes = [x._data.dtype if isinstance(x, TensorBase) else last for x in operands]
    recorder = modes.recorder
    sized = recorder is not None and recorder.sized
    shape_of = recorder.sizes.shape_of if sized else _shape_of
    types = [(d, shape_of(x) if isinstance(x, TensorBase) else ()) for d, x in zip(dtypes, operands, strict=True)]
    kinds = [(t._data.dtype, shape_of(t)) for t in outs]
    program = pushforward(op, attrs, types, kinds, tuple([t is not None for t in given]), keep=not sized)
    slots = [
        _read(x, d, outs[0]) if i in program.reads else None
        for i, (x, d) in enumerate(zip(operands, dtypes, strict=True))
    ]
    slots += [t if len(operands) + i in program.reads else None for i, t in enumerate(outs)]
    first = len(slots) + len(given)
    slots += [*given, *[_zeros(t) if first + i in program.reads else None for i, t in enumerate(outs)]]
    values = program.run(slots, type(outs[0]).__tracecomp_apply__)
    return [_zeros(t) if v is None and t.dtype.differentiable else v for t, v in zip(outs, values, strict=True)]


def _shape_of(t: TensorBase) -> Any:
    return t._data.shape


def _read(x: object, dtype: Any, like: TensorBase) -> Any:
    """An operand as a tensor."""
    if isinstance(x, NUMBERS):
        return like._create("full", value=x, shape=(), dtype=from_numpy_dtype(dtype))
    return x


def written(target: TensorBase, value: TensorBase) -> None:
    """Update the tangents of ``target``, or of its base, after ``value`` was written into it."""
    base = base_of(target) if target._linked else target
    for level in modes.levels:
        new = tangent(value, level)
        if new is None and tangent(base, level) is not None:
            with level.outside():
                new = _zeros(target)
        if new is not None:
            set_tangent(target, level, new)


def _zeros(t: TensorBase) -> TensorBase:
    return t._create("full", value=0, shape=tuple(t.shape), dtype=t.dtype)
