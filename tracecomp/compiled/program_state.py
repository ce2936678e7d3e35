"""The observable state of a program: tensors, containers, attributes, variables, random numbers.

A ``ProgramState`` is collected by a walk from the program and its arguments through closures, globals that its
functions name, attributes and containers. It can be compared with another, place by place; a ``SavedState`` can also be
restored.
"""

from __future__ import annotations

import functools
import random
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from tracecomp.base.code_origin import is_own, torch_name
from tracecomp.base.gc_pause import without_collecting
from tracecomp.eager.modes import module_changes
from tracecomp.eager.rng import Generator, default_generator
from tracecomp.eager.tensor import Tensor
from tracecomp.eager.tensor_base import FIELDS, Node, all_attributes
from tracecomp.ir.arrays import same_bits
from tracecomp.ir.types import DType
from tracecomp.record.guards.ownership import is_program_class, is_program_code

Array = np.ndarray[Any, Any]
Found = Iterator[tuple[str, Any]]

PLAIN = (bool, int, float, complex, str, bytes, type(None), DType, type(Ellipsis), slice, range, np.generic)
_OF_RECORDINGS = ("_value", "_look")  # attributes of tensors in a recording in progress
_TABLES = ("_parameters", "_buffers", "_modules")  # of modules: their entries are called as attributes are
_LIBRARY_STATE = ("torch.nn", "torch.optim", "torch.amp", "torch.distributions", "torch.eager.rng")
_CELL = "variable "
BASE = "._base"
"""Suffix of the place of a view's base."""
_MOST = 200_000
"""Most places visited: larger structures are tables of data, which would take seconds."""


@dataclass(frozen=True)
class TensorState:
    """The contents of a tensor or array, and whether gradients are wanted of it."""

    array: Array
    requires_grad: bool = False


@dataclass(frozen=True)
class Same:
    """The object that another place has, too."""

    place: str


@dataclass(frozen=True)
class Opaque:
    """An object that is not looked into."""

    kind: str


