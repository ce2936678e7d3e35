"""Nested Python values as a flat list of leaves and a hashable structure."""

from __future__ import annotations

import dataclasses
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeAlias

from tracecomp.eager.size import Size
from tracecomp.record.same_values import Keys

LEAF = "*"
_SEQUENCES = (tuple, list, Size)
_MAPPINGS = (dict, OrderedDict, defaultdict)
_COLLECTIONS = (set, frozenset, deque, Counter, SimpleNamespace)
"""Further containers that every call builds among its results. Among arguments they are leaves."""
BY_CONTENTS = (list, tuple, dict, set, frozenset)
"""Containers that are leaves where they are of other classes or no structure: guards compare their contents."""
_leaf_kinds: set[type] = set()  # types found to be leaves, to answer for them at once
_varying: set[type] = set()  # classes of objects that differ between calls although they are alike


Leaves: TypeAlias = Sequence[object]
"""The leaves of a call's arguments, in the order of ``flatten``: any objects."""


class CallLeaves(list[object]):
    """The leaves of the arguments of a call, with the containers and dataclasses around or among them."""

    __slots__ = ("containers",)

    def __init__(self) -> None:
        super().__init__()
        self.containers: list[object] = []


class With(tuple[Any, ...]):
    """The structure of a value with attributes in addition to its parts: their names, its structure, and theirs."""

    __slots__ = ()


class Absent:
    """Represents a missing attribute."""


ABSENT = Absent()
_read: dict[type, dict[str, None]] = {}
"""Attributes that recorded programs have read of arguments of a class, in addition to the parts of such values."""


def note_attribute(kind: type, name: str) -> bool:
    """Have ``flatten`` take up an attribute of values of ``kind``; whether that is new."""
    names = _read.setdefault(kind, {})
    new = name not in names
    names[name] = None
    return new


def is_varying(kind: type) -> bool:
    """Whether objects of this class are taken apart by their attributes."""
    return kind in _varying


def take_apart(kind: type) -> None:
    """From now on, take objects of this class apart."""
    _varying.add(kind)
    _leaf_kinds.discard(kind)


def keep_whole(kind: type) -> None:
    """From now on, objects of this class are leaves."""
    _varying.discard(kind)


def is_record(value: object) -> bool:
    """Whether ``flatten`` takes ``value`` apart by its attributes: dataclasses, and objects that differ per call."""
    return is_record_class(type(value))


def is_record_class(kind: type) -> bool:
    """Whether ``flatten`` takes objects of this class apart by their attributes."""
    return is_varying(kind) or _is_dataclass(kind)


def _is_dataclass(kind: type) -> bool:
    """Whether objects of this class are dataclasses, without code of its metaclass."""
    return any("__dataclass_fields__" in vars(k) for k in kind.__mro__)


def parts_of(value: object) -> tuple[str, ...]:
    """The names of the attributes that a record consists of; () for other values."""
    if is_varying(type(value)):
        return tuple(vars(value))
    kind: Any = type(value)
    return tuple(f.name for f in dataclasses.fields(kind)) if _is_dataclass(kind) else ()


def added_to(value: Any) -> tuple[str, ...]:
    """The names of the attributes of a named tuple or dataclass in addition to its parts."""
    kind = type(value)
    if not (_is_dataclass(kind) or (isinstance(value, tuple) and hasattr(kind, "_fields"))):
        return ()
    parts = parts_of(value)
    return tuple(name for name in getattr(value, "__dict__", ()) if name not in parts)


def parts_within(value: Any) -> list[Any]:
    """The parts of a container or record."""
    if isinstance(value, dict) and not is_record(value):
        return list(value.values())
    if isinstance(value, SimpleNamespace):
        return list(vars(value).values())
    if isinstance(value, set | frozenset | deque):
        return list(value)
    if isinstance(value, list | tuple):
        return [*value, *(getattr(value, n) for n in added_to(value))]
    return [getattr(value, n) for n in (*parts_of(value), *added_to(value))]


