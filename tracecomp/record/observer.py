"""What a recorded program reads and changes of the Python around it, seen instruction by instruction.

While a program is recorded, CPython tells of each instruction of its own functions before it runs. Those that read an
attribute, a global, an element, or that hand a value to other code become reads (``guards/reads.py``); those that
change an object which was there before the call become effects. Code of libraries is not looked into: what is handed
to it counts as read as a whole, and what it takes from the world outside is refused (``outside.py``).
"""

from __future__ import annotations

import builtins
import dataclasses
import os
import sys
import threading
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import (
    CellType,
    CodeType,
    FrameType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any

import numpy as np

from tracecomp.base.errors import CaptureError, is_user_file, user_source
from tracecomp.eager.tensor import Tensor
from tracecomp.record import calls
from tracecomp.record.effects import Effect
from tracecomp.record.frames import function_of, stack_is_known
from tracecomp.record.guards.ownership import (
    is_installed,
    is_module,
    is_opened,
    is_program_class,
    is_program_code,
    is_program_file,
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
    Read,
    Reads,
    Slot,
    Snapshot,
    SomeStep,
    attributes_of,
    everything,
    inherited,
)
from tracecomp.record.guards.snapshots import MISSING, PLAIN, plain_value, short
from tracecomp.record.guards.visibility import is_container, is_hidden, keeps_state
from tracecomp.record.instructions import LIBRARY, PROGRAM, Handlers
from tracecomp.record.outside import outside
from tracecomp.record.pytree import opened
from tracecomp.record.recorder import Recorder

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
        self.written = recorder.set_by_call
        self._cells: dict[int, Read] = {}
        self._handlers: dict[int, tuple[CodeType, Handlers | None]] = {}
        self._functions: dict[int, Any] = {}
        self._alive: list[Any] = []
        self._before: Callable[..., Any] | None = None
        self._sees_stacks = stack_is_known()  # found out by tracing, so not while the program is traced

    def call(self, fn: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]) -> Any:
        """``fn(*args, **kwargs)``, observed."""
        self._before = sys.gettrace()
        try:
            sys.settrace(self._called)
            return fn(*args, **kwargs)
        finally:
            sys.settrace(self._before)  # before anything that Ctrl-C could interrupt
            self._forget()

    def _forget(self) -> None:
        self.made.clear()  # which may hold tensors of the call
        self._functions.clear()
        self._alive.clear()
        self.recorder.refusals.running = None

    # ---- functions

    def start(self, fn: object, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
        """Make what is compiled known before it is called, and what it is given."""
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

    def _give(self, read: Read) -> None:
        """Know an argument: containers by where they are among the arguments, which are guarded as they are."""
        value = read.value
        if opened(type(value)) or (dataclasses.is_dataclass(value) and not isinstance(value, type)):
            read.is_given = True
            self.known[id(value)] = read
            for step, item in _parts(value):
                self._give(read.child(step, item, item_of(read, step.key)))
        elif isinstance(value, np.ndarray):
            read.is_given = True
            self.known[id(value)] = read
        elif not isinstance(value, (Tensor, *PLAIN)):
            self.reach(value, self.reads.root(value, f"attribute of {type(value).__name__}:"))

    def _called(self, frame: FrameType, event: str, arg: object) -> Any:
        code = frame.f_code
        if code is self._root and self.recorder.refusals.running is None:
            self.recorder.refusals.running = frame
        before = self._before(frame, event, arg) if self._before is not None else None
        found = self._handlers.get(id(code))
        if found is None:
            found = self._handlers[id(code)] = (code, self._handlers_of(frame))
        handlers = found[1]
        if handlers is None or self.recorder.refusals.reason is not None:
            return before
        if handlers.of_program:
            self._entered(frame)
        elif frame.f_back is None or not frame.f_back.f_trace_opcodes:
            return before  # a library's code in the service of this package
        frame.f_trace_opcodes = True
        frame.f_trace_lines = before is not None
        return self._local(handlers, before)

    def _handlers_of(self, frame: FrameType) -> Handlers | None:
        code = frame.f_code
        if is_program_code(code, frame.f_globals) and code.co_name != "<module>":  # which is being imported
            return Handlers.of(code, PROGRAM)
        return Handlers.of(code, LIBRARY) if is_user_file(code.co_filename) and self._sees_stacks else None

    def _local(self, handlers: Handlers, before: Any) -> Callable[..., Any]:
        table = handlers.at

        def traced(frame: FrameType, event: str, arg: Any) -> Any:
            nonlocal before
            if event == "opcode":
                for handle, argument in table.get(frame.f_lasti, ()):
                    if self.recorder.refusals.reason is None:
                        self._handle(handle, frame, argument)
            elif before is not None:
                before = before(frame, event, arg)
            return traced

        return traced

    def _handle(self, handle: Callable[..., object], frame: FrameType, argument: object) -> None:
        try:
            handle(self, frame, argument)
        except CaptureError:
            raise
        except Exception as error:  # such as a class of the program that cannot say how long it is
            file, line = _raised_at(error)
            if not is_user_file(file):
                warnings.warn(
                    f"a fault of tracecomp: what the program reads could not be followed ({error!r} at {file}:{line}); "
                    "the call runs as Python. Please report it.", RuntimeWarning, stacklevel=3,
                )  # fmt: skip
            self.recorder.refuse_here(f"reads what cannot be looked at ({type(error).__name__}: {error})")

    def _entered(self, frame: FrameType) -> None:
        """Know a function of the program that was there before the call, its closure and its defaults."""
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
        if not self._sees_stacks:
            self._handle(lambda observer, entered, _: observer._read_all(entered), frame, None)

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
                self._cells.setdefault(id(cell), self.reads.root(cell, f"closure variable {name}"))

    def _read_all(self, frame: FrameType) -> None:
        """On a Python whose stacks cannot be read: count as read what a function can reach by the names in its code."""
        # A name may also stand in a text: ``getattr(x, "name")``.
        texts = [c for c in frame.f_code.co_consts if isinstance(c, str) and c.isidentifier()]
        names, space = [*frame.f_code.co_names, *texts], frame.f_globals
        for name in names:
            self.global_name(frame, name)
        self._reachable_calls(names, space)
        fn = function_of(frame)
        for name, cell in zip(frame.f_code.co_freevars, (fn and fn.__closure__) or (), strict=False):
            self.cell(cell, name)
        for value in [*frame.f_locals.values(), *self._functions.values()]:
            self.consume(value)
        for t in list(self.reads.tensors.values()):
            for name in {n for n in names if isinstance(attributes_of(t).get(n, MISSING), PLAIN)}:
                self.attribute(t, name)
        seen: set[int] = set()
        # What is read of one object may make others known, of which the same names are read.
        while found := [read.value for read in self.known.values() if id(read.value) not in seen]:
            seen.update(map(id, found))
            for value in found:
                if not isinstance(value, MemberDescriptorType | GetSetDescriptorType):  # which hold nothing
                    self._may_take(value)
                    self.consume(value)
                    self._read_names(value, names, texts)

    def _read_names(self, value: object, names: Sequence[str], asked: Sequence[str]) -> None:
        """Count these attributes as read, and of a neural network's module all that the program can have given it.

        Those ``asked`` for may be missing.
        """
        own = attributes_of(value)
        kind = value if isinstance(value, type) else type(value)
        if is_program_class(kind) and kind is not value:
            self.step(self.known[id(value)], Slot("__class__"), kind, f"class of a {kind.__name__}")
        for name in {*names, *(n for n in own if is_module(value) and not n.startswith("_"))}:
            found = own.get(name, inherited(kind, name))
            if found is not MISSING or name in asked:
                self.attribute(value, name)
            if found is not MISSING:
                self._may_call(found, value)

    def _reachable_calls(self, names: Sequence[str], space: Mapping[str, object]) -> None:
        """Look at the functions that names lead to, also through modules of libraries."""
        spaces: list[Mapping[str, object]] = [{**vars(builtins), **space}]
        modules: set[int] = set()
        for found in spaces:  # which grows
            for value in [found[name] for name in names if name in found]:
                self._may_call(value, None)
                if isinstance(value, ModuleType) and id(value) not in modules:
                    modules.add(id(value))
                    spaces.append(vars(value))
                    for name in names:
                        self.attribute(value, name)

    def _may_call(self, fn: object, owner: object) -> None:
        """Refuse a function that gives or does something else at every call: whether it is called cannot be seen."""
        # With stacks, what ``getenv`` reads of the environment is seen as a read, so ``outside`` leaves it alone.
        name = "print" if fn is print else "os.getenv" if fn is os.getenv else outside(fn, owner)
        if name is not None:
            self.recorder.refuse_here(f"may call {name}, which gives or does something else at every call")

    def _may_take(self, value: object) -> None:
        """Refuse an iterator: whether something is taken from it cannot be seen."""
        if isinstance(value, Iterator):
            self.recorder.refuse_here(f"may take from a {type(value).__name__} that was there before the call")

    # ---- reads

    def step(self, owner: Read, step: SomeStep, value: object, where: str) -> None:
        """Note that the program found ``value`` one step from ``owner``."""
        if owner.is_given:
            return
        if value is not MISSING and id(owner.value) in self.recorder.stepped:
            self.recorder.refuse_here(f"reads {where} after a schedule's step")
            return
        place = step.place(owner.value, where)
        if place is not None and place.id in self.reads.places:
            owner.pin()  # the place is in this object
            return
        if (id(owner.value), step.same()) in self.written:
            return
        self.reach(value, owner.child(step, value, where, self.recorder.refusals.line()))

    def reach(self, value: Any, read: Read) -> None:
        """Know an object that was there before the call, found by ``read``."""
        value = plain_value(value)
        if isinstance(value, (*PLAIN, Snapshot)):
            return
        if isinstance(value, Tensor):
            self.reads.tensors[id(value)] = value
            return
        seen = self.known.get(id(value))
        if seen is not None:
            if seen is not read:  # two ways lead here: both must go on doing so
                seen.pin()
                read.pin()
            return
        if id(value) in self.made:
            return
        self.known[id(value)] = read
        self._alive.append(value)  # so that no other object has its identity
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
        self._know_class(type(module))

    def global_name(self, frame: FrameType, name: str) -> None:
        """The program read a global."""
        space = frame.f_globals
        if name in space:
            value = space[name]
            if not (isinstance(value, ModuleType) and _is_library(value)):
                self.step(self.reads.root(space, "globals"), Entry(name), value, f"global {name}")
        elif name == "type":
            self.reads.asks_types = True

    def cell(self, cell: CellType, name: str) -> None:
        """The program read a variable that functions share."""
        read = self._cells.get(id(cell))
        if read is not None:
            step = Held(name)
            self.step(read, step, step.fetch(cell), f"closure variable {name}")

    def attribute(self, owner: object, name: str) -> None:
        """The program read an attribute."""
        # Names of libraries are taken as given, except for what programs do
        # change: the environment, registries, settings.
        if isinstance(owner, ModuleType) and _is_library(owner):
            value = vars(owner).get(name)
            if value is os.environ or isinstance(value, list | dict):
                root = self.reads.root(owner, owner.__name__)
                self.step(root, Attribute(name), value, f"{owner.__name__}.{name}")
            return
        if isinstance(owner, Tensor) and name in attributes_of(owner) and not self.recorder.is_made(owner):
            root = self.reads.root(owner, "a tensor")
            self.step(root, Attribute(name), attributes_of(owner)[name], f"attribute of a tensor: {name}")
            return
        if isinstance(owner, (Tensor, *PLAIN)):
            return
        # Where Python would look: the class decides whether a descriptor
        # answers before the object's own dictionary does.
        kind = owner if isinstance(owner, type) else type(owner)
        stored = self._inherited(kind, name, missing=kind is owner)
        read = self.known.get(id(owner))
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
        # Data descriptors go before the dictionary. A property of the program runs code that is observed itself.
        if isinstance(stored, property) and keeps_state(owner) and not calls.is_programs(stored.fget):
            self.consume(owner)
        if hasattr(type(stored), "__set__"):
            if not isinstance(stored, property) and not is_program_class(type(stored)):
                step: SomeStep = Slot(name)
                self.step(read, step, step.fetch(owner), where)
            return
        # A name that is missing is guarded as well: it may be there at the next call.
        if name in own or type(owner).__dictoffset__:
            self.step(read, Attribute(name), own.get(name, MISSING), where)
        if isinstance(owner, threading.local):  # has other attributes in each thread
            step = Slot(name)
            self.step(read, step, step.fetch(owner), where)

    def _inherited(self, kind: type, name: str, missing: bool = False) -> Any:
        """What a class has under a name; a read, where the program's own classes are concerned, ``missing`` too."""
        stored = inherited(kind, name)
        read = self.reads.classes.get(id(kind))
        if read is None and any(is_program_class(k) for k in kind.__mro__):
            self._know_class(kind)
            read = self.reads.classes.get(id(kind))
        if read is not None and not callable(stored) and (missing or stored is not MISSING):
            self.step(read, Inherited(name), stored, f"attribute of class {kind.__name__}: {name}")
        return stored

    def _part_of_module(self, module: Any, name: str) -> None:
        self.recorder.module_ran(module)
        part = module._modules.get(name)
        if part is not None:
            self.module(part)

    def item(self, owner: object, key: object) -> None:
        """The program read an element."""
        read = self.known.get(id(owner))
        if read is None:
            return
        key = plain_value(key)
        if id(owner) in self.changed:
            self.contents(owner)
        elif isinstance(owner, dict):
            if calls.is_key(key):
                self.step(read, Entry(key), dict.get(owner, key, MISSING), item_of(read, key))
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
        if id(owner) in self.known and keeps_state(owner):
            self.consume(owner)

    def contents(self, value: object) -> None:
        """The program read all elements of a container."""
        read = self.known.get(id(value))
        if read is None or not is_container(value):
            return
        if read.is_given and isinstance(value, np.ndarray):
            self.reads.array_lines.add(self.recorder.refusals.line())
        before = self.changed.get(id(value), MISSING)
        self.step(read, All(None), everything(value) if before is MISSING else before, read.where)
        if read.is_given:
            return
        for step, item in _parts(value) if before is MISSING else ():
            if not isinstance(item, PLAIN):
                self.step(read, step, item, item_of(read, step.key))

    def consume(self, value: object, depth: int = 8) -> None:
        """The program handed ``value`` to code that may look at all of it."""
        read = self.known.get(id(value))
        if read is None or depth == 0 or isinstance(value, type | FunctionType | ModuleType) or is_module(value):
            if isinstance(value, tuple | list | dict) and depth and read is None:  # made in the call, of older things
                for item in list(value.values()) if isinstance(value, dict) else value:
                    if not isinstance(item, (*PLAIN, Tensor)):
                        self.consume(item, depth - 1)
            return
        self.contents(value)
        if is_container(value):
            parts: Any = () if isinstance(value, np.ndarray) else value  # of no dimension, too
            items: Sequence[Any] = list(parts.values()) if isinstance(parts, Mapping) else list(parts)
        elif is_opened(type(value)) or keeps_state(value):
            read.pin()
            for name in list(attributes_of(value)):
                self.attribute(value, name)
            items = list(attributes_of(value).values())
        else:
            items = ()
            if is_hidden(value):
                self.recorder.refuse_here(f"uses a {type(value).__name__}, whose state cannot be seen")
        for item in items:
            if not isinstance(item, (*PLAIN, Tensor)):
                self.consume(item, depth - 1)

    def pin(self, value: object) -> None:
        """The program asked which object ``value`` is."""
        read = self.known.get(id(value))
        if read is not None:
            read.pin()

    # ---- changes

    def change(self, owner: object, written: SomeStep | None, apply: Callable[..., object], *args: Any) -> None:
        """Note an effect on an object that was there before: every call makes ``apply(owner, *args)``.

        ``written`` is the step to what it sets; without one the contents as a whole change.
        """
        read = self.known.get(id(owner))
        if read is None:
            return
        if written is not None:
            place = written.place(owner, "")
            if place is not None and place.id in self.reads.places:
                return
            self.written.add((id(owner), written.same()))
        if is_container(owner):
            self.changed.setdefault(id(owner), everything(owner))
        for value in args:
            self._check_repeatable(value)
        if self.recorder.refusals.reason is None:
            self.recorder.effects.append(Effect(apply, read, args))

    def set_cell(self, cell: CellType, name: str, value: object) -> None:
        """The program sets a variable that functions share."""
        read = self._cells.get(id(cell))
        if read is not None:
            self.known.setdefault(id(cell), read)
            self.change(cell, Held(name), _set_cell, value)

    def printed(self, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
        """The program prints; so does every call."""
        for value in (*args, *kwargs.values()):
            self.consume(value)
            if value is not kwargs.get("file"):
                self._check_repeatable(value)
        if self.recorder.refusals.reason is None:
            self.recorder.effects.append(Effect(partial(print, **kwargs), None, tuple(args)))
            self.recorder.quiet = True

    def after_call(self) -> None:
        """A call has returned."""
        self.recorder.quiet = False

    def unrepeated(self) -> str | None:
        """What the program read and left as something else, other than by effects; or as another tensor or number."""
        for root in self.reads.roots():
            for child in root.children.values():
                found = self._unrepeated(child, root.value)
                if found is not None:
                    return found
        return None

    def _unrepeated(self, read: Read, owner: object) -> str | None:
        now = read.fetch(owner)
        if read.moved_place(owner, now) is not None:
            return read.difference(now)
        if read.step is not None and (id(owner), read.step.same()) in self.written:
            return None
        if not read.fits(now):
            return read.difference(now)
        if id(now) in self.changed:
            return None
        return next((c for r in read.children.values() if (c := self._unrepeated(r, now)) is not None), None)

    def _check_repeatable(self, value: object) -> None:
        """Refuse to keep objects made in the call: every call would have to make its own."""
        if isinstance(value, (Tensor, *PLAIN, type, FunctionType)) or type(plain_value(value)) in (int, float):
            return
        if id(value) in self.known:
            return
        if isinstance(value, list | tuple | dict):
            for item in value.values() if isinstance(value, dict) else value:
                self._check_repeatable(item)
            return
        what = f"keeps an object of class {type(value).__name__} that is made in the call"
        source = user_source()
        if source is not None and is_installed(source.file):  # most often a cache, which the next call finds filled
            self.recorder.kept = self.recorder.kept or f"{what}, at {source}"
            self.recorder.refusals.blame(self.recorder.refusals.line())
        else:
            self.recorder.refuse_here(what)


def _raised_at(error: Exception) -> tuple[str, int]:
    """File and line that raised ``error``: of this package, or of a class of the program that it has asked."""
    *_, (frame, line) = traceback.walk_tb(error.__traceback__)
    return frame.f_code.co_filename, line


def _is_library(module: ModuleType) -> bool:
    name = getattr(module, "__file__", None)
    return module.__name__ != "__main__" and not (isinstance(name, str) and is_program_file(name))


def _parts(value: Any) -> list[tuple[SomeStep, Any]]:
    """What a container or dataclass holds, with the steps to it."""
    if isinstance(value, dict):
        return [(Entry(key), item) for key, item in value.items()]
    if isinstance(value, list | tuple | deque):
        return [(Element(n), item) for n, item in enumerate(value)]
    if is_container(value):
        return []
    return [(Attribute(f.name), getattr(value, f.name)) for f in dataclasses.fields(value)]


def item_of(read: Read, key: object) -> str:
    """How people call an element."""
    return f"{read.where}[{short(key)}]"


def _set_cell(cell: CellType, value: object) -> None:
    cell.cell_contents = value
