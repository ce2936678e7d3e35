"""3x3 convolutions by transformed tiles against the definition in float64, and which convolutions are computed so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracecomp as tc
from tests.native.running import compile_graph, run_built, run_native, same_bits
from tracecomp.ir.graph import Graph
from tracecomp.ir.loop_printer import print_program
from tracecomp.ir.types import DType, TensorType, float32, float64
from tracecomp.nn import functional as F
from tracecomp.passes import winograd

Sizes = tuple[int, int, int, int, int]

SIZES: list[Sizes] = [(2, 32, 12, 14, 32), (1, 33, 14, 20, 70), (3, 40, 13, 15, 64), (1, 160, 18, 18, 96)]
"""Images, channels, rows, columns, filters: odd sides, rests of lanes, several columns of filters, rests of tiles."""


def graph_of(sizes: Sizes, dtype: DType = float32, steps: Any = (1, 1), dilations: Any = (1, 1)) -> Graph:
    """A convolution of channels-last images, spelled as the layout of axes leaves it, and what may follow it."""
    n, c, h, w, o = sizes
    graph = Graph("conv")
    x = graph.add_input(TensorType(dtype, (n, h, w, c)), "x")
    weight = graph.add_input(TensorType(dtype, (o, c, 3, 3)), "w")
    padded = graph.apply("pad", x, low=(0, 1, 1, 0), high=(0, 1, 1, 0), interior=(0,) * 4, value=0.0)
    seen = graph.apply("windows", padded, sizes=(3, 3, c), strides=(*steps, 1), dilations=(*dilations, 1))
    y = graph.apply("contract", seen, weight, spec="nuvzxyc,ocxy->znuvo")
    b = graph.add_input(TensorType(dtype, (o,)), "b")
    z = graph.add_input(TensorType(dtype, y.shape), "z")
    graph.add_output(graph.apply("relu", graph.apply("add", graph.apply("add", y, b), z)), "y")
    return graph


def operands(sizes: Sizes, dtype: Any = np.float32) -> list[Any]:
    n, c, h, w, o = sizes
    rng = np.random.default_rng(0)
    return [rng.standard_normal(s).astype(dtype) for s in ((n, h, w, c), (o, c, 3, 3), (o,), (1, n, h, w, o))]


def defined(x: Any, w: Any) -> Any:
    """The convolution of channels-last images with padding 1, in float64."""
    x, w = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0))).astype(np.float64), w.astype(np.float64)
    h, v = x.shape[1] - 2, x.shape[2] - 2
    places = [(i, j) for i in range(3) for j in range(3)]
    return sum(np.einsum("nhwc,oc->nhwo", x[:, i : i + h, j : j + v], w[:, :, i, j]) for i, j in places)


def transforms(graph: Graph) -> bool:
    """Whether some kernel of the graph's program transforms tiles."""
    built, _ = compile_graph(graph)
    return "products" in print_program(built.program)


@pytest.mark.parametrize(("dtype", "most"), [(float32, 1e-6), (float64, 2e-15)])
@pytest.mark.parametrize("sizes", SIZES)
def test_convolutions(sizes: Sizes, dtype: DType, most: float) -> None:
    """The error, in units of the largest sum of absolute terms."""
    arrays = operands(sizes, dtype.numpy)
    graph = graph_of(sizes, dtype)
    assert transforms(graph)
    x, w, b, z = arrays
    want = np.maximum(defined(x, w) + b + z, 0)
    assert np.abs(run_native(graph, arrays)[0][0] - want).max() <= most * defined(np.abs(x), np.abs(w)).max()


@pytest.mark.parametrize("sizes", SIZES)
def test_blocks_and_threads_do_not_show(sizes: Sizes, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, arrays = graph_of(sizes), operands(sizes)
    built, executable = compile_graph(graph)
    have = run_built(built, executable, graph, arrays)[0]
    monkeypatch.setattr(winograd, "PARALLEL_WORK", 1)
    for wanted in (1, 3, 50):
        monkeypatch.setattr(winograd, "WANTED_BLOCKS", wanted)
        built, executable = compile_graph(graph)
        for threads in (1, 3):
            assert same_bits(run_built(built, executable, graph, arrays, threads)[0], have)
    built, executable = compile_graph(graph, fusion=False)
    assert same_bits(run_built(built, executable, graph, arrays)[0], have)


@pytest.mark.parametrize(
    ("sizes", "steps"),
    [
        ((2, 32, 12, 12, 32), {"steps": (2, 2)}),
        ((2, 32, 12, 12, 32), {"dilations": (1, 5)}),
        ((2, 6, 12, 12, 32), {}),
        ((2, 32, 12, 12, 6), {}),
        ((1, 32, 8, 8, 32), {}),
        ((9, 32, 5, 5, 32), {}),
    ],
)
def test_other_convolutions_are_computed_window_by_window(sizes: Sizes, steps: dict[str, Any]) -> None:
    assert not transforms(graph_of(sizes, **steps))


def test_gradients_through_two_convolutions() -> None:
    """The gradient of the image is a convolution too."""
    rng = np.random.default_rng(0)
    given = [rng.standard_normal(s).astype(np.float32) for s in ((2, 32, 14, 14), (48, 32, 3, 3), (32, 48, 3, 3))]

    def gradients(*leaves: tc.Tensor) -> tuple[tc.Tensor, ...]:
        x, v, w = leaves
        y = F.conv2d(F.relu(F.conv2d(x, v, padding=1)), w, padding=1)
        return (y, *tc.autograd.grad((y * y).sum(), leaves))

    compiled = tc.compile(gradients)
    leaves = [tc.tensor(a, requires_grad=True) for a in given]
    for _ in range(2):
        compiled(*leaves)
    exact = gradients(*(tc.tensor(a.astype(np.float64), requires_grad=True) for a in given))
    for have, want in zip(compiled(*leaves), exact, strict=True):
        scale = np.abs(want.detach().numpy()).max()
        np.testing.assert_allclose(have.detach().numpy() / scale, want.detach().numpy() / scale, rtol=0, atol=3e-6)
