"""Collectives: values that all processes of a group compute together, run by the host.

``group`` is a group's name (``communication/world.py``); a process alone is the group ``""``. Every process runs the
same nodes in the same order. Derivatives are those of a program whose loss is the sum of all processes' losses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tracecomp.communication import combine
from tracecomp.communication.combine import ReduceOp
from tracecomp.communication.messages import contiguous
from tracecomp.communication.world import SELF, world
from tracecomp.ir.op import External, Op, Sample, register
from tracecomp.ir.types import TensorType
from tracecomp.ops.define import bad, of, require
from tracecomp.ops.prim import prim

if TYPE_CHECKING:  # below, and loaded with the first group: a single process does not need it
    from tracecomp.communication.group import Group


def _together(group: str, run: Callable[[Group], object], alone: Callable[[], object]) -> Any:
    """Return the result of ``run`` on the group's collectives; ``alone`` without other processes."""
    if group == SELF:
        return alone()
    found = world.named(group)
    return found.worker.run(lambda: run(found))


def with_others(op: Op, attrs: Mapping[str, Any]) -> bool:
    """Whether ``op`` involves other processes."""
    return op.communicates and attrs["group"] != SELF and world.named(attrs["group"]).size() > 1


def _start(run: Callable[[], Any], attrs: Mapping[str, Any]) -> Callable[[], Any]:
    """Start ``run``, a collective, on the group's thread; return the function that waits for it."""
    if attrs["group"] == SELF or world.named(attrs["group"]).size() == 1:
        found = run()
        return lambda: found
    return world.named(attrs["group"]).worker.submit(run).result


_BESIDE = External(start=_start)


def _one_type(name: str, types: Sequence[TensorType]) -> TensorType:
    listed = ", ".join(map(str, types))
    require(len({*types}) == 1, RuntimeError, f"{name}: expected operands of one shape and dtype, got {listed}")
    return types[0]


def _pieces(name: str, types: Sequence[TensorType], size: int) -> TensorType:
    """The types of the pieces; there is one for each process."""
    require(
        len(types) == size, RuntimeError, f"{name}: expected one operand for each of {size} processes, got {len(types)}"
    )
    return _one_type(name, types)


# ---- all_reduce


def _reduced(*leaves: Any, op: str, group: str, total: int) -> Any:
    how = ReduceOp[op]
    return _together(group, lambda g: g.all_reduce(leaves, how, total), lambda: combine.alone(how, leaves))


def _reduced_infer(*types: TensorType, op: str, group: str, total: int) -> TensorType:
    require(op in ReduceOp.__members__, ValueError, f"all_reduce: unknown operation {op!r}")
    return _one_type("all_reduce", types)


def _reduced_vjp(
    grads: Sequence[object], outs: Sequence[object], ins: Sequence[object], *, op: str, group: str, total: int
) -> Any:
    require(op in ("SUM", "AVG"), RuntimeError, f"all_reduce: {op} is not differentiable; use SUM or AVG")
    size = 1 if group == SELF else world.named(group).size()
    found = prim.all_reduce(grads[0], op="SUM", group=group, total=size)
    return [prim.div(found, float(total)) if op == "AVG" else found] * len(ins)


register(
    Op(
        name="all_reduce", kind="external",
        doc="operands of all processes combined along one binary tree over `total` leaves, of which each has its share "
            "or the largest nodes over its share",
        infer=_reduced_infer, impl=_reduced, vjp=_reduced_vjp, saves=(), loop=_BESIDE,
        attrs={"op": str, "group": str, "total": int},
        samples=tuple(
            Sample(args, {"op": op, "group": SELF, "total": len(args)})
            for op, args in (
                ("SUM", (of("f32", 3, 2),)), ("SUM", (of("f64", 5), of("f64", 5), of("f64", 5))),
                ("AVG", (of("f32", 4), of("f32", 4))),
            )
        ),
        errors=(
            bad(RuntimeError, "operands of one shape", of("f32", 2), of("f32", 3), op="SUM", group="", total=2),
            bad(ValueError, "unknown operation", of("f32", 2), op="MEDIAN", group="", total=1),
        ),
    )
)  # fmt: skip


# ---- broadcast_from


def _sent(x: Any, *, root: int, group: str) -> Any:
    return _together(group, lambda g: g.broadcast(contiguous(x), root), x.copy)


def _sent_vjp(grads: Sequence[object], outs: Sequence[object], ins: Sequence[object], *, root: int, group: str) -> Any:
    size, place = (1, 0) if group == SELF else (world.named(group).size(), world.named(group).rank())
    found = prim.all_reduce(grads[0], op="SUM", group=group, total=size)
    return (found if place == root else prim.mul(found, 0.0),)


