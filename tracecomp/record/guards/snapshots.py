"""Snapshots of values that a program read: stored, compared with later values, and described as text."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Set
from functools import cache
from types import MethodType
from typing import Any, TypeGuard

import numpy as np

from tracecomp.eager.modes import module_changes, unrecorded
from tracecomp.eager.tensor import Tensor
from tracecomp.record.guards.lifetimes import Lifetimes, may_end
from tracecomp.record.guards.ownership import is_program_class
from tracecomp.record.guards.slots import slot_id
from tracecomp.record.pytree import BY_CONTENTS, opened
from tracecomp.record.same_values import PLAIN, Number, is_plain, is_value, plain
from tracecomp.record.symbolic.sym_int import SymInt
from tracecomp.record.symbolic.sym_scalar import SymScalar, followed

MISSING = object()
MODULE_INTERNALS = ("_parameters", "_buffers", "_modules")
_FROZEN_SIZE = 1024
"""Elements of a container up to which a guard remembers all of them."""
_FROZEN_ARRAY = 65536
"""Elements of an array up to which a guard remembers them."""
_TEXT = 60
"""Characters of a value that are shown."""


class ById:
    """Represents an object that is compared by identity; keeps it alive until it is loosened."""

    __slots__ = ("_held", "_weakly", "key", "kind")

    def __init__(self, value: object) -> None:
        self._held: Any = value
        self._weakly = False
        self.key = id(value)
        self.kind = type(value)

    @property
    def value(self) -> Any:
        """The object; None once it is gone."""
        return self._held() if self._weakly else self._held

    def loosen(self, lifetimes: Lifetimes) -> None:
        """Refer weakly to the object, if that is possible."""
        if not self._weakly and may_end(self._held):
            self._held = lifetimes.refer(self._held)
            self._weakly = True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ById) and other.key == self.key

    def __hash__(self) -> int:
        return self.key

    def __repr__(self) -> str:
        return f"<{self.kind.__name__} object>"


class Snapshot:
    """The contents of a container, compared as a whole."""

    __slots__ = ("parts",)

    def __init__(self, parts: object) -> None:
        self.parts = parts

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Snapshot) and bool(self.parts == other.parts)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return short(self.parts)


def loosen(snapshot: Any, lifetimes: Lifetimes) -> None:
    """Refer weakly to the objects in a snapshot."""
    if type(snapshot) is ById:
        snapshot.loosen(lifetimes)
    elif type(snapshot) is Key:
        if may_end(snapshot.value):
            snapshot.value = None
        loosen(snapshot.seen, lifetimes)
    elif type(snapshot) is Snapshot:
        loosen(snapshot.parts, lifetimes)
    elif isinstance(snapshot, tuple | list | set | frozenset):
        for part in snapshot:
            loosen(part, lifetimes)


class Key:
    """A key of a dictionary: an equal number of another type is another key, and so is an equal object."""

    __slots__ = ("seen", "value")

    def __init__(self, value: object) -> None:
        self.value = value
        self.seen = plain(value) if is_plain(value) else ById(value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and bool(other.seen == self.seen)

    def __hash__(self) -> int:
        return id(self.value) if isinstance(self.value, Tensor) else hash(self.value)

    def __repr__(self) -> str:
        return _shown(self.value)


def plain_value(value: Any) -> Any:
    """A plain number in place of one that is followed; else ``value``."""
    return value.value if type(value) in (SymScalar, SymInt) else value


def freeze(value: object, above: set[int] | None = None) -> Any:
    """A snapshot that compares equal while ``value`` means the same; ``MISSING`` when it cannot be watched.

    ``above`` are the identities of the containers that it is in: a container that holds itself cannot be watched.
    """
    value = plain_value(value)
    if isinstance(value, PLAIN):
        return plain(value)
    if isinstance(value, BY_CONTENTS):
        return _freeze_container(value, set() if above is None else above)
    if isinstance(value, np.ndarray) and value.size <= _FROZEN_ARRAY:
        return (np.ndarray, (value.dtype, value.shape, value.tobytes()))
    if isinstance(value, Tensor | np.ndarray) or callable(value):
        return ById(value)
    return MISSING


def whole(value: object) -> Any:
    """A snapshot of all that ``value`` is; where it is more than plain values and containers, which object."""
    value = plain_value(value)
    if is_value(value):
        return plain(value)
    if isinstance(value, np.ndarray):
        return (np.ndarray, (value.dtype, value.shape, value.tobytes()))
    if isinstance(value, MethodType):  # a new object for each access to the method
        return (MethodType, (ById(value.__self__), ById(value.__func__)))
    if not is_by_contents(value):
        return ById(value)
    if isinstance(value, dict):
        return (type(value), (tuple(map(Key, value)), tuple(map(whole, value.values()))))
    return (type(value), tuple(map(whole, value)))


def is_by_contents(value: object) -> TypeGuard[Collection[object]]:
    """Whether a container is no more than its contents, so that ``whole`` compares these."""
    return isinstance(value, BY_CONTENTS) and not getattr(value, "__dict__", None)


def _freeze_container(value: Any, above: set[int]) -> Any:
    key = id(value)
    if key in above:
        return MISSING
    above.add(key)
    items = _freeze_items(value, above)
    above.discard(key)
    return (type(value), items)


def _freeze_items(value: Any, above: set[int]) -> Any:
    """The contents of a container, or its length when they are too many or cannot be watched."""
    if len(value) > _FROZEN_SIZE:
        return len(value)
    parts = tuple([freeze(x, above) for x in (value.values() if isinstance(value, dict) else value)])
    if any(p is MISSING for p in parts):
        return len(value)
    if not isinstance(value, dict):
        return parts
    return (tuple(map(Key, value)), parts)


def alike(before: object, now: object) -> bool:
    """Whether two snapshots differ at most in which tensors and which numbers there are."""
    if type(before) is ById and type(now) is ById:
        return before == now or (isinstance(now.value, Tensor) and type(before.value) is type(now.value))
    if isinstance(before, tuple) and before and _closed(before[0]):
        return bool(before == now)
    if isinstance(before, tuple) and isinstance(now, tuple) and len(before) == len(now):
        if before and before[0] in (int, float) and before[0] is now[0]:
            return followed(before[1]) and followed(now[1])
        if isinstance(before, Number):
            return bool(before == now)
        return all(map(alike, before, now))
    return bool(before == now)


def _closed(kind: object) -> bool:
    """Whether the contents of containers of this type cannot be read and set one by one."""
    return isinstance(kind, type) and issubclass(kind, BY_CONTENTS) and not opened(kind)


def short(value: object) -> str:
    """A value or a snapshot in a few words."""
    with unrecorded():
        text = "nothing" if value is MISSING else _shown(value)
    return text if len(text) <= _TEXT else text[: _TEXT - 3] + "..."


def _shown(value: Any) -> str:
    """A value or a snapshot as text; without the elements of tensors."""
    kind = type(value)
    if kind in (tuple, Number) and len(value) == 2 and isinstance(value[0], type):
        kind, value = value
    if issubclass(kind, dict) and type(value) is tuple:
        value = dict(zip(*value, strict=True))
    if isinstance(value, Key) or (isinstance(value, ById) and isinstance(value.value, Tensor)):
        value = value.value
    if isinstance(value, Tensor):
        return f"a tensor {value.dtype}{list(value._data.shape)}"
    if not issubclass(kind, BY_CONTENTS):
        return repr(value)
    count = value if isinstance(value, int) else len(value)
    parts = []
    if isinstance(value, dict):
        parts = [f"{_shown(k)}: {_shown(v)}" for k, v in value.items()]
    elif not isinstance(value, int):
        parts = list(map(_shown, value))
    text = f"{kind.__name__}({', '.join(parts)})"
    return text if parts and len(text) <= _TEXT else f"{kind.__name__} of {count}"


def module_snapshot(module: object, known: Set[tuple[int, str]]) -> dict[str, Any]:
    """The parts of a module that this package reads, except ``known`` places: its children, hooks and options."""
    snapshot: dict[str, Any] = {}
    attributes = vars(module)
    names = _library_names(type(module))  # type: ignore[arg-type]
    for name, value in attributes.items():
        if name in MODULE_INTERNALS or (name.endswith("_hooks") and isinstance(value, dict)):
            snapshot[name] = {k: ById(v) for k, v in value.items() if slot_id(value, k) not in known}
        elif name in names and slot_id(attributes, name) not in known:
            frozen = freeze(value)
            if frozen is not MISSING:
                snapshot[name] = frozen
    return snapshot


def _is_compared(kind: type, name: str) -> bool:
    """Whether snapshots of modules of a class have attributes of this name."""
    return name in MODULE_INTERNALS or name.endswith("_hooks") or name in _library_names(kind)


module_changes.compared = _is_compared


@cache
def _library_names(kind: type) -> frozenset[str]:
    """The names that methods of this package, and of libraries, mention in a class and its bases.

    Reads by the program's own methods are observed when they happen.
    """
    found: set[str] = set()
    for k in kind.__mro__:
        if not is_program_class(k):
            for f in vars(k).values():
                f = getattr(f, "fget", getattr(f, "__func__", f))
                found.update(*(c.co_names for c in _codes(getattr(f, "__code__", None))))
    return frozenset(found)


def _codes(code: Any) -> Iterator[Any]:
    """A function's code and that of the functions inside of it."""
    if code is not None:
        yield code
        for inner in code.co_consts:
            if hasattr(inner, "co_names"):
                yield from _codes(inner)


def module_change(module: object, before: Mapping[str, object], known: Set[tuple[int, str]]) -> str | None:
    """Describe which attribute differs from the snapshot ``before``."""
    now = module_snapshot(module, known)
    if now == before:
        return None
    for name in {*before, *now}:
        old, new = before.get(name), now.get(name)
        if old != new:
            return f"{type(module).__name__}.{name.lstrip('_')} changed from {short(old)} to {short(new)}"
    return None
