"""A recorded program's reads of globals, attributes and elements, and of all that opaque code may read."""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from types import (
    CellType,
    ClassMethodDescriptorType,
    FrameType,
    FunctionType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any

import numpy as np

from tracecomp.base.capture_guide import Section
from tracecomp.base.code_origin import is_own_module, is_program_file
from tracecomp.eager.tensor import Tensor
from tracecomp.record.c_data import refuse_memory
from tracecomp.record.calls import called
from tracecomp.record.caught_errors import may_suppress, own_errors
from tracecomp.record.guards.facts import FACTS
from tracecomp.record.guards.lookup import attributes_of, inherited, is_key
from tracecomp.record.guards.ownership import is_module, is_opened, is_program_class, is_program_function, of_package
from tracecomp.record.guards.read_steps import Attribute, Element, Entry, Field, Held, Inherited, Names, Slot, SomeStep
from tracecomp.record.guards.reads import Read
from tracecomp.record.guards.snapshots import MISSING, plain_value, short
from tracecomp.record.guards.visibility import has_attributes, held_by, is_container, is_hidden, keeps_state
from tracecomp.record.known_objects import KnownObjects, item_of
from tracecomp.record.opaque_calls import closure
from tracecomp.record.same_values import PLAIN, is_value


class ObjectReads(KnownObjects):
    """Notes each read as the steps that Python takes; ``consume`` notes all that code that is not recorded may read."""

    def global_name(self, frame: FrameType, name: str) -> None:
        """The program read a global."""
        space = frame.f_globals
        if name in space:
            value = space[name]
            if not (isinstance(value, ModuleType) and is_library(value)):
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

    def module_imported(self, module: ModuleType) -> None:
        """The program imported a module in the call."""
        if not is_library(module):
            self.reach(module, self.reads.root(module, f"module {module.__name__}"))

    def attribute(self, owner: object, name: str) -> None:
        """The program read an attribute."""
        if isinstance(owner, ModuleType) and is_library(owner):
            self._of_library(owner, name)
            return
        if isinstance(owner, Tensor):
            self._of_tensor(owner, name)
            return
        if is_value(owner) or refuse_memory(self.recorder, owner, name):
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
        own = attributes_of(owner)
        is_part = is_module(owner) and any(name in own.get(table, ()) for table in _TABLES)
        # An attribute that neither the object nor its class has may be added to the class.
        stored = self._inherited(kind, name, missing=kind is owner or not (is_part or name in own))
        read = self.known.get(id(owner))
        if isinstance(owner, type) and name in _NAMES and is_program_class(owner):
            self._name(owner, name)
        if isinstance(owner, type) and type(owner) is not type and (stored is MISSING or hasattr(stored, "__set__")):
            self._inherited(type(owner), name)
        if read is None or isinstance(owner, type):
            return
        where = f"attribute of {type(owner).__name__}: {name}"
        if is_part:
            self._part_of_module(owner, name)
            stored = None  # parts are states of the graph; the guard below is on an attribute that goes before them
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
        if isinstance(stored, property) and not is_program_function(stored.fget):
            if isinstance(stored.fget, FunctionType):
                self.consume(owner)
            elif stored.fget is not None:
                self.reach(stored.fget, self.reads.root(stored.fget, f"property {name}"))
                called(self, stored.fget, [owner], {})
        elif isinstance(inherited(type(stored), "__get__"), FunctionType):
            self.consume(stored)

    def _of_library(self, library: ModuleType, name: str) -> None:
        """Guard a library's attribute. This package's are guarded if they are settings."""
        value = vars(library).get(name, MISSING)
        is_own = is_own_module(library.__name__)
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
            self._of_class(Tensor, name, f"method {name} of tensors")
        if name in attributes_of(t) or not (callable(stored) or hasattr(type(stored), "__get__")):
            if self.recorder.is_made(t) or (id(t), Attribute(name).same()) in self.written:
                return
            self.recorder.ask(t, "attribute", name)
            value = attributes_of(t).get(name)
            if value is not None:
                self.reach(value, self.reads.root(value, f"attribute of a tensor: {name}"))

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

    def item(self, owner: object, key: object) -> None:
        """The program read an element."""
        if isinstance(owner, np.void):  # a view of an array
            self.recorder.refuse_here("reads a record of an array", Section.STATE)
        self.looked_up(owner, key)
        read = self.known.get(id(owner))
        if refuse_memory(self.recorder, owner) or read is None:
            return
        key = plain_value(key)
        if id(owner) in self.changed:
            self.contents(owner)
        elif isinstance(owner, dict):
            if is_key(key):
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

    def consume(self, value: object, depth: int = 8, own: bool = False, met: dict[int, int] | None = None) -> None:
        """Note that the program passed ``value`` to code that may read all of it. ``own``: code of this package.

        ``met`` has the objects on the way here, with their depths.
        """
        met = {} if met is None else met
        if (depth and met.get(id(value), 0) >= depth) or refuse_memory(self.recorder, value):
            return
        met[id(value)] = depth
        read = self.known.get(id(value))
        if isinstance(value, type) and depth and is_program_class(value):
            self._consume_class(value, depth, met)
        elif isinstance(value, FunctionType) and read is not None:
            if is_program_function(value):
                self._know_function(value)
                self._name(value, "__qualname__")
            else:
                closure(self, value)
        elif isinstance(value, BaseException) and read is not None:
            self.step(read, Slot("args"), value.args, f"arguments of a {type(value).__name__}")
        elif isinstance(value, ModuleType) and not is_library(value):
            self.recorder.refuse_here(f"passes the module {value.__name__} to other code", Section.STATE)
        elif isinstance(value, MethodType) and depth:
            self.consume(value.__self__, depth - 1, own, met)
        if read is None or depth == 0 or isinstance(value, type | FunctionType | ModuleType) or is_module(value):
            if isinstance(value, tuple | list | dict) and depth and read is None:  # made in the call, of older things
                for item in list(value.values()) if isinstance(value, dict) else held_by(value):
                    if not isinstance(item, (*PLAIN, Tensor)):
                        self.consume(item, depth - 1, own, met)
            return
        self.contents(value, own)
        for item in self._parts(read, value):
            if not isinstance(item, (*PLAIN, Tensor)):
                self.consume(item, depth - 1, own, met)

    def _parts(self, read: Read, value: Any) -> Sequence[Any]:
        """Note that all parts of an object are read, and return them."""
        if is_container(value):
            parts: Any = () if isinstance(value, np.ndarray | memoryview) else value  # of any dimensions
            items: Sequence[Any] = list(parts.values()) if isinstance(parts, Mapping) else list(parts)
        else:
            items = ()
        if is_opened(type(value)) or keeps_state(value):
            read.pin()
            items = [*items, *self._attributes(read, value, of_program=True)]
        elif has_attributes(value):
            items = [*items, *self._attributes(read, value, of_program=False)]
        elif is_hidden(value) and not is_container(value):
            self.recorder.refuse_here(f"uses a {type(value).__name__}, whose state cannot be inspected", Section.STATE)
        return items

    def _attributes(self, read: Read, value: Any, of_program: bool) -> Sequence[Any]:
        """Note that all attributes of an object of the program or of Python's library are read, and return them."""
        if not (of_program and any(owner == id(value) for owner, _ in self.written)):
            names = Names(None)
            self.step(read, names, names.fetch(value), f"names of attributes of {type(value).__name__}")
        found: dict[SomeStep, Any] = {Attribute(name): item for name, item in attributes_of(value).items()}
        found.update({step: step.fetch(value) for step in _slots_of(type(value))})
        for step, item in found.items():
            if of_program:
                self.attribute(value, str(step.key))
            else:
                self.step(read, step, item, f"attribute of {type(value).__name__}: {step.key}")
        return list(found.values())

    def _consume_class(self, kind: type, depth: int, met: dict[int, int]) -> None:
        """Note that all attributes of a class of the program are read."""
        self._name(kind, "__qualname__")
        for base in kind.__mro__:
            for name, stored in list(vars(base).items()) if is_program_class(base) else ():
                if not callable(stored) and not hasattr(type(stored), "__get__") and name not in _OF_CLASSES:
                    self._inherited(kind, name)
                    self.consume(stored, depth - 1, met=met)

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


_FIELDS = ("__code__", "__defaults__", "__kwdefaults__")
_FUNCTIONS = (
    FunctionType, type, staticmethod, classmethod, property, MethodDescriptorType, WrapperDescriptorType,
    ClassMethodDescriptorType,
)  # fmt: skip
"""Attributes of classes that are guarded with its methods."""
_NAMES = ("__name__", "__qualname__")
_STATE = (list, dict, set, MethodType)
"""Globals of Python's library that hold a state."""
_CACHES = frozenset({
    "re._cache", "re._cache2", "xml.etree.ElementPath._cache", "hashlib.__builtin_constructor_cache",
    "encodings._cache", "copyreg._extension_cache", "ctypes._c_functype_cache", "_strptime._regex_cache",
    "typing._caches", "asyncio.coroutines._iscoroutine_typecache", "platform._platform_cache",
    "platform._sys_version_cache",
})  # fmt: skip
"""Globals of Python's library that any call may fill, and that hold what the same call would compute again."""
_TABLES = ("_parameters", "_buffers", "_modules")
"""Attributes of a module that hold its parts."""
_OF_CLASSES = frozenset({"__module__", "__doc__", "__dict__", "__weakref__", "__qualname__", "__firstlineno__"})
_VIEWS_OF_ARRAYS = {"T", "mT", "flat", "real", "imag", "data", "base", "ctypes", "__array_interface__"}
"""Attributes by which the elements of an array are read or changed."""


def _slots_of(kind: type) -> list[Slot]:
    """The steps to the attributes that a class keeps outside of the dictionary of its objects."""
    members = [(name, member) for base in kind.__mro__ for name, member in vars(base).items()]
    return [Slot(name) for name, member in members if isinstance(member, MemberDescriptorType)]


def is_library(module: ModuleType) -> bool:
    name = getattr(module, "__file__", None)
    made = type(module) is ModuleType and name is None and module.__spec__ is None  # by a program, out of nothing
    return module.__name__ != "__main__" and not made and not (isinstance(name, str) and is_program_file(name))


def _is_setting(module: ModuleType, value: object) -> bool:
    """Whether a value in a module of this package may be a flag, as of ``torch.backends``, which programs set."""
    return isinstance(value, bool | int | str | None) and is_own_module(module.__name__) and "." in module.__name__