register(
    Op(
        name="broadcast_from", kind="external", doc="the operand of process `root`",
        infer=lambda x, *, root, group: x, impl=_sent, vjp=_sent_vjp, saves=(), loop=_BESIDE,
        attrs={"root": int, "group": str},
        samples=tuple(Sample((of(t, 3, 2),), {"root": 0, "group": SELF}) for t in ("f32", "f64")),
    )
)  # fmt: skip


# ---- all_gather, reduce_scatter, all_to_all


def _gathered(x: Any, *, group: str, size: int) -> Any:
    return _together(group, lambda g: tuple(g.all_gather(contiguous(x))), lambda: (x.copy(),))


def _gathered_vjp(
    grads: Sequence[object], outs: Sequence[object], ins: Sequence[object], *, group: str, size: int
) -> Any:
    return (prim.reduce_scatter(*_all(grads), op="SUM", group=group, size=size, total=size),)


def _all(grads: Sequence[object]) -> list[Any]:
    """Gradients of all results; zeros for unused ones."""
    known = next(g for g in grads if g is not None)
    return [prim.mul(known, 0.0) if g is None else g for g in grads]


def _listed(results: object) -> Sequence[Any]:
    """The results of a primitive as a list, even if there is one."""
    return results if isinstance(results, tuple) else (results,)


def _scattered_infer(*types: TensorType, op: str, group: str, size: int, total: int) -> TensorType:
    require(
        len(types) % size == 0 and bool(types), RuntimeError,
        f"reduce_scatter: expected one operand for each of {size} processes, got {len(types)}",
    )  # fmt: skip
    return _one_type("reduce_scatter", types)


def _scattered(*pieces: Any, op: str, group: str, size: int, total: int) -> Any:
    how = ReduceOp[op]
    return _together(group, lambda g: g.reduce_scatter(pieces, how, total), lambda: combine.alone(how, pieces))


def _scattered_vjp(
    grads: Sequence[object],
    outs: Sequence[object],
    ins: Sequence[object],
    *,
    op: str,
    group: str,
    size: int,
    total: int,
) -> Any:
    require(op in ("SUM", "AVG"), RuntimeError, f"reduce_scatter: {op} is not differentiable; use SUM or AVG")
    found = _listed(prim.all_gather(grads[0], group=group, size=size))
    return [prim.div(g, float(total)) if op == "AVG" else g for g in found] * (len(ins) // size)


def _swapped(*pieces: Any, group: str, size: int) -> Any:
    return _together(group, lambda g: tuple(g.swap(pieces, pieces)), lambda: tuple(p.copy() for p in pieces))


def _swapped_vjp(
    grads: Sequence[object], outs: Sequence[object], ins: Sequence[object], *, group: str, size: int
) -> Any:
    return _listed(prim.all_to_all(*_all(grads), group=group, size=size))


register(
    Op(
        name="all_gather", kind="external", doc="the operands of all `size` processes, one result each",
        infer=lambda x, *, group, size: (x,) * size, impl=_gathered, vjp=_gathered_vjp, saves=(), loop=_BESIDE,
        attrs={"group": str, "size": int},
        samples=tuple(Sample((of(t, 3, 2),), {"group": SELF, "size": 1}) for t in ("f32", "f64")),
    )
)  # fmt: skip
register(
    Op(
        name="reduce_scatter", kind="external",
        doc="leaf by leaf, one operand for each of `size` processes; those for this one combined along one "
            "binary tree over `total` leaves",
        infer=_scattered_infer, impl=_scattered, vjp=_scattered_vjp, saves=(), loop=_BESIDE,
        attrs={"op": str, "group": str, "size": int, "total": int},
        samples=tuple(
            Sample(args, {"op": op, "group": SELF, "size": 1, "total": len(args)})
            for op, args in (("SUM", (of("f32", 3, 2),)), ("AVG", (of("f64", 5), of("f64", 5), of("f64", 5))))
        ),
        errors=(
            bad(RuntimeError, "one operand for each", of("f32", 2), op="SUM", group="", size=2, total=2),
            bad(RuntimeError, "operands of one shape", of("f32", 2), of("f32", 3), op="SUM", group="", size=1, total=2),
        ),
    )
)  # fmt: skip
register(
    Op(
        name="all_to_all", kind="external", doc="one operand for each process; what all processes have for this one",
        infer=lambda *types, group, size: (_pieces("all_to_all", types, size),) * size, impl=_swapped,
        vjp=_swapped_vjp, saves=(), loop=_BESIDE, attrs={"group": str, "size": int},
        samples=tuple(Sample((of(t, 3, 2),), {"group": SELF, "size": 1}) for t in ("f32", "f64")),
        errors=(bad(RuntimeError, "one operand for each", of("f32", 2), of("f32", 2), group="", size=1),),
    )
)  # fmt: skip
