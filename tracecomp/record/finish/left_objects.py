"""Python values that the call leaves behind: its result, what effects store, and the tensors in them."""

from __future__ import annotations

from typing import Any

from tracecomp.eager.tensor import Tensor
from tracecomp.record.effects import Effect
from tracecomp.record.finish.draft import Contents, Draft
from tracecomp.record.pytree import flatten, opened


def collect_values(draft: Draft) -> None:
    """Take apart the result and the arguments of effects."""
    draft.observer.changes.repeat_unseen()
    draft.repeated = _repeated(draft)
    draft.value = contents(draft, draft.result)
    # Effects are repeated after a call, so the graph has to make what they hold as well.
    draft.recorder.python.effects += [Effect(left, None, ()) for left in draft.guards.modes.left()]
    draft.effects = [(e, contents(draft, e.args)) for e in draft.recorder.python.effects]
    built = [built_by_call(draft, v) for v in draft.repeated.values()]
    draft.left = [*draft.value.leaves, *[x for _, kept in draft.effects for x in kept.leaves]]
    draft.left += [x for kept in built for x in kept.leaves]


def collect_tensors(draft: Draft) -> None:
    """Find the tensors that the call leaves, in places too, and the gradients that it leaves on others."""
    recorder = draft.recorder
    held = [t for h in draft.guards.places for t in h.place.tensors()]
    draft.tensors = list(dict.fromkeys([*[v for v in draft.left if isinstance(v, Tensor)], *held]))
    recorder.memory.leave_tensors(dict.fromkeys(draft.tensors), draft.known())
    draft.gradients = [g for slot in recorder.changes.grads.values() if (g := slot.tensor._grad) is not None]
    draft.held.note([*draft.tensors, *[t._grad for t in draft.tensors if t._grad is not None], *draft.gradients])


def contents(draft: Draft, value: object) -> Contents:
    """Structure and leaves of a value that the call leaves."""
    leaves: list[object] = []
    return Contents(flatten(value, leaves, draft.is_one_object, every=True), leaves)


def built_by_call(draft: Draft, value: object) -> Contents:
    """Structure and leaves of a list or dict that the call leaves in several places."""
    leaves: list[object] = []
    return Contents(flatten(value, leaves, lambda x: x is not value and draft.is_one_object(x), every=True), leaves)


def _repeated(draft: Draft) -> dict[int, list[Any] | dict[Any, Any]]:
    """The lists and dicts made in the call that it leaves behind in several places, as one object."""
    met: set[int] = set()
    repeated: dict[int, list[Any] | dict[Any, Any]] = {}
    for value in (draft.result, *[e.args for e in draft.recorder.python.effects]):
        _find_repeated(draft, value, met, repeated)
    return repeated


def _find_repeated(draft: Draft, value: object, met: set[int], repeated: dict[int, list[Any] | dict[Any, Any]]) -> None:
    if draft.is_outside(value) or not opened(type(value)):
        return
    if isinstance(value, list | dict):
        if id(value) in met:
            repeated[id(value)] = value
            return
        met.add(id(value))
    # Objects with structure are containers.
    for item in value.values() if isinstance(value, dict) else value:  # type: ignore[attr-defined]
        _find_repeated(draft, item, met, repeated)
