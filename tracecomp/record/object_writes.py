"""The program's writes to attributes and elements."""

from __future__ import annotations

import operator
from types import ModuleType
from typing import Any

import numpy as np

from tracecomp.base.capture_guide import Section
from tracecomp.eager.tensor import Tensor
from tracecomp.record.c_data import refuse_memory
from tracecomp.record.container_reads import stream
from tracecomp.record.guards.lookup import inherited, is_key
from tracecomp.record.guards.ownership import is_program_function
from tracecomp.record.guards.read_steps import Attribute, Entry, Presence, Slot
from tracecomp.record.guards.snapshots import MISSING, plain_value
from tracecomp.record.watching import Watching

CHANGES = frozenset({
    "append", "extend", "insert", "clear", "add", "discard", "remove", "appendleft", "extendleft", "update", "sort",
    "reverse", "rotate", "fill", "__setitem__", "__delitem__", "setdefault", "pop", "popleft", "popitem",
    "difference_update", "intersection_update", "symmetric_difference_update", "subtract", "move_to_end",
    "__iadd__", "__imul__", "__isub__", "__ior__", "__iand__", "__ixor__",
    "resize", "put", "itemset", "setfield", "partition", "setflags", "byteswap",
})  # fmt: skip
"""Methods of containers that change them."""


def set_attribute(observer: Watching, owner: object, name: str, value: object) -> None:
    """The program sets an attribute."""
    if isinstance(owner, Tensor):
        observer.changes.set_on_tensor(owner, name, value)
        return
    if id(owner) not in observer.known:
        if isinstance(owner, ModuleType) and id(owner) not in observer.made:
            observer.recorder.refuse_here(f"sets {name} of the module {owner.__name__}", Section.STATE)
        return
    kind = type(owner)
    setter = inherited(kind, "__setattr__")
    if is_program_function(setter):
        return
    stored = inherited(kind, name)
    if isinstance(stored, property) or is_program_function(inherited(type(stored), "__set__")):
        return  # the program's own code there is observed
    step = Slot(name) if type(stored).__name__ == "member_descriptor" else Attribute(name)
    observer.changes.change(owner, step, setattr, name, value)


def change_plainly(observer: Watching, owner: object, name: Any, value: object = MISSING) -> None:
    """The program sets an attribute past its own ``__setattr__``, or deletes one past its ``__delattr__``."""
    if isinstance(owner, Tensor):
        observer.changes.set_on_tensor(owner, name, value)
    elif value is MISSING:
        observer.changes.change(owner, Attribute(name), object.__delattr__, name)
    elif id(owner) in observer.known:
        if is_program_function(inherited(type(inherited(type(owner), name)), "__set__")):
            return  # the program's own code there is observed
        observer.changes.change(owner, Attribute(name), _plainly, name, value)


def _plainly(owner: object, name: str, value: object) -> None:
    object.__setattr__(owner, name, value)


def delete_attribute(observer: Watching, owner: object, name: str) -> None:
    """The program deletes an attribute."""
    if isinstance(owner, Tensor):
        observer.changes.set_on_tensor(owner, name, MISSING)
        return
    stored = inherited(type(owner), name)
    if is_program_function(inherited(type(owner), "__delattr__")) or isinstance(stored, property):
        return  # the program's own code there is observed
    if not is_program_function(inherited(type(stored), "__delete__")):
        step = Slot(name) if type(stored).__name__ == "member_descriptor" else Attribute(name)
        read = observer.known.get(id(owner))
        if read is not None and (id(owner), step.same()) not in observer.written:
            # Without the attribute, the program raises an error here and changes nothing after it.
            presence = Presence(step)
            observer.step(read, presence, presence.fetch(owner), f"whether {type(owner).__name__} has {name}")
        observer.changes.change(owner, step, delattr, name)


def set_item(observer: Watching, owner: object, key: object, value: object) -> None:
    """The program sets an element."""
    if isinstance(owner, np.void):  # a view of an array
        observer.recorder.refuse_here("changes a record of an array", Section.STATE)
    if isinstance(key, slice):
        stream(observer, value)
    if isinstance(owner, Tensor) or refuse_memory(observer.recorder, owner) or id(owner) not in observer.known:
        return
    setter = inherited(type(owner), "__setitem__")
    if is_program_function(setter):
        return
    key = plain_value(key)
    written = Entry(key) if isinstance(owner, dict) and is_key(key) else None
    observer.changes.change(owner, written, operator.setitem, key, value)
