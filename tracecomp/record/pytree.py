"""Nested Python values as a flat list of leaves and a hashable structure."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias

from tracecomp.eager.size import Size
from tracecomp.record.same_values import Keys

LEAF = "*"
_SEQUENCES = (tuple, list, Size)
_MAPPINGS = (dict, OrderedDict, defaultdict)
_leaf_kinds: set[type] = set()  # types found to be leaves, to answer for them at once


Leaves: TypeAlias = Sequence[object]
"""What a call was given, in the order of ``flatten``: whatever a program passes."""


def flatten(value: Any, leaves: list[object], is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """Append the leaves of ``value`` to ``leaves``; the structure, which compares equal for like values.

    Tuples, lists, dicts, named tuples, dataclasses, and tensors that consist of others (``__tensor_flatten__``, as in
    PyTorch) are structure; everything else is a leaf, and what ``is_leaf`` says is one.
    """
    kind = type(value)
    if is_leaf is not None and is_leaf(value):
        leaves.append(value)
        return LEAF
    # Types that were leaves before: most calls get no further. Types known to be leaves never have structure.
    if kind in _leaf_kinds:
        leaves.append(value)
        return LEAF
    if kind in _SEQUENCES:
        return (kind, *[flatten(v, leaves, is_leaf) for v in value])
    if kind in _MAPPINGS:
        # A defaultdict without its factory would be another object.
        made_by = (kind, value.default_factory) if kind is defaultdict else kind
        return (made_by, _keys(value), *[flatten(v, leaves, is_leaf) for v in value.values()])
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return (kind, *[flatten(v, leaves, is_leaf) for v in value])
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = tuple(f.name for f in dataclasses.fields(value))
        return (kind, names, *[flatten(getattr(value, n), leaves, is_leaf) for n in names])
    if hasattr(kind, "__tensor_flatten__"):
        names, context = value.__tensor_flatten__()
        return (kind, (tuple(names), context), *[flatten(getattr(value, n), leaves, is_leaf) for n in names])
    # Nothing else is structure, so the type is remembered.
    _leaf_kinds.add(kind)
    leaves.append(value)
    return LEAF


def _keys(value: Mapping[Any, object]) -> tuple[Any, ...]:
    """The keys; texts, as most are, need no more than to be compared."""
    return tuple(value) if set(map(type, value)) <= {str} else Keys(value)


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
    leaves: list[Any] = []
    return flatten((args, kwargs), leaves), leaves


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
    kind, *parts = structure
    if kind in _SEQUENCES:
        return kind([_build(p, leaves) for p in parts])
    kind, *options = kind if isinstance(kind, tuple) else (kind,)
    if issubclass(kind, tuple):
        return kind(*[_build(p, leaves) for p in parts])
    names, *parts = parts
    values = [_build(p, leaves) for p in parts]
    if hasattr(kind, "__tensor_unflatten__"):
        inner, context = names
        return kind.__tensor_unflatten__(dict(zip(inner, values, strict=True)), context, None, None)
    if issubclass(kind, dict) and dataclasses.is_dataclass(kind):  # as results in transformers: it fills itself in
        make: Any = kind
        return make(**dict(zip(names, values, strict=True)))
    if issubclass(kind, dict):
        return kind(*options, zip(names, values, strict=True))
    built = object.__new__(kind)
    for name, v in zip(names, values, strict=True):
        object.__setattr__(built, name, v)
    return built


def paths(value: Any, prefix: str = "") -> list[str]:
    """How each leaf is reached, in the order of ``flatten``: ``[0].x['w']``."""
    kind = type(value)
    if kind in _MAPPINGS:
        items = [(f"{prefix}[{k!r}]", v) for k, v in value.items()]
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        items = [(f"{prefix}.{k}", v) for k, v in zip(value._fields, value, strict=True)]
    elif kind in _SEQUENCES:
        items = [(f"{prefix}[{i}]", v) for i, v in enumerate(value)]
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        items = [(f"{prefix}.{f.name}", getattr(value, f.name)) for f in dataclasses.fields(value)]
    elif hasattr(kind, "__tensor_flatten__"):
        items = [(f"{prefix}.{n}", getattr(value, n)) for n in value.__tensor_flatten__()[0]]
    else:
        return [prefix]
    return [path for name, v in items for path in paths(v, name)]
