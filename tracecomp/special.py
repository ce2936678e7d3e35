"""Special functions under the names of ``torch.special``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracecomp import functional

globals().update(functional.NAMESPACES["special"])

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...
