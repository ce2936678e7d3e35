"""Observation of a program's reads and changes of outside Python objects, instruction by instruction.

While a program is recorded, CPython reports each instruction of the program's functions before it runs. Instructions
that read an attribute, a global or an element, or pass a value to other code, become reads (``guards/reads.py``). Those
that change an object from before the call become effects. Library code is opaque: its arguments count as read as a
whole, and its reads of the outside world are refused (``outside.py``).
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import (
    BuiltinFunctionType,
    CellType,
    ClassMethodDescriptorType,
    CodeType,
    FrameType,
    FunctionType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any, TypeVar

import numpy as np

from tracecomp.base.capture_guide import BreakReason, Section
from tracecomp.base.errors import CaptureError, is_program_file
from tracecomp.eager.tensor import Tensor
from tracecomp.record import calls
from tracecomp.record.caught_errors import may_suppress, own_errors
from tracecomp.record.effects import put_plain
from tracecomp.record.frames import function_of
from tracecomp.record.guards.facts import FACTS
from tracecomp.record.guards.ownership import (
    is_module,
    is_opened,
    is_program_class,
    of_package,
)
from tracecomp.record.guards.reads import (
    All,
    Attribute,
    Element,
    Entry,
    Field,
    Held,
    Inherited,
    Methods,
    Names,
    Read,
    Reads,
    Slot,
    SomeStep,
    attributes_of,
    everything,
    inherited,
)
from tracecomp.record.guards.snapshots import MISSING, Snapshot, plain_value, short
from tracecomp.record.guards.varying_objects import use_identity
from tracecomp.record.guards.visibility import has_attributes, held_by, is_container, is_hidden, keeps_state
from tracecomp.record.instruction_trace import InstructionTrace
from tracecomp.record.object_changes import ObjectChanges
from tracecomp.record.pytree import added_to, is_changeable, is_record, is_varying, note_attribute, opened, parts_of
from tracecomp.record.recorder import Recorder
from tracecomp.record.same_values import PLAIN, is_plain, is_value

T = TypeVar("T")
_PACKAGE = __name__.partition(".")[0]
_FIELDS = ("__code__", "__defaults__", "__kwdefaults__")


class Observer:
    """Around a call, notes in ``reads`` what the program's functions read, and as effects what they change."""

    def __init__(self, recorder: Recorder, reads: Reads, root: CodeType | None) -> None:
        self._root = root
        self.recorder = recorder
        self.reads = reads
        self.known: dict[int, Read] = {}  # objects that were there before the call, by identity
        self.made: dict[int, Any] = {}  # objects that were not
        self.changed: dict[int, Any] = {}  # containers that the call changes, as they were before
        self.written = recorder.python.set_by_call
        self.cells: dict[int, Read] = {}
        self._held: dict[int, object] = {}  # containers in places, by identity
        self._functions: dict[int, Any] = {}
        self._alive: list[Any] = []
        self._shared: dict[int, object] = {}  # containers among the arguments that are also found elsewhere
        self._compared = False  # whether the program compared the identity of one among the arguments
        self.changes = ObjectChanges(recorder, reads, self.known, self.cells, self.changed)

    def call(self, fn: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]) -> Any:
        """``fn(*args, **kwargs)``, observed."""
        try:
            return self._watch(partial(fn, *args, **kwargs))
        finally:
            self.recorder.refusals.running = None

    def derive(self, run: Callable[[], T]) -> T:
        """``run()``, a backward pass that callers make later: its reads count, effects are refused."""
        self.changes.later = True
        found = self._watch(run)
        if self.recorder.refusals.reason is not None:  # a hook has caught the refusal
            raise CaptureError(str(self.recorder.refusals.reason))
        return found

    def _watch(self, run: Callable[[], T]) -> T:
        # Not kept: an observer that holds itself would hold what the call has read until a collection.
        return InstructionTrace(self, self.recorder, self._root, self._entered).run(run)

    def forget(self) -> None:
        """Release the objects that the call has made, which may hold its tensors."""
        self.made.clear()
        self._functions.clear()
        self._alive.clear()

    def release(self) -> None:
        """Release all that was read, after a refusal: the rest of the call may count references."""
        given: Any = self.reads.given.value
        put_plain(self.recorder.python.effects, given)
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

    # ---- functions

    def start(self, fn: object, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
        """Register the compiled function and its arguments before the call."""
        given = Read(None, None, (args, kwargs), "arguments")
        given.is_given = True
        self.reads.given = given
        for i, value in enumerate(args):
            self._give(given.child(Element(0), args, "arguments").child(Element(i), value, f"argument [{i}]"))
        for name, value in kwargs.items():
            self._give(given.child(Element(1), kwargs, "arguments").child(Entry(name), value, f"argument {name}"))
        if isinstance(fn, MethodType):
            self.reach(fn.__self__, self.reads.root(fn.__self__, f"attribute of {type(fn.__self__).__name__}:"))
        elif not isinstance(fn, FunctionType):
            self.reach(fn, self.reads.root(fn, f"attribute of {type(fn).__name__}:"))
        if isinstance(fn, partial):
            calls.called(self, fn, list(args), dict(kwargs))

    def _give(self, read: Read) -> None:
        """Know an argument: containers by where they are among the arguments, which are guarded as they are."""
        value = read.value
        if id(value) in self.known:
            return  # reached by two paths
        if opened(type(value)) or is_record(value):
            read.is_given = True
            self.known[id(value)] = read
            self.changes.give(read)
            if is_varying(type(value)):
                self._know_class(type(value))
            for step, item in [*_parts(value), *_added(value)]:
                self._give(read.child(step, item, item_of(read, step.key)))
            self._reach_keys(value)
        elif isinstance(value, np.ndarray):
            read.is_given = True
            self.known[id(value)] = read
        elif not isinstance(value, Tensor) and not is_value(value):
            self.reads.borrowed.add(id(value))
            self.reach(value, self.reads.root(value, f"attribute of {type(value).__name__}:"))

    def _reach_keys(self, value: object) -> None:
        """Know the objects in a set, or the keys of a dictionary, which are guarded by identity."""
        for item in list(value) if isinstance(value, dict | set | frozenset) else ():
            if not is_plain(item):
                self.reach(item, self.reads.root(item, f"attribute of {type(item).__name__}:"))

    def _entered(self, frame: FrameType) -> None:
        """Know a function of the program that was there before the call, its closure and its defaults."""
        if frame.f_code.co_name == "<module>":  # a text that the program evaluates
            return
        fn = function_of(frame)
        code = frame.f_code
        if fn is not None and id(fn) not in self.made and id(fn) not in self._functions:
            self._functions[id(fn)] = fn
            self._know_function(fn)
        if code.co_argcount and code.co_varnames[0] == "self":
            owner = frame.f_locals.get("self")
            if code.co_name in ("__init__", "__new__", "__post_init__") and id(owner) not in self.known:
                self.made[id(owner)] = owner
            elif id(owner) not in self.known and id(owner) not in self.made:
                self.reach(owner, self.reads.root(owner, f"attribute of {type(owner).__name__}:"))

    def _know_function(self, fn: FunctionType) -> None:
        read = self.known.get(id(fn)) or self.reads.root(fn, f"function {fn.__name__}")
        for field in _FIELDS:
            value = getattr(fn, field)
            if value is None:
                continue  # a call that needed no defaults would use none that are added
            where = f"{'code' if field == '__code__' else 'default argument'} of {fn.__name__}:"
            child = read.child(Field(field), value, where)
            if isinstance(value, tuple | dict):
                self.reach(value, child)
                self.contents(value)
        for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
            if id(cell) not in self.made:
                self.cells.setdefault(id(cell), self.reads.root(cell, f"closure variable {name}"))

    # ---- reads

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
        is_method = name not in attributes_of(owner.value) and callable(inherited(kind, name))
        if not is_method and note_attribute(kind, name):
            self.recorder.python.kept = BreakReason(f"reads the attribute {name} of a {kind.__name__}", Section.STATE)

    def reach(self, value: Any, read: Read) -> None:
        """Know an object that was there before the call, found by ``read``."""
        value = plain_value(value)
        if isinstance(value, Snapshot) or is_value(value):
            return
        if type(value) in weakref.ProxyTypes or isinstance(value, _FOLLOWERS):
            self.recorder.refuse_here(
                f"uses a {type(value).__name__}, which follows an object's lifetime", Section.STATE
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
                    self._shared[id(value)] = value
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

    def module(self, module: object) -> None:
        """Know a module that runs."""
        if id(module) not in self.known and id(module) not in self.made:
            self.known[id(module)] = self.reads.root(module, f"attribute of {type(module).__name__}:")
        kind = type(module)
        self._know_class(kind)
        if not is_program_class(kind):
            forward = Inherited("forward")
            self.step(self.reads.root(kind, f"class {kind.__name__}"), forward, forward.fetch(kind), "its forward")

    def global_name(self, frame: FrameType, name: str) -> None:
        """The program read a global."""
        space = frame.f_globals
        if name in space:
            value = space[name]
            if not (isinstance(value, ModuleType) and _is_library(value)):
                self.step(self.reads.root(space, "globals"), Entry(name), value, f"global {name}")
            return
        self.step(self.reads.root(space, "globals"), Entry(name), MISSING, f"global {name}")
        builtin = frame.f_builtins
        self.step(self.reads.root(builtin, "builtins"), Entry(name), builtin.get(name, MISSING), f"builtin {name}")

    def library_global(self, space: dict[str, Any], name: str) -> None:
        """Code of Python's library read a global: one that holds a state counts as read by the program."""
        value = space.get(name)
        if not (isinstance(value, _STATE) or has_attributes(value)) or isinstance(value, type):
            return
        if str(space.get("__name__")).partition(".")[0] not in sys.stdlib_module_names:
            return
        if f"{space.get('__name__')}.{name}" in _CACHES:
            return
        self.step(self.reads.root(space, "globals"), Entry(name), value, f"{space.get('__name__')}.{name}")
        self.consume(value)

    def cell(self, cell: CellType, name: str) -> None:
        """The program read a variable that functions share."""
        read = self.cells.get(id(cell))
        if read is not None:
            step = Held(name)
            self.step(read, step, step.fetch(cell), f"closure variable {name}")

    def attribute(self, owner: object, name: str) -> None:
        """The program read an attribute."""
        if isinstance(owner, ModuleType) and _is_library(owner):
            self._of_library(owner, name)
            return
        if isinstance(owner, Tensor):
            self._of_tensor(owner, name)
            return
        if is_value(owner):
            return
        if isinstance(owner, np.ndarray) and name in _VIEWS_OF_ARRAYS:
            self.contents(owner)
            return
        if isinstance(owner, np.ndarray) and not is_program_class(type(owner)) and not hasattr(np.ndarray, name):
            self.consume(owner)  # a field of records, a mask
        if type(owner) is super:
            parts: Any = owner
            self.attribute_of_base(parts.__thisclass__, parts.__self__, name)
            return
        # In Python's lookup order: the class determines whether a descriptor precedes the object's dictionary.
        kind = owner if isinstance(owner, type) else type(owner)
        stored = self._inherited(kind, name, missing=kind is owner)
        read = self.known.get(id(owner))
        if isinstance(owner, type) and name in _NAMES and is_program_class(owner):
            self._name(owner, name)
        if isinstance(owner, type) and type(owner) is not type and (stored is MISSING or hasattr(stored, "__set__")):
            self._inherited(type(owner), name)
        if read is None or isinstance(owner, type):
            return
        own = attributes_of(owner)
        # Parameters and buffers are states of the graph, not guards.
        if is_module(owner) and any(name in own.get(table, ()) for table in ("_parameters", "_buffers", "_modules")):
            self._part_of_module(owner, name)
            return
        where = f"attribute of {type(owner).__name__}: {name}"
        # Data descriptors go before the dictionary.
        self._computed(owner, name, stored)
        if hasattr(type(stored), "__set__"):
            if not isinstance(stored, property) and not is_program_class(type(stored)):
                self.recorder.memory.note(owner)
                step: SomeStep = Slot(name)
                self.step(read, step, step.fetch(owner), where)
            return
        # A name that is missing is guarded as well: it may be there at the next call.
        if name in own or type(owner).__dictoffset__:
            self.step(read, Attribute(name), own.get(name, MISSING), where)
        if isinstance(owner, threading.local):  # has other attributes in each thread
            step = Slot(name)
            self.step(read, step, step.fetch(owner), where)

    def _name(self, value: object, name: str) -> None:
        """The program read the name of a class or a function."""
        step = Slot(name)
        self.step(self.reads.root(value, f"{name} of"), step, step.fetch(value), f"{name} of {short(value)}")

    def _computed(self, owner: object, name: str, stored: object) -> None:
        """The program read an attribute that a descriptor computes. Code of the program is observed itself."""
        if isinstance(stored, property) and not calls.is_programs(stored.fget):
            if isinstance(stored.fget, FunctionType):
                self.consume(owner)
            elif stored.fget is not None:
                self.reach(stored.fget, self.reads.root(stored.fget, f"property {name}"))
                calls.called(self, stored.fget, [owner], {})
        elif isinstance(inherited(type(stored), "__get__"), FunctionType):
            self.consume(stored)

    def _of_library(self, library: ModuleType, name: str) -> None:
        """Guard a library's attribute. This package's are guarded if they are settings."""
        value = vars(library).get(name, MISSING)
        is_own = library.__name__.partition(".")[0] == _PACKAGE
        if value is MISSING and (is_own or "__getattr__" in vars(library)):
            return  # made when it is read
        if not is_own or isinstance(value, list | dict) or _is_setting(library, value):
            root = self.reads.root(library, library.__name__)
            self.step(root, Attribute(name), value, f"{library.__name__}.{name}")

    def _of_tensor(self, t: Tensor, name: str) -> None:
        """The program read an attribute of a tensor: a fact about it, or something that Python has put on it."""
        if name in FACTS:
            self.recorder.ask(t, name)
            return
        if name == "__dict__":
            self.recorder.refuse_here("reads all attributes of a tensor", Section.STATE, "Read single attributes")
            return
        stored = self._inherited(type(t), name)
        if type(t) is Tensor and isinstance(stored, FunctionType):
            method = Inherited(name)
            self.step(self.reads.root(Tensor, "class Tensor"), method, stored, f"method {name} of tensors")
        if name in attributes_of(t) or not (callable(stored) or hasattr(type(stored), "__get__")):
            if self.recorder.is_made(t) or (id(t), Attribute(name).same()) in self.written:
                return
            self.recorder.ask(t, "attribute", name)
            value = attributes_of(t).get(name)
            if value is not None:
                self.reach(value, self.reads.root(value, f"attribute of a tensor: {name}"))

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

    def identities(self) -> dict[int, object] | None:
        """Objects from outside that containers among the arguments may also be; None if it makes no difference."""
        if not (self._compared or self._shared or self.changed or self.written or self.reads.places):
            return None
        found = {key: read.value for key, read in self.known.items() if not read.is_given}
        return {key: x for key, x in (found | self._shared).items() if is_changeable(x)}

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
            for _, item in _parts(value):
                self._hold(item)

    def _inherited(self, kind: type, name: str, missing: bool = False) -> Any:
        """The class's entry under a name; a read for the program's own classes, even if ``missing``."""
        stored = inherited(kind, name)
        read = self.reads.classes.get(id(kind))
        if read is None and any(is_program_class(k) for k in kind.__mro__):
            self._know_class(kind)
            read = self.reads.classes.get(id(kind))
        if read is None and stored is not MISSING and not of_package(kind) and has_attributes(kind):
            read = self.reads.root(kind, f"class {kind.__name__}")
        if read is None and missing and of_package(kind) and isinstance(stored, PLAIN):
            read = self.reads.root(kind, f"class {kind.__name__}")
        if read is not None and not isinstance(stored, _FUNCTIONS) and (missing or stored is not MISSING):
            self.step(read, Inherited(name), stored, f"attribute of class {kind.__name__}: {name}")
        return stored

    def attribute_of_base(self, kind: type, owner: object, name: str) -> None:
        """The program read ``super(kind, owner).name``: of the first class behind ``kind`` that has it."""
        mro = (owner if isinstance(owner, type) else type(owner)).__mro__
        behind = mro[mro.index(kind) + 1 :] if kind in mro else ()
        found = next((k for k in behind if name in vars(k)), None)
        if found is not None:
            self._inherited(found, name)

    def module_imported(self, module: ModuleType) -> None:
        """The program imported a module in the call."""
        if not _is_library(module):
            self.reach(module, self.reads.root(module, f"module {module.__name__}"))

    def _part_of_module(self, module: Any, name: str) -> None:
        self.recorder.module_ran(module)
        part = module._modules.get(name)
        if part is not None:
            self.module(part)

    def item(self, owner: object, key: object) -> None:
        """The program read an element."""
        if isinstance(owner, np.void):  # a view of an array
            self.recorder.refuse_here("reads a record of an array", Section.STATE)
        self.looked_up(owner, key)
        read = self.known.get(id(owner))
        if read is None:
            return
        key = plain_value(key)
        if id(owner) in self.changed:
            self.contents(owner)
        elif isinstance(owner, dict):
            if calls.is_key(key):
                self.step(read, Entry(key), dict.get(owner, key, MISSING), item_of(read, key))
            else:  # the program's own code compares keys
                self.contents(owner)
        elif isinstance(owner, list | tuple | deque) and isinstance(key, int):
            step = Element(key)
            self.step(read, step, step.fetch(owner), item_of(read, key))
        elif owner is os.environ and isinstance(key, str):
            self.step(read, Element(key), owner.get(key, MISSING), item_of(read, key))
        else:
            self.contents(owner)
            self.consume_state(owner)

    def consume_state(self, owner: object) -> None:
        """The program used, as a container, an object of this package that has attributes to go by."""
        if id(owner) in self.known and (keeps_state(owner) or is_hidden(owner) or has_attributes(owner)):
            self.consume(owner)

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
        for step, item in _parts(value) if before is MISSING else ():
            if not isinstance(item, PLAIN):
                self.step(read, step, item, item_of(read, step.key))

    def consume(self, value: object, depth: int = 8, own: bool = False) -> None:
        """Note that the program passed ``value`` to code that may read all of it. ``own``: code of this package."""
        read = self.known.get(id(value))
        if isinstance(value, type) and depth and is_program_class(value):
            self._consume_class(value, depth)
        elif isinstance(value, FunctionType) and read is not None:
            if calls.is_programs(value):
                self._know_function(value)
                self._name(value, "__qualname__")
            else:
                calls.closure(self, value)
        elif isinstance(value, BaseException) and read is not None:
            self.step(read, Slot("args"), value.args, f"arguments of a {type(value).__name__}")
        elif isinstance(value, ModuleType) and not _is_library(value):
            self.recorder.refuse_here(f"passes the module {value.__name__} to other code", Section.STATE)
        elif isinstance(value, MethodType) and depth:
            self.consume(value.__self__, depth - 1, own)
        if read is None or depth == 0 or isinstance(value, type | FunctionType | ModuleType) or is_module(value):
            if isinstance(value, tuple | list | dict) and depth and read is None:  # made in the call, of older things
                for item in list(value.values()) if isinstance(value, dict) else held_by(value):
                    if not isinstance(item, (*PLAIN, Tensor)):
                        self.consume(item, depth - 1, own)
            return
        self.contents(value, own)
        if is_container(value):
            parts: Any = () if isinstance(value, np.ndarray) else value  # of no dimension, too
            items: Sequence[Any] = list(parts.values()) if isinstance(parts, Mapping) else list(parts)
            if has_attributes(value):
                items = [*items, *self._attributes(read, value)]
        elif is_opened(type(value)) or keeps_state(value):
            read.pin()
            if not any(owner == id(value) for owner, _ in self.written):
                names = Names(None)
                self.step(read, names, names.fetch(value), f"names of attributes of {type(value).__name__}")
            for name in list(attributes_of(value)):
                self.attribute(value, name)
            items = list(attributes_of(value).values())
        elif has_attributes(value):
            items = self._attributes(read, value)
        else:
            items = ()
            if is_hidden(value):
                self.recorder.refuse_here(
                    f"uses a {type(value).__name__}, whose state cannot be inspected", Section.STATE
                )
        for item in items:
            if not isinstance(item, (*PLAIN, Tensor)):
                self.consume(item, depth - 1, own)

    def hand(self, value: object, depth: int = 8) -> None:
        """Code that is not recorded gets ``value``, and may change the containers and records that it leads to."""
        read = self.known.get(id(value))
        if depth == 0 or not is_changeable(value):
            return
        if read is not None:
            self.changes.hand(read, value)
        for _, item in _parts(value):
            self.hand(item, depth - 1)

    def _attributes(self, read: Read, value: Any) -> Sequence[Any]:
        """Note that all attributes of an object of Python's library are read, and return them."""
        names = Names(None)
        self.step(read, names, names.fetch(value), f"names of attributes of {type(value).__name__}")
        found: dict[SomeStep, Any] = {Attribute(name): item for name, item in attributes_of(value).items()}
        for kind in type(value).__mro__:
            slots = [k for k, member in vars(kind).items() if isinstance(member, MemberDescriptorType)]
            found.update({step: step.fetch(value) for step in map(Slot, slots)})
        for step, item in found.items():
            self.step(read, step, item, f"attribute of {type(value).__name__}: {step.key}")
        return list(found.values())

    def _consume_class(self, kind: type, depth: int) -> None:
        """Note that all attributes of a class of the program are read."""
        self._name(kind, "__qualname__")
        for base in kind.__mro__:
            for name, stored in list(vars(base).items()) if is_program_class(base) else ():
                if not callable(stored) and not hasattr(type(stored), "__get__") and name not in _OF_CLASSES:
                    self._inherited(kind, name)
                    self.consume(stored, depth - 1)

    def pin(self, value: object) -> None:
        """The program used the identity of ``value``."""
        read = self.known.get(id(value))
        if read is not None:
            read.pin()

    def block_entered(self, manager: object) -> None:
        """A ``with`` block of ``manager`` begins."""
        self.consume_state(manager)
        self.recorder.catches |= may_suppress(manager)

    def error_caught(self, error: BaseException | None) -> None:
        """The program is done with handling ``error``."""
        for own, of_elements in own_errors(error):
            if of_elements:
                what = f"catches {type(own).__name__}, which may depend on elements of a tensor"
                self.recorder.refuse_here(what, Section.SELECT, "Test the condition with tensor operators")
                return
            self.recorder.fix_numbers()


_FUNCTIONS = (
    FunctionType, type, staticmethod, classmethod, property, MethodDescriptorType, WrapperDescriptorType,
    ClassMethodDescriptorType,
)  # fmt: skip
"""Attributes of classes that are guarded with its methods."""
_NAMES = ("__name__", "__qualname__")
_FOLLOWERS = (weakref.finalize, weakref.WeakMethod)
"""Classes of objects that change at the end of the object that they follow."""
_STATE = (list, dict, set, MethodType)
"""Globals of Python's library that hold a state."""
_CACHES = frozenset({
    "re._cache", "re._cache2", "xml.etree.ElementPath._cache", "hashlib.__builtin_constructor_cache",
    "encodings._cache", "copyreg._extension_cache", "ctypes._c_functype_cache", "_strptime._regex_cache",
    "typing._caches", "asyncio.coroutines._iscoroutine_typecache", "platform._platform_cache",
    "platform._sys_version_cache",
})  # fmt: skip
"""Globals of Python's library that any call may fill, and that hold what the same call would compute again."""
_OF_CLASSES = frozenset({"__module__", "__doc__", "__dict__", "__weakref__", "__qualname__", "__firstlineno__"})

_VIEWS_OF_ARRAYS = {"T", "mT", "flat", "real", "imag", "data", "base", "ctypes", "__array_interface__"}
"""Attributes by which the elements of an array are read or changed."""


def _is_library(module: ModuleType) -> bool:
    name = getattr(module, "__file__", None)
    made = type(module) is ModuleType and name is None and module.__spec__ is None  # by a program, out of nothing
    return module.__name__ != "__main__" and not made and not (isinstance(name, str) and is_program_file(name))


def _is_setting(module: ModuleType, value: object) -> bool:
    """Whether a value in a module of this package may be a flag, as of ``torch.backends``, which programs set."""
    return isinstance(value, bool | int | str | None) and module.__name__.startswith(f"{_PACKAGE}.")


def _parts(value: Any) -> list[tuple[SomeStep, Any]]:
    """The contents of a container or dataclass, with the steps to them."""
    if isinstance(value, dict):
        return [(Entry(key), item) for key, item in value.items()]
    if isinstance(value, list | tuple | deque):
        return [(Element(n), item) for n, item in enumerate(value)]
    if isinstance(value, np.ndarray) and value.dtype == object:
        return [(Element(index), value[index]) for index in np.ndindex(value.shape)]
    if is_container(value):
        return []
    return [(Attribute(name), getattr(value, name)) for name in parts_of(value)]


def _added(value: object) -> list[tuple[SomeStep, Any]]:
    """The attributes of a named tuple or dataclass in addition to its parts."""
    return [(Attribute(name), attributes_of(value)[name]) for name in added_to(value)]


def item_of(read: Read, key: object) -> str:
    """How people call an element."""
    return f"{read.where}[{short(key)}]"