def flatten(value: Any, leaves: list[object], is_leaf: Callable[[Any], bool] | None = None, every: bool = False) -> Any:
    """Append the leaves of ``value`` to ``leaves``; return the structure, which compares equal for similar values.

    Attributes in addition to the parts are included if programs have read them of arguments, or if ``every``.
    """
    kind = type(value)
    if is_leaf is None and not every and kind in _leaf_kinds and kind not in _read:
        leaves.append(value)
        return LEAF
    names = _additional(value, every)
    if (not names and not is_varying(kind)) or (is_leaf is not None and is_leaf(value)):
        return _flatten(value, leaves, is_leaf, every)

    def seen(x: object) -> bool:
        return x is value or (is_leaf is not None and is_leaf(x))  # attributes may form a cycle

    return _with(value, names, _flatten(value, leaves, is_leaf, every, seen), leaves, seen, every)


def flatten_object(value: Any, leaves: list[object], is_leaf: Callable[[Any], bool]) -> Any:
    """``flatten`` a container or record for which ``is_leaf`` is true, with every attribute: it may hold itself."""
    names = _additional(value, every=True)
    return _with(value, names, _parts(value, leaves, is_leaf, True, is_leaf), leaves, is_leaf, every=True)


def _additional(value: object, every: bool) -> tuple[str, ...]:
    """The attributes that belong to the structure, in addition to the parts."""
    names = tuple(_read.get(type(value), ()))
    return tuple(dict.fromkeys((*names, *added_to(value)))) if every else names


def _with(
    value: Any, names: tuple[str, ...], structure: Any, leaves: list[object], is_leaf: Callable[[Any], bool],
    every: bool,
) -> Any:  # fmt: skip
    if not names:
        return structure
    own = getattr(value, "__dict__", {})
    return With((names, structure, *[flatten(own.get(n, ABSENT), leaves, is_leaf, every) for n in names]))


def _flatten(
    value: Any, leaves: list[object], is_leaf: Callable[[Any], bool] | None, every: bool,
    within: Callable[[Any], bool] | None = None,
) -> Any:  # fmt: skip
    """``flatten`` without additional attributes of ``value``. ``within``: ``is_leaf`` for the attributes of an object.

    Tuples, lists, dicts, named tuples, records, and tensors that consist of others (``__tensor_flatten__``, as in
    PyTorch) are structure. Everything else is a leaf, as is any value for which ``is_leaf`` is true.
    """
    kind = type(value)
    if is_leaf is not None and is_leaf(value):
        leaves.append(value)
        return LEAF
    # Types known to be leaves: most calls stop here. These types never have structure.
    if kind in _leaf_kinds and not (every and kind in _COLLECTIONS):
        leaves.append(value)
        return LEAF
    return _parts(value, leaves, is_leaf, every, within)


def _parts(
    value: Any, leaves: list[object], is_leaf: Callable[[Any], bool] | None, every: bool,
    within: Callable[[Any], bool] | None,
) -> Any:  # fmt: skip
    """``flatten`` of a value that may have structure: one branch for each kind, the most frequent first.

    Containers that a call may change are listed, so that guards can see which of them are one object.
    """
    kind = type(value)
    if kind in _SEQUENCES:
        if kind is list and type(leaves) is CallLeaves:
            leaves.containers.append(value)
        return (kind, *[flatten(v, leaves, is_leaf, every) for v in value])
    if kind in _MAPPINGS:
        if type(leaves) is CallLeaves:
            leaves.containers.append(value)
        # A defaultdict without its factory would be another object.
        made_by = (kind, value.default_factory) if kind is defaultdict else kind
        return (made_by, _keys(value), *[flatten(v, leaves, is_leaf, every) for v in value.values()])
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return (kind, *[flatten(v, leaves, is_leaf, every) for v in value])
    if every and is_collection(value):
        options = (*_collection_options(value), *[flatten(v, leaves, is_leaf, every) for v in parts_within(value)])
        return ((kind, value.maxlen) if kind is deque else kind, *options)
    if is_record(value):
        names = parts_of(value)
        if type(leaves) is CallLeaves:
            leaves.containers.append(value)
        if is_varying(kind):
            return (kind, names, *[flatten(x, leaves, within, every) for x in vars(value).values()])
        return (kind, names, *[flatten(getattr(value, n), leaves, is_leaf, every) for n in names])
    if hasattr(kind, "__tensor_flatten__"):
        names, context = value.__tensor_flatten__()
        return (kind, (tuple(names), context), *[flatten(getattr(value, n), leaves, is_leaf, every) for n in names])
    # Nothing else is structure, so the type is remembered; aliases of containers are looked for in every call.
    if not issubclass(kind, BY_CONTENTS):
        _leaf_kinds.add(kind)
    elif type(leaves) is CallLeaves:
        leaves.containers.append(value)
    leaves.append(value)
    return LEAF


