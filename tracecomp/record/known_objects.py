"""Objects from before the call that a recorded program has found, and how it found each."""

from __future__ import annotations

import weakref
from collections import deque
from functools import partial
from types import BuiltinFunctionType, MethodType, MethodWrapperType, ModuleType
from typing import Any

import numpy as np

from tracecomp.base.capture_guide import BreakReason, Section
from tracecomp.eager.tensor import Tensor
from tracecomp.record.effects import PlainParts, put_plain
from tracecomp.record.guards.lifetimes import is_held_if_guarded
from tracecomp.record.guards.lookup import attributes_of, inherited
from tracecomp.record.guards.ownership import is_module, is_program_class
from tracecomp.record.guards.read_steps import (
    All,
    Attribute,
    Element,
    Entry,
    Inherited,
    Methods,
    Slot,
    SomeStep,
    everything,
)
from tracecomp.record.guards.reads import Read, Reads
from tracecomp.record.guards.snapshots import MISSING, Snapshot, plain_value, short
from tracecomp.record.guards.varying_objects import use_identity
from tracecomp.record.guards.visibility import is_container
from tracecomp.record.object_changes import ObjectChanges
from tracecomp.record.pytree import added_to, is_changeable, is_varying, note_attribute, parts_of
from tracecomp.record.recorder import Recorder
from tracecomp.record.same_values import PLAIN, is_plain, is_value


