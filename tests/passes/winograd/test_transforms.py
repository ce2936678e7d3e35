"""Convolutions by transformed tiles, and gradients of their weights, against float64.

For all windows, strides, dilations and groups that have them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tests.codegen.running import SHARING, compile_graph, run_built, run_native, same_bits
from tests.passes.winograd.test_winograd import by_tiles, transforms
from tracecomp.ir.graph import Graph
from tracecomp.ir.types import DType, TensorType, float16, float32, float64
from tracecomp.passes.winograd.transforms import form_of

Ints = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """Images of ``sides`` and channels, filters for each group, windows."""

    images: int
    channels: int
    sides: Ints
    filters: int
    kernel: Ints
    stride: Ints
    dilation: Ints
    groups: int = 1

    @property
    def out(self) -> Ints:
        along = zip(self.sides, self.kernel, self.stride, self.dilation, strict=True)
        return tuple((n - (k - 1) * d - 1) // s + 1 for n, k, s, d in along)

    def arrays(self, dtype: Any) -> list[Any]:
        rng = np.random.default_rng(0)
        x = (self.images, *self.sides, self.groups, self.channels)
        w = (self.groups, self.filters, self.channels, *self.kernel)
        return [rng.standard_normal(s).astype(dtype) for s in (x, w)]

    def graph(self, dtype: DType) -> Graph:
        """The convolution of channels-last images as the layout of axes leaves it."""
        graph = Graph("conv")
        rank = len(self.sides)
        types = [TensorType(dtype, a.shape) for a in self.arrays(np.float32)]
        x, w = map(graph.add_input, types, "xw")
        places, windows = "xyz"[:rank], "rst"[:rank]
        turned = graph.apply("permute", x, dims=(0, rank + 1, *range(1, rank + 1), rank + 2))
        options = {"strides": (*self.stride, 1), "dilations": (*self.dilation, 1)}
        seen = graph.apply("windows", turned, sizes=(*self.kernel, self.channels), **options)
        spec = f"ng{places}u{windows}c,goc{windows}->un{places}go"
        graph.add_output(graph.apply("contract", seen, w, spec=spec), "y")
        return graph

    def gradient(self, dtype: DType) -> Graph:
        """The gradient of the weights, likewise."""
        graph = Graph("gradient")
        rank = len(self.sides)
        types = [TensorType(dtype, a.shape) for a in self.gradient_arrays(np.float32)]
        x, y = map(graph.add_input, types, "xy")
        places, windows = "xyz"[:rank], "rst"[:rank]
        turned = graph.apply("permute", x, dims=(0, rank + 1, rank + 2, *range(1, rank + 1)))
        seen = graph.apply("windows", turned, sizes=self.kernel, strides=self.stride, dilations=self.dilation)
        graph.add_output(graph.apply("contract", seen, y, spec=f"ngc{places}{windows},n{places}go->goc{windows}"), "w")
        return graph

    def gradient_arrays(self, dtype: Any) -> list[Any]:
        y = (self.images, *self.out, self.groups, self.filters)
        return [self.arrays(dtype)[0], np.random.default_rng(1).standard_normal(y).astype(dtype)]

    def defined_gradient(self, x: Any, y: Any) -> Any:
        """The gradient of the weights in float64."""
        x, y = x.astype(np.float64), y.astype(np.float64)
        total = np.zeros((self.groups, self.filters, self.channels, *self.kernel))
        images, results = (f"n{'xyz'[: len(self.sides)]}g{last}" for last in "co")
        for place in np.ndindex(*self.kernel):
            found = np.einsum(f"{images},{results}->goc", self._seen(x, place), y, optimize=True)
            total[(slice(None), slice(None), slice(None), *place)] = found
        return total

    def _seen(self, x: Any, place: Ints) -> Any:
        along = zip(place, self.dilation, self.stride, self.out, strict=True)
        return x[(slice(None), *(slice(k * d, k * d + (n - 1) * s + 1, s) for k, d, s, n in along))]

    def defined(self, x: Any, w: Any) -> Any:
        """The convolution in float64."""
        x, w = x.astype(np.float64), w.astype(np.float64)
        total = np.zeros((self.images, *self.out, self.groups, self.filters))
        for place in np.ndindex(*self.kernel):
            total += np.einsum("n...gc,goc->n...go", self._seen(x, place), w[(..., *place)])
        return total[None]


CASES = [
    Case(4, 128, (29, 34), 96, (3, 3), (2, 2), (1, 1)),
    Case(2, 48, (24, 18), 70, (3, 3), (1, 1), (2, 2)),
    Case(1, 40, (31, 27), 33, (3, 3), (1, 1), (3, 1)),
    Case(4, 64, (34, 20), 64, (3, 3), (2, 1), (1, 2)),
    Case(2, 32, (16, 18), 40, (3, 3), (1, 1), (1, 1), groups=3),
    Case(4, 64, (33, 34), 70, (3, 3), (2, 2), (1, 1), groups=2),
    Case(2, 64, (17, 18), 64, (2, 2), (1, 1), (1, 1)),
    Case(8, 96, (17, 40), 64, (1, 3), (1, 1), (1, 1)),
    Case(4, 64, (28, 30), 64, (4, 4), (2, 2), (1, 1)),
    Case(2, 64, (19, 20), 64, (5, 5), (2, 2), (1, 1)),
    Case(2, 64, (20, 27), 64, (3, 7), (1, 3), (1, 1)),
    Case(2, 48, (17, 18), 64, (4, 4), (1, 1), (1, 1)),
    Case(2, 64, (19, 21), 40, (5, 5), (1, 1), (2, 1)),
    Case(4, 64, (18, 40), 64, (3, 7), (1, 2), (1, 1), groups=2),
    Case(8, 96, (70,), 96, (11,), (1,), (1,)),
    Case(9, 64, (65,), 64, (3,), (1,), (1,)),
    Case(1, 32, (10, 10, 12), 32, (3, 3, 3), (1, 1, 1), (1, 1, 1)),
    Case(1, 64, (8, 8), 40, (3, 3), (1, 1), (1, 1)),
]


@pytest.mark.sampled(76)
@pytest.mark.parametrize(("dtype", "most"), [(float32, 1e-6), (float64, 2e-15), (float16, 1e-3)])
@pytest.mark.parametrize("case", CASES)
def test_convolutions(case: Case, dtype: DType, most: float) -> None:
    """The error, in units of the largest sum of absolute terms."""
    x, w = case.arrays(dtype.numpy)
    have = by_tiles(case.graph(dtype), [x, w])[0][0]
    assert np.abs(have - case.defined(x, w)).max() <= most * case.defined(np.abs(x), np.abs(w)).max()


@pytest.mark.sampled(70)
@pytest.mark.parametrize(("dtype", "most"), [(float32, 1e-6), (float64, 2e-15), (float16, 1e-3)])
@pytest.mark.parametrize("case", CASES)
def test_weight_gradients(case: Case, dtype: DType, most: float) -> None:
    """The error, in units of the largest sum of absolute terms."""
    x, y = case.gradient_arrays(dtype.numpy)
    have = by_tiles(case.gradient(dtype), [x, y])[0]
    assert np.abs(have - case.defined_gradient(x, y)).max() <= most * case.defined_gradient(abs(x), abs(y)).max()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("case", CASES[:6])
def test_threads_and_fusion_do_not_show_in_weight_gradients(case: Case) -> None:
    graph, arrays = case.gradient(float32), case.gradient_arrays("f")
    have = run_native(graph, arrays)[0]
    assert same_bits(run_native(graph, arrays, fusion=False)[0], have)
    built, executable = compile_graph(graph, machine=SHARING)
    for threads in (1, 3):
        assert same_bits(run_built(built, executable, graph, arrays, threads)[0], have)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("case", CASES[:6])
def test_blocks_and_threads_do_not_show(case: Case) -> None:
    graph, arrays = case.graph(float32), case.arrays("f")
    have = run_native(graph, arrays)[0]
    for wanted in (1, 50):
        built, executable = compile_graph(graph, machine=SHARING.tuned(winograd_blocks=wanted))
        for threads in (1, 3):
            assert same_bits(run_built(built, executable, graph, arrays, threads)[0], have)


@pytest.mark.parametrize(
    "case",
    [
        Case(2, 256, (14, 14), 256, (3, 3), (3, 3), (1, 1)),
        Case(2, 256, (14, 14), 256, (7, 7), (1, 1), (1, 1)),
        Case(2, 256, (14, 14), 256, (3, 3), (1, 1), (6, 6)),
        Case(2, 256, (14, 14), 256, (1, 1), (2, 2), (1, 1)),
        Case(2, 256, (8, 2), 256, (8, 2), (1, 1), (1, 1)),
        Case(2, 1, (14, 14), 1, (3, 3), (1, 1), (1, 1), groups=64),
        Case(0, 64, (14, 14), 64, (3, 3), (1, 1), (1, 1)),
    ],
)
def test_other_convolutions_are_computed_window_by_window(case: Case) -> None:
    assert not transforms(case.graph(float32))
    assert not transforms(case.gradient(float32))


def test_forms() -> None:
    """Elements seen, and products for two results."""
    sizes = {
        (1, 1): (2, 2), (2, 1): (3, 3), (3, 1): (4, 4), (3, 2): (5, 5), (4, 2): (6, 6), (7, 3): (10, 10),
        (4, 1): (5, 6), (5, 1): (6, 7), (7, 1): (8, 10), (7, 2): (9, 10), (2, 3): (5, 4),
    }  # fmt: skip
    for (window, stride), want in sizes.items():
        form = form_of(window, stride)
        assert (form.seen, form.places) == want
