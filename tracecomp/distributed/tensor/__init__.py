"""``torch.distributed.tensor``: descriptions of tensors that are distributed over processes.

A plan can be written, compared and printed. Tensors are distributed by rows (``Shard(0)``), like those of
``fully_shard``; other placements, and ``parallelize_module``, raise on use (``docs/distributed.md``).
"""

from tracecomp.distributed.tensor.placement_types import Partial, Placement, Replicate, Shard
from tracecomp.distributed.tensor.rows import DTensor, distribute_tensor

__all__ = ["DTensor", "Partial", "Placement", "Replicate", "Shard", "distribute_tensor"]
