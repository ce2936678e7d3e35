"""Process groups: creation, queries, destruction."""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

import numpy as np

from tracecomp.base.errors import at_user_line
from tracecomp.base.user_warnings import warn_as_pytorch, warn_user
from tracecomp.communication import groups, logical, mpi
from tracecomp.communication.errors import DistBackendError
from tracecomp.communication.group import Group
from tracecomp.communication.rendezvous import meet
from tracecomp.communication.stores import Store
from tracecomp.communication.work import Work
from tracecomp.communication.world import world
from tracecomp.nn.parallel.shards import ShardPlan

default_pg_timeout = timedelta(minutes=30)
_log = logging.getLogger("tracecomp.distributed")


class Backend(str):
    """The name of a communication backend, in lower case. ValueError unless it is a string."""

    GLOO, NCCL, MPI, UCC, XCCL, UNDEFINED = "gloo", "nccl", "mpi", "ucc", "xccl", "undefined"
    backend_list: Sequence[str] = (UNDEFINED, GLOO, NCCL, XCCL, UCC, MPI)

    def __new__(cls, name: str) -> Backend:
        if not isinstance(name, str):
            raise ValueError(f"Backend constructor parameter must be string-ish, got {name!r}")
        return super().__new__(cls, name.lower())


def _known(name: str) -> Backend:
    """Return the requested backend. AssertionError for one that PyTorch does not know either."""
    found = Backend(name)
    for part in found.split(","):  # "cpu:gloo,cuda:nccl"
        kind = part.rpartition(":")[2]
        if kind not in Backend.backend_list:
            raise AssertionError(at_user_line(f"Unknown c10d backend type {kind.upper()}"))
    return found


class _World(type):
    """The metaclass of classes that know the default group."""

    @property
    def WORLD(cls) -> Group | None:
        """The group of all processes."""
        return world.default


class GroupMember(metaclass=_World):
    """A placeholder of a group: that of all processes, or one without this process."""

    NON_GROUP_MEMBER = -100


class group(metaclass=_World):
    """The default group: ``group.WORLD``."""


def is_available() -> bool:
    """Return True: a single process can always be a group."""
    return True


def is_initialized() -> bool:
    """Whether there is a default group."""
    return world.default is not None


def is_gloo_available() -> bool:
    """Return True: programs written for gloo run."""
    return True


def is_mpi_available() -> bool:
    """Whether mpi4py is installed."""
    return mpi.available()


def is_nccl_available() -> bool:
    """Return False: there are no GPUs."""
    return False


is_ucc_available = is_xccl_available = is_nccl_available


def is_backend_available(backend: str) -> bool:
    """Whether a program for ``backend`` runs as intended."""
    return {"gloo": True, "mpi": is_mpi_available()}.get(backend.lower(), False)


