"""The names of ``torch.serialization``: the settings and checks of loading files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from tracecomp.serialization.files import (
    add_safe_globals,
    clear_safe_globals,
    get_safe_globals,
    get_unsafe_globals_in_checkpoint,
    load,
    safe_globals,
    save,
)

__all__ = [
    "add_safe_globals", "clear_safe_globals", "get_safe_globals", "get_unsafe_globals_in_checkpoint", "load",
    "safe_globals", "save",
]  # fmt: skip

MAP_LOCATION: TypeAlias = Callable[[Any, str], Any] | Any | str | dict[str, str] | None
DEFAULT_PROTOCOL = 2
"""Pickle protocol of PyTorch's files, for older readers."""
