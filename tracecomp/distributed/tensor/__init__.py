"""How tensors lie on several processes, as programs describe it: ``torch.distributed.tensor``.

Descriptions are all there is: a plan can be written down, compared and printed. What would lay out tensors by one
(``DTensor``, ``distribute_tensor``, ``parallelize_module``) says so when it is used; ``docs/distributed.md`` has what
there is instead.
"""

from tracecomp.distributed.tensor.placement_types import Partial, Placement, Replicate, Shard

__all__ = ["Partial", "Placement", "Replicate", "Shard"]
