"""The derivative of ``while_loop``, whose number of steps is known only when it runs.

The derivative of step k needs the carries before it. A loop first runs forwards again and keeps them at every
*stride*-th step in a fixed number of slots. When all slots are full, the stride doubles and every second slot is freed.
A second loop runs backwards. If the current state is the one before step k, a round takes the derivative of step k.
Otherwise it runs one step forwards from the nearest slot, keeping states in free slots. Memory is therefore fixed. Up
to ``SLOTS`` steps, no step is repeated; of 1000 steps each is repeated once, of 30000 two or three times, by the
schedule below.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from tracecomp.ir.graph import Graph
from tracecomp.ir.op import Operand, Operands
from tracecomp.ir.types import TensorType, int64
from tracecomp.ops.autodiff import Sym, scalar_of
from tracecomp.ops.prim import prim
from tracecomp.ops.regions import Types, backward_region, float_places, inline, input_types

SLOTS = 64
"""States of a loop that are kept, for any length; others are computed again from the last kept one."""
_COUNT = TensorType(int64, ())
_STEPS = TensorType(int64, (SLOTS,))


def while_vjp(grads: Operands, outs: Operands, ins: Operands, *, test: Graph, body: Graph, carries: int) -> Any:
    """Gradients of the first carries and of the consts; integers have none."""
    types = input_types(body)
    state, consts = ins[:carries], ins[carries:]
    carry_floats, const_floats = float_places(types[:carries]), float_places(types[carries:])
    zero, none = _number(ins[0], 0), prim.full(like=ins[0], value=-1, shape=(SLOTS,), dtype=int64)
    forwards = _looped(
        (zero, _number(ins[0], 1), none, *map(_slots, state), *state), consts,
        _on_state(test, carries, 3 + carries), _keeping(body, carries),
    )  # fmt: skip
    steps, kept, slots = forwards[0], forwards[2], forwards[3 : 3 + carries]
    k = prim.sub(steps, 1)
    position = prim.max(kept, axes=(0,))
    numbers = (k, position, _next(position, k, _free(kept)), kept)
    start = [_take(s, prim.argmax(kept, axes=(0,))) for s in slots]
    totals = [*(grads[i] for i in carry_floats), *(_zeros(consts[i]) for i in const_floats)]
    found = _looped((*numbers, *slots, *start, *totals), consts, _going_back(body, carries), _backwards(body, carries))
    gradients = iter(found[len(found) - len(totals) :])
    return [next(gradients) if t.dtype.differentiable else None for t in types]


def _looped(carried: Operands, consts: Operands, test: Graph, body: Graph) -> tuple[Any, ...]:
    return tuple(prim.while_loop(*carried, *consts, test=test, body=body, carries=len(carried)))


@lru_cache(maxsize=256)
def _on_state(test: Graph, carries: int, others: int) -> Graph:
    """The loop's own test, for a loop that carries ``others`` before the state."""
    types = input_types(test)
    slots = tuple(map(_slots_type, types[:carries]))
    graph, given = _region(f"{test.name}_kept", (_COUNT, _COUNT, _STEPS, *slots, *types))
    for value in inline(graph, test, [x.value for x in given[others:]]):
        graph.add_output(value)
    return graph


@lru_cache(maxsize=256)
def _keeping(body: Graph, carries: int) -> Graph:
    """Build a step forwards that keeps the state before it, if it is due. Carries: number of steps, stride, the kept
    step of each slot (-1: free), the slots, the state."""
    types = input_types(body)
    slot_types = tuple(map(_slots_type, types[:carries]))
    graph, given = _region(f"{body.name}_kept", (_COUNT, _COUNT, _STEPS, *slot_types, *types))
    step, stride, kept = given[:3]
    slots, state = given[3 : 3 + carries], given[3 + carries : 3 + 2 * carries]
    full = prim.all(prim.ge(kept, 0), axes=(0,))
    doubled = prim.bitwise_and(full, _divides(stride, step))
    stride = prim.where(doubled, prim.mul(stride, 2), stride)
    kept = prim.where(_divides(stride, kept), kept, -1)
    due = _divides(stride, step)
    kept, place = _occupied(kept, due, step)
    results = [prim.add(step, 1), stride, kept, *_written(slots, place, state)]
    after = inline(graph, body, [x.value for x in given[3 + carries :]])
    return _closed(graph, [*results, *(Sym(graph, v) for v in after)])


@lru_cache(maxsize=256)
def _going_back(body: Graph, carries: int) -> Graph:
    """Whether a step is left to differentiate."""
    graph, given = _region(f"{body.name}_left", _backward_types(body, carries))
    return _closed(graph, [prim.ge(given[0], 0)])


def _backward_types(body: Graph, carries: int) -> Types:
    types = input_types(body)
    slots, totals = map(_slots_type, types[:carries]), [t for t in types if t.dtype.differentiable]
    return (_COUNT, _COUNT, _COUNT, _STEPS, *slots, *types[:carries], *totals, *types[carries:])


