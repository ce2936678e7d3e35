"""The mark of ``torch.fx`` that library code sets on functions its symbolic tracer must not enter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracecomp.base.errors import at_user_line


def wrap(fn_or_name: str | Callable[..., Any]) -> str | Callable[..., Any]:
    """``fn_or_name``: capture runs functions, so none needs to be kept whole. RuntimeError for anything else."""
    if not callable(fn_or_name) and not isinstance(fn_or_name, str):
        raise RuntimeError(
            at_user_line("Unsupported type for global function! Must be either a callable or string name")
        )
    return fn_or_name
