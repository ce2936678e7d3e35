"""Collectives that return new tensors. Gradients are those of the sum of all processes' losses."""

from __future__ import annotations

from collections.abc import Sequence

from tracecomp.communication.combine import ReduceOp
from tracecomp.communication.group import Group
from tracecomp.distributed import over_shards
from tracecomp.distributed.collectives import check_op, check_tensor, check_tensors
from tracecomp.distributed.processes import get_group_rank, group_of
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.ir.types import bool_ as T_bool
from tracecomp.ops.prim import prim


def _member(group: object) -> Group:
    found = group_of(group)
    if found is None:
        raise ValueError("this process is not in the group")
    over_shards.refuse(found, "functional collectives")
    return found


def all_reduce(tensor: Tensor, op: ReduceOp = ReduceOp.SUM, group: object = None) -> Tensor:
    """``tensor`` of all processes combined. SUM and AVG have derivatives."""
    check_tensor(tensor, "tensor")
    found = _member(group)
    result: Tensor = prim.all_reduce(tensor, op=check_op(op).name, group=found.group_name, total=found.size())
    return result


def broadcast(tensor: Tensor, src: int, group: object = None) -> Tensor:
    """``tensor`` of rank ``src``."""
    check_tensor(tensor, "tensor")
    found = _member(group)
    result: Tensor = prim.broadcast_from(tensor, root=get_group_rank(found, src), group=found.group_name)
    return result


def all_gather(tensor: Tensor, group: object = None) -> tuple[Tensor, ...]:
    """The ``tensor`` of every process."""
    check_tensor(tensor, "tensor")
    found = _member(group)
    return tuple(prim.all_gather(tensor, group=found.group_name, size=found.size()))


def reduce(tensor: Tensor, dst: int, op: ReduceOp = ReduceOp.SUM, group: object = None) -> Tensor:
    """At rank ``dst`` the ``tensor`` of all processes combined, elsewhere that of this one, without gradient."""
    found = _member(group)
    total = all_reduce(tensor, op, found)
    return total if found.place == get_group_rank(found, dst) else _only_called(total, tensor)


def _only_called(result: Tensor, value: Tensor) -> Tensor:
    """Return ``value``, with zero gradients for ``result``: other processes wait for its backward pass."""
    return T.where(T.zeros((), dtype=T_bool), result, value.detach())


def gather(tensor: Tensor, dst: int = 0, group: object = None) -> tuple[Tensor, ...]:
    """At rank ``dst`` the ``tensor`` of every process, elsewhere zeros."""
    found = _member(group)
    rows = all_gather(tensor, found)
    if found.place == get_group_rank(found, dst):
        return rows
    return tuple(_only_called(row, T.zeros_like(row)) for row in rows)


def scatter(tensors: Sequence[Tensor], src: int = 0, group: object = None) -> Tensor:
    """``tensors[rank]`` of rank ``src``; other ranks' lists, which must be as long, get zeros for gradients."""
    check_tensors(tensors, "tensors")
    found = _member(group)
    rows = prim.all_to_all(*tensors, group=found.group_name, size=found.size())
    result: Tensor = rows[get_group_rank(found, src)] if isinstance(rows, tuple) else rows
    return result


def reduce_scatter(
    output: Tensor, input_list: Sequence[Tensor], op: ReduceOp = ReduceOp.SUM, group: object = None
) -> Tensor:  # fmt: skip
    """``input_list[rank]`` of all processes combined; ``output`` is ignored."""
    check_tensors(input_list, "input_list")
    found = _member(group)
    size = found.size()
    result: Tensor = prim.reduce_scatter(
        *input_list, op=check_op(op).name, group=found.group_name, size=size, total=size
    )
    return result


def all_to_all(
    output_tensor_list: Sequence[Tensor], input_tensor_list: Sequence[Tensor], group: object = None
) -> tuple[Tensor, ...]:  # fmt: skip
    """Return the element for this process of every process; all have one shape. The first list is ignored."""
    check_tensors(input_tensor_list, "input_tensor_list")
    found = _member(group)
    return tuple(prim.all_to_all(*input_tensor_list, group=found.group_name, size=found.size()))


def all_to_all_single(
    output: Tensor, input: Tensor, output_split_sizes: object = None, input_split_sizes: object = None,
    group: object = None,
) -> Tensor:  # fmt: skip
    """``all_to_all`` of equal parts of axis 0. ValueError for split sizes."""
    if output_split_sizes is not None or input_split_sizes is not None:
        raise ValueError("all_to_all_single(): gradients need equal split sizes")
    found = _member(group)
    return T.cat(list(all_to_all((), list(input.chunk(found.size())), found)))
