"""Collectives on tensors. Inside compiled functions they are nodes of the graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tracecomp.base.capture_guide import Section
from tracecomp.base.errors import at_user_line
from tracecomp.communication.combine import ReduceOp
from tracecomp.communication.group import Group
from tracecomp.communication.messages import contiguous
from tracecomp.communication.work import Work
from tracecomp.communication.world import world
from tracecomp.distributed import over_shards
from tracecomp.distributed.processes import get_global_rank, get_group_rank, member_of
from tracecomp.eager.modes import modes, no_grad
from tracecomp.eager.tensor import Tensor, assign_, wrap
from tracecomp.functional import names as T
from tracecomp.ops.prim import prim

Array = np.ndarray[Any, Any]


# ---- arguments


def check_tensor(value: object, name: str) -> None:
    """TypeError with PyTorch's message unless ``value`` is a tensor."""
    if not isinstance(value, Tensor):
        raise TypeError(
            at_user_line(
                f"Invalid function argument. Expected parameter `{name}` of type torch.Tensor\n"
                f"             but got {type(value)} instead."
            )
        )


def check_tensors(values: object, name: str) -> None:
    """TypeError with PyTorch's message unless ``values`` is a list of tensors."""
    if not isinstance(values, list | tuple) or not all(isinstance(v, Tensor) for v in values):
        raise TypeError(
            at_user_line(
                f"Invalid function argument. Expected parameter `{name}` of type List[torch.Tensor]\n"
                f"             but got {type(values)} instead."
            )
        )


def check_op(op: object) -> ReduceOp:
    """TypeError unless ``op`` is a ReduceOp."""
    if not isinstance(op, ReduceOp):
        raise TypeError(at_user_line(f"expected a ReduceOp, got {op!r}"))
    return op


def supports_complex(reduceOp: ReduceOp) -> bool:
    """Whether the reduction supports complex numbers."""
    return reduceOp in (ReduceOp.SUM, ReduceOp.AVG, ReduceOp.PRODUCT, ReduceOp.PREMUL_SUM)


def place(group: Group, rank: int | None, group_rank: int | None, name: str) -> int:
    """Return the group rank of a global rank or of a group rank, exactly one of which is given."""
    if group_rank is not None:
        if rank is not None:
            raise ValueError(f"Can't specify both group_{name} and {name}")
        get_global_rank(group, group_rank)
        return group_rank
    if rank is None:
        raise ValueError(f"Must specify {name} or group_{name}")
    if group is world.default and not 0 <= rank < group.size():
        raise RuntimeError(at_user_line(f"invalid rank: {name}={rank} of {group.size()} processes"))
    return get_group_rank(group, rank)


def _same(name: str, tensors: Sequence[Tensor], like: Tensor) -> None:
    """RuntimeError or ValueError, as in PyTorch, when shapes or dtypes differ."""
    _same_dtype([like, *tensors])
    for t in tensors:
        if t.shape != like.shape:
            raise RuntimeError(
                at_user_line(f"{name}: expected tensors of one shape, got {list(t.shape)} and {list(like.shape)}")
            )


def _same_dtype(tensors: Sequence[Tensor]) -> None:
    """ValueError, as in PyTorch, when dtypes differ."""
    other = next((t for t in tensors if t.dtype is not tensors[0].dtype), None)
    if other is not None:
        raise ValueError(
            at_user_line(f"Invalid usage of tensors with different dtypes Found {other.dtype} and {tensors[0].dtype}")
        )


def _count(name: str, tensors: Sequence[Tensor], group: Group) -> None:
    over_shards.refuse(group, f"{name}()")
    if len(tensors) != group.size():
        raise RuntimeError(
            at_user_line(f"{name}: expected a list of {group.size()} tensors, one for each rank, got {len(tensors)}")
        )


def _real(t: Tensor) -> Tensor:
    """A complex tensor as pairs of real numbers, any other one unchanged."""
    return T.view_as_real(t) if t.dtype.is_complex else t


def contents(t: Tensor) -> Array:
    """The elements, for the host to read."""
    return contiguous(t._read("a communication"))


# ---- running


def _perform(
    group: Group, async_op: bool, inputs: Sequence[Tensor], outputs: Sequence[Tensor], node: Callable[..., object]
) -> Work | None:
    """Run the primitive ``node(*inputs)`` and write its results to ``outputs``, at once or when the Work is waited for.

    During recording, the node is recorded, and the Work is complete.
    """

    def write(results: object) -> Any:
        listed = results if isinstance(results, tuple) else (results,)
        with no_grad():
            for out, result in zip(outputs, listed, strict=True):
                assign_(out, result)
        return list(outputs)

    with no_grad():
        if modes.recorder is not None or not async_op:
            write(node(*inputs))
            return Work.done(list(outputs)) if async_op else None
        op, attrs = node.op, node.attrs  # type: ignore[attr-defined]
        arrays = [contents(t) for t in inputs]
    impl = op.impl
    return Work(group.worker.submit(lambda: _wrapped(impl(*arrays, **attrs))), write)


