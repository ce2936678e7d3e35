"""``torch.distributed._tensor``: the former name of ``torch.distributed.tensor``."""

from tracecomp.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard, distribute_tensor

__all__ = ["DTensor", "Partial", "Placement", "Replicate", "Shard", "distribute_tensor"]
