"""Watchpoints: find the program line that changes a place, by checking it after each line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import FrameType
from typing import Any

import numpy as np

from tracecomp.base.errors import Source
from tracecomp.compiled.eager_vs_compiled import Lockstep
from tracecomp.compiled.program_state import ProgramState, SavedState, TensorState
from tracecomp.eager.tensor import Tensor
from tracecomp.ir.arrays import Array, same_bits
from tracecomp.record.capture import target_of
from tracecomp.record.guards.ownership import is_program_code

_MOST_LINES = 20_000
"""Most lines that are watched: a check after each costs microseconds, and a loop may run millions."""


class _Watch:
    """Called by Python at every line of the program's own code."""

    def __init__(self, look: Callable[[], object]) -> None:
        self.look = look
        self.value = look()
        self.before: Source | None = None
        self.changed: Source | None = None
        self.lines = 0

    def __call__(self, frame: FrameType, event: str, arg: object) -> Any:
        if not is_program_code(frame.f_code, frame.f_globals):
            return None
        if event in ("line", "return") and self.lines < _MOST_LINES:
            self.lines += 1
            self.check()
            self.before = Source(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
        return self

    def check(self) -> None:
        """Whether the previous line has changed the place."""
        now = self.look()
        if not _same(now, self.value):
            self.value, self.changed = now, self.before


class _Values:
    """Called by Python at every line: compares the tensors of a line with the ``known`` ones."""

    def __init__(self, known: Mapping[Source, Sequence[Array]]) -> None:
        self.known = known
        self.differs: Source | None = None
        self.lines = 0
        self.before: dict[FrameType, tuple[Source, dict[str, object]]] = {}

    def __call__(self, frame: FrameType, event: str, arg: object) -> Any:
        if not is_program_code(frame.f_code, frame.f_globals):
            return None
        if event in ("line", "return") and self.differs is None and self.lines < _MOST_LINES:
            self.lines += 1
            found = {name: x for name, x in frame.f_locals.items() if isinstance(x, Tensor)}
            if frame in self.before:
                source, had = self.before[frame]
                made = [x._data for name, x in found.items() if had.get(name) is not x]
                if _differ(made, self.known.get(source, ())):
                    self.differs = source
            self.before[frame] = Source(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name), dict(found)
            if event == "return":
                del self.before[frame]
        return self


def _differ(made: Sequence[Array], known: Sequence[Array]) -> bool:
    """Whether some array of a line is not among the ``known`` ones of its kind."""
    for kind in {(x.shape, x.dtype) for x in made}:
        own, others = ([x for x in some if (x.shape, x.dtype) == kind] for some in (made, known))
        # If there are as many as known ones, compare in order.
        candidates = [[x] for x in others] if len(own) == len(others) else [others] * len(own)
        if others and not all(any(map(partial(_near, x), some)) for x, some in zip(own, candidates, strict=True)):
            return True
    return False


def _near(a: Array, b: Array) -> bool:
    return bool(np.allclose(a, b, rtol=1e-3, atol=1e-5, equal_nan=True))


def line_that_differs(
    fn: Callable[..., Any], call: Any, known: Mapping[Source, Sequence[Array]], roots: Mapping[str, object]
) -> Source | None:
    """Find the first line of an eager call that gives a local variable other values than ``known``."""
    values = _Values(known)
    _run_watched(fn, call, values, roots)
    return values.differs


def lines_of(fn: Callable[..., Any], call: Any, roots: Mapping[str, object]) -> list[Source]:
    """The program's lines in the order in which an eager call runs them."""
    lines: list[Source] = []

    def note(frame: FrameType, event: str, arg: object) -> Any:
        if not is_program_code(frame.f_code, frame.f_globals):
            return None
        if event == "line" and len(lines) < _MOST_LINES:
            lines.append(Source(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        return note

    _run_watched(fn, call, note, roots)
    return lines


def line_that_parts(usual: Sequence[Source], other: Sequence[Source]) -> Source | None:
    """The last line before two calls run different ones: a condition, or the head of a loop."""
    before = None
    for a, b in zip(usual, other, strict=False):
        if a != b:
            return before
        before = a
    return before if len(usual) != len(other) else None


def _same(a: object, b: object) -> bool:
    if isinstance(a, TensorState) and isinstance(b, TensorState):
        return a.requires_grad is b.requires_grad and same_bits(a.array, b.array)
    return type(a) is type(b) and bool(a == b)


def line_that_changes(
    fn: Callable[..., object], call: object, place: str, roots: Mapping[str, object]
) -> Source | None:
    """The last line of an eager call that changes ``place``; the state is restored."""
    tensor = _tensor_at(ProgramState(roots), place)
    found = None if tensor is None else _watched(fn, call, tensor, roots)
    return found or _watched(fn, call, lambda: ProgramState(roots).values.get(place), roots)


def line_of_place(fn: Callable[..., Any], call: Any, place: str) -> Source | None:
    """The last line of an eager call that changes ``place``, or that runs in ``fn``; the state is restored."""
    roots = Lockstep(fn, fn).roots(call)
    found = None if place.startswith("result") else line_that_changes(fn, call, place, roots)
    if found is None:
        target = target_of(fn)
        lines = lines_of(fn, call, roots)
        own = [x for x in lines if target is not None and x.function == target[0].__name__]
        found = next(reversed(own or lines), None)
    return found


def _watched(
    fn: Callable[..., Any], call: Any, look: Callable[[], object], roots: Mapping[str, object]
) -> Source | None:
    """The last line after which the result of ``look`` changes."""
    watch = _Watch(look)
    _run_watched(fn, call, watch, roots, watch.check)
    return watch.changed


def _run_watched(
    fn: Callable[..., Any], call: Any, watch: Callable[..., Any], roots: Mapping[str, object],
    after: Callable[[], object] = lambda: None,
) -> None:  # fmt: skip
    """Run the call with ``watch`` at every line, and then ``after``; the state is restored."""
    before = SavedState(roots)
    trace = sys.gettrace()
    try:
        sys.settrace(watch)
        fn(*call[0], **call[1])
    except Exception:  # the program's own error: it runs only to find the change
        pass
    finally:
        sys.settrace(trace)
        after()
        before.restore()


def _tensor_at(before: ProgramState, place: str) -> Callable[[], Any] | None:
    """A function that returns the contents of the tensor at ``place``, or of its gradient, directly."""
    flagless = place.removesuffix(".requires_grad")
    holder = before.tensors.get(flagless.removesuffix(".grad"))
    tensor = before.tensors.get(flagless)
    if tensor is not None:
        return lambda: TensorState(tensor._data.copy(), tensor._requires_grad)
    if holder is not None:
        return lambda: None if holder._grad is None else TensorState(holder._grad._data.copy())
    return None
