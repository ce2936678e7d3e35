"""Layout assignment: channels last along chains of convolutions where that pays.

Values joined by nodes that run in any order form a region. A region is channels last if its convolutions gain more
(vectors run over output channels) than transposes at its border cost. The log has the decision. The region's nodes are
then rebuilt on permuted operands, so the permutations of adjacent nodes cancel. Each convolution becomes a contraction
of windows, whose result can have any order of axes for free.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from math import prod

from tracecomp.ir.graph import Graph, Node, Origin, Value
from tracecomp.passes.cost.reference import (
    BORDER_BYTES_PER_CYCLE,
    CHANNELS_FIRST_EFFICIENCY,
    FMA_LATENCY,
    PACKING_VECTORS,
    STRIDED_EFFICIENCY,
    VECTOR_BYTES,
)
from tracecomp.passes.graph import axis_orders
from tracecomp.passes.graph.axis_orders import CONVOLUTIONS, Order, channels_last
from tracecomp.passes.graph.relayout import Placed, convolution, in_order, rebuild, sizes_of
from tracecomp.passes.graph.rewrite import Rewriter, has_node
from tracecomp.passes.graph.rule_sets import SIMPLIFICATION
from tracecomp.passes.steps import Log


@dataclass(eq=False, slots=True)
class Region:
    """Values that are kept in related orders, and the convolutions that compute or read them."""

    values: set[Value]
    convolutions: list[Node] = field(default_factory=list)


def plan(graph: Graph, log: Log) -> Graph:
    """``graph`` with the chosen orders made explicit and its convolutions as contractions."""
    # Without convolutions nothing gains from another order.
    if not has_node(graph, lambda n: n.op.name in CONVOLUTIONS):
        return graph
    chosen: dict[Value, Order] = {}
    live = list(graph.live_nodes())
    flexible = [n for n in live if axis_orders.is_flexible(n)]
    # Outputs of the graph, and operands of nodes with a fixed order, have to be transposed back.
    fixed = {v for n in live if not axis_orders.reads_any_order(n) for v in n.inputs} | {o.value for o in graph.outputs}
    for region in regions(live):
        gain = sum(_cycles(n, last=False) - _cycles(n, last=True) for n in region.convolutions)
        kept = _orders(region, flexible)
        # Both in cycles of the reference machine, as the layout decides the order of sums.
        cost = _border_bytes(region, kept, fixed) / BORDER_BYTES_PER_CYCLE
        last = gain > cost
        first = region.convolutions[0]
        log.choose(
            f"{len(region.convolutions)} convolutions and {len(region.values)} values around them",
            "channels last" if last else "channels first",
            f"channels last saves about {gain:,.0f} cycles in convolutions, transposing values costs about {cost:,.0f}",
            graph.origin.get(first, Origin()),
        )
        if last:
            chosen.update(kept)
    return _rebuild(graph, live, chosen, log)


def regions(live: list[Node]) -> list[Region]:
    """The regions that contain convolutions."""
    root: dict[Value, Value] = {}

    def find(value: Value) -> Value:
        # Union-find with path halving: a region may be as large as a network.
        while root.setdefault(value, value) is not value:
            root[value] = value = root[root[value]]
        return value

    for node in live:
        if axis_orders.is_flexible(node):
            first, *rest = axis_orders.linked(node)
            for other in rest:
                root[find(other)] = find(first)
    found: dict[Value, Region] = {}
    for node in live:
        # Regions without convolutions have nothing to gain.
        if node.op.name in CONVOLUTIONS:
            found.setdefault(find(node.inputs[0]), Region(set())).convolutions.append(node)
    for value in list(root):
        if find(value) in found:
            found[find(value)].values.add(value)
    return list(found.values())


def _cycles(node: Node, last: bool) -> float:
    """Estimated time of a convolution, by how well its vectors are filled."""
    out = node.outputs[0] if node.op.name == "conv" else node.inputs[1]
    width = VECTOR_BYTES // out.dtype.itemsize
    groups = node.attrs["groups"]
    channels = node.inputs[0].shape[1] // groups
    work = float(out.type.numel * channels)
    work *= prod(sizes_of(node).kernel)
    if last:
        # Depthwise convolutions have one channel in a group; their lanes are the groups.
        per_group = out.shape[1] // groups
        efficiency = _filled(per_group if per_group > 1 else groups, width)
        efficiency *= sizes_of(node).speed
    elif node.op.name == "conv":
        efficiency = CHANNELS_FIRST_EFFICIENCY * _filled(out.shape[-1], width)
        # Windows with a stride are strided loads, packed once for all filters of a group.
        if node.attrs["stride"][-1] != 1:
            efficiency /= 1 + PACKING_VECTORS * groups / out.shape[1]
    elif channels == 1 and out.shape[1] == groups:
        # Depthwise: the few weights of a channel share their terms, and each term waits for the previous one.
        return out.type.numel * FMA_LATENCY
    else:
        efficiency = STRIDED_EFFICIENCY
    # Two multiply-adds a cycle.
    return work / (2 * width * efficiency)


def _filled(extent: int, width: int) -> float:
    """The share of vector lanes in use for rows of ``extent`` elements."""
    return extent / (-(-extent // width) * width)


def _border_bytes(region: Region, kept: dict[Value, Order], fixed: set[Value]) -> int:
    """Bytes transposed at the region's border: its inputs, and values that rigid nodes read."""
    total = 0
    for value in region.values:
        order = kept.get(value, axis_orders.identity(value.ndim))
        if value.ndim < 3 or axis_orders.moves_only_ones(value.shape, order):
            # Axes of size 1 may move without a copy.
            continue
        given = value.node is None or not axis_orders.is_flexible(value.node)
        # Transposed once on entry, and once on exit.
        total += value.type.nbytes * (given + (value in fixed))
    return total


