"""Physical orders of values: how an order of axes carries over from a node's operands to its result and back.

A value with order ``p`` is stored as ``permute(value, p)``. Only the orders of adjacent values in a chain matter here;
the values do not change.
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
    """Whether the order leaves memory unchanged."""
    moved = [d for d in order if shape[d] != 1]
    return moved == sorted(moved)


def is_flexible(node: Node) -> bool:
    """Whether the node can run in any order of axes, and passes its operands' order to its result."""
    if node.op.name == "reshape":
        # A reshape that splits batch, channels and space has no order to pass on.
        return keeps_axes_apart(node.inputs[0].shape, node.outputs[0].shape)
    if node.op.name in REDUCTIONS:
        # With fewer axes no order is channels last.
        return node.outputs[0].ndim >= 3
    if node.op.name == "expand":
        # New leading axes have no place in the operand's order.
        return node.inputs[0].ndim == node.outputs[0].ndim
    return node.op.kind == "elementwise" or node.op.name in (*SAME_RANK, *CONVOLUTIONS, "windows", "fold", "permute")


def reads_any_order(node: Node) -> bool:
    """Whether the node takes its operands in their stored order: sums to few axes do, and pass no order on."""
    return is_flexible(node) or node.op.name in REDUCTIONS


def reshape_parts(source: Shape, target: Shape) -> list[tuple[list[int], list[int]]]:
    """Return the shortest runs of axes of ``source`` and of ``target`` that hold the same elements; axes of size 1 left
    out."""
    parts: list[tuple[list[int], list[int]]] = []
    # Axes of size 1 belong to no run: they are put back at the end.
    left = [d for d, n in enumerate(source) if n != 1]
    right = [d for d, n in enumerate(target) if n != 1]
    while left or right:
        ins, outs = [left.pop(0)], [right.pop(0)]
        have, want = source[ins[0]], target[outs[0]]
        # The shorter side takes its next axis, until both runs hold the same number of elements.
        while have != want:
            if have < want:
                ins.append(left.pop(0))
                have *= source[ins[-1]]
            else:
                outs.append(right.pop(0))
                want *= target[outs[-1]]
        parts.append((ins, outs))
    return parts


def keeps_axes_apart(source: Shape, target: Shape) -> bool:
    """Whether a reshape leaves at least batch, channels and one other axis distinct."""
    # With an empty axis products of extents are all zero.
    if min(len(source), len(target)) < 3 or 0 in source:
        return False
    together = len(reshape_parts(source, target))
    # Three runs are batch, channels, space; or else no axis was merged at all.
    return together >= 3 or together == sum(n != 1 for n in source)


def linked(node: Node) -> tuple[Value, ...]:
    """The operands and results of a flexible node that should have related orders."""
    result = node.outputs[0]
    if node.op.name == "conv":
        # The weight has an independent order: it is small and packed anyway.
        return (node.inputs[0], result)
    if node.op.name == "conv_weight":
        # The result is a weight; the operands are images.
        return node.inputs
    if node.op.kind == "elementwise":
        # Operands of lower rank are broadcast to the result and are cheap in any order.
        return (*(v for v in node.inputs if v.ndim == result.ndim), result)
    return (*node.inputs, result)


def forward(node: Node, operand: Value, order: Order) -> Order | None:
    """The order of the node's result if ``operand`` has ``order``; None when it does not carry over."""
    name, result = node.op.name, node.outputs[0]
    if node.op.kind == "elementwise" or name in SAME_RANK:
        return order if operand.ndim == result.ndim else None
    if name == "reshape":
        return reshaped(operand.shape, result.shape, order)
    if name == "permute":
        # The permutation renames axes: axis d moves to the position of d in ``dims``.
        return tuple(node.attrs["dims"].index(d) for d in order)
    if name == "windows":
        # Positions in a window come last, in any order of the image.
        return (*order, *range(operand.ndim, result.ndim))
    if name == "fold":
        rank = result.ndim
        # Only if the positions in windows are still last.
        return order[:rank] if order[rank:] == tuple(range(rank, operand.ndim)) else None
    if name in REDUCTIONS:
        kept = [d for d in range(operand.ndim) if d not in node.attrs["axes"]]
        # Reduced axes are dropped.
        return tuple(kept.index(d) for d in order if d in kept)
    return None


def backward(node: Node, operand: Value, order: Order) -> Order | None:
    """The order of ``operand`` if the node's result has ``order``; None when any will do."""
    name, result = node.op.name, node.outputs[0]
    if node.op.kind == "elementwise" or name in SAME_RANK:
        return order if operand.ndim == result.ndim else None
    if name == "reshape":
        return reshaped(result.shape, operand.shape, order)
    if name == "permute":
        return tuple(node.attrs["dims"][d] for d in order)
    if name == "windows":
        rank = operand.ndim
        return order[:rank] if order[rank:] == tuple(range(rank, result.ndim)) else None
    if name == "fold":
        return (*order, *range(result.ndim, operand.ndim))
    return None


def reshaped(source: Shape, target: Shape, order: Order) -> Order | None:
    """The order of ``target`` with the same memory as ``source`` in ``order``; None when runs of axes are split.

    An axis of size 1 comes directly after the axis before it, at which interleaved parts are placed in the target's
    order.
    """
    parts = {ins[0]: (ins, outs) for ins, outs in reshape_parts(source, target)}
    moving = [d for d in order if source[d] != 1]
    result: list[int] = []
    while moving:
        ins, outs = parts.get(moving[0], ([], []))
        # Merged axes have to be adjacent and in order, else their memory is not one run.
        if not ins or moving[: len(ins)] != ins:
            return None
        moving = moving[len(ins) :]
        result += outs
    for axis in (d for d, n in enumerate(target) if n == 1):
        result.insert(result.index(axis - 1) + 1 if axis else 0, axis)
    return tuple(result)
