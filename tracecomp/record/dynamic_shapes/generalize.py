"""Recordings for every size, from a recording and another that confirms it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tracecomp.ir.graph import Graph, Value
from tracecomp.record.binding import Binding
from tracecomp.record.dynamic_shapes.padding import NotSized
from tracecomp.record.dynamic_shapes.same_graph import check_same
from tracecomp.record.guards.sizes import SizesGuard
from tracecomp.record.recording import Recording, Sizes, Split
from tracecomp.record.results import Common, Found, Given, Plain, Seen, SizeResult
from tracecomp.record.symbolic.sizes import LEAST, SizeSource
from tracecomp.record.symbolic.sym_int import settled

BY_SIZE = "the path taken depends on the size itself"


@dataclass
class Sized:
    """A recording with guards for more sizes."""

    recording: Recording
    guard: SizesGuard

    @property
    def says(self) -> str:
        """The sizes as text."""
        paths = self.recording.guards.paths
        found = []
        for same, held in zip(self.guard.sources, self.guard.conditions.ranges, strict=True):
            (kind, *which), axis = same[0]
            owner = self.guard.places[which[0]].where if kind == "place" else paths[which[0]]
            along = "" if kind == "number" else f" along axis {axis}"
            found.append(f"of {owner}{along} {held.says()}")
        return ", ".join(found)

    def sizes_of(self, graph: Graph) -> Sizes:
        """How the recording's graph, or that of its derivative, depends on sizes."""
        split = self.recording.split
        found = split.sizes if split is not None and graph is split.backward else self.recording.sizes
        assert found is not None
        return found


def sized(first: Recording, second: Recording) -> Sized:
    """``second`` for every size, if ``first`` is what that says for other sizes; NotSized says why not."""
    sizes = second.sizes
    if sizes is None or not sizes.sources:
        raise NotSized("no size is dynamic, or an unrelated number equals a size")
    values = _values(first, second, sizes)
    for held, n in zip(sizes.conditions.ranges, values, strict=True):
        if not held.holds(n):
            raise NotSized(f"{held.fixed_at} needs a concrete size" if held.fixed_at else BY_SIZE)
    if not sizes.conditions.holds(values):
        raise NotSized(BY_SIZE)
    _check_alike(first, second, values)
    check_same(first.graph, second.graph, sizes, values, size_inputs(second, second.graph, sizes))
    if first.split is not None and second.split is not None:
        own = second.split.sizes
        if own is None:
            raise NotSized("an unrelated number equals a size")
        backward = second.split.backward
        check_same(first.split.backward, backward, own, values, size_inputs(second, backward, own))
    _check_state(second, sizes)
    for held in sizes.conditions.ranges:
        held.bound(LEAST, None)
    guards = second.guards.for_sizes(sizes.conditions, sizes.sources)
    return Sized(replace(second, guards=guards, calls=0), guards.sizes())


def _values(first: Recording, second: Recording, sizes: Sizes) -> tuple[int, ...]:
    """The sizes of ``second`` in terms of those of ``first``, from which it otherwise does not differ."""
    axes = {source for same in sizes.sources for source in same}
    fixed = {h for h in second.guards.shapes() if h[0] == "number" and SizeSource(h, 0) not in axes}
    before, after = ({h: s for h, s in r.guards.shapes().items() if h not in fixed} for r in (first, second))
    if first.guards.structure != second.guards.structure or before.keys() != after.keys():
        raise NotSized("the structure of the arguments changed")
    for holder in before:
        if len(before[holder]) != len(after[holder]):
            raise NotSized("an argument's number of dimensions changed")
        for axis, (a, b) in enumerate(zip(before[holder], after[holder], strict=True)):
            if a != b and SizeSource(holder, axis) not in axes:
                raise NotSized("a static size differs")
    # Axes that were one size in the second recording have to be one in the first: else they are two unknowns.
    values = [{before[source.holder][source.axis] for source in same} for same in sizes.sources]
    if any(len(found) > 1 for found in values):
        raise NotSized("sizes that were equal differ")
    if all(min(found) == held.value for found, held in zip(values, sizes.conditions.ranges, strict=True)):
        raise NotSized("no size differs")
    return tuple(min(found) for found in values)


