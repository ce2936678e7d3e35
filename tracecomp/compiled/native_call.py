"""Which recordings can be called without Python, and the records that native code follows to call them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from math import prod
from types import NoneType
from typing import Any

import numpy as np

from tracecomp.base import config
from tracecomp.codegen.calls.call_tables import ARGUMENT, CELL_CONTENTS, DICT_VERSION, GRADIENT, LIST_SIZE, OBJECT
from tracecomp.compiled.autograd import Freed
from tracecomp.compiled.backends import Native
from tracecomp.compiled.replay import Plan
from tracecomp.eager.modes import Modes, ModuleChanges
from tracecomp.eager.storage import Memory, Storage
from tracecomp.eager.tensor import Tensor
from tracecomp.eager.tensor_base import FIELDS, blank
from tracecomp.functional import default_dtype
from tracecomp.ir.types import DType
from tracecomp.record.guards.slots import Contents
from tracecomp.record.guards.snapshots import ById, freeze
from tracecomp.record.pytree import LEAF, flat_call, unflatten
from tracecomp.record.recording import Update
from tracecomp.record.results import Given, History, Made, Plain, Result
from tracecomp.runtime import threads
from tracecomp.runtime.aligned import maker
from tracecomp.runtime.call import Code, Held, Place, Record
from tracecomp.runtime.object_layout import field_offsets, objects_are_known, word_at

SMALL = 65536
"""Bytes of all memory of a call that keeps the interpreter lock."""

_MAX_TENSORS = 16
_UNCHANGING = (bool, int, float, complex, str, bytes, NoneType, DType, type(Ellipsis), slice, range, np.generic)


@cache
def call_code() -> Code | None:
    """The native code of calls; None where objects are laid out in an unknown way."""
    if not objects_are_known():
        return None
    fields = field_offsets(blank(Tensor), FIELDS)
    counts = [field_offsets(x, type(x).__slots__) for x in (Storage(), Memory())]
    return Code(Tensor, fields, counts[0] | counts[1]) if fields and all(counts) else None


def fast_record(plan: Plan, leaves: Sequence[Any], code: Code) -> tuple[Any, ...] | None:
    """The record of a call that has just fitted ``plan``; None when it needs Python."""
    return _Writer(plan, leaves, code).record() if _fits(plan, leaves) else None


def _fits(plan: Plan, leaves: Sequence[Any]) -> bool:
    recording, guards = plan.recording, plan.recording.guards
    reusable = {id(t) for t, _ in plan.reusable}
    accumulated = {id(u.target.ref.ref) for u in recording.updates if u.target.kind == "grad"}
    holders = [b for b, *_ in (*recording.grads, *guards.grads)] + [b.ref for b in recording.inputs if b.kind == "grad"]
    return (
        isinstance(plan.forward, Native)
        and (config.thread_overrides == 0 or not plan.forward.executable.image.parallel)
        and guards.structure == flat_call(len(leaves))
        and not (recording.predicates or recording.split or recording.rebased or guards.arrays or guards.places)
        and not recording.effects
        and all(b.kind not in ("size", "number") for b in recording.inputs)
        and not recording.requires_grad
        and all(b.kind == "state" for b in holders)
        and len(guards.tensors) <= _MAX_TENSORS
        and not reusable & accumulated
        and all(u.writes for u in recording.updates)
        and all(new is None or (id(b.ref) in reusable and _simple(new)) for b, new in recording.grads)
        and all(_simple(r) for r in recording.results)
    )


def _simple(r: Result) -> bool:
    if isinstance(r, Made):
        return r == Made(r.number, history=History(freed=r.history.freed))
    return isinstance(r, Plain) or (isinstance(r, Given) and r.source.kind in ("argument", "state"))


class _Writer:
    """Writes the record of one plan."""

    def __init__(self, plan: Plan, leaves: Sequence[Any], code: Code) -> None:
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
        self.r = Record(code, image.arrays, self.arena_bytes)
        self.sources: dict[tuple[int, int], int] = {}
        self.read = set(self.recording.inputs)

    def record(self) -> tuple[Any, ...] | None:
        """The record as a tuple that begins with its memory; None when a guard needs Python."""
        entries = (*self.guards.names.entries, *self.guards.options.entries)
        if not all(self._name(*entry[:3]) for entry in entries):
            return None
        self._guards()
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
        self.executable.free_idle()  # the record has memory of its own
        memory, kept = self.r.finish(
            count=len(self.leaves), entry=self.executable.entry, numbers=numbers, finish=finish,
            unlocked=int(loops or self.parallel or held + self.arena_bytes > SMALL),
            pool=int(threads.POOL.ctypes.data), threads=self.threads, failed=Held(self.executable.fail),
            prepared=prepared,
        )  # fmt: skip
        return memory, kept, self.plan

    # ---- guards

    def _name(self, mapping: Mapping[str, Any], key: str, snapshot: Any) -> bool:
        """Guard a name by the identity of what it stands for and holds; False when that is not enough."""
        missing = object()
        value = mapping.get(key, missing)
        if value is missing or not (type(snapshot) is ById or self._contents(value)):
            return False
        if (ById(value) if type(snapshot) is ById else freeze(value)) != snapshot:
            return False
        if isinstance(mapping, Contents):
            self.r.add("fields", Held(mapping.cell), CELL_CONTENTS, Held(value))
        else:
            self.r.add("names" if type(mapping) is dict else "items", Held(mapping), Held(key), Held(value))
        return True

    def _contents(self, value: Any) -> bool:
        """Guard what a container holds by identity; False when that is not enough."""
        if _unchanging(value):
            return True
        if type(value) is list:
            self.r.add("fields", Held(value), LIST_SIZE, len(value))
            for n, item in enumerate(value):
                self.r.add("elements", Held(value), 8 * n, Held(item))
        elif type(value) is dict:  # the version, as a program may depend on the order of what it holds
            self.r.add("fields", Held(value), DICT_VERSION, word_at(value, DICT_VERSION))
        elif type(value) is not tuple:
            return False
        return all(map(self._contents, value.values() if type(value) is dict else value))

    def _guards(self) -> None:
        guards, add = self.guards, self.r.add
        grad, inference, dtype, autocast = guards.modes
        for key, value in (("recorder", None), ("grad", grad), ("inference", inference), ("autocast", autocast)):
            add("modes", Held(key), Held(value), Held(getattr(Modes, key)))
        add("names", Held(vars(default_dtype)), Held("_default"), Held(dtype))
        if guards.module_state or guards.optimizers:
            add("attributes", Held(ModuleChanges), Held("epoch"), Held(guards.epoch))
        for leaf in self.leaves:
            add("arguments", *((Held(type(leaf)), 0) if isinstance(leaf, Tensor) else (0, Held(leaf))))
        numbered = [(i, first) for (i, *_), first in zip(guards.tensors, guards.same, strict=True)]
        for n, (i, first) in enumerate(numbered):
            for j, other in numbered[:n]:
                add("pairs", 8 * i, 8 * j, int(first == other))
        for holder, present, _ in guards.grads:
            add("absent_grads", Held(holder.ref), int(not present))

    def _threads(self) -> None:
        """Guard the number of threads, and that so many have been started: a forked child has none."""
        threads.start_workers(self.threads - 1)
        started = [(threads, "workers")] if self.threads > 1 else []
        for module, name in ((config, "thread_overrides"), (threads, "chosen"), *started):
            names = vars(module)
            self.r.add("names", Held(names), Held(name), Held(names[name]))

    # ---- inputs

    def _inputs(self) -> None:
        slots = {a: p for p, a in enumerate(self.places) if isinstance(a, int)}
        for p, a in enumerate(self.places):
            if not isinstance(a, int):
                self.r.set_slot(p, a)
        used: dict[tuple[int, int], int | None] = {}
        inputs = [i for i in self.recording.graph.inputs if i.role != "constant"]
        for number, (b, given) in enumerate(zip(self.recording.inputs, inputs, strict=True)):
            slot = slots.get(number)
            if b.kind == "host":
                if slot is not None:
                    owner, key = b.ref
                    attribute = int(not isinstance(owner, Mapping))
                    self.r.add("hosts", Held(owner), Held(key), attribute, self.r.number(slot))
            elif b.kind == "grad":
                self._source(GRADIENT, b.ref.ref, 2, given.value.dtype.numpy, given.value.shape, slot)
            else:
                used[_key(b.kind, b.ref)] = slot
        for i, dtype, shape, requires_grad in self.guards.tensors:
            self._source(ARGUMENT, i, int(requires_grad), dtype, shape, used.get((ARGUMENT, i)))
        for t, dtype, shape, requires_grad, _ in self.guards.state:
            self._source(OBJECT, t, int(requires_grad), dtype, shape, used.get((OBJECT, id(t))))
        self._storages()

    def _source(
        self, kind: int, ref: Any, requires_grad: int, dtype: Any, shape: tuple[int, ...], slot: int | None,
        exclusive: bool = False,
    ) -> int:  # fmt: skip
        """A tensor that the call looks at: its number."""
        key = (kind, ref if kind == ARGUMENT else id(ref))
        if key not in self.sources:
            reference = 8 * ref if kind == ARGUMENT else Held(ref)
            layout = self.r.layout(dtype, shape)
            row = (kind, reference, requires_grad, layout, self.r.slot(slot), int(exclusive))
            self.sources[key] = self.r.add("sources", *row)
        return self.sources[key]

    def _storages(self) -> None:
        """Arguments that must not share memory with what is written."""
        targets = [u.target for u in self.recording.updates]
        written = [_key(b.kind, b.ref) for b in targets if b.kind != "grad"]
        for u in self.recording.updates:
            self._written(u)
        for i, *_ in self.guards.tensors:
            for key in written:
                if key != (ARGUMENT, i):
                    argument = Place("sources", self.sources[ARGUMENT, i])
                    self.r.add("storages", argument, Place("sources", self.sources[key]), int(key[0] == ARGUMENT))

    def _preparation(self) -> int:
        """Note what a preparation reads; the address of the byte that tells whether it is made, or 0."""
        if self.executable.image.prepared is None:
            return 0
        for t in self.plan.lasting:
            self.r.add("lasting", Place("sources", self.sources[OBJECT, id(t)]), self.r.items())
        return self.r.arena(self.executable.image.prepared)

    # ---- outputs

    def _written(self, update: Update) -> None:
        """An output that goes into the memory of a tensor from outside."""
        b, out = update.target, update.number
        kind = {"argument": ARGUMENT, "state": OBJECT, "grad": GRADIENT}[b.kind]
        dtype, shape = self.plan.types[out][1], self.plan.types[out][0]
        ref = b.ref.ref if b.kind == "grad" else b.ref
        source = Place("sources", self._source(kind, ref, 2, dtype, shape, None))
        apart = int(b not in self.read)
        self.r.add("in_place", source, self.r.slot(self.first_output + out), apart)
        self.r.add("written", source, update.writes)

    def _outputs(self) -> None:
        taken = {u.number for u in self.recording.updates}
        for holder, new in self.recording.grads:
            if new is None:
                self.r.add("cleared", Held(holder.ref))
        for t, n in self.plan.reusable:
            shape, dtype = self.plan.types[n]
            self._source(GRADIENT, t, 2, dtype, shape, self.first_output + n, exclusive=True)
            taken.add(n)
        freed = {r.number for r in self.recording.results if isinstance(r, Made) and r.history.freed}
        self.fresh: dict[int, int] = {}
        for n, (shape, dtype) in enumerate(self.plan.types):
            if n not in taken:
                layout = self.r.layout(dtype, shape)
                history = Held(partial(Freed, (), ((dtype, shape),))) if n in freed else 0
                slot = self.r.slot(self.first_output + n)
                make, kept = Held(maker(dtype.itemsize * prod(shape))), int(n in self.plan.kept)
                row = (make, Held(shape), Held(dtype), layout, slot, kept, self.r.items(), 0, 0, history)
                self.fresh[n] = self.r.add("fresh", *row)

    def _results(self) -> tuple[int, Held | int]:
        """Rows for what is returned; how many, and what makes the return value of their tuple."""
        for r in self.recording.results:
            if isinstance(r, Made):
                self.r.add("results", Place("fresh", self.fresh[r.number], "tensor"))
            elif isinstance(r, Plain):
                self.r.add("results", self.r.cell(r.value))
            elif not isinstance(r, Given):
                raise AssertionError("numbers that are followed and views need Python")
            elif r.source.kind == "argument":
                self.r.add("results", Place("sources", self.sources[ARGUMENT, r.source.ref], "tensor"))
            else:
                self.r.add("results", self.r.cell(r.source.ref))
        structure = self.recording.structure
        if structure is LEAF:
            return -1, 0
        count = len(self.recording.results)
        if structure == (tuple, *(LEAF,) * count):
            return count, 0
        finish: Callable[[Any], Any] = partial(unflatten, structure)
        return count, Held(finish)


def _key(kind: str, ref: Any) -> tuple[int, int]:
    return (ARGUMENT, ref) if kind == "argument" else (OBJECT, id(ref))


def _unchanging(value: Any) -> bool:
    """Whether ``value`` means the same for as long as it is the same object."""
    if type(value) is tuple:
        return all(map(_unchanging, value))
    return isinstance(value, _UNCHANGING) or callable(value) or isinstance(value, Tensor)
