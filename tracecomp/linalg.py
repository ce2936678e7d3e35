"""Linear algebra under the names of ``torch.linalg``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracecomp import functional

globals().update(functional.NAMESPACES["linalg"])

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...
