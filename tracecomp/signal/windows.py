"""Window functions under the names of ``torch.signal.windows``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracecomp import functional

globals().update(functional.NAMESPACES["windows"])

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...