def _keys(value: Mapping[Any, object]) -> tuple[Any, ...]:
    """The keys; texts, as most are, need no more than to be compared."""
    return tuple(value) if set(map(type, value)) <= {str} else Keys(value)


def with_leaves(leaves: Leaves, others: Sequence[object]) -> Leaves:
    """``others`` in the place of the leaves of a call, in the same containers."""
    found = CallLeaves()
    found.extend(others)
    found.containers = containers_of(leaves)
    return found


def is_changeable(value: object) -> bool:
    """Whether ``value`` is a list, dict or record, which programs may change."""
    return type(value) is list or type(value) in _MAPPINGS or is_record(value)


def is_collection(value: object) -> bool:
    """Whether ``value`` is a container that is structure in what a call leaves, and a leaf among arguments."""
    return type(value) in _COLLECTIONS


def _collection_options(value: Any) -> tuple[Any, ...]:
    """The names or keys of the parts of a collection, if they have any."""
    if isinstance(value, SimpleNamespace):
        return (tuple(vars(value)),)
    return (_keys(value),) if isinstance(value, dict) else ()


def opened(kind: type) -> bool:
    """Whether ``flatten`` takes containers of this type apart."""
    return kind in (*_SEQUENCES, *_MAPPINGS) or (issubclass(kind, tuple) and hasattr(kind, "_fields"))


def flatten_call(args: tuple[object, ...], kwargs: Mapping[str, object]) -> tuple[Any, Sequence[Any]]:
    """Structure and leaves of the arguments of a call."""
    if not kwargs:
        for a in args:
            if type(a) not in _leaf_kinds:
                break
        else:
            return flat_call(len(args)), args
    leaves = CallLeaves()
    return flatten((args, kwargs), leaves), leaves


def containers_of(leaves: Leaves) -> list[object]:
    """The containers and dataclasses among the arguments whose leaves these are; a call's own ``kwargs`` first."""
    return leaves.containers if type(leaves) is CallLeaves else []


def direct(args: tuple[object, ...], kwargs: Mapping[str, object]) -> dict[int, int | str]:
    """The arguments of a call that are leaves themselves: leaf number to position or keyword."""
    found: dict[int, int | str] = {}
    leaves: list[Any] = []
    named: list[tuple[int | str, Any]] = [*enumerate(args), *kwargs.items()]
    for key, value in named:
        number = len(leaves)
        if flatten(value, leaves) is LEAF:
            found[number] = key
    return found


@cache
def flat_call(count: int) -> Any:
    """The structure of a call with ``count`` positional leaves, one object for all such calls."""
    return (tuple, (tuple, *(LEAF,) * count), (dict, ()))


def unflatten(structure: object, leaves: Leaves) -> Any:
    """The value that ``flatten`` took apart, with ``leaves`` in it."""
    return _build(structure, iter(leaves))


def _build(structure: Any, leaves: Iterator[Any]) -> Any:
    if structure is LEAF:
        return next(leaves)
    if type(structure) is With:
        return _build_with(structure, leaves)
    kind, *parts = structure
    if kind in _SEQUENCES:
        return kind([_build(p, leaves) for p in parts])
    kind, *options = kind if isinstance(kind, tuple) else (kind,)
    if issubclass(kind, tuple):
        return kind(*[_build(p, leaves) for p in parts])
    if issubclass(kind, set | frozenset | deque):
        return kind([_build(p, leaves) for p in parts], *options)
    names, *parts = parts
    values = [_build(p, leaves) for p in parts]
    if hasattr(kind, "__tensor_unflatten__"):
        inner, context = names
        return kind.__tensor_unflatten__(dict(zip(inner, values, strict=True)), context, None, None)
    if issubclass(kind, dict) and dataclasses.is_dataclass(kind):  # as results in transformers: it fills itself in
        make: Any = kind
        return make(**dict(zip(names, values, strict=True)))
    if issubclass(kind, dict):
        items = zip(names, values, strict=True)
        return kind(*options, dict(items) if kind is Counter else items)  # it counts other items
    built = kind.__new__(kind) if kind is SimpleNamespace else object.__new__(kind)
    for name, v in zip(names, values, strict=True):
        object.__setattr__(built, name, v)
    return built


