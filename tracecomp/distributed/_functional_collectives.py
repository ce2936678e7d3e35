"""``torch.distributed._functional_collectives``: collectives that return new tensors. Gradients pass through them.

A group is a process group, its name, the list of its ranks, a ``DeviceMesh`` of one dimension, or a mesh and a
dimension. Results are complete when they are returned: ``wait_tensor`` returns at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracecomp.base.errors import at_user_line
from tracecomp.communication.combine import ReduceOp
from tracecomp.communication.group import Group
from tracecomp.communication.world import world
from tracecomp.distributed import collectives, over_shards
from tracecomp.distributed.device_mesh import DeviceMesh
from tracecomp.distributed.nn import functional
from tracecomp.distributed.processes import group_of
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T

__all__ = [
    "AsyncCollectiveTensor", "all_gather_into_tensor_coalesced", "all_gather_tensor", "all_gather_tensor_autograd",
    "all_reduce", "all_reduce_coalesced", "all_to_all_single", "all_to_all_single_autograd", "broadcast",
    "permute_tensor", "reduce_scatter_tensor", "reduce_scatter_tensor_autograd", "reduce_scatter_tensor_coalesced",
    "wait_tensor",
]  # fmt: skip


class AsyncCollectiveTensor(Tensor):
    """PyTorch's class of pending results; no result has this class here."""


def _group(given: Any) -> Group:
    """Return the group of an argument. ValueError for ranks without a group, and groups without this process."""
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], DeviceMesh):
        found: Group | None = given[0].get_group(given[1])
    elif isinstance(given, DeviceMesh):
        found = given.get_group()
    elif isinstance(given, str):
        found = world.named(given)
    elif isinstance(given, list):
        ranks = [r for row in given for r in (row if isinstance(row, list) else [row])]
        made = [g for g in world.groups.values() if [*g.ranks] == ranks]
        if not made:
            raise ValueError(at_user_line(f"no process group has the ranks {ranks}"))
        found = made[0]
    else:
        found = group_of(given)
    if found is None:
        raise ValueError(at_user_line("this process is not in the group"))
    over_shards.refuse(found, "functional collectives")
    return found


def _op(name: str) -> ReduceOp:
    """ValueError for an unknown reduction."""
    found = ReduceOp.__members__.get({"band": "BAND", "bor": "BOR", "bxor": "BXOR"}.get(name.lower(), name.upper()))
    if found is None:
        raise ValueError(at_user_line(f"unknown reduction {name!r}"))
    return found


def wait_tensor(tensor: Tensor) -> Tensor:
    """Return ``tensor``: results are complete when they are returned."""
    return tensor


def broadcast(self: Tensor, src: int, group: Any, tag: str = "") -> Tensor:
    """``self`` of rank ``src``."""
    return functional.broadcast(self, src, _group(group))


def all_reduce(self: Tensor, reduceOp: str, group: Any, tag: str = "") -> Tensor:
    """``self`` of all processes combined: ``"sum"``, ``"avg"``, ``"product"``, ``"min"``, ``"max"``, ``"band"``..."""
    return functional.all_reduce(self, _op(reduceOp), _group(group))


def all_reduce_coalesced(self: Sequence[Tensor], reduceOp: str, group: Any, tag: str = "") -> list[Tensor]:
    """``all_reduce`` of several tensors."""
    return [all_reduce(t, reduceOp, group, tag) for t in self]


def all_gather_tensor(self: Tensor, gather_dim: int, group: Any, tag: str = "") -> Tensor:
    """``self`` of all processes concatenated along ``gather_dim``."""
    return T.cat(list(functional.all_gather(self, _group(group))), dim=gather_dim)


all_gather_tensor_autograd = all_gather_tensor


def all_gather_into_tensor_coalesced(self: Sequence[Tensor], group: Any, tag: str = "") -> list[Tensor]:
    """``all_gather_tensor`` of several tensors along axis 0."""
    return [all_gather_tensor(t, 0, group, tag) for t in self]


def reduce_scatter_tensor(self: Tensor, reduceOp: str, scatter_dim: int, group: Any, tag: str = "") -> Tensor:
    """This process's part along ``scatter_dim`` of ``self`` of all processes combined.

    AssertionError when the parts would not be equal.
    """
    found = _group(group)
    if self.shape[scatter_dim] % found.size():
        raise AssertionError(
            at_user_line(f"input dimension {scatter_dim} ({self.shape[scatter_dim]} must be a multiple of group_size "
                         f"{found.size()})")
        )  # fmt: skip
    parts = [p.contiguous() for p in self.chunk(found.size(), dim=scatter_dim)]
    return functional.reduce_scatter(parts[found.rank()], parts, _op(reduceOp), found)


reduce_scatter_tensor_autograd = reduce_scatter_tensor


def reduce_scatter_tensor_coalesced(
    inputs: Sequence[Tensor], reduceOp: str, scatter_dim: Sequence[int], group: Any, tag: str = ""
) -> list[Tensor]:  # fmt: skip
    """``reduce_scatter_tensor`` of several tensors, each along its own axis."""
    pairs = zip(inputs, scatter_dim, strict=True)
    return [reduce_scatter_tensor(t, reduceOp, dim, group, tag) for t, dim in pairs]


def all_to_all_single(
    self: Tensor, output_split_sizes: list[int] | None, input_split_sizes: list[int] | None, group: Any, tag: str = ""
) -> Tensor:  # fmt: skip
    """Return the rows that every process has for this one: equal parts, or by split sizes, then without gradient."""
    found = _group(group)
    if output_split_sizes is None and input_split_sizes is None:
        return functional.all_to_all_single(self, self, group=found)
    if output_split_sizes is None or input_split_sizes is None:
        raise AssertionError(at_user_line("all_to_all_single(): specify the split sizes of both sides or of neither"))
    result = T.empty((sum(output_split_sizes), *self.shape[1:]), dtype=self.dtype)
    collectives.all_to_all_single(result, self.detach(), output_split_sizes, input_split_sizes, found)
    return result


all_to_all_single_autograd = all_to_all_single


def permute_tensor(self: Tensor, src_dst: list[int], group: Any, tag: str = "") -> Tensor:
    """Return ``self`` of the process r for which ``src_dst[r]`` is this one; such an r must exist."""
    found = _group(group)
    size, me = found.size(), found.rank()
    if sorted(src_dst) != list(range(size)):
        raise AssertionError(at_user_line(f"permute_tensor(): {src_dst} is not a permutation of {size} processes"))
    flat = self.reshape(-1)
    sent = [flat.numel() if r == src_dst[me] else 0 for r in range(size)]
    come = [flat.numel() if r == src_dst.index(me) else 0 for r in range(size)]
    return all_to_all_single(flat, come, sent, found, tag).reshape(self.shape)
