"""What libraries take from ``torch._dynamo.eval_frame``."""

from tracecomp.nn.optimized_module import OptimizedModule

__all__ = ["OptimizedModule", "is_dynamo_supported"]


def is_dynamo_supported() -> bool:
    """True: every system that tracecomp runs on has ``compile``."""
    return True
