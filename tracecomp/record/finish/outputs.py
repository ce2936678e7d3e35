"""The outputs of the recorded graph, and where each call puts them: results, effects, state, gradients, predicates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tracecomp.eager.tensor import Tensor
from tracecomp.record.backward.extract import needed_nodes
from tracecomp.record.binding import Binding, tensor_of
from tracecomp.record.caught_errors import node_may_raise
from tracecomp.record.finish.draft import Draft
from tracecomp.record.finish.left_objects import built_by_call
from tracecomp.record.guards.visibility import is_container
from tracecomp.record.pytree import LEAF, flatten
from tracecomp.record.recording import Rebound, Repeated, SeenValue
from tracecomp.record.results import Common, Followed, Found, Passed, Plain, Result, SizeResult
from tracecomp.record.symbolic.sym_int import SymInt
from tracecomp.record.symbolic.sym_scalar import SymScalar


def add_results(draft: Draft) -> None:
    """Represent what the call returns, stores by effects, and leaves in places."""
    result = _ResultMaker(draft)
    draft.results = [result(v) for v in draft.value.leaves]
    for e, kept in draft.effects:
        flat = kept.structure == (tuple, *(LEAF,) * len(kept.leaves))
        draft.repeats.append(Repeated(e.apply, e.owner, kept.structure, list(map(result, kept.leaves)), flat))
    draft.rebound = _rebound(draft, result)


def add_updates(draft: Draft) -> None:
    """Add the tensors from outside whose value differs at the end."""
    recorder, found = draft.recorder, draft.updates
    for key, initial in list(recorder.inputs.initial.items()):
        final = recorder.value(recorder.values.outside[key])
        if final is not initial:
            found.append((draft.sources.of[initial], draft.outputs.add(final, draft.name_of(initial), "state")))


def add_gradients(draft: Draft) -> None:
    """Add the value of each written ``.grad`` at the end."""
    found = draft.grads
    for slot in draft.recorder.changes.grads.values():
        now = slot.tensor._grad
        if slot.written and now is not slot.initial:
            found.append((draft.sources.holder(slot.tensor), None if now is None else draft.held.of(now)))


def add_predicates(draft: Draft) -> None:
    """Add the tensor values that Python read, and outputs that only other processes need."""
    _keep_told(draft)
    draft.predicates = [
        SeenValue(draft.outputs.add(p.value, f"p{number}", "predicate"), p.seen, p.source, p.line)
        for number, p in enumerate(draft.recorder.predicates)
    ]


def writes(draft: Draft) -> list[tuple[Binding, int]]:
    """The tensors whose storages count writes, and those that are written without a count (as by ``x.data``)."""
    changed = draft.recorder.changes.writes.values()
    held = [(draft.sources.origin(t), n) for t, n in changed]
    written = [m for b, _ in draft.updates for m in (b.ref.members if b.kind == "memory" else (b,))]
    counted = {id(t._storage) for t, _ in changed}
    quiet = [(b, 0) for b in written if id(getattr(tensor_of(b, draft.arguments), "_storage", None)) not in counted]
    return [(b, n) for b, n in held + quiet if isinstance(tensor_of(b, draft.arguments), Tensor)]


def flags(draft: Draft) -> list[tuple[Binding, bool]]:
    """Leaves from outside whose ``requires_grad`` differs at the end."""
    return [
        (draft.sources.holder(t), t._requires_grad) for t, before in draft.recorder.changes.flags.values()
        if t._grad_fn is None and t._requires_grad is not before
    ]  # fmt: skip


class _ResultMaker:
    """Represents values that the call leaves. A list or dict left in several places is represented once."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.common: dict[int, Common] = {}

    def __call__(self, v: Any) -> Result:
        draft, recorder, known = self.draft, self.draft.recorder, self.draft.observer.known
        if type(v) is SymInt:
            return SizeResult(v.form, v.value)
        if type(v) is SymScalar:
            return Followed(draft.outputs.add(recorder.value(v.tensor), f"n{len(draft.outputs.all)}", "result"))
        if is_container(v) and id(v) in draft.sources.numbers:
            return Passed(draft.sources.numbers[id(v)])
        if isinstance(v, np.ndarray) and id(v) not in known:
            recorder.memory.leave(v, draft.known())
            return Plain(v.copy())
        if isinstance(v, np.ndarray) or draft.is_outside(v):
            return Found(known[id(v)])
        if id(v) in draft.repeated:
            common = self.common.get(id(v))
            if common is None:
                built = built_by_call(draft, v)
                common = self.common[id(v)] = Common(built.structure, [], id(v) in draft.cyclic)
                common.results.extend(map(self, built.leaves))
            return common
        return draft.held.of(v) if isinstance(v, Tensor) else Plain(v)


def _rebound(draft: Draft, result: Callable[[Any], Result]) -> list[Rebound]:
    """The contents of places at the end, if they differ from before."""
    found = []
    followed_there = {(place.id, n): t for t, place, n in draft.recorder.inputs.place_numbers}
    for held in draft.guards.places:
        now = held.place.value()
        leaves: list[Any] = []
        structure = flatten(now, leaves)
        before = [followed_there.get((held.place.id, n), x) for n, x in enumerate(held.leaves)]
        if any(not _stays(draft, a, b) for a, b in zip(leaves, before, strict=False)):
            found.append(Rebound(held.place, structure, list(map(result, leaves)), now is held.value))
    return found


def _stays(draft: Draft, now: object, before: object) -> bool:
    """Whether a place has the same contents, by identity and not by current value, which differs in another call.

    ``before`` is the tensor of a dynamic number there.
    """
    if type(now) is SymScalar and isinstance(before, Tensor):
        return draft.recorder.value(now.tensor) is draft.recorder.value(before)
    return now is before


def _keep_told(draft: Draft) -> None:
    """Outputs for communications whose results nothing here needs: other processes wait for this one."""
    recorder = draft.recorder
    kept = list(recorder.told)
    if recorder.catches:  # and for errors that the program catches: whether there is one decides its way
        kept += [n.outputs[0] for n in recorder.graph.nodes if node_may_raise(n)]
    needed = needed_nodes([o.value for o in draft.outputs.all], set()) if kept else set()
    for number, value in enumerate(kept):
        if value.node not in needed:
            draft.outputs.add(value, f"told{number}", "result")
