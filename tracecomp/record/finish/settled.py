"""Whether the state that a call leaves is settled, so that its recording serves later calls."""

from __future__ import annotations

import enum
import gc
from collections.abc import Iterator, Mapping
from functools import partial
from types import (
    BuiltinFunctionType,
    FunctionType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    NoneType,
)
from typing import Any

import numpy as np

from tracecomp.base.capture_guide import BreakReason, Section
from tracecomp.eager.aliasing import history_if_allowed
from tracecomp.eager.tensor import Tensor
from tracecomp.record.backward.reach import new_state, was_spent
from tracecomp.record.finish.draft import Draft
from tracecomp.record.guards.lookup import attributes_of
from tracecomp.record.guards.ownership import of_package
from tracecomp.record.guards.varying_objects import rebuilds
from tracecomp.record.guards.visibility import is_container
from tracecomp.record.same_values import PLAIN
from tracecomp.record.symbolic.sym_int import SymInt
from tracecomp.record.symbolic.sym_scalar import SymScalar


def check_settled(draft: Draft) -> None:
    """Note why the recording cannot serve later calls. The first reason counts: it is the nearest to the program."""
    recorder = draft.recorder
    draft.unsettled = (
        recorder.python.kept or _changed_values(draft) or _made_objects(draft) or draft.held.moved
        or _shared_memory(draft) or recorder.changes.unrepeated() or history_outside(draft)
    )  # fmt: skip


def stores_new_tensors(draft: Draft) -> BreakReason | None:
    """Says so when tensors of the call live on elsewhere. Drops the recorder's references."""
    return new_state(draft.recorder, [*draft.tensors, *[n.tensor for n in draft.recorder.numbers], *draft.gradients])


def history_outside(draft: Draft) -> BreakReason | None:
    """Says so when gradient history crosses the border of the call, which a recording cannot repeat."""
    recorder, met = draft.recorder, draft.recorder.inputs
    if recorder.backward.foreign is not None:
        where = recorder.backward.foreign
        cause = f"runs backward, at {where}, through operations made before the call"
        return BreakReason(cause, Section.STEP, "Detach their results")
    for key, initial in met.initial.items():
        t = recorder.values.outside[key]
        if t._data.shape != initial.shape:
            cause = f"changes the shape of {draft.name_of(initial)} from {initial.shape} to {tuple(t._data.shape)}"
            return BreakReason(cause, Section.MEMORY)
        fn = history_if_allowed(t)
        if key in met.arguments and not t._linked:
            continue
        if fn is not None and fn.number >= recorder.values.started and recorder.value(t) is not initial:
            return _leaves_history(f"{draft.name_of(initial)}, a tensor from outside")
    for t in recorder.values.shared():
        if history_if_allowed(t) is not None:
            return _leaves_history("memory that several inputs share")
    for key, t in recorder.values.outside.items():  # views and aliases of inputs
        fn = None if key in met.initial else history_if_allowed(t)
        if fn is not None and fn.number >= recorder.values.started:
            return _leaves_history("a view of a tensor from outside")
    for ref, source in recorder.changes.retained:  # no line to cut at: parts would see less of its gradient
        made = ref()
        if made is not None and not was_spent(made):
            cause = f"retains the gradient of a tensor, at {source}, for a backward pass outside of the call"
            return BreakReason(cause, Section.STEP)
    return None


def _leaves_history(where: str) -> BreakReason:
    return BreakReason(f"leaves gradient history in {where}", Section.STEP, "Detach the written values")


def _changed_values(draft: Draft) -> BreakReason | None:
    """Says so when the call changed Python values that it also read: a graph cannot repeat that."""
    change = draft.observer.changes.unrepeated() or draft.guards.modules.change()
    change = change or next((c for held in draft.guards.places if (c := held.change()) is not None), None)
    for owner, key, _, before in draft.recorder.inputs.hosts.values():
        if id(getattr(owner, "group", owner)) in draft.recorder.python.stepped:
            continue
        now = owner[key] if isinstance(owner, Mapping) else getattr(owner, key)
        if now != before:
            change = f"{key} changed from {before} to {now}"
    if change is None:
        return None
    return BreakReason(f"changes Python values that it reads ({change})", Section.STATE, "Change them outside")


def _made_objects(draft: Draft) -> BreakReason | None:
    """Return a reason if an object made in the call outlives it, so that every call would have to make one."""
    for key in [*draft.hashing, *[key for key in draft.keys if not _lasts(draft, key)]]:
        return BreakReason(f"leaves a {type(key).__name__} as a key or in a set", Section.STATE)
    for x in draft.left:
        if id(x) in draft.cyclic and id(x) not in draft.repeated:
            return BreakReason(f"returns a {type(x).__name__} made in the call that holds itself", Section.STATE)
        if isinstance(x, (Tensor, *PLAIN, type, tuple, np.ndarray, SymScalar, SymInt)):
            continue
        if draft.is_one_object(x) or id(x) in draft.sources.numbers:
            continue
        if not _lasts(draft, x):
            return BreakReason(
                f"returns an object of class {type(x).__name__} that is made in the call", Section.STATE,
                "Return tensors, lists, dicts, tuples or dataclasses",
            )  # fmt: skip
    return None


def _lasts(draft: Draft, x: Any, depth: int = 8) -> bool:
    """Whether an object may be the same one in all calls: it is from outside, or never changes."""
    if isinstance(x, Tensor):
        return not draft.recorder.is_made(x)
    if isinstance(x, SymScalar | SymInt):
        return False
    if isinstance(x, (*PLAIN, type, enum.Enum)) or id(x) in draft.observer.known or of_package(type(x)):
        return True
    if isinstance(x, tuple | frozenset):
        parts: list[Any] = list(x)
    elif isinstance(x, FunctionType):
        if id(x) not in draft.made:
            return True
        cells = [held for c in x.__closure__ or () if id(c) in draft.made for held in gc.get_referents(c)]
        parts = [*cells, *(x.__defaults__ or ()), *(x.__kwdefaults__ or {}).values(), *vars(x).values()]
    elif isinstance(x, partial):
        parts = [x.func, *x.args, *x.keywords.values()]
    elif isinstance(x, MethodType | BuiltinFunctionType | MethodWrapperType):
        parts = [] if isinstance(x.__self__, ModuleType | NoneType) else [x.__self__, getattr(x, "__func__", None)]
    else:
        changes = isinstance(x, Iterator | BaseException | memoryview) or is_container(x) or type(x) is object
        return not (changes or type(x).__hash__ is None or attributes_of(x) or rebuilds(type(x)))
    return depth > 0 and all(_lasts(draft, part, depth - 1) for part in parts)


def _shared_memory(draft: Draft) -> BreakReason | None:
    """Says so when the call writes memory that inputs share."""
    names = {b: draft.name_of(v) for v, b in draft.sources.of.items()}
    where = " and that of ".join(dict.fromkeys(names[b] for b in draft.shared[:2]))
    cause = f"writes memory that is both that of {where}"
    return BreakReason(cause, Section.MEMORY, "Pass a clone") if draft.shared else None
