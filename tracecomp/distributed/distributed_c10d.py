"""The names of ``torch.distributed.distributed_c10d`` that libraries import from there."""

from __future__ import annotations

from tracecomp.communication.combine import ReduceOp
from tracecomp.communication.group import Group as ProcessGroup
from tracecomp.communication.stores import PrefixStore, Store
from tracecomp.communication.work import Work
from tracecomp.communication.world import world
from tracecomp.distributed.collectives import (
    all_gather,
    all_gather_coalesced,
    all_gather_into_tensor,
    all_reduce,
    all_reduce_coalesced,
    all_to_all,
    all_to_all_single,
    broadcast,
    gather,
    reduce,
    reduce_scatter,
    reduce_scatter_tensor,
    scatter,
    supports_complex,
)
from tracecomp.distributed.objects import (
    all_gather_object,
    broadcast_object_list,
    gather_object,
    recv_object_list,
    scatter_object_list,
    send_object_list,
)
from tracecomp.distributed.point_to_point import P2POp, batch_isend_irecv, irecv, isend, recv, send
from tracecomp.distributed.processes import (
    Backend,
    GroupMember,
    barrier,
    default_pg_timeout,
    destroy_process_group,
    get_backend,
    get_default_backend_for_device,
    get_global_rank,
    get_group_rank,
    get_node_local_rank,
    get_pg_count,
    get_process_group_ranks,
    get_rank,
    get_world_size,
    group,
    init_process_group,
    is_available,
    is_backend_available,
    is_gloo_available,
    is_initialized,
    is_mpi_available,
    is_nccl_available,
    is_torchelastic_launched,
    is_ucc_available,
    is_xccl_available,
    monitored_barrier,
    new_group,
    new_subgroups,
    new_subgroups_by_enumeration,
    split_group,
)
from tracecomp.distributed.processes import default_group as _get_default_group

__all__ = [
    "Backend", "GroupMember", "P2POp", "PrefixStore", "ProcessGroup", "ReduceOp", "Store", "Work",
    "_get_default_group", "_get_default_store", "all_gather", "all_gather_coalesced", "all_gather_into_tensor",
    "all_gather_object", "all_reduce", "all_reduce_coalesced", "all_to_all", "all_to_all_single", "barrier",
    "batch_isend_irecv", "broadcast", "broadcast_object_list", "default_pg_timeout", "destroy_process_group",
    "gather", "gather_object", "get_backend", "get_default_backend_for_device", "get_global_rank", "get_group_rank",
    "get_node_local_rank", "get_pg_count", "get_process_group_ranks", "get_rank", "get_world_size", "group",
    "init_process_group", "irecv", "is_available", "is_backend_available", "is_gloo_available", "is_initialized",
    "is_mpi_available", "is_nccl_available", "is_torchelastic_launched", "is_ucc_available", "is_xccl_available",
    "isend", "monitored_barrier", "new_group", "new_subgroups", "new_subgroups_by_enumeration", "recv",
    "recv_object_list", "reduce", "reduce_scatter", "reduce_scatter_tensor", "scatter", "scatter_object_list",
    "send", "send_object_list", "split_group", "supports_complex",
]  # fmt: skip


def _get_default_store() -> Store:
    """Return the rendezvous store. ValueError for processes started by MPI, which needs none."""
    _get_default_group()
    if world.store is None:
        raise ValueError("the default process group lacks a store, since MPI started the processes")
    return world.store
