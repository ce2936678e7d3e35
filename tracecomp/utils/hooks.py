"""Handles that take a registered hook away again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from tracecomp.eager.tensor_base import Handle as RemovableHandle
from tracecomp.eager.tensor_base import add_hook

__all__ = ["RemovableHandle", "register"]


def register(
    hooks: OrderedDict[int, Any], hook: Any, prepend: bool = False,
    options: Sequence[tuple[OrderedDict[int, bool], bool]] = (),
) -> RemovableHandle:  # fmt: skip
    """Add ``hook`` to ``hooks``, in front of the others if ``prepend``; ``remove()`` of the result takes it away.

    ``options`` are tables of hooks that have an option, each with whether this one has it.
    """
    handle = add_hook(hooks, hook, [table for table, _ in options])
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    for table, chosen in options:
        if chosen:
            table[handle.id] = True
    return handle
