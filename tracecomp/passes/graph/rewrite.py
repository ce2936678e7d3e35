"""The rewrite driver: rebuilds a graph node by node and offers every application to rules before it is added.

A rule is a function ``(rewriter, application) -> value, values, or None`` ("does not apply"), listed in ``Rules`` by
operator. Nodes that a rule builds are offered to the rules again. One walk therefore reaches the fixed point, if every
rule makes its graph simpler by some measure. Nodes keep the user line and scope of the nodes they replace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from tracecomp.base.errors import CompileError, note_place
from tracecomp.ir.graph import AttrsKey, Graph, Node, Origin, Value, attrs_key
from tracecomp.ir.op import OPS, Attrs, Op
from tracecomp.ir.types import DType, Shape, TensorType
from tracecomp.passes.steps import Log


class Application:
    """An operator about to be applied to values of the new graph. ``types`` are those of its results, if known."""

    __slots__ = ("_types", "attrs", "inputs", "op")

    def __init__(
        self, op: Op, inputs: tuple[Value, ...], attrs: Attrs, types: tuple[TensorType, ...] | None = None
    ) -> None:
        self.op = op
        self.inputs = inputs
        self.attrs = attrs
        self._types = types

    @property
    def types(self) -> tuple[TensorType, ...]:
        if self._types is None:
            self._types = self.op.result_types([v.type for v in self.inputs], self.attrs)
        return self._types

    @property
    def type(self) -> TensorType:
        return self.types[0]


Replacement = Value | Sequence[Value] | None
Rule = Callable[["Rewriter", Application], Replacement]


class Rules:
    """Rewrite rules by operator name and by kind of operator, in the order of application."""

    def __init__(self, *parts: Rules) -> None:
        self._by_op: dict[str, list[Rule]] = {}
        self._by_kind: dict[str, list[Rule]] = {}
        self._of: dict[str, tuple[Rule, ...]] = {}
        for part in parts:
            for mine, other in ((self._by_op, part._by_op), (self._by_kind, part._by_kind)):
                for key, rules in other.items():
                    mine.setdefault(key, []).extend(rules)

    def on(self, *ops: str) -> Callable[[Rule], Rule]:
        """Decorator: try this rule on applications of ``ops``."""

        def add(rule: Rule) -> Rule:
            for op in ops:
                self._by_op.setdefault(op, []).append(rule)
            self._of.clear()
            return rule

        return add

    def on_kind(self, *kinds: str) -> Callable[[Rule], Rule]:
        """Decorator: try this rule on every operator of ``kinds``, after those for the operator itself."""

        def add(rule: Rule) -> Rule:
            for kind in kinds:
                self._by_kind.setdefault(kind, []).append(rule)
            self._of.clear()
            return rule

        return add

    def of(self, op: Op) -> tuple[Rule, ...]:
        """The rules to try on an application of ``op``."""
        rules = self._of.get(op.name)
        if rules is None:
            rules = self._of[op.name] = (*self._by_op.get(op.name, ()), *self._by_kind.get(op.kind, ()))
        return rules

    def names(self) -> set[str]:
        """Every rule's name."""
        tables = (*self._by_op.values(), *self._by_kind.values())
        return {rule.__name__ for rules in tables for rule in rules}


