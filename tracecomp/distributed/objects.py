"""Collectives on Python objects, which are sent as pickles: only between processes that trust each other."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np

from tracecomp.base.capture_guide import Section
from tracecomp.communication.combine import share
from tracecomp.communication.group import Group
from tracecomp.distributed import over_shards
from tracecomp.distributed.collectives import place
from tracecomp.distributed.point_to_point import recv, send
from tracecomp.distributed.processes import member_of
from tracecomp.eager.device import Device
from tracecomp.eager.modes import modes
from tracecomp.eager.tensor import wrap

Array = np.ndarray[Any, Any]
_NOTHING = np.empty(0, np.uint8)


def _packed(value: object) -> Array:
    return np.frombuffer(pickle.dumps(value), np.uint8)


def _unpacked(body: Array) -> Any:
    return pickle.loads(body.tobytes())


def _host_group(group: object, what: str) -> Group | None:
    if modes.recorder is not None:
        modes.recorder.refuse_here(f"calls {what}() with Python objects", Section.EXCLUDE)
    return member_of(group, what)


def all_gather_object(object_list: list[Any], obj: object, group: object = None) -> None:
    """``object_list[r]`` becomes the ``obj`` of rank r, or of the process of logical shard r."""
    found = _host_group(group, "all_gather_object")
    if found is None:
        return
    sources = _sources(found, group)
    _check(object_list, len(sources), "object_list")
    bodies = found.worker.run(lambda: found.gather_bytes(_packed(obj), "all_gather_object()"))
    object_list[:] = [_unpacked(bodies[rank]) for rank in sources]


def of_processes(group: Group, obj: object, what: str) -> list[Any]:
    """Return a copy of ``obj`` of every process, which is not of every rank if there are logical shards."""
    bodies = group.worker.run(lambda: group.gather_bytes(_packed(obj), what))
    return [_unpacked(body) for body in bodies]


def _sources(found: Group, group: object) -> Sequence[int]:
    """The process of every rank that the program sees: a rank is a process, or a logical shard of one."""
    plan = over_shards.plan_of(group)
    if plan is None:
        return range(found.size())
    return [rank for rank in range(found.size()) for _ in range(*share(plan.total, rank, found.size()))]


def _check(objects: object, size: int, name: str) -> None:
    if not isinstance(objects, list):
        raise TypeError(f"Expected {name} to be a list, got {type(objects)}")
    if len(objects) != size:
        raise ValueError(f"Expected {name} to have {size} entries, got {len(objects)}")


def gather_object(
    obj: object, object_gather_list: list[Any] | None = None, dst: int | None = None, group: Group | None = None,
    group_dst: int | None = None,
) -> None:  # fmt: skip
    """At rank ``dst`` (0), ``object_gather_list[r]`` becomes the ``obj`` of rank r, or of the process of shard r."""
    found = _host_group(group, "gather_object")
    if found is None:
        return
    root = place(found, 0 if dst is None and group_dst is None else dst, group_dst, "dst")
    if found.place == root and object_gather_list is None:
        raise ValueError("Argument ``gather_list`` must be specified on destination rank.")
    if found.place != root and object_gather_list:
        raise ValueError("Argument ``gather_list`` must NOT be specified on non-destination ranks.")
    to_root = [_packed(obj) if r == root else _NOTHING for r in range(found.size())]
    bodies = found.worker.run(lambda: found.all_to_all(to_root, f"gather_object(to {found.ranks[root]})"))
    if object_gather_list is not None and found.place == root:
        sources = _sources(found, group)
        _check(object_gather_list, len(sources), "object_gather_list")
        object_gather_list[:] = [_unpacked(bodies[rank]) for rank in sources]


def broadcast_object_list(
    object_list: list[Any], src: int | None = None, group: Group | None = None, device: Device = None,
    group_src: int | None = None,
) -> None:  # fmt: skip
    """The entries of rank ``src`` (0) to all, in place."""
    found = _host_group(group, "broadcast_object_list")
    if found is None:
        return
    root = place(found, 0 if src is None and group_src is None else src, group_src, "src")
    mine = _packed(list(object_list)) if found.place == root else _NOTHING
    what = f"broadcast_object_list({len(object_list)} objects from {found.ranks[root]})"
    bodies = found.worker.run(lambda: found.all_to_all([mine] * found.size(), what))
    object_list[:] = _unpacked(bodies[root])


def scatter_object_list(
    scatter_object_output_list: list[Any], scatter_object_input_list: list[Any] | None = None,
    src: int | None = None, group: Group | None = None, group_src: int | None = None,
) -> None:  # fmt: skip
    """``scatter_object_output_list[0]`` becomes ``scatter_object_input_list[rank]`` of rank ``src`` (0)."""
    found = _host_group(group, "scatter_object_list")
    if found is None:
        return
    if not isinstance(scatter_object_output_list, list) or not scatter_object_output_list:
        raise ValueError("Expected argument scatter_object_output_list to be a list of size at least 1.")
    over_shards.refuse(group, "scatter_object_list()")
    root = place(found, 0 if src is None and group_src is None else src, group_src, "src")
    mine = [_NOTHING] * found.size()
    if found.place == root:
        _check(scatter_object_input_list, found.size(), "scatter_object_input_list")
        mine = [_packed(x) for x in scatter_object_input_list or ()]
    what = f"scatter_object_list(from {found.ranks[root]})"
    bodies = found.worker.run(lambda: found.all_to_all(mine, what))
    scatter_object_output_list[0] = _unpacked(bodies[root])


def send_object_list(
    object_list: list[Any], dst: int | None = None, group: Group | None = None, device: Device = None,
    group_dst: int | None = None, use_batch: bool = False,
) -> None:  # fmt: skip
    """Send Python objects to rank ``dst``."""
    body = _packed(list(object_list))
    send(wrap(np.array([body.size])), dst, group, 0, group_dst)
    send(wrap(body.copy()), dst, group, 0, group_dst)


def recv_object_list(
    object_list: list[Any], src: int | None = None, group: Group | None = None, device: Device = None,
    group_src: int | None = None, use_batch: bool = False,
) -> int:  # fmt: skip
    """Receive the objects of ``send_object_list``, in place; return the sending rank."""
    size = wrap(np.zeros(1, np.int64))
    source = recv(size, src, group, 0, group_src)
    if source < 0:
        return source
    body = wrap(np.empty(int(size.item()), np.uint8))
    recv(body, source, group, 0)
    object_list[:] = _unpacked(body.numpy())
    return source