def can_begin(value: object) -> bool:
    """Whether ``begin`` can make an empty object like ``value``: a changeable container or a record."""
    return not isinstance(value, tuple | frozenset) and not (isinstance(value, dict) and is_record(value))


def begin(structure: Any) -> Any:
    """An empty container or object for ``fill``, which may then hold it."""
    if type(structure) is With:
        return begin(structure[1])
    kind, *options = structure[0] if isinstance(structure[0], tuple) else (structure[0],)
    if issubclass(kind, deque):
        return deque(maxlen=options[0])
    return kind(*options) if issubclass(kind, list | dict | set | SimpleNamespace) else object.__new__(kind)


def fill(value: Any, structure: Any, leaves: Iterator[Any]) -> None:
    """Fill ``value``, which is empty, as ``unflatten`` fills new ones."""
    if type(structure) is With:
        names, own, *parts = structure
        fill(value, own, leaves)
        _set_added(value, names, parts, leaves)
    elif isinstance(value, list | deque):
        value.extend([_build(p, leaves) for p in structure[1:]])
    elif isinstance(value, set):
        value.update([_build(p, leaves) for p in structure[1:]])
    else:
        _, names, *parts = structure
        for name, part in zip(names, parts, strict=True):
            if isinstance(value, dict):
                value[name] = _build(part, leaves)
            else:
                object.__setattr__(value, name, _build(part, leaves))


def _build_with(structure: With, leaves: Iterator[Any]) -> Any:
    names, own, *parts = structure
    value = _build(own, leaves)
    _set_added(value, names, parts, leaves)
    return value


def _set_added(value: object, names: Sequence[str], parts: Sequence[Any], leaves: Iterator[Any]) -> None:
    for name, part in zip(names, parts, strict=True):
        x = _build(part, leaves)
        if x is not ABSENT:
            object.__setattr__(value, name, x)


class LeafPlace(NamedTuple):
    """How a leaf is reached, ``[0].x['w']``, and the record of which it is an attribute, if it is one of a record."""

    path: str
    record: object = None
    name: str = ""


def leaf_places(value: Any, at: LeafPlace = LeafPlace(""), above: tuple[object, ...] = ()) -> list[LeafPlace]:  # noqa: B008
    """The places of the leaves, in the order of ``flatten``."""
    if any(value is x for x in above):
        return [at]
    own = _places(value, at, above)
    held, above = getattr(value, "__dict__", {}), (*above, value)
    added = [(LeafPlace(f"{at.path}.{name}"), held.get(name, ABSENT)) for name in _read.get(type(value), ())]
    return own + [found for below, x in added for found in leaf_places(x, below, above)]


def paths(value: Any) -> list[str]:
    """How each leaf is reached."""
    return [place.path for place in leaf_places(value)]


def _places(value: Any, at: LeafPlace, above: tuple[object, ...]) -> list[LeafPlace]:
    kind, path = type(value), at.path
    if kind in _MAPPINGS:
        items = [(LeafPlace(f"{path}[{k!r}]"), v) for k, v in value.items()]
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        items = [(LeafPlace(f"{path}.{k}"), v) for k, v in zip(value._fields, value, strict=True)]
    elif kind in _SEQUENCES:
        items = [(LeafPlace(f"{path}[{i}]"), v) for i, v in enumerate(value)]
    elif is_record(value):
        held = vars(value) if is_varying(kind) else {n: getattr(value, n) for n in parts_of(value)}
        items = [(LeafPlace(f"{path}.{n}", value, n), v) for n, v in held.items()]
    elif hasattr(kind, "__tensor_flatten__"):
        items = [(LeafPlace(f"{path}.{n}"), getattr(value, n)) for n in value.__tensor_flatten__()[0]]
    else:
        return [at]
    above = (*above, value) if is_varying(kind) else above
    return [found for below, v in items for found in leaf_places(v, below, above)]
