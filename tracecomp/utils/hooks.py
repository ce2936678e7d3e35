"""Handles that take a registered hook away again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from tracecomp.eager.tensor_base import Handle as RemovableHandle
from tracecomp.eager.tensor_base import add_hook

__all__ = ["RemovableHandle", "register"]


def register(
    hooks: OrderedDict[int, Any], hook: Any, prepend: bool = False, marks: Mapping[str, bool] | None = None,
    tables: Mapping[str, OrderedDict[int, bool]] | None = None,
) -> RemovableHandle:  # fmt: skip
    """Add ``hook`` to ``hooks``, in front of the others if ``prepend``; ``remove()`` of the result takes it away.

    It is entered into those of ``tables`` whose name is true in ``marks``.
    """
    tables = tables or {}
    handle = add_hook(hooks, hook, list(tables.values()))
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    for name, marked in (marks or {}).items():
        if marked:
            tables[name][handle.id] = True
            if prepend:
                tables[name].move_to_end(handle.id, last=False)
    return handle
