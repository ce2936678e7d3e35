"""Running a function while it is recorded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from types import FunctionType, MethodType
from typing import Any

import numpy as np

from tracecomp.base.capture_guide import BreakReason, Section
from tracecomp.base.errors import CaptureError
from tracecomp.eager.modes import modes
from tracecomp.eager.tensor import Tensor
from tracecomp.record.binding import Binding
from tracecomp.record.effects import Given, PlainParts, plain, put_plain, put_plain_for, replace_left
from tracecomp.record.finish.stages import build_recording
from tracecomp.record.guards.guards import Guards
from tracecomp.record.guards.lookup import attributes_of
from tracecomp.record.guards.ownership import is_module
from tracecomp.record.guards.slots import StateSlot
from tracecomp.record.guards.varying_objects import rebuilds
from tracecomp.record.observer import Observer
from tracecomp.record.pytree import LeafPlace, Leaves, direct, flatten_call, leaf_places
from tracecomp.record.recorder import Recorder
from tracecomp.record.recording import Recording
from tracecomp.record.shared_memory import find_shared, mergeable
from tracecomp.record.symbolic.sizes import Varying


@dataclass(frozen=True)
class Refusal:
    """Why there is no recording, and the lines of the compiled function where that shows."""

    reason: BreakReason
    lines: Set[int]


def target_of(fn: Any) -> tuple[FunctionType, tuple[Any, ...]] | None:
    """The Python function that a call of ``fn`` runs, and its leading arguments."""
    if isinstance(fn, MethodType):
        return (fn.__func__, (fn.__self__,)) if isinstance(fn.__func__, FunctionType) else None
    if isinstance(fn, FunctionType):
        return fn, ()
    if is_module(fn) and hasattr(type(fn), "_has_hooks"):  # a module of PyTorch is called as other objects are
        forward = vars(fn).get("forward", getattr(type(fn), "forward", None))
        return (forward, (fn,)) if isinstance(forward, FunctionType) and not fn._has_hooks else None
    run = getattr(type(fn), "__call__", None)  # noqa: B004  the function itself is wanted
    return (run, (fn,)) if isinstance(run, FunctionType) else None


Replaced = tuple[object, str, object, object]
"""A record, the attribute that holds a dynamic number during the call, that number, and the plain one."""


def record(
    fn: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object], name: str, strict: bool = True,
    derive: bool = True, places: Sequence[StateSlot] = (), follow: bool = False, varying: Varying | None = None,
    numbers: Set[int] = frozenset(), shared: Sequence[Binding] = (),
) -> tuple[Any, Recording | Refusal]:  # fmt: skip
    """Run ``fn`` and record it; return its result, and the recording (or the reason for none).

    ``derive`` adds the derivative of results that require grad. ``places`` contain other tensors and numbers in each
    call. With ``follow``, numbers that Python reads are dynamic while they are only operands. ``varying`` are the axes
    with dynamic sizes. ``numbers`` are arguments (numbers of leaves) that are dynamic sizes. Arguments and state among
    ``shared`` that share memory are views of one input.
    """
    structure, leaves = flatten_call(args, kwargs)
    at = leaf_places((args, kwargs))
    where = [p.path[3:] for p in at]
    guards = Guards(structure, leaves, where, places, follow, numbers)
    recorder = Recorder(name, strict, follow, varying)
    recorder.leaves = leaves
    observer = _observer(fn, recorder, guards)
    recording: Recording | Refusal | None = None
    replaced: list[Replaced] = []
    try:
        recorder.refusals.collections.start()
        given = _bind_numbers(recorder, args, kwargs, numbers, varying, at, replaced)
        observer.start(fn, args, kwargs)
        modes.recorder = recorder
        _bind_memories(recorder, leaves, shared)
        bind_arguments(recorder, leaves, where)
        for place in places:
            recorder.inputs.bind_place(place)
        result = observer.call(fn, *given)
        del given  # followed numbers are looked for below
        filled = observer.filled_arguments(recorder.python.effects)  # guards let go of them
        finish = partial(build_recording, recorder, guards, leaves, result, observer, derive)
        recording = _finished(recorder, strict, finish)
        del finish  # no other name for the result either
        result = plain(result, within := PlainParts())
        _restore(replaced)
        if isinstance(recording, Recording):
            for kind in filled:
                rebuilds(kind)
            put_plain(recorder.python.effects, (args, kwargs), within)
            recording.unsettled = recording.unsettled or _fill_in(recorder, places)
            recording.blamed = recorder.refusals.lines
        return result, recording
    finally:
        modes.recorder = None
        recorder.refusals.collections.stop()
        _restore(replaced)
        _left(observer, (args, kwargs), places, recording)


def _observer(fn: object, recorder: Recorder, guards: Guards) -> Observer:
    """The observer of a call. The recorder reports modules to it and to the guards."""
    target = target_of(fn)
    observer = Observer(recorder, guards.reads, None if target is None else target[0].__code__)

    def on_module(module: object) -> None:
        guards.modules.add_module(module)
        observer.module(module)

    recorder.python.on_module = on_module
    return observer


def _restore(replaced: list[Replaced]) -> None:
    """Put back the plain numbers of attributes that the program has not set."""
    for record, attribute, number, value in replaced:
        if attributes_of(record).get(attribute) is number:
            object.__setattr__(record, attribute, value)
    replaced.clear()


def _left(observer: Observer, given: Given, places: Sequence[StateSlot], recording: Recording | Refusal | None) -> None:
    """Replace escaped dynamic numbers by plain ones, and drop the recorder's references."""
    recorder = observer.recorder
    put_plain(recorder.python.effects, given, PlainParts())
    recorder.forget()
    _fill_in(recorder, places)
    if not isinstance(recording, Recording) or recording.unsettled is not None:  # sizes may lack an effect
        put_plain_for([n for ref in recorder.sized_ints if (n := ref()) is not None])
    if isinstance(recording, Recording):
        observer.close()
    else:
        observer.release()


