"""Names that libraries import from ``torch._dynamo.eval_frame``."""

from tracecomp.nn.optimized_module import OptimizedModule

__all__ = ["OptimizedModule", "is_dynamo_supported"]


def is_dynamo_supported() -> bool:
    """Return True: every supported system has ``compile``."""
    return True
