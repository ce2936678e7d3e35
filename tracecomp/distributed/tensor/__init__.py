"""How tensors lie on several processes, as programs describe it: ``torch.distributed.tensor``.

A plan can be written down, compared and printed. Tensors lie by rows (``Shard(0)``), as ``fully_shard`` lays them out;
other placements, and ``parallelize_module``, say when they are used that they are not there (``docs/distributed.md``).
"""

from tracecomp.distributed.tensor.placement_types import Partial, Placement, Replicate, Shard
from tracecomp.distributed.tensor.rows import DTensor, distribute_tensor

__all__ = ["DTensor", "Partial", "Placement", "Replicate", "Shard", "distribute_tensor"]