def is_torchelastic_launched() -> bool:
    """Whether a launcher has started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def init_process_group(
    backend: str | None = None, init_method: str | None = None, timeout: timedelta | None = None,
    world_size: int = -1, rank: int = -1, store: Store | None = None, group_name: str = "", pg_options: object = None,
    device_id: object = None,
) -> None:  # fmt: skip
    """Create the default group: wait until all processes have joined.

    Processes started by MPI communicate through MPI, others over TCP, for any ``backend``; ``"nccl"`` runs on the CPU
    too and warns. ``init_method`` is ``"env://"`` (the variables that torchrun sets), ``"tcp://host:port"`` or
    ``"file:///path"``; or pass a ``store``, with ``rank`` and ``world_size``. With ``"mpi"``, a process without a
    launcher is a group of one. ValueError when it is called twice or a value is missing.

    With TRACECOMP_SHARDS the world size is the number of logical shards.
    """
    if world.default is not None:
        raise ValueError(at_user_line("trying to initialize the default process group twice!"))
    if store is not None and init_method is not None:
        raise AssertionError("Cannot specify both init_method and store.")
    if store is not None and (world_size <= 0 or rank < 0):
        missing = "world_size must be positive" if world_size <= 0 else "rank must be non-negative"
        raise AssertionError(f"{missing} if using store")
    if init_method is not None and not isinstance(init_method, str):
        raise RuntimeError(f"`init_method` must be a string, got {type(init_method).__name__}")
    if timeout is not None and not isinstance(timeout, timedelta):
        raise TypeError(f"Expected timeout argument to be of type datetime.timedelta, got {timeout}")
    name = _known(backend or "gloo")
    seconds = (timeout or default_pg_timeout).total_seconds()
    shards = logical.requested()
    if shards is not None:
        world_size = logical.processes(shards, world_size)
    transport, met_in = meet(name, init_method, rank, world_size, min(seconds, 300.0), store)
    made = groups.begin(transport, seconds, name, group_name or "0", met_in)
    if shards is not None:
        world.plan = ShardPlan(made, shards)
    _log.info("%r", made)
    if "nccl" in name and made.place == 0:
        warn_user(
            "init_process_group(): the backend 'nccl' needs GPUs, and this machine's tensors are on CPUs",
            f"Collectives run on CPUs over {transport.name}",
            "Pass backend='gloo'",
        )


def _members(ranks: Iterable[int] | None, size: int) -> list[int]:
    """Sorted ranks of a new group, all by default."""
    if ranks is None:
        return list(range(size))
    listed = sorted(ranks)
    if len(listed) > size:
        raise ValueError(
            "the new group's world size should be less or equal to the world size set by init_process_group"
        )
    if len({*listed}) < len(listed):
        raise ValueError(f"group ranks contains duplicates: {listed}")
    for rank in listed:
        if not 0 <= rank < size:
            raise ValueError("The new group's rank should be within the world_size set by init_process_group")
    return listed


def new_group(
    ranks: Iterable[int] | None = None, timeout: timedelta | None = None, backend: str | None = None,
    pg_options: object = None, use_local_synchronization: bool = False, group_desc: str | None = None,
    device_id: object = None,
) -> Any:  # fmt: skip
    """Create the group of ``ranks``; NON_GROUP_MEMBER in processes outside it.

    All processes call it alike; with ``use_local_synchronization`` only those of the group need to.
    """
    whole = default_group()
    seconds = whole.seconds if timeout is None else timeout.total_seconds()
    listed = _members(ranks, whole.size())
    name = str(_known(backend or whole.backend))
    if use_local_synchronization:
        made = groups.add_locally(listed, seconds, name)
    else:
        made = groups.add(listed, seconds, name, "")
        whole.worker.run(lambda: whole.barrier(f"new_group({listed})"))
    if made is None:
        return GroupMember.NON_GROUP_MEMBER
    made.group_desc = group_desc or "undefined"
    return made


def split_group(
    parent_pg: Group | None = None, split_ranks: Sequence[Sequence[int]] | None = None,
    timeout: timedelta | None = None, pg_options: object = None, group_desc: str | None = None,
) -> Group | None:  # fmt: skip
    """Create groups of group ranks of ``parent_pg``, and return this process's; None if no list has its rank.

    All processes of the parent call it alike. ValueError for empty or overlapping lists and ranks outside the parent.
    """
    parent = group_of(parent_pg)
    if parent is None or not split_ranks:
        raise ValueError("split_group(): split_ranks must list ranks of a group of this process")
    every = [*itertools.chain.from_iterable(split_ranks)]
    if len({*every}) < len(every) or not {*every} <= {*range(parent.size())} or not all(split_ranks):
        raise ValueError(f"split_group(): split_ranks must be disjoint lists of ranks 0 to {parent.size() - 1}, got "
                         f"{[[*row] for row in split_ranks]}")  # fmt: skip
    own = next((row for row in split_ranks if parent.place in row), None)
    if own is None:
        return None
    ranks = [parent.ranks[place] for place in own]
    made: Group = new_group(ranks, timeout, parent.backend, pg_options, True, group_desc)
    return made


def new_subgroups(
    group_size: int | None = None, group: Any = None, timeout: timedelta | None = None, backend: str | None = None,
    pg_options: object = None, group_desc: str | None = None,
) -> tuple[Any, list[Any]]:  # fmt: skip
    """Neighbours in groups of ``group_size``: this process's group, and all of them."""
    size = get_world_size(group)
    each = int(os.environ.get("LOCAL_WORLD_SIZE", size)) if group_size is None else group_size
    if each <= 0 or size < each:
        raise ValueError(f"The arg 'group_size' ({each}) must be positive and not exceed the world size ({size})")
    if size % each:
        raise ValueError(f"The world size ({size}) must be divisible by '{each = }'")
    lists = [list(range(start, start + each)) for start in range(0, size, each)]
    return new_subgroups_by_enumeration(lists, timeout, backend, pg_options, group_desc)


def new_subgroups_by_enumeration(
    ranks_per_subgroup_list: Sequence[Sequence[int]], timeout: timedelta | None = None, backend: str | None = None,
    pg_options: object = None, group_desc: str | None = None,
) -> tuple[Any, list[Any]]:  # fmt: skip
    """Groups of the listed ranks, of which none appears twice: this process's group, and all of them."""
    if not ranks_per_subgroup_list:
        raise ValueError("The arg 'ranks_per_subgroup_list' cannot be empty")
    every = list(itertools.chain.from_iterable(ranks_per_subgroup_list))
    if len({*every}) < len(every):
        raise ValueError("a rank appears in more than one subgroup")
    made = [new_group(ranks, timeout, backend, pg_options, group_desc=group_desc) for ranks in ranks_per_subgroup_list]
    return next((g for g in made if isinstance(g, Group)), None), made


def destroy_process_group(group: Group | None = None) -> None:
    """Destroy a group; without one, all groups. ValueError if there is none."""
    if group is None or group is world.default:
        default_group()
        groups.end()
    elif isinstance(group, Group):
        if world.groups.get(group.group_name) is not group:
            raise ValueError("Invalid process group specified")
        groups.drop(group)


def default_group() -> Group:
    """The group of all processes. ValueError before ``init_process_group``."""
    if world.default is None:
        raise ValueError(
            at_user_line("Default process group has not been initialized, please make sure to call init_process_group.")
        )
    return world.default


