"""Collects the parts of a model while its graph is exported, and finds the rule of each primitive."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx

from tracecomp.ir.graph import Graph, Node, Value
from tracecomp.ir.types import DType
from tracecomp.onnx.errors import UnsupportedError
from tracecomp.onnx.export_rules.older import OLDER
from tracecomp.onnx.export_rules.refused import NO_COMPLEX, REFUSED
from tracecomp.onnx.model import BUFFER
from tracecomp.onnx.sizes import Reciprocal, Size
from tracecomp.ops.regions import inputs_of

Array = np.ndarray[Any, Any]
Rule = Callable[..., str | Sequence[str]]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Make a function the rule of these primitives: it takes the emitter, the node and the operands' names."""

    def put(fn: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, fn))
        return fn

    return put


_WHOLE = "onnx."
"""Prefix of names of ONNX's own operators in graphs for export (``whole.py``)."""


_WHOLE_RULES: dict[str, Rule] = {}


def whole_rule(*names: str) -> Callable[[Rule], Rule]:
    """Make a function the rule of these operators of ONNX, which are not written as they are."""

    def put(fn: Rule) -> Rule:
        _WHOLE_RULES.update({_WHOLE + name: fn for name in names})
        return fn

    return put


def _rule_of(node: Node) -> Rule:
    name = node.op.name
    return _WHOLE_RULES.get(name, _as_it_is) if name.startswith(_WHOLE) else RULES[name]


def _as_it_is(e: Emitter, node: Node, *operands: str) -> str:
    """One of ONNX's own operators."""
    given = [operands[g] if isinstance(g, int) else "" if g is None else e.ints(*g) for g in node.attrs["given"]]
    while not given[-1]:
        given.pop()
    return e.node(node.op.name.removeprefix(_WHOLE), given, **dict(node.attrs["stated"]))


def number_of(dtype: Any) -> int:
    """ONNX's number for a dtype, ours or numpy's."""
    found: int = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype.numpy if isinstance(dtype, DType) else dtype))
    return found


def shown(shape: Sequence[Any]) -> list[int | str]:
    """A shape as models say it: dynamic sizes by name."""
    return [str(n) if isinstance(n, Size) else n for n in shape]


