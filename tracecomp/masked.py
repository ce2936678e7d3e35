"""Reductions over unmasked elements, under the names of ``torch.masked``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracecomp import functional

globals().update(functional.NAMESPACES["masked"])

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...
