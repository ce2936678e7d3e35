"""Arguments and results that are nested in tuples, lists and dicts, as a file tells it: ``"*"`` is a leaf."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np


def flatten(structure: Any, value: Any, leaves: list[Any], name: str) -> None:
    """Append the leaves of ``value``, which must be nested as ``structure`` says."""
    if structure == "*":
        leaves.append(value)
        return
    kind, *parts = structure
    keys = parts.pop(0) if kind == "dict" else None
    kinds: Mapping[Any, Any] = {"tuple": tuple, "list": list, "dict": dict}
    right = kinds.get(kind, ())
    if not isinstance(value, right) or len(value) != len(parts) or (keys is not None and [*value] != keys):
        raise TypeError(f"{name} was saved for arguments nested as {shown(structure)}, but got {nested(value)}")
    for part, item in zip(parts, value.values() if isinstance(value, dict) else value, strict=True):
        flatten(part, item, leaves, name)


def unflatten(structure: Any, leaves: Iterator[Any]) -> Any:
    """``leaves``, nested as ``structure`` says."""
    if structure == "*":
        return next(leaves)
    kind, *parts = structure
    if kind == "dict":
        return dict(zip(parts[0], [unflatten(p, leaves) for p in parts[1:]], strict=True))
    found = [unflatten(p, leaves) for p in parts]
    return tuple(found) if kind == "tuple" else found


def shown(structure: Any) -> str:
    """A structure as messages show it: ``*`` for each leaf."""
    if structure == "*":
        return "*"
    kind, *parts = structure
    if kind == "dict":
        return "{" + ", ".join(f"{key!r}: {shown(p)}" for key, p in zip(parts[0], parts[1:], strict=True)) + "}"
    inner = ", ".join(map(shown, parts))
    return f"[{inner}]" if kind == "list" else f"({inner})"


def nested(value: Any) -> str:
    """Arguments as messages show them."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {nested(item)}" for key, item in value.items()) + "}"
    if isinstance(value, tuple | list):
        inner = ", ".join(map(nested, value))
        return f"[{inner}]" if isinstance(value, list) else f"({inner})"
    return told(value)


def told(value: Any) -> str:
    """A leaf as messages show it."""
    if isinstance(value, np.ndarray):
        order = "" if value.dtype.isnative else " in a different byte order"
        return f"{value.dtype.name}[{', '.join(map(str, value.shape))}]{order}"
    return repr(value) if value is None or isinstance(value, int | float | str) else type(value).__name__