class Emitter:
    """Collects nodes and weights. ``names`` are those of values that are written already.

    ``reserved`` are the names of the model's inputs and outputs, which nothing else may have.
    """

    def __init__(self, version: int, reserved: Iterable[str] = ()) -> None:
        self.version = version
        self.nodes: list[Any] = []
        self.fixed: list[Any] = []
        """Constants, which are nodes: who trains the model trains its initializers."""
        self.weights: list[Any] = []
        self.arrays: dict[str, Array] = {}
        """Weights by name."""
        self._turns: dict[str, tuple[str, Sequence[int]]] = {}
        """Operand and permutation of transposes, by the name of the result."""
        self._made: dict[tuple[str, ...], str] = {}
        self.names: dict[Value, str] = {}
        self.scope = ""
        self.open: dict[str, tuple[str, int]] = {}
        """Sources of dynamic sizes: the name of an input, and its dimension."""
        self._sizes: dict[Any, str] = {}
        self._count = 0
        self._taken = {*reserved}
        self._constants: dict[tuple[Any, ...], str] = {}
        self.held: dict[str, Array] = {}
        """Constants by name."""

    def node(self, op: str, inputs: Sequence[str], **attrs: Any) -> str:
        """The name of an operator's result."""
        if op == "Transpose":
            return self._turned(inputs[0], attrs["perm"])
        return self.several(op, inputs, 1, **attrs)[0]

    def _turned(self, name: str, perm: Sequence[int]) -> str:
        """A transpose; two transposes are merged into one."""
        name, before = self._turns.get(name, (name, range(len(perm))))
        perm = [before[k] for k in perm]
        if perm == [*range(len(perm))]:
            return name
        found = self.several("Transpose", [name], 1, perm=perm)[0]
        self._turns[found] = name, perm
        return found

    def several(self, op: str, inputs: Sequence[str], count: int, **attrs: Any) -> list[str]:
        """The names of an operator's results."""
        since, spelling = OLDER.get(op, (0, None))
        if spelling and self.version < since:
            op, inputs, attrs = spelling(self, op, inputs, attrs)
        number, self._count = self._count, self._count + 1
        outputs = [self._free(f"v{number}" if count == 1 else f"v{number}.{k}") for k in range(count)]
        name = f"{self.scope}/{op}.{number}" if self.scope else f"{op}.{number}"
        self.nodes.append(onnx.helper.make_node(op, [*inputs], outputs, name, **attrs))
        return outputs

    def fresh(self) -> str:
        """A name for an operand of a body."""
        self._count += 1
        return self._free(f"a{self._count - 1}")

    def _free(self, name: str) -> str:
        """``name``, or one like it that nothing has."""
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name

    def write(self, graph: Graph, node: Node) -> None:
        """Write a node of ``graph``, whose operands are written already."""
        origin = graph.origin.get(node)
        self.scope = "/".join(origin.scope) if origin else ""
        try:
            found = _rule_of(node)(self, node, *[self.names[v] for v in node.inputs])
        except TypeError as error:
            raise UnsupportedError(f"{node.op.name} of a dynamic size ({error})") from error
        names = [found] if isinstance(found, str) else [*found]
        self.names.update(zip(node.outputs, names, strict=True))

    def constants(self, graph: Graph) -> None:
        """Write the constants of ``graph``."""
        self.names.update({i.value: self.constant(i.data) for i in graph.inputs if i.data is not None})

    def inline(self, graph: Graph, operands: Sequence[str]) -> list[str]:
        """Write a region's nodes; the names of its results."""
        self.constants(graph)
        self.names.update(zip(inputs_of(graph), operands, strict=True))
        for node in graph.live_nodes():
            self.write(graph, node)
        return [self.names[o.value] for o in graph.outputs]

    @contextmanager
    def body(self) -> Iterator[list[Any]]:
        """A context whose nodes form a body, which is yielded. It may read outer values."""
        outer, sizes, scope = self.nodes, dict(self._sizes), self.scope
        self.nodes = []
        try:
            yield self.nodes
        finally:
            self.nodes, self._sizes, self.scope = outer, sizes, scope

    def branch(self, name: str, write: Callable[[], Sequence[str]], dtypes: Sequence[DType]) -> Any:
        """A body without operands."""
        with self.body() as nodes:
            results = [self.node("Identity", [r]) for r in write()]
            made = [described(r, d) for r, d in zip(results, dtypes, strict=True)]
            return onnx.helper.make_graph(nodes, name, [], made)

    def scan(
        self, states: Sequence[tuple[str, DType]], series: Sequence[tuple[str, DType]], results: Sequence[DType],
        step: Callable[[list[str]], Sequence[str]], axis: int = 0, reverse: bool = False,
    ) -> list[str]:  # fmt: skip
        """States after all steps, and the steps' results: ``step`` takes states and elements of the series.

        It returns new states and elements of ``results``; series and results have steps along ``axis``.
        """
        given = [self.fresh() for _ in [*states, *series]]
        with self.body() as nodes:
            found = [self.node("Identity", [r]) for r in step(given)]
            ins = [described(n, d) for n, (_, d) in zip(given, [*states, *series], strict=True)]
            outs = [described(n, d) for n, d in zip(found, [*[d for _, d in states], *results], strict=True)]
            body = onnx.helper.make_graph(nodes, "step", ins, outs)
        attrs = {
            "scan_input_axes": [axis] * len(series), "scan_input_directions": [int(reverse)] * len(series),
            "scan_output_axes": [axis] * len(results), "scan_output_directions": [int(reverse)] * len(results),
        }  # fmt: skip
        stated = {k: v for k, v in attrs.items() if v}
        operands = [name for name, _ in [*states, *series]]
        return self.several("Scan", operands, len(found), body=body, num_scan_inputs=len(series), **stated)

    def weight(self, name: str, array: Array, trained: bool) -> str:
        """The name of an initializer. One that is not trained is marked, for ``load`` to know."""
        name = self._free(name)
        self.arrays[name] = array
        self.weights.append(_tensor(array, name))
        if not trained:
            self.weights[-1].doc_string = BUFFER
        return name

    def made_of(self, name: str, parts: Sequence[str], make: Callable[[Sequence[Array]], Array]) -> str:
        """The name of an initializer that ``make`` makes of others; it is trained if one of them is."""
        key = tuple(parts)
        if key not in self._made:
            trained = any(w.name in parts and w.doc_string != BUFFER for w in self.weights)
            self._made[key] = self.weight(name, make([self.arrays[p] for p in parts]), trained)
        return self._made[key]

    def constant(self, array: object, dtype: Any = None) -> str:
        """The name of a constant; equal ones are one."""
        array = np.asarray(array, dtype, order="C")
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._constants:
            name = self._constants[key] = self._free(f"constant{len(self._constants)}")
            self.held[name] = array
            self.fixed.append(onnx.helper.make_node("Constant", [], [name], name, value=_tensor(array, name)))
        return self._constants[key]

    def ints(self, *values: int | Size) -> str:
        """A vector of numbers, which may follow from dynamic sizes."""
        if not any(isinstance(v, Size) for v in values):
            return self.constant([*values], np.int64)
        if values not in self._sizes:
            parts = [self._size(v) if isinstance(v, Size) else self.constant([v], np.int64) for v in values]
            self._sizes[values] = parts[0] if len(parts) == 1 else self.node("Concat", parts, axis=0)
        return self._sizes[values]

    def scalar(self, value: Size | Reciprocal, dtype: object) -> str:
        """A number that follows from dynamic sizes, without dimensions."""
        size = value.size if isinstance(value, Reciprocal) else value
        whole = self.node("Squeeze", [self.ints(size)])
        found = self.node("Cast", [whole], to=number_of(dtype))
        return self.node("Reciprocal", [found]) if isinstance(value, Reciprocal) else found

    def _size(self, size: Size) -> str:
        """A vector of the one number."""
        total = ""
        for symbols, factor in size.terms.items():
            product = self.constant([factor], np.int64)
            for symbol in symbols:
                product = self._times(product, self._open(symbol))
            total = self.node("Add", [total, product]) if total else product
        return total if size.divisor == 1 else self.node("Div", [total, self.constant([size.divisor], np.int64)])

    def _times(self, a: str, b: str) -> str:
        return b if a == self.constant([1], np.int64) else self.node("Mul", [a, b])

    def _open(self, symbol: str) -> str:
        if symbol not in self._sizes:
            name, axis = self.open[symbol]
            self._sizes[symbol] = self.node("Shape", [name], start=axis, end=axis + 1)
        return self._sizes[symbol]

    def count(self, stop: int | Size) -> str:
        """The whole numbers below ``stop``."""
        if isinstance(stop, int):
            return self.constant(np.arange(stop), np.int64)
        return self.node("Range", [self.constant(0, np.int64), self.scalar(stop, np.int64), self.constant(1, np.int64)])


def _tensor(array: Array, name: str) -> Any:
    return onnx.numpy_helper.from_array(np.asarray(array, order="C"), name)


def described(name: str, dtype: DType) -> Any:
    """An operand or a result of a body; its shape follows from what the body is given."""
    return onnx.helper.make_tensor_value_info(name, number_of(dtype), None)


def missing(graph: Graph) -> set[str]:
    """The primitives in ``graph`` and its regions without a form in ONNX, each with the reason."""
    found: set[str] = set()
    for node in graph.live_nodes():
        if node.op.name not in RULES and not node.op.name.startswith(_WHOLE):
            found.add(f"{node.op.name} ({REFUSED.get(node.op.name, 'it lacks an export rule')})")
        elif any(v.dtype.is_complex for v in (*node.inputs, *node.outputs)):
            found.add(f"{node.op.name} of complex numbers ({NO_COMPLEX})")
        for region in node.attrs.values():
            if isinstance(region, Graph):
                found |= missing(region)
    return found
