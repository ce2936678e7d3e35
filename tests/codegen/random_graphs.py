"""Random graphs of elementwise operators, views, reductions and contractions, from a seed."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracecomp.ir.graph import Graph, Value
from tracecomp.ir.types import TensorType, float32

UNARY = ("neg", "abs", "exp", "tanh", "sigmoid", "sin", "floor", "sign")
BINARY = ("add", "sub", "mul", "maximum", "minimum", "div")
EXTENTS = (1, 2, 3, 7, 16, 33, 70)


class Maker:
    """Grows a graph by applying random operators to random values made so far."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.graph = Graph(f"random{seed}")
        self.values: list[Value] = []
        self.arrays: list[Any] = []

    def pick(self, options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def make(self, nodes: int) -> tuple[Graph, list[Any]]:
        for n in range(2):
            shape = tuple(self.pick(EXTENTS) for _ in range(self.rng.integers(1, 4)))
            self.values.append(self.graph.add_input(TensorType(float32, shape), f"x{n}"))
            self.arrays.append(self.rng.standard_normal(shape).astype(np.float32))
        steps = (self.unary, self.binary, self.binary, self.reduce, self.normalise, self.view, self.contract, self.pad)
        for _ in range(nodes):
            self.values.append(self.pick(steps)(self.pick(self.values[-6:])))
        for value in dict.fromkeys([self.values[-1], self.pick(self.values[2:]), self.pick(self.values[2:])]):
            self.graph.add_output(value)
        return self.graph, self.arrays

    def unary(self, x: Value) -> Value:
        return self.graph.apply(self.pick(UNARY), x)

    def binary(self, x: Value) -> Value:
        same = [v for v in self.values if v.shape == x.shape]
        other = self.pick(same) if self.rng.random() < 0.7 else self.graph.scalar(float(self.rng.normal()), float32)
        return self.graph.apply(self.pick(BINARY), x, other)

    def reduce(self, x: Value) -> Value:
        axes = tuple(a for a in range(x.ndim) if self.rng.random() < 0.5)
        return self.graph.apply(self.pick(("sum", "max", "min")), x, axes=axes) if axes else self.unary(x)

    def normalise(self, x: Value) -> Value:
        """Something over a row, spread back over the row: what softmax and layer norm are made of."""
        if not x.ndim:
            return self.unary(x)
        axis = int(self.rng.integers(x.ndim))
        total = self.graph.apply(self.pick(("sum", "max")), x, axes=(axis,))
        kept = tuple(1 if a == axis else n for a, n in enumerate(x.shape))
        wide = self.graph.apply("expand", self.graph.apply("reshape", total, shape=kept), shape=x.shape)
        return self.graph.apply(self.pick(BINARY), x, wide)

    def view(self, x: Value) -> Value:
        kind = self.pick(("permute", "flat", "slice", "flip", "split"))
        if kind == "permute" and x.ndim > 1:
            return self.graph.apply("permute", x, dims=tuple(int(d) for d in self.rng.permutation(x.ndim)))
        if kind == "slice" and x.ndim:
            starts = tuple(int(self.rng.integers(n)) for n in x.shape)
            steps = tuple(self.pick((1, 2)) for _ in x.shape)
            return self.graph.apply("slice", x, starts=starts, stops=x.shape, steps=steps)
        if kind == "flip" and x.ndim:
            return self.graph.apply("flip", x, axes=(int(self.rng.integers(x.ndim)),))
        if kind == "split" and x.type.numel % 2 == 0:
            return self.graph.apply("reshape", x, shape=(2, x.type.numel // 2))
        return self.graph.apply("reshape", x, shape=(x.type.numel,))

    def contract(self, x: Value) -> Value:
        rows = x.shape[0] if x.ndim else 1
        flat = x if x.ndim == 2 else self.graph.apply("reshape", x, shape=(rows, x.type.numel // rows))
        spec = self.pick(("mk,nk->mn", "km,kn->mn", "mk,nk->nm"))
        return self.graph.apply("contract", flat, flat, spec=spec) if flat.type.numel < 4000 else self.unary(x)

    def pad(self, x: Value) -> Value:
        if x.type.numel > 4000:
            return self.unary(x)
        low = tuple(int(self.rng.integers(3)) for _ in x.shape)
        high = tuple(int(self.rng.integers(3)) for _ in x.shape)
        return self.graph.apply("pad", x, low=low, high=high, interior=(0,) * x.ndim, value=0.5)
