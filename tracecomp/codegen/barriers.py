"""Which memory steps touch, hence which parameters may share memory and where threads must meet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tracecomp.ir.loops import CallStep, Ref, RepeatStep, Step, WhenStep, WhileStep


@dataclass(frozen=True, slots=True)
class Touch:
    """Bytes [low, high) of a slot's memory, read or written by a kernel that runs on one or on all threads."""

    space: tuple[str, int]
    low: int
    high: int
    write: bool
    parallel: bool

    def conflicts(self, other: Touch) -> bool:
        return (
            self.space == other.space
            and (self.write or other.write)
            and (self.parallel or other.parallel)
            and self.low < other.high
            and other.low < self.high
        )


def _space(ref: Ref) -> tuple[str, int]:
    return ("arena", 0) if ref.slot.space == "arena" else (ref.slot.space, ref.slot.position)


def _start(ref: Ref) -> int:
    return ref.slot.position if ref.slot.space == "arena" else 0


def touches(call: CallStep, parallel: bool, shared_bytes: int) -> list[Touch]:
    """Everything ``call`` may touch, whatever the variables of repeats around it are; kernels share their scratch."""
    result = [Touch(("shared", 0), 0, shared_bytes, True, parallel)] if shared_bytes else []
    for param, ref in zip(call.kernel.params, call.args, strict=True):
        low, high = ref.offset.bounds or (0, ref.slot.nbytes)
        start, nbytes = _start(ref), param.size * param.dtype.itemsize
        write = param.name in call.kernel.writes
        result.append(Touch(_space(ref), start + low, start + high + nbytes, write, parallel))
    return result


def overlapping(call: CallStep) -> dict[str, str]:
    """The alias group of each parameter: those that share memory with a written one are in its group."""
    params = call.kernel.params
    group = {p.name: i for i, p in enumerate(params)}
    for i, (p, a) in enumerate(zip(params, call.args, strict=True)):
        for q, b in list(zip(params, call.args, strict=True))[:i]:
            written = p.name in call.kernel.writes or q.name in call.kernel.writes
            sizes = (p.size * p.dtype.itemsize, q.size * q.dtype.itemsize)
            if written and _space(a) == _space(b) and _may_meet(a, b, sizes):
                old, new = group[p.name], group[q.name]
                group = {name: new if g == old else g for name, g in group.items()}
    return {name: f"group{g}" for name, g in group.items()}


def _may_meet(a: Ref, b: Ref, sizes: tuple[int, int]) -> bool:
    apart = (a.offset - b.offset) + (_start(a) - _start(b))
    bounds = apart.bounds
    return bounds is None or (bounds[0] < sizes[1] and bounds[1] > -sizes[0])


def steps_behind_barriers(steps: Sequence[Step], parallel: Sequence[bool], shared_bytes: Sequence[int]) -> set[int]:
    """Numbers of the call steps before which all threads must meet.

    ``parallel[n]``: call n uses all threads; ``shared_bytes[n]``: scratch memory that its threads share.
    """
    planner = _Planner(parallel, shared_bytes)
    planner.visit(steps, 0, [])
    return planner.behind


class _Planner:
    def __init__(self, parallel: Sequence[bool], shared_bytes: Sequence[int]) -> None:
        self.parallel = parallel
        self.shared_bytes = shared_bytes
        self.behind: set[int] = set()

    def visit(self, steps: Sequence[Step], number: int, pending: list[Touch]) -> tuple[int, list[Touch]]:
        """Go through ``steps``, the first being call ``number``; ``pending`` is what was touched since threads met.

        All threads meet at the decision of a ``when`` or ``while``.
        """
        for step in steps:
            if isinstance(step, RepeatStep):
                _, after = self.visit(step.steps, number, pending)
                number, pending = self.visit(step.steps, number, list(dict.fromkeys([*pending, *after])))
                continue
            if isinstance(step, WhenStep):
                number, pending = self.visit(step.then, number, [])
                number, other = self.visit(step.otherwise, number, [])
                pending = list(dict.fromkeys([*pending, *other]))
                continue
            if isinstance(step, WhileStep):
                body, _ = self.visit(step.test, number, pending)
                after_body, again = self.visit(step.steps, body, [])
                self.visit(step.test, number, again)
                number, pending = after_body, []
                continue
            mine = touches(step, self.parallel[number], self.shared_bytes[number])
            if number in self.behind or any(m.conflicts(p) for m in mine for p in pending):
                self.behind.add(number)
                pending = []
            pending = [*pending, *mine]
            number += 1
        return number, pending