def _finished(recorder: Recorder, strict: bool, finish: Callable[[], Recording]) -> Recording | Refusal:
    """The recording of a call that has returned, or why there is none; CaptureError then, if ``strict``."""
    if recorder.refusals.reason is not None:
        if strict:  # the program has caught the refusal
            raise CaptureError(str(recorder.refusals.reason))
        return Refusal(recorder.refusals.reason, recorder.refusals.lines)
    recorder.refusals.strict = True  # later refusals are caught below
    try:
        return finish()
    except CaptureError as refused:
        if strict:
            raise
        reason = recorder.refusals.reason or BreakReason(str(refused), Section.FIND)
        return Refusal(reason, recorder.refusals.lines)
    except RecursionError:  # the call itself has ended without it
        deep = BreakReason("a value that the call leaves is nested too deeply", Section.STATE, "Leave its tensors")
        if strict:
            raise CaptureError(str(deep)) from None
        return Refusal(deep, recorder.refusals.lines)


def _fill_in(recorder: Recorder, places: Sequence[StateSlot]) -> BreakReason | None:
    """Put plain numbers for followed ones into ``places``; says so when followed numbers live on elsewhere."""
    if not recorder.numbers:
        return None
    for place in places:
        place.fill([plain(x, PlainParts()) for x in place.leaves()])
    return replace_left(recorder.numbers)


def _bind_numbers(
    recorder: Recorder, args: tuple[object, ...], kwargs: Mapping[str, object], numbers: Set[int],
    varying: Varying | None, at: Sequence[LeafPlace], replaced: list[Replaced],
) -> tuple[list[Any], dict[str, Any]]:  # fmt: skip
    """The arguments of the call, with dynamic numbers for ``numbers``, and of those that are sizes.

    Attributes of records hold the dynamic numbers during the call: ``replaced`` gets their plain ones.
    """
    sized = set() if varying is None else {h for h in varying.axes if h[0] == "number"}

    def bound(leaf: int, value: Any) -> Any:
        if leaf in numbers:
            return recorder.inputs.bind_argument_number(leaf, value, at[leaf].path[3:])
        (size,) = recorder.sizes.shape_for(("number", leaf), (value,))
        return size

    by_position, by_name = list(args), dict(kwargs)
    wanted = {*numbers, *(leaf for _, leaf in sized)}
    for leaf, key in direct(args, kwargs).items() if wanted else ():
        if leaf in wanted:
            held: Any = by_name if isinstance(key, str) else by_position
            held[key] = bound(leaf, held[key])
    for leaf in sorted(wanted):
        record, name = at[leaf].record, at[leaf].name
        # A repeated record has its numbers already.
        if record is not None and not any(record is r and name == n for r, n, *_ in replaced):
            value = attributes_of(record)[name]
            number = bound(leaf, value)
            object.__setattr__(record, name, number)
            replaced.append((record, name, number, value))
    return by_position, by_name


def _bind_memories(recorder: Recorder, leaves: Leaves, shared: Sequence[Binding]) -> None:
    """Make inputs of the memory that several arguments or captured tensors share."""
    candidates: dict[int, tuple[Binding, Any]] = {}
    for b in shared:
        t = b.ref if b.kind == "state" else leaves[b.ref] if b.ref < len(leaves) else None
        if isinstance(t, Tensor | np.ndarray) and mergeable(t):
            candidates.setdefault(id(t), (b, t))
    arrays = {k: (b, t._data if isinstance(t, Tensor) else t) for k, (b, t) in candidates.items()}
    for memory, keys in find_shared(arrays):
        recorder.inputs.bind_memory(memory, [candidates[k][1] for k in keys], leaves)


def bind_arguments(recorder: Recorder, leaves: Leaves, where: Sequence[str]) -> None:
    """Make inputs of tensor and array arguments."""
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, Tensor) and id(leaf) not in recorder.inputs.arguments:
            recorder.inputs.bind(leaf, where[i], "argument", ("argument", i))
        elif isinstance(leaf, np.ndarray) and leaf.dtype.kind in "biufc" and i not in recorder.inputs.arrays:
            recorder.inputs.bind_array(i, leaf, where[i])