def _wrapped(results: Any) -> Any:
    return tuple(map(wrap, results)) if isinstance(results, tuple) else wrap(results)


class _Node:
    """A primitive with its attributes."""

    def __init__(self, name: str, **attrs: Any) -> None:
        self._prim = getattr(prim, name)
        self.op, self.attrs = self._prim.op, attrs

    def __call__(self, *operands: Tensor) -> Any:
        return self._prim(*operands, **self.attrs)


# ---- reductions


def all_reduce(
    tensor: Tensor, op: ReduceOp = ReduceOp.SUM, group: object = None, async_op: bool = False
) -> Work | None:
    """``tensor`` of all processes combined, in place. Sums follow one tree over ranks, or over logical shards."""
    plan = over_shards.plan_of(group)
    if plan is not None:
        return over_shards.all_reduce(plan, tensor, check_op(op), async_op, "all_reduce()")
    check_tensor(tensor, "tensor")
    found = member_of(group, "all_reduce")
    if found is None:
        return None
    real = _real(tensor)
    node = _Node("all_reduce", op=check_op(op).name, group=found.group_name, total=found.size())
    return _perform(found, async_op, [real], [real], node)


def all_reduce_coalesced(
    tensors: list[Tensor], op: ReduceOp = ReduceOp.SUM, group: object = None, async_op: bool = False
) -> Work | None:  # fmt: skip
    """``all_reduce`` of several tensors of one dtype as one message."""
    check_tensors(tensors, "tensors")
    found = member_of(group, "all_reduce_coalesced")
    if found is None:
        return None
    _same_dtype(tensors)
    flat = T.cat([_real(t).reshape(-1) for t in tensors]).detach()
    work = all_reduce(flat, op, found, async_op)

    def write(_: object) -> None:
        pieces = flat.split([_real(t).numel() for t in tensors])
        with no_grad():
            for t, piece in zip(tensors, pieces, strict=True):
                _real(t).copy_(piece.reshape(_real(t).shape))

    if work is None:
        write(None)
        return None
    return after(work, write)


def after(work: Work, then: Callable[[Any], object]) -> Work:
    """Return ``work`` with a follow-up that runs when it is waited for."""
    first = work._then

    def both(value: object) -> Any:
        return then(first(value) if first is not None else value)

    return Work(work._value, both)


def reduce(
    tensor: Tensor, dst: int | None = None, op: ReduceOp = ReduceOp.SUM, group: Group | None = None,
    async_op: bool = False, group_dst: int | None = None,
) -> Work | None:  # fmt: skip
    """``tensor`` of all processes combined, at rank ``dst`` in place; unchanged elsewhere."""
    plan = over_shards.plan_of(group)
    if plan is not None:
        root = place(plan.group, dst, group_dst, "dst")
        return over_shards.all_reduce(
            plan, tensor, check_op(op), async_op, f"reduce(to {root})", plan.group.rank() == root
        )
    check_tensor(tensor, "tensor")
    found = member_of(group, "reduce")
    if found is None:
        return None
    root, how, real = place(found, dst, group_dst, "dst"), check_op(op), _real(tensor)
    array = contents(real)
    return _host(found, async_op, lambda: found.reduce(array, how, root), [real] if found.place == root else [])


def _host(
    group: Group, async_op: bool, task: Callable[[], object], outputs: Sequence[Tensor], result: object = None
) -> Work | None:  # fmt: skip
    """Run ``task`` in the group's queue and write the arrays that it returns to ``outputs``."""
    if modes.recorder is not None:
        modes.recorder.refuse_here("calls a collective whose arguments differ between ranks", Section.EXCLUDE)

    def write(arrays: object) -> Any:
        listed = arrays if isinstance(arrays, list | tuple) else [arrays]
        with no_grad():
            for out, array in zip(outputs, listed if outputs else (), strict=True):
                assign_(out, wrap(np.asarray(array)))
        return list(outputs)

    if async_op:
        return Work(group.worker.submit(task), write)
    write(group.worker.run(task))
    return None


