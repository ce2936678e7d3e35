"""Tensors of which every process has some rows, under PyTorch's names."""

from __future__ import annotations

from collections.abc import Sequence

from tracecomp.base.errors import at_user_line
from tracecomp.communication.group import Group
from tracecomp.distributed.device_mesh import DeviceMesh, group_of_mesh
from tracecomp.distributed.tensor.placement_types import Placement, Shard
from tracecomp.eager.tensor import Tensor
from tracecomp.nn.sharding import ShardedTensor, Sharding, marked

DTensor = ShardedTensor


def distribute_tensor(
    tensor: Tensor, device_mesh: DeviceMesh | Group | None = None, placements: Sequence[Placement] | None = None
) -> ShardedTensor:  # fmt: skip
    """Return this process's rows of ``tensor``, which all processes of the group have; without communication.

    NotImplementedError for placements other than ``(Shard(0),)``.
    """
    if placements is not None and tuple(placements) != (Shard(0),):
        raise NotImplementedError(at_user_line(f"distribute_tensor: {placements} is not supported. Use (Shard(0),)"))
    sharding = Sharding(tensor.shape, group_of_mesh(device_mesh, "distribute_tensor"), (Shard(0),), device_mesh)
    return marked(sharding.own(tensor).detach().clone(), sharding)