class ProgramState:
    """The current state reachable from ``roots`` (objects by name).

    ``values`` has the value of every place: a ``TensorState``, a plain value, ``Same``, ``Opaque``, or the type of a
    container. ``tensors`` are the tensors by place, ``objects`` everything except plain values; ``variables`` are the
    global variables, by name, with their modules.
    """

    def __init__(self, roots: Mapping[str, Any]) -> None:
        self.values: dict[str, Any] = {}
        self.tensors: dict[str, Tensor] = {}
        self.objects: dict[str, Any] = {}
        self.variables: dict[str, dict[str, Any]] = {}
        self._seen: dict[int, tuple[str, Any]] = {}
        self._code: set[int] = set()
        # The walk leaves no garbage, but thousands of objects, for which Python would collect among all objects.
        without_collecting(lambda: self._walk(roots))

    def _walk(self, roots: Mapping[str, Any]) -> None:
        stack = [*reversed([*roots.items()]), ("the random state", default_generator.state)]
        while stack and len(self._seen) < _MOST:
            place, value = stack.pop()
            stack.extend(reversed(list(self._visit(place, value))))

    def _undo(self, put: Callable[..., object], *args: object) -> None:
        """Note that ``put(*args)`` restores a part of the state."""

    def _visit(self, place: str, value: object) -> Found:
        """Record the value at ``place``; return the values below it."""
        if isinstance(value, PLAIN):
            self.values[place] = value
            return
        known = self._seen.get(id(value))
        if known is not None:
            self.values[place] = Same(known[0])
            return
        self._seen[id(value)] = place, value
        self.objects[place] = value
        if isinstance(value, Tensor):
            yield from self._tensor(place, value)
        elif isinstance(value, np.ndarray):
            contents = value.copy(order="K")
            self.values[place] = TensorState(contents)
            self._undo(_put_array, value, contents)
        elif isinstance(value, list | dict | set | deque | bytearray | tuple | frozenset):
            yield from self._container(place, value)
        elif isinstance(value, FunctionType | MethodType | functools.partial | CellType):
            yield from self._callable(place, value)
        elif isinstance(value, random.Random):
            self.values[place] = value.getstate()
            self._undo(value.setstate, self.values[place])
        elif isinstance(value, np.random.Generator):
            bits: Any = value.bit_generator
            state = bits.state
            self.values[place] = str(state)
            self._undo(setattr, bits, "state", state)
        else:
            yield from self._object(place, value)

    def _tensor(self, place: str, t: Tensor) -> Found:
        self.tensors[place] = t
        contents = t._data.copy(order="K")
        self.values[place] = TensorState(contents, t.requires_grad)
        self._undo_tensor(t, contents)
        if t._base is not None:
            yield f"{place}{BASE}", t._base
        if t._grad is not None:
            yield f"{place}.grad", t._grad

    def _undo_tensor(self, t: Tensor, contents: Array) -> None:
        """Note how the tensor ``t`` with these contents is restored."""

    def _container(self, place: str, value: Any) -> Found:
        self.values[place] = f"{type(value).__name__} of {len(value)}"
        if isinstance(value, dict):
            self._undo(_put_items, value, list(value.items()))
            for n, (key, held) in enumerate(value.items()):
                yield f"{place}[{repr(key) if isinstance(key, PLAIN) else n}]", held
            return
        if isinstance(value, list | deque | bytearray | set):
            self._undo(_put_elements, value, list(value))
        if isinstance(value, list | deque | tuple):
            names = getattr(value, "_fields", None)
            for n, held in enumerate(value):
                yield (f"{place}.{names[n]}" if names else f"{place}[{n}]"), held
        elif not isinstance(value, bytearray):
            self.values[place] = f"{type(value).__name__} of {sorted(map(repr, value))}"

    def _callable(self, place: str, value: Any) -> Found:
        if isinstance(value, MethodType):
            yield f"{place}.__self__", value.__self__
            yield f"{place}.__func__", value.__func__
        elif isinstance(value, functools.partial):
            yield f"{place}.func", value.func
            yield f"{place}.args", value.args
            yield f"{place}.keywords", value.keywords
        elif isinstance(value, CellType):
            yield from self._cell(place, value)
        elif not is_program_code(value.__code__, value.__globals__):
            if (wrapped := vars(value).get("__wrapped__")) is not None:  # as by ``no_grad()``, which is the library's
                yield f"{place}.__wrapped__", wrapped
        else:
            for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
                yield f"{_CELL}{name}", cell
            yield f"{place}.__defaults__", value.__defaults__
            yield f"{place}.__kwdefaults__", value.__kwdefaults__
            if vars(value):
                yield f"{place}.__dict__", vars(value)
            yield from self._globals(value.__code__, value.__globals__)

    def _cell(self, place: str, cell: CellType) -> Found:
        try:
            held = cell.cell_contents
        except ValueError:  # empty
            return
        self._undo(setattr, cell, "cell_contents", held)
        yield place.removeprefix(_CELL), held

    def _globals(self, code: CodeType, space: dict[str, object]) -> Found:
        """The variables of the module that code of it names."""
        if id(code) in self._code:
            return
        self._code.add(id(code))
        names = [n for n in code.co_names if n in space and not isinstance(space[n], ModuleType)]
        self._undo(_put_some, space, {n: space[n] for n in names})
        for name in names:
            self.variables[name] = space
            yield name, space[name]
        for name in code.co_names:
            module = space.get(name)
            if isinstance(module, ModuleType) and _is_program_module(module):
                used = {n: vars(module)[n] for n in code.co_names if n in vars(module)}
                self._undo(_put_some, vars(module), used)
                yield from ((f"{name}.{n}", v) for n, v in used.items())
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                yield from self._globals(constant, space)

    def _object(self, place: str, value: Any) -> Found:
        if isinstance(value, type):
            yield from self._class(place, value)
            return
        kind = type(value)
        self.values[place] = Opaque(kind.__name__)
        if hasattr(value, "_alike") and hasattr(value, "entries"):  # a compiled function: its contents are internal
            yield place, value.fn
            return
        if not _is_looked_into(value):
            return
        held = getattr(value, "__dict__", None)
        if isinstance(held, dict):
            self._undo(_put_items, held, list(held.items()))
            self._seen[id(held)] = f"{place}.__dict__", held
            for name, x in held.items():
                if name.startswith("_") and isinstance(x, PLAIN) and is_own(kind):
                    continue  # the library's own business
                yield from self._attribute(place, name, x)
        for name in _slots(kind):
            if hasattr(value, name):
                x = getattr(value, name)
                self._undo(_put_slot, value, name, x)
                yield f"{place}.{name}", x
        yield f"type of {place}", kind

    def _attribute(self, place: str, name: str, value: object) -> Found:
        if name in _TABLES and isinstance(value, dict):
            self._undo(_put_items, value, list(value.items()))
            yield from ((f"{place}.{key}", x) for key, x in value.items())
        else:
            yield f"{place}.{name}", value

    def _class(self, place: str, kind: type) -> Found:
        """A class of the program: its own variables, and those that its functions read."""
        self.values[place] = Opaque(kind.__name__)
        for k in kind.__mro__:
            if not is_program_class(k) or (k is not kind and id(k) in self._seen):
                continue
            self._seen.setdefault(id(k), (place, k))
            for name, value in list(vars(k).items()):
                if name.startswith("__") and not isinstance(value, FunctionType):
                    continue
                held = getattr(value, "__func__", value)
                if not isinstance(held, FunctionType):
                    self._undo(_put_slot, k, name, value)
                yield f"{k.__name__}.{name}", held


