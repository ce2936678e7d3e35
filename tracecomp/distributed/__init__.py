"""``torch.distributed``: several processes as one program, over MPI or TCP, with sums in one fixed order.

``docs/distributed.md`` describes how to start processes, the guarantees, and unsupported features.
"""

from tracecomp.base.lazy_names import later
from tracecomp.communication import logical
from tracecomp.communication.combine import ReduceOp
from tracecomp.communication.errors import (
    DistBackendError,
    DistError,
    DistNetworkError,
    DistQueueEmptyError,
    DistStoreError,
)
from tracecomp.communication.group import Group as ProcessGroup
from tracecomp.communication.stores import FileStore, HashStore, PrefixStore, Store
from tracecomp.communication.tcp_store import TCPStore
from tracecomp.communication.work import Work
from tracecomp.distributed.collectives import (
    _all_gather_base,
    _reduce_scatter_base,
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

logical.announce()
reduce_op = ReduceOp
all_gather_single, reduce_scatter_single = all_gather_into_tensor, reduce_scatter_tensor

__all__ = [
    "Backend", "DistBackendError", "DistError", "DistNetworkError", "DistQueueEmptyError", "DistStoreError",
    "FileStore", "GroupMember", "HashStore", "P2POp", "PrefixStore", "ProcessGroup", "ReduceOp", "Store", "TCPStore",
    "Work", "_all_gather_base", "_reduce_scatter_base", "all_gather", "all_gather_coalesced", "all_gather_into_tensor",
    "all_gather_object", "all_gather_single", "all_reduce", "all_reduce_coalesced", "all_to_all", "all_to_all_single",
    "barrier", "batch_isend_irecv", "broadcast", "broadcast_object_list", "default_pg_timeout", "destroy_process_group",
    "gather",
    "gather_object", "get_backend", "get_default_backend_for_device", "get_global_rank", "get_group_rank",
    "get_node_local_rank", "get_pg_count", "get_process_group_ranks", "get_rank", "get_world_size", "group",
    "init_process_group", "irecv", "is_available", "is_backend_available", "is_gloo_available", "is_initialized",
    "is_mpi_available", "is_nccl_available", "is_torchelastic_launched", "is_ucc_available", "is_xccl_available",
    "isend", "monitored_barrier", "new_group", "new_subgroups", "new_subgroups_by_enumeration", "recv",
    "recv_object_list", "reduce", "reduce_op", "reduce_scatter", "reduce_scatter_single", "reduce_scatter_tensor",
    "scatter", "scatter_object_list", "send", "send_object_list", "split_group", "supports_complex",
]  # fmt: skip

_LATER = (
    "_composable",
    "_functional_collectives",
    "algorithms",
    "checkpoint",
    "constants",
    "device_mesh",
    "distributed_c10d",
    "elastic",
    "fsdp",
    "launch",
    "nn",
    "optim",
    "run",
    "tensor",
)
_HOMES = {name: name for name in _LATER} | {
    "DeviceMesh": "device_mesh", "GradBucket": "gradients", "init_device_mesh": "device_mesh",
}  # fmt: skip
__getattr__ = later(__name__, _HOMES)
