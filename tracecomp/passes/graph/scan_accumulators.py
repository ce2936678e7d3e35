"""Sums that a ``scan`` accumulates step by step, moved out of its body.

The gradient of a weight used at every step is a carry to which each step adds a product of a few rows. Stacking the
factors of all steps and multiplying once is the same sum with long rows. It runs near the machine's peak and does not
read and write the total at every step. It fixes another order of summation: by step, then within the step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from math import prod

from tracecomp.ir.graph import Graph, Node, Origin, Output, Value
from tracecomp.passes.graph.contractions import Spec
from tracecomp.passes.graph.rewrite import Rewriter, Rules, has_node, made_by
from tracecomp.passes.graph.rule_sets import CANONICAL
from tracecomp.passes.graph.subgraph import subgraph
from tracecomp.passes.steps import Log

SHORT = 256
"""Largest number of terms per step for which stacking pays."""


def sum_after_scans(graph: Graph, log: Log, rules: Rules = CANONICAL) -> Graph:
    """``graph`` with sums over the steps of its scans computed after them, rewritten by ``rules``."""
    if not has_node(graph, lambda n: n.op.name == "scan"):
        return graph
    g = Rewriter(graph.name, rules, log, "scan_accumulators", partial(sum_after_scans, log=log, rules=rules))
    values = {i.value: g.graph.add_input(i.value.type, i.name, i.role, i.data) for i in graph.inputs}
    for node in graph.live_nodes():
        origin = graph.origin.get(node, Origin())
        inputs = [values[v] for v in node.inputs]
        found = _hoistable(node) if node.op.name == "scan" else []
        # Scans without such totals are rebuilt unchanged.
        results = _without(g, node, inputs, found, origin) if found else g.node(node, inputs, origin)
        values.update(zip(node.outputs, results, strict=True))
    g.graph.here = Origin()
    for output in graph.outputs:
        g.graph.add_output(values[output.value], output.name, output.role)
    g.graph.drop_dead()
    return g.graph


@dataclass(frozen=True)
class Total:
    """A carry, number ``carry``, to which every step adds the result of ``term``."""

    carry: int
    term: Node


def _hoistable(node: Node) -> list[Total]:
    """The carries of a scan that only accumulate short contractions, or sums of the operands of those."""
    body: Graph = node.attrs["body"]
    reads = [v for n in body.live_nodes() for v in n.inputs]
    shown = [o.value for o in body.outputs]
    given = [i.value for i in body.inputs if i.role != "constant"]
    carries = node.attrs["carries"]
    # Operands that are the same at each step would be stacked needlessly.
    varying = _varying(body, given[: carries + node.attrs["xs"]])
    totals = []
    for number in range(carries):
        before, after = given[number], body.outputs[number].value
        add = made_by(after, "add")
        # The carry is read by its addition alone: then no step needs the total before the end.
        if add is None or before not in add.inputs or before.type != after.type:
            continue
        if reads.count(before) != 1 or before in shown:
            continue
        # The step itself must not read the new total.
        if after in reads or shown.count(after) != 1:
            continue
        term = next((v.node for v in add.inputs if v is not before), None)
        if term is not None and term.outputs[0].type == after.type and all(v in varying for v in term.inputs):
            totals.append(Total(number, term))
    # Long products per step already run near the peak.
    products = [t for t in totals if t.term.op.name == "contract" and _terms(t.term) < SHORT]
    stacked = {v for t in products for v in t.term.inputs}
    # A bias' gradient sums the operand of the weight's gradient: its stack exists already.
    sums = [t for t in totals if t.term.op.name == "sum" and t.term.inputs[0] in stacked]
    return sorted(products + sums, key=lambda t: t.carry)


def _varying(body: Graph, sources: list[Value]) -> set[Value]:
    """The values of the body that can differ from step to step."""
    found = set(sources)
    for node in body.live_nodes():
        if node.op.kind == "random" or any(v in found for v in node.inputs):
            found.update(node.outputs)
    return found


def _terms(node: Node) -> int:
    """Number of products that are summed in one element of a contraction."""
    spec = Spec.parse(node.attrs["spec"])
    return prod(n for c, n in zip(spec.lhs, node.inputs[0].shape, strict=True) if c in spec.summed)


@dataclass
class _Stacks:
    """Location of each body value when all steps are stacked: an operand, or a result numbered among ys."""

    operands: dict[Value, Value]
    ys: list[Value]
    added: list[Value] = field(default_factory=list)

    def need(self, value: Value) -> None:
        # Operands of the scan are stacked already; others become results.
        if value not in self.operands and value not in (*self.ys, *self.added):
            self.added.append(value)

    def find(self, value: Value, results: tuple[Value, ...]) -> Value:
        return self.operands[value] if value in self.operands else results[(*self.ys, *self.added).index(value)]


def _without(g: Rewriter, node: Node, inputs: list[Value], totals: list[Total], origin: Origin) -> list[Value]:
    """The results of a scan without the carries ``totals``, which are computed after it."""
    body: Graph = node.attrs["body"]
    carries, xs = node.attrs["carries"], node.attrs["xs"]
    given = [i for i in body.inputs if i.role != "constant"]
    stacks = _Stacks(
        {i.value: inputs[carries + n] for n, i in enumerate(given[carries : carries + xs])},
        [o.value for o in body.outputs[carries:]],
    )
    for value in (v for t in totals for v in t.term.inputs):
        stacks.need(value)
    gone = {t.carry for t in totals}
    outputs = [o for n, o in enumerate(body.outputs) if n not in gone]
    outputs += [Output(v, f"stacked{n}", "result") for n, v in enumerate(stacks.added)]
    kept = [i for n, i in enumerate(given) if n not in gone]
    smaller = subgraph(body, [*kept, *(i for i in body.inputs if i.role == "constant")], outputs)
    g.graph.here = origin
    # The others keep their positions.
    attrs = {**node.attrs, "body": smaller, "carries": carries - len(gone)}
    results = g.add(node.op, [v for n, v in enumerate(inputs) if n not in gone], attrs)
    left, ys = iter(results[: carries - len(gone)]), results[carries - len(gone) :]
    by_carry = {t.carry: t for t in totals}
    finals = [_total(g, by_carry[n], inputs[n], stacks, ys) if n in gone else next(left) for n in range(carries)]
    g.log.hits["sum_over_steps"] += len(gone)
    return [*finals, *ys[: len(stacks.ys)]]


def _total(g: Rewriter, total: Total, start: Value, stacks: _Stacks, ys: tuple[Value, ...]) -> Value:
    """``start`` plus the sum over all steps of the total's term."""
    operands = [stacks.find(v, ys) for v in total.term.inputs]
    if total.term.op.name == "sum":
        axes = (0, *(d + 1 for d in total.term.attrs["axes"]))
        # Starts with the carry's initial value, like the steps.
        return g.apply("add", start, g.apply("sum", operands[0], axes=axes))
    spec = Spec.parse(total.term.attrs["spec"])
    # The step is the slowest summed dimension: its label comes first.
    step = "A"
    whole = Spec(step + spec.lhs, step + spec.rhs, spec.out)
    return g.apply("add", start, g.apply("contract", *operands, spec=str(whole)))
