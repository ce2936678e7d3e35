"""What a communication hook of ``DistributedDataParallel`` gets."""

from tracecomp.nn.parallel.reducer import GradBucket

__all__ = ["GradBucket"]