def reduce_scatter(
    output: Tensor, input_list: list[Tensor], op: ReduceOp = ReduceOp.SUM, group: object = None, async_op: bool = False
) -> Work | None:  # fmt: skip
    """``output`` becomes the combination of ``input_list[rank]`` of all processes."""
    check_tensor(output, "output")
    check_tensors(input_list, "input_list")
    found = member_of(group, "reduce_scatter")
    if found is None:
        return None
    _count("reduce_scatter", input_list, found)
    how = check_op(op)
    if len({t.shape for t in input_list}) > 1:
        arrays = [contents(_real(t)) for t in input_list]
        return _host(found, async_op, lambda: found.reduce_scatter(arrays, how), [_real(output)])
    _same("reduce_scatter", [output], input_list[found.place])
    node = _Node("reduce_scatter", op=how.name, group=found.group_name, size=found.size(), total=found.size())
    return _perform(found, async_op, [_real(t) for t in input_list], [_real(output)], node)


def reduce_scatter_tensor(
    output: Tensor, input: Tensor, op: ReduceOp = ReduceOp.SUM, group: object = None, async_op: bool = False
) -> Work | None:  # fmt: skip
    """``reduce_scatter`` of the equal parts of ``input``: along axis 0, or stacked there."""
    check_tensor(output, "output")
    check_tensor(input, "input")
    found = member_of(group, "reduce_scatter_tensor")
    if found is None:
        return None
    return reduce_scatter(output, _parts("reduce_scatter_tensor", input, output, found), op, found, async_op)


_reduce_scatter_base = reduce_scatter_tensor


def _parts(name: str, whole: Tensor, part: Tensor, group: Group) -> list[Tensor]:
    """Views of ``whole`` in the shape of ``part``, one for each rank."""
    if whole.numel() != part.numel() * group.size():
        raise RuntimeError(
            at_user_line(
                f"{name}: the larger tensor must have {group.size()} times as many elements as the smaller one, got "
                f"shapes {list(whole.shape)} and {list(part.shape)}"
            )
        )
    return [p.view(part.shape) for p in whole.view(group.size(), -1).unbind(0)]


# ---- the same everywhere


def broadcast(
    tensor: Tensor, src: int | None = None, group: Group | None = None, async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:  # fmt: skip
    """``tensor`` of rank ``src`` to all, in place."""
    check_tensor(tensor, "tensor")
    found = member_of(group, "broadcast")
    if found is None:
        return None
    real = _real(tensor)
    node = _Node("broadcast_from", root=place(found, src, group_src, "src"), group=found.group_name)
    return _perform(found, async_op, [real], [real], node)


def all_gather(
    tensor_list: list[Tensor], tensor: Tensor, group: object = None, async_op: bool = False
) -> Work | None:  # fmt: skip
    """``tensor_list[r]`` becomes the ``tensor`` of rank r, or of logical shard r."""
    check_tensors(tensor_list, "tensor_list")
    plan = over_shards.plan_of(group)
    if plan is not None:
        return over_shards.all_gather(plan, tensor_list, tensor, async_op)
    check_tensor(tensor, "tensor")
    found = member_of(group, "all_gather")
    if found is None:
        return None
    _count("all_gather", tensor_list, found)
    _same("all_gather", tensor_list, tensor)
    node = _Node("all_gather", group=found.group_name, size=found.size())
    return _perform(found, async_op, [_real(tensor)], [_real(t) for t in tensor_list], node)


def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: object = None, async_op: bool = False
) -> Work | None:  # fmt: skip
    """``all_gather`` into one tensor: along axis 0, or stacked there."""
    check_tensor(output_tensor, "output_tensor")
    check_tensor(input_tensor, "input_tensor")
    found = member_of(group, "all_gather_into_tensor")
    if found is None:
        return None
    parts = _parts("all_gather_into_tensor", output_tensor, input_tensor, found)
    return all_gather(parts, input_tensor, found, async_op)


_all_gather_base = all_gather_into_tensor


def all_gather_coalesced(
    output_tensor_lists: list[list[Tensor]], input_tensor_list: list[Tensor], group: object = None,
    async_op: bool = False,
) -> Work | None:  # fmt: skip
    """``output_tensor_lists[r][i]`` becomes ``input_tensor_list[i]`` of rank r."""
    works = [
        all_gather([row[i] for row in output_tensor_lists], t, group, True) for i, t in enumerate(input_tensor_list)
    ]

    def finish(_: object) -> None:
        for work in works:
            if work is not None:
                work.wait()

    last = works[-1] if works else None
    if last is None:
        return None
    if async_op:
        return after(last, finish)
    finish(None)
    return None


# ---- from one, to one


