"""The names of ``torch.utils.data.distributed``."""

from tracecomp.utils.data.sampler import DistributedSampler

__all__ = ["DistributedSampler"]
