"""Nodes rebuilt on values in another order of axes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tracecomp.ir.graph import Node, Value
from tracecomp.ir.op import Attrs
from tracecomp.passes.cost.winograd import Convolution
from tracecomp.passes.graph.axis_orders import REDUCTIONS, Order, channels_last, identity, reshaped
from tracecomp.passes.graph.rewrite import Rewriter


@dataclass(frozen=True, slots=True)
class Placed:
    """A value kept as ``kept = permute(value, order)``."""

    kept: Value
    order: Order


def in_order(g: Rewriter, placed: Placed, order: Order | None) -> Value:
    """Return the value in ``order`` (None: the graph's order)."""
    # ``kept`` is permuted already; its order maps the axes.
    want = identity(len(placed.order)) if order is None else order
    return g.apply("permute", placed.kept, dims=tuple(placed.order.index(d) for d in want))


def rebuild(g: Rewriter, node: Node, operands: list[Placed], order: Order) -> Placed:
    """A flexible node's result in ``order``."""
    name, result = node.op.name, node.outputs[0]
    if node.op.kind == "elementwise":
        # Operands of lower rank get their leading axes, so that the order covers all axes.
        values = [_broadcast(g, p, result.ndim, order) for p in operands]
        return Placed(g.add(node.op, values, node.attrs)[0], order)
    if name in ("pad", "concat"):
        values = [in_order(g, p, order) for p in operands]
        return Placed(g.add(node.op, values, _transposed(node.attrs, order))[0], order)
    if name in REDUCTIONS:
        return _reduction(g, node, operands[0], order)
    if name == "fold":
        return _fold(g, node, operands[0], order)
    if name == "reshape":
        have = reshaped(result.shape, node.inputs[0].shape, order)
        if have is not None:
            return Placed(g.reshape(in_order(g, operands[0], have), tuple(result.shape[d] for d in order)), order)
    # Any other view is built in the graph's order and permuted afterwards: permutations cancel with neighbours.
    view = g.add(node.op, (in_order(g, operands[0], None),), node.attrs)[0]
    return Placed(g.apply("permute", view, dims=order), order)


def _broadcast(g: Rewriter, placed: Placed, rank: int, order: Order) -> Value:
    """An elementwise operand, with leading axes of size 1 made explicit, in ``order``."""
    have = len(placed.order)
    if have == 0:
        return placed.kept
    if have == rank:
        return in_order(g, placed, order)
    plain = in_order(g, placed, None)
    return g.apply("permute", g.reshape(plain, (1,) * (rank - have) + plain.shape), dims=order)


def _transposed(attrs: Attrs, order: Order) -> dict[str, Any]:
    """Attributes that name axes, translated to ``order``."""
    if "axis" in attrs:
        return {**attrs, "axis": order.index(attrs["axis"])}
    return {k: tuple(v[d] for d in order) if isinstance(v, tuple) else v for k, v in attrs.items()}


def _reduction(g: Rewriter, node: Node, operand: Placed, order: Order) -> Placed:
    axes = node.attrs["axes"]
    if node.outputs[0].dtype.is_floating_point and node.op.name in ("sum", "prod"):
        # The order of terms is that of the graph's axes; ``reductions.py`` says which reductions may keep ``order``.
        value = g.add(node.op, (in_order(g, operand, None),), node.attrs)[0]
        return Placed(in_order(g, Placed(value, identity(value.ndim)), order), order)
    kept = [d for d in range(len(operand.order)) if d not in axes]
    transposed = tuple(sorted(operand.order.index(d) for d in axes))
    value = g.add(node.op, (operand.kept,), {"axes": transposed})[0]
    have = Placed(value, tuple(kept.index(d) for d in operand.order if d in kept))
    return Placed(in_order(g, have, order), order)


def _fold(g: Rewriter, node: Node, operand: Placed, order: Order) -> Placed:
    """Apply ``fold`` with windows of size 1 over the axes that are now among or after the folded ones."""
    shape, rank = node.attrs["shape"], len(node.attrs["shape"])
    lead = rank - len(node.attrs["sizes"])
    first = min(order.index(d) for d in range(lead, rank))
    # Axes after the first folded one have to be part of the window; a window of size 1 leaves them unchanged.
    over = order[first:]
    attrs = {
        key: tuple(node.attrs[key][d - lead] if d >= lead else 1 for d in over)
        for key in ("sizes", "strides", "dilations")
    }
    places = tuple(rank + d - lead for d in over if d >= lead)
    windows = in_order(g, operand, (*order, *places))
    spread = g.reshape(windows, (*windows.shape[:rank], *attrs["sizes"]))
    return Placed(g.apply("fold", spread, shape=tuple(shape[d] for d in order), **attrs), order)


def sizes_of(node: Node) -> Convolution:
    """The sizes of a convolution or of a weight gradient."""
    gradient, groups = node.op.name == "conv_weight", node.attrs["groups"]
    x, other, result = node.inputs[0].shape, node.inputs[1].shape, node.outputs[0].shape
    out, kernel = (other, result) if gradient else (result, other)
    stride, dilation = node.attrs["stride"], node.attrs["dilation"]
    return Convolution(
        x[1] // groups, out[1] // groups, x[0], tuple(kernel[2:]), tuple(out[2:]), stride, dilation, gradient
    )


def convolution(g: Rewriter, node: Node, operands: list[Placed], order: Order) -> Placed:
    """Build ``conv`` and ``conv_weight`` as a contraction of windows, the result in ``order``.

    Transformed tiles take channels last in any case; their result is permuted.
    """
    if not sizes_of(node).transformed:
        return _windowed(g, node, operands, order)
    last = channels_last(node.outputs[0].ndim)
    images = operands if node.op.name == "conv_weight" else operands[:1]
    transposed = [Placed(in_order(g, p, last), last) for p in images]
    made = _windowed(g, node, [*transposed, *operands[len(transposed) :]], order if len(transposed) == 2 else last)
    return Placed(in_order(g, made, order), order)


def _windowed(g: Rewriter, node: Node, operands: list[Placed], order: Order) -> Placed:
    """Build the contraction.

    A weight gradient of channels-last operands has output channels last, along which its vectors run. Windows of
    channels-last operands have channels innermost, as in memory. In any layout, sums run channel by channel, element by
    element.
    """
    groups, rank = node.attrs["groups"], node.outputs[0].ndim - 2
    is_conv = node.op.name == "conv"
    kernel = operands[1].kept.shape[2:] if is_conv else node.attrs["kernel"]
    result = node.outputs[0]
    group = "g" if groups > 1 else ""
    windows, places = "uvw"[:rank], "xyz"[:rank] if set(kernel) != {1} else ""
    # Channels innermost, if the image has that layout and more than one channel.
    inside = is_conv and bool(places) and operands[0].order[-1] == 1 and node.inputs[0].shape[1] > groups
    x = _windows(g, split_channels(g, operands[0], 1, groups), node.attrs, kernel, inside)
    other = split_channels(g, operands[1], 0 if is_conv else 1, groups)
    if is_conv and not places:
        other = g.reshape(other, other.shape[: other.ndim - rank])
    second = f"{group}oc{places}" if is_conv else f"n{group}o{windows}"
    seen = f"n{group}{windows}p{places}c" if inside else f"n{group}c{windows}{places}"
    spec = f"{seen},{second}->" + "p" * inside
    # Vectors of a weight gradient run over output channels.
    if not is_conv and operands[1].order[-1] == 1:
        order = (*range(1, rank + 2), 0)
    axes = ["n", f"{group}o", *windows] if is_conv else [f"{group}o", "c", *(places or [""] * rank)]
    value = g.apply("contract", x, other, spec=spec + "".join(axes[d] for d in order))
    return Placed(g.reshape(value, tuple(result.shape[d] for d in order)), order)


def split_channels(g: Rewriter, placed: Placed, axis: int, groups: int) -> Value:
    """Return the value in the graph's order, with axis ``axis`` split by group."""
    # One group needs no separate axis.
    if groups == 1:
        return in_order(g, placed, None)
    at, shape = placed.order.index(axis), placed.kept.shape
    split = g.reshape(placed.kept, (*shape[:at], groups, shape[at] // groups, *shape[at + 1 :]))
    moved = [(d + (d > axis),) if d != axis else (axis, axis + 1) for d in placed.order]
    return in_order(g, Placed(split, tuple(d for part in moved for d in part)), None)


def _windows(g: Rewriter, x: Value, attrs: Attrs, kernel: tuple[int, ...], inside: bool) -> Value:
    """Return the windows of ``x``; for 1x1 kernels the elements themselves.

    ``inside``: windows include all channels of a group, as their last axis.
    """
    stride, lead = attrs["stride"], x.ndim - len(kernel)
    if inside:
        last = g.apply("permute", x, dims=(*range(lead - 1), *range(lead, x.ndim), lead - 1))
        sizes = (*kernel, x.shape[lead - 1])
        return g.apply("windows", last, sizes=sizes, strides=(*stride, 1), dilations=(*attrs["dilation"], 1))
    if set(kernel) != {1}:
        return g.apply("windows", x, sizes=tuple(kernel), strides=stride, dilations=attrs["dilation"])
    # Windows of size 1 are the elements at every stride: a view without windows.
    steps = (1,) * lead + tuple(stride)
    return g.apply("slice", x, starts=(0,) * x.ndim, stops=x.shape, steps=steps)
