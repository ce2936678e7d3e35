"""Pairs of graphs that mean the same to the bit: ``python -m tests.fuzz.equal_graphs --minutes 60 --seed 0``.

A random graph is written a second time with detours that keep its meaning. These are round trips through views, pads
and concatenations, sums with -0.0 and products with 1.0. An elementwise operator moves across a view, and a difference
becomes a sum. Whatever the passes make of the two, and with fusion or without, their results have equal bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.codegen.random_graphs import BINARY, UNARY, Maker
from tests.codegen.running import compile_graph, run_built, run_native, same_bits
from tests.fuzz.command import by_command
from tracecomp.ir.graph import Graph, Value
from tracecomp.ir.interpret import Interpreter
from tracecomp.ir.types import float32, float64

NODES = 9
SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, 3e38], np.float32)

Detour = Callable[[Graph, Value, np.random.Generator], Value]


def _there_and_back(g: Graph, x: Value, rng: np.random.Generator) -> Value:
    dims = tuple(int(d) for d in rng.permutation(x.ndim))
    back = tuple(dims.index(a) for a in range(x.ndim))
    return g.apply("permute", g.apply("permute", x, dims=dims), dims=back)


def _flat(g: Graph, x: Value, rng: np.random.Generator) -> Value:
    return g.apply("reshape", g.apply("reshape", x, shape=(x.type.numel,)), shape=x.shape)


def _flipped_twice(g: Graph, x: Value, rng: np.random.Generator) -> Value:
    axes = tuple(a for a in range(x.ndim) if rng.random() < 0.6)
    return g.apply("flip", g.apply("flip", x, axes=axes), axes=axes) if axes else x


def _padded(g: Graph, x: Value, rng: np.random.Generator) -> Value:
    low, high = (tuple(int(n) for n in rng.integers(0, 3, x.ndim)) for _ in range(2))
    value = float(rng.choice([0.0, -1.5, np.inf]))
    wide = g.apply("pad", x, low=low, high=high, interior=(0,) * x.ndim, value=value)
    stops = tuple(a + n for a, n in zip(low, x.shape, strict=True))
    return g.apply("slice", wide, starts=low, stops=stops, steps=(1,) * x.ndim)


def _in_parts(g: Graph, x: Value, rng: np.random.Generator) -> Value:
    axes = [a for a, n in enumerate(x.shape) if n > 1]
    if not axes:
        return x
    axis = int(rng.choice(axes))
    cut = int(rng.integers(1, x.shape[axis]))

    def part(start: int, stop: int) -> Value:
        starts = tuple(start if a == axis else 0 for a in range(x.ndim))
        stops = tuple(stop if a == axis else n for a, n in enumerate(x.shape))
        return g.apply("slice", x, starts=starts, stops=stops, steps=(1,) * x.ndim)

    return g.apply("concat", part(0, cut), part(cut, x.shape[axis]), axis=axis)


def _of_two(g: Graph, x: Value, rng: np.random.Generator) -> Value:
    """One row of a value that shows ``x`` several times."""
    wide = g.apply("expand", g.apply("reshape", x, shape=(1, *x.shape)), shape=(3, *x.shape))
    row = g.apply("slice", wide, starts=(1,) + (0,) * x.ndim, stops=(2, *x.shape), steps=(1,) * (x.ndim + 1))
    return g.apply("reshape", row, shape=x.shape)


def _in_double(g: Graph, x: Value, rng: np.random.Generator) -> Value:
    return g.apply("cast", g.apply("cast", x, dtype=float64), dtype=float32)


def _neutral(g: Graph, x: Value, rng: np.random.Generator) -> Value:
    op, number = [("mul", 1.0), ("div", 1.0), ("sub", 0.0), ("add", -0.0)][int(rng.integers(4))]
    return g.apply(op, x, g.scalar(number, float32))


def _with_itself(g: Graph, x: Value, rng: np.random.Generator) -> Value:
    return g.apply(str(rng.choice(["maximum", "minimum"])), x, x)


def _negated_twice(g: Graph, x: Value, rng: np.random.Generator) -> Value:
    return g.apply("neg", g.apply("neg", x))


def _chosen(g: Graph, x: Value, rng: np.random.Generator) -> Value:
    return g.apply("where", g.apply("eq", x, x), x, x)


DETOURS: tuple[Detour, ...] = (
    _there_and_back, _flat, _flipped_twice, _padded, _in_parts, _of_two, _in_double, _neutral, _with_itself,
    _negated_twice, _chosen,
)  # fmt: skip


class Rewritten:
    """A copy of a graph with detours."""

    def __init__(self, graph: Graph, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.graph = Graph(f"{graph.name}_rewritten")
        self.values: dict[Value, Value] = {}
        self.taken: list[str] = []
        self.sums = any(n.op.name in ("sum", "contract") for n in graph.nodes)
        """Whether memory layout decides the order of a sum (docs/numerics.md), which a remaining view changes."""
        for i in graph.inputs:
            self.values[i.value] = self._more(
                self.graph.add_input(i.value.type, i.name, i.role, i.data)
                if i.role == "constant" else self.graph.add_input(i.value.type, i.name, i.role)
            )  # fmt: skip
        for node in graph.nodes:
            ins = [self.values[v] for v in node.inputs]
            for old, new in zip(node.outputs, self._node(node, ins), strict=True):
                self.values[old] = self._more(new)
        for o in graph.outputs:
            self.graph.add_output(self.values[o.value], o.name, o.role)

    def _node(self, node: Any, ins: list[Value]) -> tuple[Value, ...]:
        """The node, or what gives the same."""
        g, name, dice = self.graph, node.op.name, self.rng.random()
        if name in BINARY and dice < 0.3:
            a, b = ins
            if name in ("add", "mul"):
                self.taken.append("commuted")
                return (g.apply(name, b, a),)
            if name == "sub":
                self.taken.append("difference as a sum")
                return (g.apply("add", a, g.apply("neg", b)),)
        if name in UNARY and dice < 0.3 and ins[0].ndim and not self.sums:
            self.taken.append("operator before a view")
            axes = (int(self.rng.integers(ins[0].ndim)),)
            return (g.apply("flip", g.apply(name, g.apply("flip", ins[0], axes=axes)), axes=axes),)
        return tuple(g.add(node.op, ins, node.attrs))

    def _more(self, x: Value) -> Value:
        while self.rng.random() < 0.35 and x.dtype is float32 and 0 < x.type.numel < 5000:
            detour = DETOURS[int(self.rng.integers(len(DETOURS)))]
            self.taken.append(detour.__name__)
            x = detour(self.graph, x, self.rng)
        return x


def difference(seed: int, nodes: int) -> str | None:
    """Return the difference between a random graph and the same with detours; None if they agree."""
    graph, arrays = Maker(seed).make(nodes)
    dice = np.random.default_rng(seed)
    for a in arrays:  # numbers on which rewriting goes wrong
        a[dice.random(a.shape) < 0.1] = dice.choice(SPECIAL)
    other = Rewritten(graph, seed)
    with np.errstate(all="ignore"):
        plain, wanted = Interpreter(graph).run(arrays), run_native(graph, arrays)
        built, code = compile_graph(other.graph)
        found = {"native": run_built(built, code, other.graph, arrays)}
        if not other.sums:  # numpy's order depends on memory layout
            found["numpy"] = Interpreter(other.graph).run(arrays)
        found["without fusion"] = run_native(other.graph, arrays, fusion=False)
        found["on two threads"] = run_built(built, code, other.graph, arrays, threads=2)
    for how, results in found.items():
        for n, (a, b) in enumerate(zip(plain if how == "numpy" else wanted, results, strict=True)):
            if not same_bits(np.asarray(a), np.asarray(b)):
                return f"seed {seed}: output {n} differs ({how}), by {', '.join(other.taken)}\n{graph}\n{other.graph}"
    return None


def main() -> int:
    return by_command(__doc__ or "", "pairs", lambda seed: difference(seed, NODES))


if __name__ == "__main__":
    raise SystemExit(main())
