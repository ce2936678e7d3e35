"""``torch.distributed._composable.fsdp``, from which programs for PyTorch before 2.6 import ``fully_shard``."""

from tracecomp.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy, fully_shard

__all__ = ["CPUOffloadPolicy", "FSDPModule", "MixedPrecisionPolicy", "OffloadPolicy", "fully_shard"]
