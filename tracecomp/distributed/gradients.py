"""The argument of a communication hook of ``DistributedDataParallel``."""

from tracecomp.nn.parallel.reducer import GradBucket

__all__ = ["GradBucket"]
