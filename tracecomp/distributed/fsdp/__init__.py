"""``torch.distributed.fsdp``: models larger than the memory of one process."""

from tracecomp.distributed.fsdp.bucket import MixedPrecisionPolicy
from tracecomp.distributed.fsdp.fully_shard import FSDPModule, fully_shard

__all__ = ["FSDPModule", "MixedPrecisionPolicy", "fully_shard"]
