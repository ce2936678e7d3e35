"""Fourier transform helpers under the names of ``torch.fft``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracecomp import functional

globals().update(functional.NAMESPACES["fft"])

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...
