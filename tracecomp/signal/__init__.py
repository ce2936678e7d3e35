"""``torch.signal``: window functions."""

from tracecomp.signal import windows

__all__ = ["windows"]