def group_of(group: object) -> Group | None:
    """Return the group of an argument, the default one for None; None if this process is not in it."""
    if group is None:
        return default_group()
    if group == GroupMember.NON_GROUP_MEMBER:
        return None
    if not isinstance(group, Group):
        raise TypeError(f"expected a process group, got {type(group).__name__}")
    if world.groups.get(group.group_name) is not group:
        raise ValueError("Invalid process group specified")
    return group


def member_of(group: object, what: str) -> Group | None:
    """Like ``group_of``, with PyTorch's warning if this process is not in the group."""
    found = group_of(group)
    if found is None:
        warn_as_pytorch(f"Running {what} on global rank {get_rank()} which does not belong to the given group.")
    return found


def get_rank(group: Group | None = None) -> int:
    """This process's rank; -1 in a group that it is not in. ValueError before ``init_process_group``."""
    found = group_of(group)
    return -1 if found is None else found.place


def get_world_size(group: Group | None = None) -> int:
    """The number of processes, or of logical shards (TRACECOMP_SHARDS); -1 for a group that this process is not in."""
    found = group_of(group)
    if world.plan is not None and found is world.default:
        return world.plan.total
    return -1 if found is None else found.size()


def get_backend(group: Group | None = None) -> Backend:
    """Return the requested backend. ``repr(group)`` shows the actual transport."""
    found = group_of(group)
    if found is None:
        raise ValueError("Invalid process group specified")
    return Backend(found.backend)


def get_default_backend_for_device(device: object) -> str:
    """Return ``"gloo"`` for any device."""
    return "gloo"


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """LOCAL_RANK, which launchers set. RuntimeError without it and without ``fallback_rank``."""
    if "LOCAL_RANK" in os.environ:
        return int(os.environ["LOCAL_RANK"])
    if fallback_rank is None:
        raise RuntimeError("LOCAL_RANK is not in the environment. Consider passing fallback_rank.")
    return int(fallback_rank)


def get_process_group_ranks(group: object) -> list[int]:
    """Global ranks of a group, in its order."""
    found = group_of(group)
    return [] if found is None else list(found.ranks)


def get_group_rank(group: object, global_rank: int) -> int:
    """Group rank of a process. ValueError if it is not in the group."""
    found = group_of(group)
    if found is None or global_rank not in found.ranks:
        raise ValueError(f"Global rank {global_rank} is not part of group {group}")
    return found.ranks.index(global_rank)


def get_global_rank(group: object, group_rank: int) -> int:
    """Global rank of a group rank. ValueError if it does not exist."""
    found = group_of(group)
    if found is None or not 0 <= group_rank < found.size():
        raise ValueError(f"Group rank {group_rank} is not part of group {group}")
    return found.ranks[group_rank]


def get_pg_count() -> int:
    """The number of groups with this process."""
    return len(world.groups)


def barrier(group: Group | None = None, async_op: bool = False, device_ids: object = None) -> Any:
    """Return when all processes of the group have called it; with ``async_op``, return a Work that waits for them."""
    found = member_of(group, "barrier")
    if found is None:
        return None
    if async_op:
        return Work(found.worker.submit(found.barrier))
    found.worker.run(found.barrier)
    return None


def monitored_barrier(
    group: Group | None = None, timeout: timedelta | None = None, wait_all_ranks: bool = False
) -> None:
    """A barrier whose error names a rank that did not arrive; all such ranks with ``wait_all_ranks``.

    Rank 0 receives from every other rank, then answers all. RuntimeError after ``timeout``.
    """
    found = member_of(group, "monitored_barrier")
    if found is None or found.size() == 1:
        return
    if timeout is not None and not isinstance(timeout, timedelta):
        raise TypeError(at_user_line(f"monitored_barrier(): timeout must be a timedelta, not {type(timeout).__name__}"))
    seconds = found.seconds if timeout is None else timeout.total_seconds()
    found.worker.run(lambda: _monitored(found, seconds, wait_all_ranks))


def _monitored(found: Group, seconds: float, every: bool) -> None:
    empty, tag = np.empty(0, np.uint8), -2
    if found.place:
        found.send(empty, 0, tag)
        found.receive_within([0], tag, f"monitored_barrier() of {found.group_name!r}", seconds + 5.0)
        return
    missing: list[int] = []
    for rank in range(1, found.size()):
        try:
            found.receive_within([rank], tag, "monitored_barrier()", 0.05 if missing else seconds, False)
        except DistBackendError:
            missing.append(found.ranks[rank])
            if not every:
                break
    if missing:
        named = f"Rank{'s' if len(missing) > 1 else ''} {', '.join(map(str, missing))}"
        why = f"[Rank 0]: {named} failed to pass monitoredBarrier in {seconds * 1000:.0f} ms"
        found.messenger.break_off(found.at("monitored_barrier()"), why)
        raise RuntimeError(why)
    for rank in range(1, found.size()):
        found.send(empty, rank, tag)
