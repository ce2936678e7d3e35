"""Collectives of the default group over the logical shards of TRACECOMP_SHARDS, each of which acts as a process."""

from __future__ import annotations

from collections.abc import Sequence

from tracecomp.base.errors import at_user_line
from tracecomp.communication.combine import ReduceOp, share
from tracecomp.communication.work import Work
from tracecomp.communication.world import world
from tracecomp.eager.modes import no_grad
from tracecomp.eager.tensor import Tensor, assign_
from tracecomp.functional import names as T
from tracecomp.nn.parallel.shard_values import Shards
from tracecomp.nn.parallel.shards import ShardPlan
from tracecomp.ops.prim import prim


def plan_of(group: object) -> ShardPlan | None:
    """The logical shards of a group, or None."""
    plan = world.plan
    return plan if isinstance(plan, ShardPlan) and group in (None, plan.group) else None


def _parts(plan: ShardPlan, tensor: Tensor | Shards, what: str) -> Sequence[Tensor]:
    """The values of this process's shards: a tensor is the same in all."""
    if isinstance(tensor, Shards):
        return [t.detach() for t in tensor.parts]
    plan.check_same(what, [tensor])
    return [tensor.detach()] * len(plan.own)


def all_reduce(
    plan: ShardPlan, tensor: Tensor | Shards, op: ReduceOp, async_op: bool, what: str, writes: bool = True
) -> Work | None:  # fmt: skip
    """Combine ``tensor`` of all shards, in place if it ``writes``."""
    with no_grad():
        parts = [T.view_as_real(t) if t.dtype.is_complex else t for t in _parts(plan, tensor, what)]
        total = prim.all_reduce(*parts, op=op.name, group=plan.group.group_name, total=plan.total)
        found = T.view_as_complex(total) if tensor.dtype.is_complex else total
        if isinstance(tensor, Shards):
            if writes:
                tensor.become(found)
        elif writes:
            assign_(tensor, found)
    return Work.done([tensor]) if async_op else None


def all_gather(plan: ShardPlan, outputs: Sequence[Tensor], tensor: Tensor | Shards, async_op: bool) -> Work | None:
    """``outputs[i]`` becomes ``tensor`` of shard i."""
    if len(outputs) != plan.total:
        raise RuntimeError(
            at_user_line(f"all_gather: expected a list of {plan.total} tensors, one for each shard, got {len(outputs)}")
        )
    with no_grad():
        parts, size = _parts(plan, tensor, "all_gather()"), plan.group.size()
        for rank in range(size):
            for i in range(*share(plan.total, rank, size)):
                mine = parts[i - plan.own.start] if i in plan.own else T.zeros_like(parts[0])
                sent = prim.broadcast_from(mine, root=rank, group=plan.group.group_name)
                assign_(outputs[i], sent)
    return Work.done(list(outputs)) if async_op else None


def refuse(group: object, what: str) -> None:
    """RuntimeError with logical shards: the operation exchanges values between single processes."""
    if plan_of(group) is not None:
        raise RuntimeError(at_user_line(f"{what} is not supported with TRACECOMP_SHARDS. Use all_reduce or all_gather"))
