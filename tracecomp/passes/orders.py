"""Physical orders of values: how an order of axes carries over from a node's operands to its result and back.

An order ``p`` of a value says that it is kept as ``permute(value, p)``. Only orders of neighbours in a chain matter
here; the values themselves stay what they are.
"""

from __future__ import annotations

from tracecomp.ir.graph import Node, Value
from tracecomp.ir.types import Shape

Order = tuple[int, ...]

SAME_RANK = ("pad", "slice", "flip", "concat", "expand")
REDUCTIONS = ("sum", "prod", "max", "min", "any", "all")
CONVOLUTIONS = ("conv", "conv_weight")


def identity(rank: int) -> Order:
    return tuple(range(rank))


def channels_last(rank: int) -> Order:
    return (0, *range(2, rank), 1)


def moves_only_ones(shape: Shape, order: Order) -> bool:
    """Whether the order leaves memory as it is."""
    moved = [d for d in order if shape[d] != 1]
    return moved == sorted(moved)


def is_flexible(node: Node) -> bool:
    """Whether the node can run in any order of axes, and hands its operands' order on."""
    if node.op.name == "reshape":
        return adds_ones(node.inputs[0].shape, node.outputs[0].shape)
    if node.op.name in REDUCTIONS:
        return node.outputs[0].ndim >= 3
    if node.op.name == "expand":
        return node.inputs[0].ndim == node.outputs[0].ndim
    return node.op.kind == "elementwise" or node.op.name in (*SAME_RANK, *CONVOLUTIONS, "windows", "fold")


def adds_ones(source: Shape, target: Shape) -> bool:
    """Whether two shapes differ by axes of size 1 only."""
    return len(source) >= 3 and len(target) >= 3 and [n for n in source if n != 1] == [n for n in target if n != 1]


def linked(node: Node) -> tuple[Value, ...]:
    """The operands and results of a flexible node that had best be kept in related orders."""
    result = node.outputs[0]
    if node.op.name == "conv":
        return (node.inputs[0], result)
    if node.op.name == "conv_weight":
        return node.inputs
    if node.op.kind == "elementwise":
        return (*(v for v in node.inputs if v.ndim == result.ndim), result)
    return (*node.inputs, result)


def forward(node: Node, operand: Value, order: Order) -> Order | None:
    """The order of the node's result when ``operand`` is kept in ``order``; None when it does not carry over."""
    name, result = node.op.name, node.outputs[0]
    if node.op.kind == "elementwise" or name in SAME_RANK:
        return order if operand.ndim == result.ndim else None
    if name == "reshape":
        return _with_ones(operand.shape, result.shape, order)
    if name == "windows":
        return (*order, *range(operand.ndim, result.ndim))
    if name == "fold":
        rank = result.ndim
        return order[:rank] if order[rank:] == tuple(range(rank, operand.ndim)) else None
    if name in REDUCTIONS:
        kept = [d for d in range(operand.ndim) if d not in node.attrs["axes"]]
        return tuple(kept.index(d) for d in order if d in kept)
    return None


def backward(node: Node, operand: Value, order: Order) -> Order | None:
    """The order of ``operand`` when the node's result is kept in ``order``; None when any will do."""
    name, result = node.op.name, node.outputs[0]
    if node.op.kind == "elementwise" or name in SAME_RANK:
        return order if operand.ndim == result.ndim else None
    if name == "reshape":
        return _with_ones(result.shape, operand.shape, order)
    if name == "windows":
        rank = operand.ndim
        return order[:rank] if order[rank:] == tuple(range(rank, result.ndim)) else None
    if name == "fold":
        return (*order, *range(result.ndim, operand.ndim))
    return None


def _with_ones(source: Shape, target: Shape, order: Order) -> Order:
    """``order`` of ``source`` for ``target``, which differs by axes of size 1; those come last."""
    places = iter(d for d, n in enumerate(target) if n != 1)
    place = {d: next(places) for d, n in enumerate(source) if n != 1}
    kept = [place[d] for d in order if d in place]
    return (*kept, *(d for d, n in enumerate(target) if n == 1))
