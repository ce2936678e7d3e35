"""Handles that take a registered hook away again."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from tracecomp.eager.tensor_base import Handle as RemovableHandle
from tracecomp.eager.tensor_base import add_hook

__all__ = ["RemovableHandle", "register"]


def register(hooks: OrderedDict[int, Any], hook: Any, prepend: bool = False) -> RemovableHandle:
    """Add ``hook`` to ``hooks``, in front of the others if ``prepend``; ``remove()`` of the result takes it away."""
    handle = add_hook(hooks, hook)
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    return handle