@lru_cache(maxsize=256)
def _backwards(body: Graph, carries: int) -> Graph:
    """Build a round of the backward loop. Carries: first the step to differentiate, the step of the current state, the
    next one to keep, and the kept step of each slot. Then the slots, the state, gradients of the carries and sums of
    those of the consts."""
    types = _backward_types(body, carries)
    graph, given = _region(f"{body.name}_backwards", types)
    k, position, upcoming, kept = given[:4]
    slots, rest = given[4 : 4 + carries], given[4 + carries :]
    back = prim.eq(position, k)
    then, orelse = _step_back(body, carries), _step_on(body, carries)
    found = list(prim.cond(back, *rest, then=then, orelse=orelse))
    state, totals = found[:carries], found[carries:]
    kept = prim.where(prim.bitwise_and(back, prim.ge(kept, k)), -1, kept)
    k = prim.where(back, prim.sub(k, 1), k)
    nearest = prim.argmax(kept, axes=(0,))
    position = prim.where(back, prim.max(kept, axes=(0,)), prim.add(position, 1))
    state = [prim.where(back, _take(s, nearest), x) for s, x in zip(slots, state, strict=True)]
    arrived = prim.bitwise_and(prim.logical_not(back), prim.eq(position, upcoming))
    kept, place = _occupied(kept, prim.bitwise_and(arrived, prim.gt(_free(kept), 0)), position)
    upcoming = prim.where(prim.bitwise_or(back, arrived), _next(position, k, _free(kept)), upcoming)
    return _closed(graph, [k, position, upcoming, kept, *_written(slots, place, state), *state, *totals])


@lru_cache(maxsize=256)
def _step_back(body: Graph, carries: int) -> Graph:
    """From state, gradients after the step and sums, the same with gradients before it."""
    types = input_types(body)
    n = len(float_places(types[:carries]))
    graph, given = _region(f"{body.name}_back", _backward_types(body, carries)[4 + carries :])
    state, consts = given[:carries], given[len(given) - (len(types) - carries) :]
    totals = given[carries : len(given) - len(consts)]
    operands = [x.value for x in (*state, *consts, *totals[:n])]
    found = [Sym(graph, v) for v in inline(graph, backward_region(body), operands)]
    sums = [prim.add(total, g) for total, g in zip(totals[n:], found[n:], strict=True)]
    return _closed(graph, [*state, *found[:n], *sums])


@lru_cache(maxsize=256)
def _step_on(body: Graph, carries: int) -> Graph:
    """From state, gradients and sums, the same with the state after the step."""
    types = input_types(body)
    graph, given = _region(f"{body.name}_on", _backward_types(body, carries)[4 + carries :])
    consts = given[len(given) - (len(types) - carries) :]
    after = inline(graph, body, [x.value for x in (*given[:carries], *consts)])
    return _closed(graph, [*(Sym(graph, v) for v in after), *given[carries : len(given) - len(consts)]])


# ---- steps, slots and the schedule


def _next(position: Operand, k: Operand, free: Operand) -> Any:
    """The next step to keep between ``position`` and ``k``: strides of twice those that would fill the free slots.

    The other slots are for the steps inside the strides; with no free slot, it is after ``k``.
    """
    doubled = prim.mul(prim.sub(k, position), 2)
    return prim.add(position, prim.floor_divide(prim.add(doubled, free), prim.add(free, 1)))


def _divides(stride: Operand, step: Operand) -> Any:
    return prim.eq(prim.remainder(step, stride), 0)


def _free(kept: Operand) -> Any:
    return prim.sum(prim.cast(prim.lt(kept, 0), dtype=int64), axes=(0,))


def _occupied(kept: Operand, wanted: Operand, step: Operand) -> tuple[Any, Any]:
    """``kept`` with ``step`` in a free slot if ``wanted``, and that slot; else the unused slot."""
    place = prim.argmin(kept, axes=(0,))
    numbers = prim.iota(like=kept, shape=(SLOTS,), axis=0, dtype=int64)
    kept = prim.where(prim.bitwise_and(prim.eq(numbers, place), wanted), step, kept)
    return kept, prim.where(wanted, place, SLOTS)


def _written(slots: Operands, place: Operand, state: Operands) -> list[Any]:
    return [prim.put(s, place, x, axis=0, mode="set") for s, x in zip(slots, state, strict=True)]


def _take(slots: Operand, place: Operand) -> Any:
    return prim.take(slots, place, axis=0)


def _slots_type(t: TensorType) -> TensorType:
    return TensorType(t.dtype, (SLOTS + 1, *t.shape))


def _slots(x: Operand) -> Any:
    """Memory for ``SLOTS`` states, and for one that is overwritten when no state is kept."""
    return prim.full(like=x, value=scalar_of(0, x.dtype), shape=(SLOTS + 1, *x.shape), dtype=x.dtype)


def _zeros(x: Operand) -> Any:
    return prim.full(like=x, value=0.0, shape=tuple(x.shape), dtype=x.dtype)


def _number(like: Operand, value: int) -> Any:
    return prim.full(like=like, value=value, shape=(), dtype=int64)


def _region(name: str, types: Sequence[TensorType]) -> tuple[Graph, list[Sym]]:
    graph = Graph(name)
    return graph, [Sym(graph, graph.add_input(t, f"in{i}")) for i, t in enumerate(types)]


def _closed(graph: Graph, results: Sequence[Sym]) -> Graph:
    for x in results:
        graph.add_output(x.value)
    return graph