class SavedState(ProgramState):
    """The current state, which can be restored."""

    def __init__(self, roots: Mapping[str, Any]) -> None:
        self._undoes: list[tuple[Callable[..., object], tuple[object, ...]]] = []
        self._undo(random.setstate, random.getstate())
        self._undo(np.random.set_state, np.random.get_state())
        super().__init__(roots)

    def restore(self) -> None:
        """Put everything back as it was."""
        for put, args in self._undoes:
            put(*args)

    def _undo(self, put: Callable[..., object], *args: object) -> None:
        self._undoes.append((put, args))

    def _undo_tensor(self, t: Tensor, contents: Array) -> None:
        fields = {name: getattr(t, name) for name in FIELDS}
        storage = fields["_storage"] = t._shared_storage()
        self._undo(_put_tensor, t, fields, _attributes(t), storage.memory, storage.version, contents)


def _is_program_module(module: ModuleType) -> bool:
    return isinstance(getattr(module, "__file__", None), str) and is_program_code(_EMPTY, vars(module))


_EMPTY = compile("", "<none>", "exec")


def _is_looked_into(value: object) -> bool:
    """Objects of the program's own classes and those of the library that hold a program's state."""
    kind = type(value)
    module = str(kind.__module__)
    if isinstance(value, Node | BaseException) or module.split(".")[0] in sys.stdlib_module_names - {"__main__"}:
        return kind.__name__ in ("SimpleNamespace", "Namespace")
    if is_own(kind):
        return torch_name(module).startswith(_LIBRARY_STATE) or isinstance(value, Generator)
    return not module.startswith(("numpy", "torch.", "scipy")) and module != "builtins"


def _slots(kind: type) -> Iterator[str]:
    for k in kind.__mro__:
        names = vars(k).get("__slots__", ())
        yield from (n for n in ((names,) if isinstance(names, str) else names) if not n.startswith("__"))


def _put_tensor(
    t: Tensor, fields: dict[str, Any], others: list[tuple[str, object]], memory: object, version: int, contents: Array
) -> None:
    """Restore a tensor: its memory and contents, gradient, history and count of writes."""
    if t._data is not fields["_data"]:
        module_changes.note()
    for name, value in fields.items():
        if getattr(t, name) is not value:
            setattr(t, name, value)
    if not _are_same(_attributes(t), others):
        _put_items(all_attributes(t), others)
    storage = fields["_storage"]
    storage.memory = memory
    if _put_array(t._data, contents):
        storage.wrote(0)  # whoever keeps what follows from the contents sees that they have changed
    storage.version = version


def _attributes(t: Tensor) -> list[tuple[str, object]]:
    """The attributes of a tensor, except those of a recording in progress.

    Every backward pass of a leaf makes a new node that accumulates, to which the leaf refers weakly. Without that
    node, which no one holds, the leaf is as before.
    """
    return [
        (name, value)
        for name, value in all_attributes(t).items()
        if name not in _OF_RECORDINGS and not (name == "_accumulator" and (value is None or value() is None))
    ]


def _put_array(array: Array, contents: Array) -> bool:
    """Put ``contents`` back; whether they had changed."""
    if same_bits(array, contents):
        return False
    if array.flags.writeable:
        np.copyto(array, contents)
    return True


def _put_items(held: MutableMapping[Any, Any], items: list[tuple[Any, Any]]) -> None:
    if _are_same(list(held.items()), items):
        return
    # Subclasses have other meanings of ``update``: a Counter adds.
    kind: Any = OrderedDict if isinstance(held, OrderedDict) else dict if isinstance(held, dict) else type(held)
    kind.clear(held)
    kind.update(held, items)
    module_changes.note()


def _are_same(now: Sequence[tuple[object, object]], items: Sequence[tuple[object, object]]) -> bool:
    """Whether a mapping has the very same keys and values, in the same order."""
    return len(now) == len(items) and all(a is c and b is d for (a, b), (c, d) in zip(now, items, strict=True))


def _put_elements(held: Any, elements: list[object]) -> None:
    if len(held) == len(elements) and all(a is b for a, b in zip(held, elements, strict=True)):
        return
    kind: Any = next(k for k in (list, deque, bytearray, set) if isinstance(held, k))
    kind.clear(held)
    kind.update(held, elements) if kind is set else kind.extend(held, elements)


def _put_some(space: dict[str, object], items: Mapping[str, object]) -> None:
    for name, value in items.items():
        if name not in space or space[name] is not value:
            space[name] = value


def _put_slot(owner: object, name: str, value: object) -> None:
    if vars(owner).get(name) is not value if isinstance(owner, type) else getattr(owner, name, None) is not value:
        try:
            setattr(owner, name, value)
        except (AttributeError, TypeError):  # it was set once and for all
            return
