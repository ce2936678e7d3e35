"""The names of ``torch.serialization``: what may be loaded from a file, and how."""

from __future__ import annotations

from tracecomp.serialization.files import (
    add_safe_globals,
    clear_safe_globals,
    get_safe_globals,
    load,
    safe_globals,
    save,
)

__all__ = ["add_safe_globals", "clear_safe_globals", "get_safe_globals", "load", "safe_globals", "save"]