def _orders(region: Region, flexible: list[Node]) -> dict[Value, Order]:
    """Choose an order for each value of the region, propagated from the convolutions in both directions."""
    known: dict[Value, Order] = {}
    for node in region.convolutions:
        for value in axis_orders.linked(node):
            known.setdefault(value, channels_last(value.ndim))
    nodes = [n for n in flexible if not region.values.isdisjoint(axis_orders.linked(n))]
    while True:
        # Repeat until no order is new: a value far from every convolution is reached through several neighbours.
        before = len(known)
        for node in nodes:
            _spread_forward(node, known)
        for node in reversed(nodes):
            _spread_backward(node, known)
        if len(known) == before:
            return known


def _spread_forward(node: Node, known: dict[Value, Order]) -> None:
    result = node.outputs[0]
    if result in known or node.op.name in CONVOLUTIONS:
        return
    # The largest operand first: its order costs most to change.
    for operand in sorted(axis_orders.linked(node)[:-1], key=lambda v: -v.type.numel):
        if operand in known:
            order = axis_orders.forward(node, operand, known[operand])
            if order is not None:
                known[result] = order
                return


def _spread_backward(node: Node, known: dict[Value, Order]) -> None:
    if node.outputs[0] not in known or node.op.name in CONVOLUTIONS:
        return
    for operand in axis_orders.linked(node)[:-1]:
        order = axis_orders.backward(node, operand, known[node.outputs[0]])
        # The first reader decides; a value that two readers want in different orders is transposed for one of them.
        if order is not None:
            known.setdefault(operand, order)


def _rebuild(graph: Graph, live: list[Node], chosen: dict[Value, Order], log: Log) -> Graph:
    rewriter = Rewriter(graph.name, SIMPLIFICATION, log, "layout", region=partial(plan, log=log))
    new = rewriter.graph
    placed: dict[Value, Placed] = {}
    for i in graph.inputs:
        value = new.add_input(i.value.type, i.name, i.role, i.data)
        placed[i.value] = Placed(value, axis_orders.identity(value.ndim))
    for node in live:
        rewriter.graph.here = graph.origin.get(node, Origin())
        operands = [placed[v] for v in node.inputs]
        order = chosen.get(node.outputs[0], axis_orders.identity(node.outputs[0].ndim))
        for value, result in zip(node.outputs, _results(rewriter, node, operands, order), strict=True):
            placed[value] = result
    new.here = Origin()
    for output in graph.outputs:
        new.add_output(in_order(rewriter, placed[output.value], None), output.name, output.role)
    new.drop_dead()
    return new


def _results(g: Rewriter, node: Node, operands: list[Placed], order: Order) -> Iterable[Placed]:
    """The node's results, the first one in ``order``."""
    if node.op.name in CONVOLUTIONS:
        return [convolution(g, node, operands, order)]
    # A rigid node takes operands in the graph's order.
    if order != axis_orders.identity(len(order)) and axis_orders.is_flexible(node):
        return [rebuild(g, node, operands, order)]
    plain = g.node(node, (in_order(g, p, None) for p in operands), g.graph.here)
    return [Placed(v, axis_orders.identity(v.ndim)) for v in plain]
