"""Random graphs of small whole numbers in float64: all arithmetic is exact, so every pass must keep every element."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracecomp.ir.graph import Graph, Value
from tracecomp.ir.types import TensorType, bool_, float64, int64
from tracecomp.ops.convolution import conv_size

Array = np.ndarray[Any, Any]

BINARY = ("add", "sub", "mul", "maximum", "minimum")
LIMIT = 3000


class Maker:
    """Grows a graph by random operators on random values made so far."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.graph = Graph(f"random{seed}")
        self.values: list[Value] = []
        self.arrays: list[Array] = []

    def make(self, nodes: int) -> tuple[Graph, list[Array]]:
        for shape in ((2, 3, 6, 5), (3,), self.shape(3)):
            self.given(shape)
        steps = [
            self.elementwise, self.broadcast, self.scalar, self.where, self.cast, self.permute, self.reshape,
            self.slice, self.expand, self.flip, self.pad, self.concat, self.reduce, self.normalise, self.argument,
            self.contract,
            self.convolve, self.convolve, self.transposed, self.weight, self.pool, self.fold, self.take,
        ]  # fmt: skip
        for _ in range(nodes):
            made = steps[self.below(len(steps))](self.any_of(self.values[-8:]))
            if made is not None and 0 < made.type.numel <= LIMIT:
                self.values.append(self.graph.apply("remainder", made, self.graph.scalar(11.0, float64)))
        for value in dict.fromkeys([self.values[-1], self.any_of(self.values), self.any_of(self.values)]):
            self.graph.add_output(value)
        return self.graph, self.arrays

    def below(self, n: int) -> int:
        return int(self.rng.integers(n))

    def any_of(self, options: Any) -> Any:
        return options[self.below(len(options))]

    def shape(self, rank: int) -> tuple[int, ...]:
        return tuple(self.any_of((1, 2, 3, 4, 6)) for _ in range(rank))

    def given(self, shape: tuple[int, ...]) -> Value:
        value = self.graph.add_input(TensorType(float64, shape), f"x{len(self.arrays)}")
        self.arrays.append(self.rng.integers(-4, 5, shape).astype(np.float64))
        self.values.append(value)
        return value

    def images(self) -> Value:
        """Some value with batch, channels and two spatial axes."""
        return self.any_of([v for v in self.values if v.ndim == 4 and min(v.shape) > 0])

    # ---- scalars

    def elementwise(self, x: Value) -> Value:
        other = self.any_of([v for v in self.values if v.shape == x.shape])
        return self.graph.apply(self.any_of(BINARY), x, other)

    def broadcast(self, x: Value) -> Value:
        shape = tuple(n if self.below(2) else 1 for n in x.shape)[self.below(x.ndim + 1) :]
        operands = [x, self.given(shape)]
        return self.graph.apply(self.any_of(BINARY), *(operands if self.below(2) else operands[::-1]))

    def scalar(self, x: Value) -> Value:
        if self.below(3) == 0:
            return self.graph.apply(self.any_of(("neg", "abs", "floor", "sign")), x)
        number = self.graph.scalar(self.any_of((0.0, -0.0, 1.0, -1.0, 2.0, 3.0)), float64)
        return self.graph.apply(self.any_of(BINARY), *((x, number) if self.below(2) else (number, x)))

    def where(self, x: Value) -> Value:
        other = self.any_of([v for v in self.values if v.shape == x.shape])
        test = self.graph.apply(self.any_of(("lt", "eq", "ge", "ne")), x, other)
        test = self.graph.apply("logical_not", test) if self.below(2) else test
        return self.graph.apply("where", test, other, self.graph.scalar(1.0, float64) if self.below(2) else x)

    def cast(self, x: Value) -> Value:
        there = self.graph.apply("cast", x, dtype=self.any_of((int64, bool_)))
        return self.graph.apply("cast", there, dtype=float64)

    # ---- shapes

    def permute(self, x: Value) -> Value:
        return self.graph.apply("permute", x, dims=tuple(int(d) for d in self.rng.permutation(x.ndim)))

    def reshape(self, x: Value) -> Value:
        shape = list(x.shape)
        for _ in range(2):
            kind, at = self.below(3), self.below(len(shape) + 1)
            if kind == 0 and at + 1 < len(shape):
                shape[at : at + 2] = [shape[at] * shape[at + 1]]
            elif kind == 1 and at < len(shape) and shape[at] % 2 == 0:
                shape[at : at + 1] = [shape[at] // 2, 2]
            else:
                shape.insert(at, 1)
        return self.graph.apply("reshape", x, shape=tuple(shape))

    def slice(self, x: Value) -> Value:
        starts = tuple(self.below(n) for n in x.shape)
        stops = tuple(s + 1 + self.below(n - s) for s, n in zip(starts, x.shape, strict=True))
        return self.graph.apply("slice", x, starts=starts, stops=stops, steps=tuple(1 + self.below(2) for _ in x.shape))

    def expand(self, x: Value) -> Value:
        shape = tuple(3 if n == 1 else n for n in x.shape)
        return self.graph.apply("expand", x, shape=(2, *shape) if self.below(2) and x.ndim < 4 else shape)

    def flip(self, x: Value) -> Value:
        return self.graph.apply("flip", x, axes=tuple(d for d in range(x.ndim) if self.below(2)))

    def pad(self, x: Value) -> Value:
        low, high = (tuple(self.below(4) - 1 if n > 2 else self.below(2) for n in x.shape) for _ in range(2))
        interior = tuple(self.below(2) * self.below(2) for _ in x.shape)
        return self.graph.apply("pad", x, low=low, high=high, interior=interior, value=self.any_of((0.0, 2.0)))

    def concat(self, x: Value) -> Value | None:
        if not x.ndim:
            return None
        axis = self.below(x.ndim)
        alike = [
            v for v in self.values
            if v.ndim == x.ndim and v.shape[:axis] + v.shape[axis + 1 :] == x.shape[:axis] + x.shape[axis + 1 :]
        ]  # fmt: skip
        return self.graph.apply("concat", *(self.any_of(alike) for _ in range(1 + self.below(3))), axis=axis)

    # ---- reductions and contractions

    def reduce(self, x: Value) -> Value:
        axes = tuple(d for d in range(x.ndim) if self.below(2))
        return self.graph.apply(self.any_of(("sum", "max", "min")), x, axes=axes)

    def normalise(self, x: Value) -> Value | None:
        if not x.ndim:
            return None
        axis = self.below(x.ndim)
        row = self.graph.apply(self.any_of(("sum", "max")), x, axes=(axis,))
        kept = tuple(1 if d == axis else n for d, n in enumerate(x.shape))
        return self.graph.apply("sub", x, self.graph.apply("reshape", row, shape=kept))

    def argument(self, x: Value) -> Value | None:
        if not x.ndim:
            return None
        found = self.graph.apply(self.any_of(("argmax", "argmin")), x, axes=(self.below(x.ndim),))
        return self.graph.apply("cast", found, dtype=float64)

    def contract(self, x: Value) -> Value:
        labels = "abcdefghijklm"[: x.ndim]
        roles = [self.below(4) for _ in labels]
        shared = [c for c, r in zip(labels, roles, strict=True) if r < 3]
        sizes = dict(zip(labels, x.shape, strict=True))
        extra = "xy"[: self.below(3)]
        own = [*shared, *extra]
        order = [own[int(i)] for i in self.rng.permutation(len(own))]
        other = self.given(tuple(sizes.get(c, 2 + self.below(2)) for c in order))
        out = [c for c, r in zip(labels, roles, strict=True) if r in (0, 3)] + list(extra)
        out = [out[int(i)] for i in self.rng.permutation(len(out))]
        pair = [(x, labels), (other, "".join(order))]
        (a, p), (b, q) = pair if self.below(2) else pair[::-1]
        return self.graph.apply("contract", a, b, spec=f"{p},{q}->{''.join(out)}")

    # ---- images

    def geometry(self, kernel: tuple[int, ...], groups: int) -> dict[str, Any]:
        padding = tuple((self.below(3), self.below(2)) for _ in kernel)
        stride, dilation = (tuple(1 + self.below(2) for _ in kernel) for _ in range(2))
        return {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}

    def relation(self) -> tuple[Value, tuple[int, ...], dict[str, Any], tuple[int, ...]] | None:
        """An image, a weight's shape, attributes, the convolution's shape; None when the kernel is too large."""
        x = self.images()
        groups = self.any_of([n for n in (1, 1, 2, 3, x.shape[1]) if x.shape[1] % n == 0])
        kernel = (1 + self.below(3), 1 + self.below(3))
        weight = (groups * self.any_of((1, 2)), x.shape[1] // groups, *kernel)
        attrs = self.geometry(kernel, groups)
        size = conv_size(x.shape[2:], kernel, attrs["stride"], attrs["padding"], attrs["dilation"])
        return (x, weight, attrs, (x.shape[0], weight[0], *size)) if min(size) > 0 else None

    def convolve(self, _: Value) -> Value | None:
        found = self.relation()
        return found and self.graph.apply("conv", found[0], self.given(found[1]), **found[2])

    def transposed(self, _: Value) -> Value | None:
        found = self.relation()
        if found is None:
            return None
        x, weight, attrs, out = found
        return self.graph.apply("conv_transpose", self.given(out), self.given(weight), size=x.shape[2:], **attrs)

    def weight(self, _: Value) -> Value | None:
        found = self.relation()
        if found is None:
            return None
        x, weight, attrs, out = found
        return self.graph.apply("conv_weight", x, self.given(out), kernel=weight[2:], **attrs)

    def window(self, x: Value) -> dict[str, Any]:
        sizes = tuple(1 + self.below(min(n, 3)) for n in x.shape[2:])
        strides = sizes if self.below(2) else tuple(1 + self.below(2) for _ in sizes)
        return {"sizes": sizes, "strides": strides, "dilations": (1,) * len(sizes)}

    def pool(self, _: Value) -> Value:
        x = self.images()
        windows = self.graph.apply("windows", x, **self.window(x))
        return self.graph.apply(self.any_of(("max", "sum")), windows, axes=(4, 5))

    def fold(self, _: Value) -> Value:
        x = self.images()
        attrs = self.window(x)
        return self.graph.apply("fold", self.graph.apply("windows", x, **attrs), shape=x.shape, **attrs)

    def take(self, x: Value) -> Value | None:
        if not x.ndim:
            return None
        axis = self.below(x.ndim)
        places = self.graph.apply("iota", shape=(x.shape[axis],), axis=0, dtype=int64)
        if self.below(2):
            places = self.graph.apply("flip", places, axes=(0,))
        return self.graph.apply("take", x, places, axis=axis)
