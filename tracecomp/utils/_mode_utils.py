"""``torch.utils._mode_utils``."""

from __future__ import annotations

from tracecomp.eager.dispatch import no_dispatch

__all__ = ["no_dispatch"]