def gather(
    tensor: Tensor, gather_list: list[Tensor] | None = None, dst: int | None = None, group: Group | None = None,
    async_op: bool = False, group_dst: int | None = None,
) -> Work | None:  # fmt: skip
    """At rank ``dst`` (0), ``gather_list[r]`` becomes the ``tensor`` of rank r."""
    check_tensor(tensor, "tensor")
    found = member_of(group, "gather")
    if found is None:
        return None
    root = place(found, 0 if dst is None and group_dst is None else dst, group_dst, "dst")
    if found.place != root and gather_list:
        raise ValueError("Argument ``gather_list`` must NOT be specified on non-destination ranks.")
    if found.place == root:
        if not gather_list:
            raise ValueError("Argument ``gather_list`` must be specified on destination rank.")
        check_tensors(gather_list, "gather_list")
        _count("gather", gather_list, found)
        _same("gather", gather_list, tensor)
    array = contents(_real(tensor))
    return _host(found, async_op, lambda: found.gather(array, root), [_real(t) for t in gather_list or ()])


def scatter(
    tensor: Tensor, scatter_list: list[Tensor] | None = None, src: int | None = None, group: Group | None = None,
    async_op: bool = False, group_src: int | None = None,
) -> Work | None:  # fmt: skip
    """``tensor`` becomes ``scatter_list[rank]`` of rank ``src`` (0)."""
    check_tensor(tensor, "tensor")
    found = member_of(group, "scatter")
    if found is None:
        return None
    root = place(found, 0 if src is None and group_src is None else src, group_src, "src")
    if found.place != root and scatter_list:
        raise ValueError("Argument ``scatter_list`` must NOT be specified on non-source ranks.")
    if found.place == root:
        if not scatter_list:
            raise ValueError("Argument ``scatter_list`` must be specified on source rank.")
        check_tensors(scatter_list, "scatter_list")
        _count("scatter", scatter_list, found)
        _same("scatter", scatter_list, tensor)
    arrays, like = [contents(_real(t)) for t in scatter_list or ()], contents(_real(tensor))
    return _host(found, async_op, lambda: found.scatter(arrays, like, root), [_real(tensor)])


# ---- all to all


def all_to_all(
    output_tensor_list: list[Tensor], input_tensor_list: list[Tensor], group: object = None,
    async_op: bool = False,
) -> Work | None:  # fmt: skip
    """Set ``output_tensor_list[r]`` to the element for this process in rank r's ``input_tensor_list``."""
    check_tensors(output_tensor_list, "output_tensor_list")
    check_tensors(input_tensor_list, "input_tensor_list")
    found = member_of(group, "all_to_all")
    if found is None:
        return None
    for tensors in (output_tensor_list, input_tensor_list):
        _count("all_to_all", tensors, found)
    _same_dtype([*output_tensor_list, *input_tensor_list])
    outs, ins = [_real(t) for t in output_tensor_list], [_real(t) for t in input_tensor_list]
    if len({(t.shape, t.dtype) for t in (*outs, *ins)}) == 1:
        return _perform(found, async_op, ins, outs, _Node("all_to_all", group=found.group_name, size=found.size()))
    arrays = [contents(t) for t in ins]
    likes = [np.broadcast_to(np.empty((), t.dtype.numpy), tuple(t.shape)) for t in outs]
    return _host(found, async_op, lambda: found.swap(arrays, likes), outs)


def all_to_all_single(
    output: Tensor, input: Tensor, output_split_sizes: list[int] | None = None,
    input_split_sizes: list[int] | None = None, group: object = None, async_op: bool = False,
) -> Work | None:  # fmt: skip
    """``all_to_all`` of rows: equal parts of axis 0, or by split sizes."""
    check_tensor(output, "output")
    check_tensor(input, "input")
    found = member_of(group, "all_to_all_single")
    if found is None:
        return None
    ins = _rows("input", input, input_split_sizes, found)
    outs = _rows("output", output, output_split_sizes, found)
    return all_to_all(outs, ins, found, async_op)


def _rows(name: str, t: Tensor, sizes: list[int] | None, group: Group) -> list[Tensor]:
    if sizes:
        if len(sizes) != group.size() or sum(sizes) != t.shape[0]:
            raise RuntimeError(
                at_user_line(f"all_to_all_single: {name} splits {sizes} do not fit axis 0 of {list(t.shape)}")
            )
        return list(t.split(sizes))
    if not t.ndim or t.shape[0] % group.size():
        raise RuntimeError(
            at_user_line(f"Tensor's dim 0 does not divide equally across group size: {list(t.shape)}, {group.size()}")
        )
    return list(t.chunk(group.size()))