def _check_alike(first: Recording, second: Recording, values: Sequence[int]) -> None:
    """Check that two recordings, the second at the sizes ``values``, differ at most in their graphs."""
    if first.rebased or second.rebased:
        raise NotSized("the call gives an argument gradient history")
    if _facts(first, None) != _facts(second, values):
        raise NotSized("the size changes which tensors the call reads, returns or writes, or its effects")


def _facts(recording: Recording, sizes: Sequence[int] | None) -> list[Any]:
    """The parts of a recording other than its graph, at ``sizes``, or at its own."""

    common: dict[int, int] = {}  # containers that are left in several places, or hold themselves

    def shown(result: object) -> Any:
        if isinstance(result, Given):
            return _bound(result.source)
        if isinstance(result, Seen):
            steps = [(op.name, settled(attrs, sizes)) for op, attrs in result.steps]
            own = (result.follows, result.apart, result.history, shown(result.grad), result.kind, result.unwritable)
            return (shown(result.of), steps, *own)
        if isinstance(result, Found):
            return result.read.path()
        if isinstance(result, Common):
            if id(result) in common:
                return ("again", common[id(result)])
            common[id(result)] = len(common)
            return (result.structure, list(map(shown, result.results)))
        # The number may have been a constant of one recording: its attribute differed only in a later call.
        return Plain(result.at(sizes)) if isinstance(result, SizeResult) else result

    return [
        _shown_split(recording.split),
        [_bound(b) for b in recording.inputs if b.kind != "size"],
        recording.structure,
        list(map(shown, recording.results)),
        [(_bound(b), n) for b, n in recording.updates],
        [(_bound(b), n) for b, n in recording.writes],
        [(_bound(b), shown(r)) for b, r in recording.grads],
        [(_bound(b), flag) for b, flag in recording.requires_grad],
        [(p.number, p.seen) for p in recording.predicates],
        [(r.place, list(map(shown, r.results))) for r in recording.rebound],
        [(e.apply, e.owner and e.owner.path(), e.structure, list(map(shown, e.results))) for e in recording.effects],
    ]


def _bound(binding: Binding) -> Any:
    if isinstance(binding.ref, Binding):
        return (binding.kind, _bound(binding.ref))
    ref = binding.ref
    return (binding.kind, tuple(map(_identity, ref)) if isinstance(ref, tuple) else _identity(ref))


def _identity(ref: object) -> Any:
    if isinstance(ref, Binding):
        return _bound(ref)
    return ref if isinstance(ref, int | str) else id(getattr(ref, "group", ref))


def _shown_split(split: Split | None) -> Any:
    if split is None:
        return None
    saved = [b if isinstance(b, int) else _bound(b) for b in split.saved if isinstance(b, int) or b.kind != "size"]
    return saved, [(_bound(b), n) for b, n in split.wanted], split.leading, split.roots


def _check_state(recording: Recording, sizes: Sizes) -> None:
    """Check that only arguments, tensors in places, and results change their shapes."""
    for binding, given in zip(recording.inputs, _open(recording.graph), strict=True):
        if given in sizes.shapes and binding.kind not in ("argument", "place"):
            raise NotSized("the size changes the shape of state")


def size_inputs(recording: Recording, graph: Graph, sizes: Sizes) -> dict[Value, int]:
    """The inputs of a recording's graph, or of its derivative's, that are sizes, with the numbers of these."""
    given: Sequence[Any] = recording.inputs
    if recording.split is not None and graph is recording.split.backward:
        given = recording.split.saved
    found = {}
    for b, value in zip(given, _open(graph), strict=False):
        if isinstance(b, Binding) and b.kind == "size":
            holder, axis = b.ref
            which = (holder.ref,) if holder.kind in ("argument", "number") else (holder.ref[0].id, holder.ref[1])
            source = SizeSource((holder.kind, *which), axis)
            found[value] = next(n for n, same in enumerate(sizes.sources) if source in same)
    return found


def _open(graph: Graph) -> list[Value]:
    return [i.value for i in graph.inputs if i.role != "constant"]