class Rewriter:
    """Builds the new graph. Rules use ``apply``, ``add`` and ``scalar`` like those of a ``Graph``.

    ``region`` rewrites the bodies of control operators. ``shared`` are the values with several readers in the old
    graph.
    """

    def __init__(self, name: str, rules: Rules, log: Log, made_by: str, region: Callable[[Graph], Graph]) -> None:
        self.graph = Graph(name)
        self.shared: set[Value] = set()
        self.log = log
        self._region = region
        self._rules = rules
        self._made_by = made_by
        self._done: dict[Any, tuple[Value, ...]] = {}
        self._regions: dict[Graph, Graph] = {}
        self._constants: dict[tuple[TensorType, bytes], Value] = {}
        self._in_rule = False
        self._origin = self._mine = Origin(made_by=made_by)

    def apply(self, name: str, *inputs: Value, **attrs: Any) -> Value:
        """The single result of the operator called ``name``, rewritten."""
        return self.add(OPS[name], inputs, attrs)[0]

    def scalar(self, value: bool | int | float, dtype: DType) -> Value:
        """A 0-d constant."""
        return self.full(value, (), dtype)

    def full(self, value: bool | int | float, shape: Shape, dtype: DType) -> Value:
        return self.apply("full", value=value, shape=shape, dtype=dtype)

    def reshape(self, value: Value, shape: Shape) -> Value:
        return value if value.shape == shape else self.apply("reshape", value, shape=shape)

    def constant(self, array: np.ndarray[Any, Any], type: TensorType) -> Value:
        """A constant input holding ``array``; one per content."""
        # By type and bytes, so that equal tables are one input.
        key = (type, array.tobytes())
        if key not in self._constants:
            name = f"folded{len(self._constants)}"
            self._constants[key] = self.graph.add_input(type, name, "constant", array)
        return self._constants[key]

    def add(self, op: Op, inputs: Iterable[Value], attrs: Attrs) -> tuple[Value, ...]:
        """Add ``op``, or the replacement by the first rule that applies, and return the results."""
        return self._add(Application(op, tuple(inputs), attrs), attrs_key(attrs))

    def _add(self, application: Application, key: AttrsKey) -> tuple[Value, ...]:
        # The same application again, from a rule or from the old graph: reuse its results without trying the rules
        # again.
        whole = (application.op.name, application.inputs, key)
        done = self._done.get(whole)
        if done is None:
            done = self._done[whole] = self._make(application, key)
        return done

    def _make(self, application: Application, key: AttrsKey) -> tuple[Value, ...]:
        origin, in_rule = self.graph.here, self._in_rule
        self._in_rule = True
        for rule in self._rules.of(application.op):
            try:
                found = rule(self, application)
            except Exception as error:  # an error in the rule
                note_place(error, f"rule {rule.__name__} of {application.op.name}", [origin.source])
                raise
            if found is not None:
                self._in_rule = in_rule
                self.log.hits[rule.__name__] += 1
                values = (found,) if isinstance(found, Value) else tuple(found)
                # A wrong type would surface far away from the rule.
                _check_types(rule, application, values, origin)
                return values
        self._in_rule = in_rule
        # A node that a rule adds names its pass and keeps the user's line.
        self.graph.here = self._origin_here(origin) if in_rule else origin
        a = application
        values = self.graph.add_keyed(a.op, a.inputs, a.attrs, key, lambda: a.types)
        self.graph.here = origin
        return values

    def _origin_here(self, origin: Origin) -> Origin:
        """Mark ``origin`` as a node of this pass."""
        if origin is not self._origin:
            self._origin, self._mine = origin, Origin(origin.source, origin.scope, self._made_by)
        return self._mine

    def node(self, node: Node, inputs: Iterable[Value], origin: Origin) -> tuple[Value, ...]:
        """``node`` of the old graph rebuilt on ``inputs``, regions included."""
        self.graph.here = origin
        attrs, key = node.attrs, node.key
        if any(isinstance(v, Graph) for v in attrs.values()):
            attrs = {k: self._attr(v) for k, v in attrs.items()}
            key = attrs_key(attrs)
        # Replacements have the types of what they replace, so the types of the results stay.
        return self._add(Application(node.op, tuple(inputs), attrs, tuple([v.type for v in node.outputs])), key)

    def _attr(self, value: object) -> Any:
        # Bodies may be shared by several control nodes, and stay shared.
        if not isinstance(value, Graph):
            return value
        if value not in self._regions:
            self._regions[value] = self._region(value)
        return self._regions[value]


def rewrite(graph: Graph, rules: Rules, log: Log, made_by: str) -> Graph:
    """``graph`` rebuilt under ``rules``, regions included; nodes that no output needs are left behind."""
    rewriter = Rewriter(graph.name, rules, log, made_by, partial(rewrite, rules=rules, log=log, made_by=made_by))
    # Inputs first, read or not: callers rely on their positions.
    new = rewriter.graph
    values: dict[Value, Value] = {i.value: new.add_input(i.value.type, i.name, i.role, i.data) for i in graph.inputs}
    # Counted in the old graph, as the new one is incomplete.
    live, unknown = list(graph.live_nodes()), Origin()
    reads = Counter(chain.from_iterable([node.inputs for node in live]))
    reads.update(o.value for o in graph.outputs)
    for node in live:
        results = rewriter.node(node, [values[v] for v in node.inputs], graph.origin.get(node, unknown))
        for old, value in zip(node.outputs, results, strict=True):
            values[old] = value
            # By the new value, as rules look up values of the new graph.
            if reads[old] > 1:
                rewriter.shared.add(value)
    new.here = Origin()
    for output in graph.outputs:
        new.add_output(values[output.value], output.name, output.role)
    new.drop_dead()
    return new


def _check_types(rule: Rule, application: Application, values: tuple[Value, ...], origin: Origin) -> None:
    have, want = tuple(v.type for v in values), application.types
    if have != want:
        raise CompileError(
            f"rule {rule.__name__} replaced {application.op.name} of type {', '.join(map(str, want))} "
            f"by type {', '.join(map(str, have))}" + (f" (at {origin.source})" if origin.source else "")
        )


def has_node(graph: Graph, test: Callable[[Node], bool]) -> bool:
    """Whether ``test`` holds for some node of ``graph`` or of its regions."""
    for node in graph.live_nodes():
        if test(node):
            return True
        for value in node.attrs.values():
            if isinstance(value, Graph) and has_node(value, test):
                return True
    return False


def made_by(value: Value, *ops: str) -> Node | None:
    """Return the node that computes ``value`` if its operator is one of ``ops``."""
    return value.node if value.node is not None and value.node.op.name in ops else None


def constant(value: Value) -> bool | int | float | None:
    """Return the number that fills ``value`` if it is a ``full``."""
    node = made_by(value, "full")
    return None if node is None else node.attrs["value"]
