"""``torch._custom_ops``: the former names of ``torch.library``."""

from tracecomp.library import get_ctx

__all__ = ["get_ctx"]
