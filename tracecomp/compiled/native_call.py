"""Calls of recordings without Python: the records that native code follows, and the recordings that can have one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from math import prod
from typing import Any

import numpy as np

from tracecomp.base import config
from tracecomp.base.locks import Lock
from tracecomp.codegen.calls.call_tables import ARGUMENT, GRADIENT, OBJECT, OWNED
from tracecomp.compiled.autograd import Freed
from tracecomp.compiled.backends import Native
from tracecomp.compiled.native_rows import NativeRows, tensor_fields
from tracecomp.compiled.replay import Plan
from tracecomp.compiled.results import Finish
from tracecomp.compiled.state_rows import word_row
from tracecomp.eager.modes import modes
from tracecomp.eager.room import RoomArray
from tracecomp.eager.storage import Memory, Storage
from tracecomp.eager.tensor import Tensor
from tracecomp.record.guards.state_guards import GradGuard
from tracecomp.record.pytree import LEAF, Leaves, flat_call, unflatten
from tracecomp.record.results import Given, History, Made, Plain, Result, Seen
from tracecomp.runtime import threads
from tracecomp.runtime.aligned import maker
from tracecomp.runtime.call import Code, Held, Place, Record
from tracecomp.runtime.object_layout import (
    dictionaries_have_versions,
    dictionary_words,
    entry_place,
    field_offsets,
    objects_are_known,
)
from tracecomp.runtime.threadstate import MODES_KEY, thread_dictionary

SMALL = 65536
"""Bytes of all memory of a call that keeps the interpreter lock."""

_MAX_TENSORS = 16
"""Tensor arguments of a native call: pairs of them are compared."""


_making = Lock()
"""One thread at a time makes the code: builtins keep pointers into it, so that there must be no second one."""


def call_code() -> Code | None:
    """The native code of calls; None where objects are laid out in an unknown way."""
    with _making:
        return _made_code()


@cache
def _made_code() -> Code | None:
    if not objects_are_known():
        return None
    fields = tensor_fields()
    counts = [field_offsets(x, type(x).__slots__) for x in (Storage(), Memory())]
    return Code(Tensor, Storage, Memory, RoomArray, fields, counts[0] | counts[1]) if fields and all(counts) else None


def fast_record(
    plan: Plan, leaves: Leaves, code: Code, finish: Callable[[tuple[Tensor, ...]], object] | None = None
) -> tuple[Any, ...] | None:
    """The record of a call that has just fitted ``plan``; None when it needs Python.

    ``finish`` makes the return value of the tuple of results.
    """
    return _Writer(plan, leaves, code, finish).record() if _fits(plan, leaves) else None


def _fits(plan: Plan, leaves: Leaves) -> bool:
    recording, guards = plan.recording, plan.recording.guards
    reusable = {id(t) for t, _ in plan.reusable}
    updated = {b for b, _ in recording.updates}
    asked = [g.holder for g in guards.list if isinstance(g, GradGuard)]
    holders = [b for b, *_ in recording.grads] + asked + [b.ref for b in recording.inputs if b.kind == "grad"]
    # Python handles features that the native entry does not support: each line names one. New kinds of recordings must
    # be excluded too, so conditions list supported features.
    return (
        isinstance(plan.forward, Native)
        and (config.thread_overrides == 0 or not plan.forward.executable.image.parallel)
        and guards.structure == flat_call(len(leaves))
        and not (recording.may_be_left or recording.split or recording.rebased or guards.takes_arrays)
        and not recording.effects
        and all(b.kind not in ("memory", "size", "number", "place") for b in recording.inputs)
        and not recording.rebound
        and not recording.requires_grad
        and all(b.kind == "state" for b in holders)
        and sum(isinstance(x, Tensor) for x in leaves) <= _MAX_TENSORS
        and all(times and b in updated for b, times in recording.writes)
        and all(new is None or (id(b.ref) in reusable and _is_kept(new)) for b, new in recording.grads)
        and (all(map(_simple, recording.results)) or all(map(_native, recording.results)))
    )


def _native(r: Result) -> bool:
    """Whether ``r`` can be made from values that native code has."""
    if isinstance(r, Plain):
        return r.is_constant()
    while isinstance(r, Seen):
        if r.grad is not None or (r.history is not None and r.history.freed):
            return False
        r = r.of
    if isinstance(r, Made):
        return r.grad is None and not r.history.freed
    return isinstance(r, Given) and r.source.kind in ("argument", "state")


def _simple(r: Result) -> bool:
    """Whether native code can build ``r``."""
    if isinstance(r, Made):
        return r == Made(r.number, history=History(freed=r.history.freed), inference=r.inference)
    if isinstance(r, Plain):
        return r.is_constant()
    return isinstance(r, Given) and r.source.kind in ("argument", "state")


def _is_kept(new: Result) -> bool:
    """Whether a gradient that is there already can take the place of ``new``, as in calls that Python makes.

    It counts the writes of the call that made it: a gradient that is clipped in place counts one.
    """
    return isinstance(new, Made) and _simple(replace(new, history=replace(new.history, version=0)))


class _Writer:
    """Writes the record of one plan."""

    def __init__(
        self, plan: Plan, leaves: Leaves, code: Code, finish: Callable[[tuple[Tensor, ...]], object] | None
    ) -> None:
        self._finish = finish
        assert isinstance(plan.forward, Native)
        self.plan = plan
        self.recording = plan.recording
        self.guards = plan.recording.guards
        self.leaves = leaves
        self.executable = plan.forward.executable
        self.places = plan.forward.places
        image = self.executable.image
        self.parallel = image.parallel
        self.threads = threads.wanted(plan.forward.threads) if image.parallel else 1
        self.first_output = len(self.places)
        self.arena_bytes = image.memory_bytes + self.threads * image.thread_bytes
        self.lifetimes = self.guards.reads.lifetimes
        self.r = Record(code, image.arrays, self.arena_bytes, self.lifetimes.has)
        self.sources: dict[tuple[int, int], int] = {}
        self.read = set(self.recording.inputs)
        written = [b.ref for b, _ in self.recording.updates if b.kind == "state"]
        self._written_own = all(t._data.flags.owndata for t in written)  # so what else owns memory is apart from it

    def record(self) -> tuple[Any, ...] | None:
        """The record as a tuple that begins with its memory; None when a guard needs Python."""
        self._slots()
        for leaf in self.leaves:
            self.r.add("arguments", *((Held(type(leaf)), 0) if isinstance(leaf, Tensor) else (0, Held(leaf))))
        rows = NativeRows(self)
        if not all(guard.native_row(rows) for guard in self.guards.list):
            return None
        known = self._modes()
        if self.parallel:
            self._threads()
        self._inputs()
        self._outputs()
        prepared = self._preparation()
        numbers, finish = self._results()
        recording = self.recording
        values = [i.value for i in recording.graph.inputs] + [o.value for o in recording.graph.outputs]
        held = sum(v.type.nbytes for v in values)
        loops = any(n.op.kind == "control" for n in recording.graph.nodes)
        self.executable.free_idle()  # the record has separate memory
        memory, kept = self.r.finish(
            count=len(self.leaves), entry=self.executable.entry, numbers=numbers, finish=finish,
            unlocked=int(loops or self.parallel or held + self.arena_bytes > SMALL),
            pool=int(threads.POOL.ctypes.data), threads=self.threads,
            prepared=prepared, modes_version=known,
        )  # fmt: skip
        return memory, kept, self.plan

    # ---- guards

    def _modes(self) -> Held | int:
        """Note the words of this thread's modes; their dictionary, or 0 if versions show its changes."""
        own = modes.__dict__
        names = {row[0].value for row in self.r.rows["modes"] if isinstance(row[0], Held)}
        if dictionaries_have_versions():
            return 0
        words, thread = dictionary_words(own, names), thread_dictionary()
        place = entry_place(thread, MODES_KEY)
        if words is None or place is None or place.value_word != id(own):
            return 0
        for w in words:
            self.r.add("modes_words", *word_row(w))
        self.r.add("thread", id(thread), *place)  # not kept alive: an ended thread frees its objects
        return Held(own)

    def _threads(self) -> None:
        """Guard the number of threads, and that so many have been started: a forked child has none."""
        threads.start_workers(self.threads - 1)
        started = [(threads, "workers")] if self.threads > 1 else []
        for module, name in ((config, "thread_overrides"), (threads, "chosen"), *started):
            names = vars(module)
            self.r.add("names", Held(names), Held(name), Held(names[name]))

    # ---- inputs

    def _slots(self) -> None:
        """The slot in the call table of each input whose address the call reads."""
        slots = {a: p for p, a in enumerate(self.places) if isinstance(a, int)}
        self.used: dict[tuple[int, int], int | None] = {}
        self.others: list[tuple[Any, Any, int | None]] = []
        inputs = [i for i in self.recording.graph.inputs if i.role != "constant"]
        for number, (b, given) in enumerate(zip(self.recording.inputs, inputs, strict=True)):
            if b.kind in ("host", "grad"):
                self.others.append((b, given.value, slots.get(number)))
            else:
                self.used[_key(b.kind, b.ref)] = slots.get(number)

    def _inputs(self) -> None:
        for p, a in enumerate(self.places):
            if not isinstance(a, int):
                self.r.set_slot(p, a)
        for b, value, slot in self.others:
            if b.kind == "grad":
                self.source(GRADIENT, b.ref.ref, 2, value.dtype.numpy, value.shape, slot)
            elif slot is not None:
                owner, key = b.ref
                attribute = int(not isinstance(owner, Mapping))
                self.r.add("hosts", Held(owner), Held(key), attribute, self.r.number(slot))
        times = dict(self.recording.writes)
        for b, out in self.recording.updates:
            self._written(b, out, times.get(b, 0))

    def source(
        self, kind: int, ref: Any, requires_grad: int, dtype: np.dtype[np.generic], shape: tuple[int, ...],
        slot: int | None, exclusive: bool = False,
    ) -> int:  # fmt: skip
        """The number of a tensor that the call reads."""
        key = (kind, ref if kind == ARGUMENT else id(ref))
        if key not in self.sources:
            reference = 8 * ref if kind == ARGUMENT else Held(ref)
            layout = self.r.layout(dtype, shape)
            fixed = kind != ARGUMENT and not exclusive and self.guards.memory.writes
            place = _place(kind, ref) if fixed else 0
            owned = OWNED if kind == GRADIENT and self._written_own else 0
            row = (kind, reference, requires_grad, layout, self.r.slot(slot), int(exclusive), place, owned)
            self.sources[key] = self.r.add("sources", *row)
        return self.sources[key]

    def known_source(self, kind: int, ref: Any) -> int:
        """The number of a tensor that the recording reads or writes."""
        key = (kind, ref if kind == ARGUMENT else id(ref))
        if key in self.sources:
            return self.sources[key]
        t = self.leaves[ref] if kind == ARGUMENT else ref
        slot = self.used.get(key)
        return self.source(kind, ref, 2, t._data.dtype, t._data.shape, slot)

    def _preparation(self) -> int:
        """Note what a preparation reads; the address of the byte that tells whether it is made, or 0."""
        if self.executable.image.prepared is None:
            return 0
        for t in self.plan.frozen:
            self.r.add("frozen", Place("sources", self.sources[OBJECT, id(t)]), self.r.items())
        return self.r.arena(self.executable.image.prepared)

    # ---- outputs

    def _written(self, b: Any, out: int, times: int) -> None:
        """An output that goes into the memory of a tensor from outside, whose storage counts so many writes."""
        kind = {"argument": ARGUMENT, "state": OBJECT, "grad": GRADIENT}[b.kind]
        dtype, shape = self.plan.types[out][1], self.plan.types[out][0]
        ref = b.ref.ref if b.kind == "grad" else b.ref
        source = Place("sources", self.source(kind, ref, 2, dtype, shape, None))
        apart = int(b not in self.read)
        self.r.add("in_place", source, self.r.slot(self.first_output + out), apart)
        if times:
            self.r.add("written", source, times)

    def _outputs(self) -> None:
        taken = {out for _, out in self.recording.updates}
        for holder, new in self.recording.grads:
            if new is None:
                self.r.add("cleared", Held(holder.ref))
        for t, n in self.plan.reusable:
            shape, dtype = self.plan.types[n]
            self.source(GRADIENT, t, 2, dtype, shape, self.first_output + n, exclusive=True)
            taken.add(n)
        made = [r for r in self.recording.results if isinstance(r, Made)]
        freed, inference = {r.number for r in made if r.history.freed}, {r.number for r in made if r.inference}
        self.fresh: dict[int, int] = {}
        for n, (shape, dtype) in enumerate(self.plan.types):
            if n not in taken:
                layout = self.r.layout(dtype, shape)
                history = Held(partial(Freed, (), ((dtype, shape),))) if n in freed else 0
                slot = self.r.slot(self.first_output + n)
                make, kept = Held(maker(dtype.itemsize * prod(shape))), int(n in self.plan.kept)
                row = (
                    make,
                    Held(shape),
                    Held(dtype),
                    layout,
                    slot,
                    kept,
                    self.r.items(),
                    0,
                    0,
                    history,
                    int(n in inference),
                )
                self.fresh[n] = self.r.add("fresh", *row)

    def _results(self) -> tuple[int, Held | int]:
        """Rows for the return values; their number, and the function that builds the return value from their tuple."""
        structure = self.recording.structure
        results: Sequence[Result] = self.recording.results
        finish: Callable[[tuple[Tensor, ...]], object] | None = self._finish
        if not all(map(_simple, results)):
            finish = Finish([r for r in results if isinstance(r, Made | Given | Seen | Plain)], structure)
            results = finish.below
        for r in results:
            if isinstance(r, Made):
                self.r.add("results", Place("fresh", self.fresh[r.number], "tensor"))
            elif isinstance(r, Plain):
                self.r.add("results", self.r.cell(r.value))
            elif not isinstance(r, Given):
                raise AssertionError("tracked numbers, state slots and views need Python")
            elif r.source.kind == "argument":
                self.r.add("results", Place("sources", self.sources[ARGUMENT, r.source.ref], "tensor"))
            else:
                self.r.add("results", self.r.cell(r.source.ref))
        if structure is LEAF and finish is None:
            return -1, 0
        count = len(results)
        if structure == (tuple, *(LEAF,) * count) and finish is None:
            return count, 0
        return count, Held(finish or partial(unflatten, structure))


def _place(kind: int, ref: Tensor) -> int:
    """The address of a tensor's memory, or its gradient's: the guard on memory has checked it."""
    t = ref if kind == OBJECT else ref._grad
    return int(t._data.ctypes.data) if t is not None and t._data.size else 0


def _key(kind: str, ref: Any) -> tuple[int, int]:
    return (ARGUMENT, ref) if kind == "argument" else (OBJECT, id(ref))
