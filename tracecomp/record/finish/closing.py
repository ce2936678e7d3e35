"""The guards of a recording, from what its graph reads and writes."""

from __future__ import annotations

from collections.abc import Set

import numpy as np

from tracecomp.base.capture_guide import BreakReason, Section
from tracecomp.record.backward.extract import needed_nodes
from tracecomp.record.binding import Binding
from tracecomp.record.finish.draft import Draft
from tracecomp.record.guards.facts import FactGuard
from tracecomp.record.guards.guard import ArrayGuard, GivenContainers
from tracecomp.record.guards.memory import MemoryGuard
from tracecomp.record.guards.slots import StateSlot
from tracecomp.record.pytree import containers_of
from tracecomp.record.shared_memory import inputs_that_share
from tracecomp.record.symbolic.sym_scalar import followed
from tracecomp.record.tensor_facts import Asked


def close_guards(draft: Draft) -> None:
    """Complete the guards by those on inputs, memory and facts about tensors."""
    recorder, guards, sources = draft.recorder, draft.guards, draft.sources.of
    chosen = set(draft.inputs)
    live = {v for v, s in sources.items() if s in chosen}
    names = {i.value: i.name for i in recorder.graph.inputs}
    met = recorder.inputs
    used = {key: names[v] for key, v in met.initial.items() if v in live}
    grads = [(draft.sources.holder(s.tensor), s) for s in recorder.changes.grads.values()]
    arrays = {i for i, t in met.arrays.items() if met.initial.get(id(t)) in (None, *live)}
    updated = {b.ref for b, _ in draft.updates if b.kind == "argument"}
    arrays = {g.leaf for g in guards.arrays() if _is_input(draft, g, g.leaf in arrays, updated)}
    others = draft.observer.identities()
    draft.observer.forget()  # nothing of the program runs from here on
    memory = MemoryGuard(_memory(draft), [b for b, _ in draft.updates], draft.arguments)
    containers = None
    if others is not None and containers_of(draft.arguments):
        containers = GivenContainers(draft.arguments, others, guards.reads)
    facts = [_fact(draft, asked) for asked in recorder.facts.asked.values()]
    guards.close(recorder, used, arrays, grads, memory, facts, containers)
    guards.asked = _asked_numbers(draft)


def find_shared_memory(draft: Draft) -> None:
    """Find the inputs that share memory of which some is written."""
    initial, outside = draft.recorder.inputs.initial.items(), draft.recorder.values.outside
    arrays = [(outside[key]._data, draft.sources.of[v]) for key, v in initial if v in draft.sources.of]
    draft.shared = inputs_that_share(arrays, [b for b, _ in draft.updates])


def _is_input(draft: Draft, guard: ArrayGuard, in_graph: bool, updated: Set[int]) -> bool:
    """Whether the graph alone reads an array among the arguments; what numpy reads is guarded instead.

    Raises CaptureError if numpy and the graph would have to take turns, or no effect repeats a change by numpy.
    Later calls run the graph, then the effects.
    """
    array, recorder, reads = draft.arguments[guard.leaf], draft.recorder, draft.guards.reads
    assert isinstance(array, np.ndarray)
    written = guard.leaf in updated or any(
        np.may_share_memory(t._data, array) for t, _ in recorder.changes.writes.values()
    )
    seen, by_effect = id(array) in reads.seen_arrays, id(array) in draft.observer.changed
    changed = written or guard.check(draft.arguments) is not None
    if (changed and seen) or (by_effect and in_graph) or (changed and not written and not by_effect):
        recorder.refusals.lines |= reads.array_lines
        cause = f"numpy and a tensor both use the array {guard.path}, which the call changes"
        recorder.refusals.refuse(BreakReason(cause, Section.NUMBERS, "Change the array outside"))
    return in_graph and not seen


def _fact(draft: Draft, asked: Asked) -> FactGuard:
    t, inputs, numbers = asked.t, draft.recorder.inputs, draft.sources.numbers
    given = id(t) in numbers
    held = Binding("place", inputs.places[id(t)]) if id(t) in inputs.places else Binding("state", t)
    holder = Binding("argument", numbers[id(t)]) if given else held
    name = f"argument {draft.guards.paths[holder.ref]}" if given else inputs.names.get(id(t), "a captured tensor")
    return FactGuard(holder, asked.what, asked.more, asked.seen, asked.line, name)


def _memory(draft: Draft) -> list[tuple[Binding, str]]:
    """The tensors and arrays from outside that a call finds, with names."""
    return [
        (b, f"argument {draft.name_of(v)}" if b.kind == "argument" else draft.name_of(v))
        for v, b in draft.sources.of.items()
        if b.kind in ("argument", "memory", "state", "grad") or (b.kind == "place" and _is_there(*b.ref))
    ]  # fmt: skip


def _is_there(place: StateSlot, n: int) -> bool:
    """Whether a place still has the same number of tensors and numbers: a shortened list is not a settled state."""
    return n < len(place.leaves())


def _asked_numbers(draft: Draft) -> set[int]:
    """The arguments followed as data of which Python needed a number that follows from them and constants alone.

    Not as the place of a view, which counts from the end where it is negative: a size would serve that no better.
    """
    recorder = draft.recorder
    leaves = {t._value.value: i for i, t in recorder.inputs.argument_numbers.items()}
    constants = {i.value for i in recorder.graph.inputs if i.role == "constant"}
    found = set()
    for p in recorder.predicates if leaves else ():
        nodes = needed_nodes([p.value], set())
        given = {v for v in (p.value, *(v for n in nodes for v in n.inputs)) if v.node is None}
        placed = any(n.op.name == "where" for n in nodes)
        if followed(p.seen) and not placed and given <= leaves.keys() | constants:
            found |= {leaves[v] for v in given & leaves.keys()}
    return found
