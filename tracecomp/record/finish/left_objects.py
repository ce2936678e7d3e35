"""Python values that the call leaves behind: its result, what effects store, and the tensors in them."""

from __future__ import annotations

from tracecomp.eager.tensor import Tensor
from tracecomp.record.effects import Effect
from tracecomp.record.finish.draft import Contents, Draft
from tracecomp.record.guards.lookup import is_key
from tracecomp.record.guards.varying_objects import rebuilds
from tracecomp.record.pytree import can_begin, flatten, flatten_object, is_collection, opened, parts_within
from tracecomp.record.same_values import is_plain


def collect_values(draft: Draft) -> None:
    """Take apart the result and the arguments of effects."""
    draft.observer.changes.repeat_unseen()
    draft.made = set(draft.observer.made)
    _find_repeated(draft)
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
    """Structure and leaves of a container or object that the call leaves in several places."""
    leaves: list[object] = []
    return Contents(flatten_object(value, leaves, draft.is_one_object), leaves)


def _find_repeated(draft: Draft) -> None:
    """Find the containers and objects made in the call that it leaves in several places, or that hold themselves.

    Their classes are taken apart from now on: every call makes such objects of their attributes.
    """
    met: set[int] = set()
    above: set[int] = set()

    def walk(value: object) -> None:
        kind = type(value)
        if draft.is_outside(value) or not (
            opened(kind) or (draft.is_new(value) and (is_collection(value) or rebuilds(kind)))
        ):
            return
        if id(value) in above:
            draft.cyclic.add(id(value))
            if can_begin(value):
                draft.repeated[id(value)] = value
            return
        if not isinstance(value, tuple):
            if id(value) in met:
                draft.repeated[id(value)] = value
                return
            met.add(id(value))
        if isinstance(value, dict):
            draft.keys += [key for key in value if not is_plain(key)]
        elif isinstance(value, set | frozenset):  # every call would run code of the program
            draft.hashing += [key for key in value if not is_plain(key) and not is_key(key)]
        above.add(id(value))
        for part in parts_within(value):
            walk(part)
        above.discard(id(value))

    for value in (draft.result, *[e.args for e in draft.recorder.python.effects]):
        walk(value)