class KnownObjects:
    """Objects that were there before the call, each with the read that found it, and single steps from them."""

    def __init__(self, recorder: Recorder, reads: Reads) -> None:
        self.recorder = recorder
        self.reads = reads
        self.known: dict[int, Read] = {}  # objects that were there before the call, by identity
        self.made: set[int] = set()  # objects that were not: nothing from before the call takes their identities
        self.making: dict[int, type] = {}  # classes whose objects running calls make, by the frames of these calls
        self.changed: dict[int, Any] = {}  # containers that the call changes, as they were before
        self.written = recorder.python.set_by_call
        self.cells: dict[int, Read] = {}
        self._held: dict[int, object] = {}  # containers in places, by identity
        self._alive: list[Any] = []
        self._functions: dict[int, Any] = {}  # those of the program that ran
        self._shared: list[Read] = []  # where containers among the arguments are also found
        self._compared = False  # whether the program compared the identity of one among the arguments
        self.changes = ObjectChanges(recorder, reads, self.known, self.cells, self.changed)

    def forget(self) -> None:
        """Release the objects that the call has made, which may hold its tensors."""
        self.made.clear()
        self._functions.clear()
        self._alive.clear()

    def release(self) -> None:
        """Release all that was read, after a refusal: the rest of the call may count references."""
        given: Any = self.reads.given.value
        put_plain(self.recorder.python.effects, given, PlainParts())
        self.reads.release()
        self.close()

    def close(self) -> None:
        """Release the objects that the call has met, when all is recorded.

        Trace functions refer to themselves, and to this. They stay until a collection.
        """
        self.forget()
        self.known.clear()
        self.changed.clear()
        self.cells.clear()
        self._held.clear()
        self._shared.clear()
        self.reads = Reads()
        self.changes.release()

    def step(self, owner: Read, step: SomeStep, value: object, where: str) -> None:
        """Note that the program found ``value`` one step from ``owner``."""
        for key in step.key if type(step.key) is tuple else (step.key,):
            self._use_identity(key)
        if owner.is_given:
            self._of_given(owner, step)
            return
        if value is not MISSING and id(owner.value) in self.recorder.python.stepped:
            self.recorder.refuse_here(f"reads {where} after a schedule's step", Section.STEP, "Step the schedule last")
            return
        place = step.place(owner.value, where)
        if place is not None and place.id in self.reads.places:
            owner.pin()  # the place is in this object
            self._hold(value)
            return
        if (id(owner.value), step.same()) in self.written:
            return
        self.reach(value, owner.child(step, value, where, self.recorder.refusals.line()))

    def _use_identity(self, value: object) -> None:
        """Guard objects of the class by identity, if ``value`` is one among the arguments that was taken apart."""
        if is_varying(type(value)) and (read := self.known.get(id(value))) is not None and read.is_given:
            use_identity(type(value))
            self.recorder.python.kept = BreakReason(f"uses the identity of a {type(value).__name__}", Section.STATE)

    def _of_given(self, owner: Read, step: SomeStep) -> None:
        """Record a read of an argument: attributes other than its parts are guarded from the next call on."""
        if not isinstance(step, Attribute | Slot) or step.key in parts_of(owner.value):
            return
        kind, name = type(owner.value), step.key
        if (id(owner.value), step.same()) in self.written or (id(owner.value), Attribute(name).same()) in self.written:
            return
        if name == "__dict__":
            self.recorder.refuse_here(
                f"reads all attributes of a {kind.__name__}", Section.STATE, "Read single attributes"
            )
            return
        if is_varying(kind):
            return  # its attributes are parts, and their names are guarded; this one is the class's
        is_method = name not in attributes_of(owner.value) and callable(inherited(kind, name))
        if not is_method and note_attribute(kind, name):
            self.recorder.python.kept = BreakReason(f"reads the attribute {name} of a {kind.__name__}", Section.STATE)

    def reach(self, value: Any, read: Read) -> None:
        """Know an object that was there before the call, found by ``read``."""
        value = plain_value(value)
        if isinstance(value, Snapshot) or is_value(value):
            return
        if type(value) in weakref.ProxyTypes or isinstance(value, _FOLLOWERS) or is_held_if_guarded(value):
            self.recorder.refuse_here(
                f"uses a {type(value).__name__}, which handles the end of an object", Section.STATE
            )
            return
        if isinstance(value, Tensor):
            self.reads.tensors[id(value)] = value
            return
        seen = self.known.get(id(value))
        if seen is not None:
            if seen is not read:  # the value has two paths, which must stay aliases
                seen.pin()
                read.pin()
                if seen.is_given:
                    self._shared.append(read)
            return
        if id(value) in self.made:
            return
        self.known[id(value)] = read
        self._alive.append(value)  # so that no other object has its identity
        if isinstance(value, MethodType | BuiltinFunctionType | MethodWrapperType):  # of an object, which it represents
            owner = value.__self__
            if not isinstance(owner, ModuleType):
                if id(value) in self.reads.borrowed:
                    self.reads.borrowed.add(id(owner))
                self.reach(owner, self.reads.root(owner, f"attribute of {type(owner).__name__}:"))
            called = getattr(value, "__func__", None)
            if isinstance(called, partial | MethodType | BuiltinFunctionType | MethodWrapperType):
                self.reach(called, self.reads.root(called, "function of a method"))
        if isinstance(value, type):
            self._know_class(value)
            self._know_class(type(value))
        elif is_module(value):
            for module in value.modules():
                self.recorder.module_ran(module)
        else:
            self._know_class(type(value))

    def _know_class(self, kind: type) -> None:
        if any(is_program_class(k) for k in kind.__mro__) and id(kind) not in self.reads.classes:
            read = self.reads.classes[id(kind)] = self.reads.root(kind, f"class {kind.__name__}")
            step = Methods(None)
            read.child(step, step.fetch(kind), f"a method of {kind.__name__}")

    def _reach_keys(self, value: object) -> None:
        """Know the objects in a set, or the keys of a dictionary, which are guarded by identity."""
        for item in list(value) if isinstance(value, dict | set | frozenset) else ():
            if not is_plain(item):
                self.reach(item, self.reads.root(item, f"attribute of {type(item).__name__}:"))

    def module(self, module: object) -> None:
        """Know a module that runs."""
        if id(module) not in self.known and id(module) not in self.made:
            self.known[id(module)] = self.reads.root(module, f"attribute of {type(module).__name__}:")
        kind = type(module)
        self._know_class(kind)
        if not is_program_class(kind):
            self._of_class(kind, "forward", f"forward of {kind.__name__}")

    def _part_of_module(self, module: Any, name: str) -> None:
        self.recorder.module_ran(module)
        part = module._modules.get(name)
        if part is not None and name not in attributes_of(module):
            self.module(part)

    def _of_class(self, kind: type, name: str, where: str) -> None:
        """The program used an attribute of a class of this package."""
        step = Inherited(name)
        self.step(self.reads.root(kind, f"class {kind.__name__}"), step, step.fetch(kind), where)

    def contents(self, value: object, own: bool = False) -> None:
        """The program read all elements of a container, or this package's ``own`` code did for it."""
        read = self.known.get(id(value))
        if read is None or not is_container(value):
            return
        if read.is_given and isinstance(value, np.ndarray):
            self.reads.array_lines.add(self.recorder.refusals.line())
            if not own:
                self.reads.seen_arrays.add(id(value))
        if not read.is_given:
            self.recorder.memory.note(value)
        before = self.changed.get(id(value), MISSING)
        self.step(read, All(None), everything(value) if before is MISSING else before, read.where)
        if read.is_given:
            return
        if before is MISSING:
            self._reach_keys(value)
        for step, item in parts_with_steps(value) if before is MISSING else ():
            if not isinstance(item, PLAIN):
                self.step(read, step, item, item_of(read, step.key))

    def pin(self, value: object) -> None:
        """The program used the identity of ``value``."""
        read = self.known.get(id(value))
        if read is not None:
            read.pin()

    def same(self, a: object, b: object) -> None:
        """The program compared two objects' identities."""
        if isinstance(a, Tensor) and isinstance(b, Tensor):
            self.recorder.facts.compare(a, b)
        elif not (isinstance(a, PLAIN) or isinstance(b, PLAIN)):
            self.pin(a)
            self.pin(b)
            self._use_identity(a)
            self._use_identity(b)
            reads = map(self.known.get, map(id, (a, b)))
            self._compared |= any(read is not None and read.is_given for read in reads)

    def identities(self) -> list[Read] | None:
        """The reads that may find containers among the arguments; None if it makes no difference."""
        if not (self._compared or self._shared or self.changed or self.written or self.reads.places):
            return None
        return [*(read for read in self.known.values() if not read.is_given), *self._shared]

    def which(self, value: object) -> None:
        """The program used the identity of a tensor, or one within a tuple: to find something by it, or its id."""
        if isinstance(value, Tensor):
            self.recorder.facts.ask_which(value)
        elif isinstance(value, tuple):
            for item in value:
                self.which(item)

    def looked_up(self, owner: object, key: object) -> None:
        """The program looked for ``key`` in a container: that is another key for each tensor."""
        if id(owner) in self.known or id(owner) in self._held:
            self.which(key)

    def _hold(self, value: object) -> None:
        """Register the containers in a place: their elements are not reads."""
        if is_container(value) and not isinstance(value, np.ndarray) and id(value) not in self._held:
            self._held[id(value)] = value
            for _, item in parts_with_steps(value):
                self._hold(item)

    def hand(self, value: object, depth: int = 8) -> None:
        """Code that is not recorded gets ``value``, and may change the containers and records that it leads to."""
        read = self.known.get(id(value))
        if depth == 0 or not is_changeable(value):
            return
        if read is not None:
            self.changes.hand(read, value)
        for _, item in parts_with_steps(value):
            self.hand(item, depth - 1)


_FOLLOWERS = (weakref.finalize, weakref.WeakMethod)
"""Classes of objects that change at the end of the object that they follow."""


def parts_with_steps(value: Any) -> list[tuple[SomeStep, Any]]:
    """The contents of a container or dataclass, with the steps to them."""
    if isinstance(value, dict):
        return [(Entry(key), item) for key, item in value.items()]
    if isinstance(value, list | tuple | deque):
        return [(Element(n), item) for n, item in enumerate(value)]
    if isinstance(value, np.ndarray) and value.dtype == object:
        return [(Element(index), value[index]) for index in np.ndindex(value.shape)]
    return [(Attribute(name), getattr(value, name)) for name in parts_of(value)]  # also of containers in Python


def added_with_steps(value: object) -> list[tuple[SomeStep, Any]]:
    """The attributes of a named tuple or dataclass in addition to its parts."""
    return [(Attribute(name), attributes_of(value)[name]) for name in added_to(value)]


def item_of(read: Read, key: object) -> str:
    """How people call an element."""
    return f"{read.where}[{short(key)}]"
