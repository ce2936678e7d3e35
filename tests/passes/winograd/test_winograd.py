"""3x3 convolutions and gradients of their weights by transformed tiles against the definition in float64, and which are
computed so."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tracecomp as tc
from tests.codegen.running import SHARING, compile_graph, run_built, run_native, same_bits
from tests.references import by_numpy
from tracecomp.ir.graph import Graph
from tracecomp.ir.loop_printer import print_program
from tracecomp.ir.types import DType, TensorType, float16, float32, float64
from tracecomp.nn import functional as F
from tracecomp.passes.building import build
from tracecomp.passes.winograd import selection

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
    return "local tiles" in print_program(build(graph).program)


def by_tiles(graph: Graph, arrays: list[Any]) -> list[Any]:
    """The outputs of a graph, some kernel of which transforms tiles."""
    built, executable = compile_graph(graph)
    assert "local tiles" in print_program(built.program)
    return run_built(built, executable, graph, arrays)


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("dtype", "most"), [(float32, 1e-6), (float64, 2e-15)])
@pytest.mark.parametrize("sizes", SIZES)
def test_convolutions(sizes: Sizes, dtype: DType, most: float) -> None:
    """The error, in units of the largest sum of absolute terms."""
    arrays = operands(sizes, dtype.numpy)
    x, w, b, z = arrays
    want = np.maximum(defined(x, w) + b + z, 0)
    have = by_tiles(graph_of(sizes, dtype), arrays)[0][0]
    assert np.abs(have - want).max() <= most * defined(np.abs(x), np.abs(w)).max()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("sizes", SIZES)
def test_blocks_and_threads_do_not_show(sizes: Sizes) -> None:
    graph, arrays = graph_of(sizes), operands(sizes)
    built, executable = compile_graph(graph)
    have = run_built(built, executable, graph, arrays)[0]
    for wanted in (1, 3, 50):
        built, executable = compile_graph(graph, machine=SHARING.tuned(winograd_blocks=wanted))
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
        ((1, 16, 3, 3, 16), {}),
        ((9, 16, 5, 5, 32), {}),
        ((99, 32, 3, 3, 32), {}),
    ],
)
def test_other_convolutions_are_computed_window_by_window(sizes: Sizes, steps: dict[str, Any]) -> None:
    assert not transforms(graph_of(sizes, **steps))


def test_the_number_of_images_does_not_show() -> None:
    """An image's result has the same bits alone, where there are few tiles, as among many."""
    many = operands((9, 16, 4, 4, 16))
    have = run_native(graph_of((9, 16, 4, 4, 16)), many)[0]
    x, w, b, z = many
    graph = graph_of((1, 16, 4, 4, 16))
    built, executable = compile_graph(graph)
    assert "local tiles" in print_program(built.program)
    for n in range(9):
        alone = run_built(built, executable, graph, [x[n : n + 1], w, b, z[:, n : n + 1]])[0]
        assert same_bits(alone, have[:, n : n + 1])


def test_blocks_of_tiles_are_no_blocks_of_rows() -> None:
    """A kernel that reads few channels row by row does not change the bits."""
    graph = Graph("two")
    x = graph.add_input(TensorType(float32, (8, 34, 34, 16)), "x")
    weight, mixed = (graph.add_input(TensorType(float32, s), "w") for s in ((40, 16, 3, 3), (40, 16)))
    seen = graph.apply("windows", x, sizes=(3, 3, 16), strides=(1, 1, 1), dilations=(1, 1, 1))
    y = graph.apply("relu", graph.apply("contract", seen, weight, spec="nuvzxyc,ocxy->znuvo"))
    rows = graph.apply("reshape", y, shape=(8 * 32 * 32, 40))
    graph.add_output(graph.apply("relu", graph.apply("contract", rows, mixed, spec="ko,om->km")), "z")
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(i.value.shape).astype(np.float32) for i in graph.inputs]
    assert same_bits(by_tiles(graph, arrays)[0], run_native(graph, arrays, fusion=False)[0])


GRADIENTS: list[Sizes] = [
    (2, 32, 12, 14, 32), (1, 33, 14, 20, 70), (3, 40, 13, 15, 64), (1, 160, 18, 18, 96), (5, 16, 16, 16, 16),
    (1, 65, 44, 46, 20), (2, 24, 41, 46, 40),
]  # fmt: skip
"""In addition to ``SIZES``: several parts, runs of channels, remainders of both."""


def gradient_of(sizes: Sizes, dtype: DType = float32, first: bool = False, kernel: int = 3, step: int = 1) -> Graph:
    """A step of the weights along their gradient, from channels-last images.

    ``first``: the result's gradient has channels first.
    """
    n, c, h, w, o = sizes
    graph = Graph("gradient")
    x = graph.add_input(TensorType(dtype, (n, h + 2, w + 2, c)), "x")
    turned = graph.apply("permute", x, dims=(0, 3, 1, 2))
    seen = graph.apply("windows", turned, sizes=(kernel, kernel), strides=(step, step), dilations=(1, 1))
    up, along = seen.shape[2:4]
    g = graph.add_input(TensorType(dtype, (n, o, up, along) if first else (n, up, along, o)), "g")
    spec = "noij,ncijuv->ocuv" if first else "ncijuv,nijo->cuvo"
    slope = graph.apply("contract", *((g, seen) if first else (seen, g)), spec=spec)
    weights = graph.add_input(TensorType(dtype, slope.shape), "w")
    graph.add_output(graph.apply("sub", weights, slope), "new")
    return graph


def gradient_operands(sizes: Sizes, dtype: Any, first: bool) -> list[Any]:
    n, c, h, w, o = sizes
    rng = np.random.default_rng(0)
    shapes = [(n, h + 2, w + 2, c), (n, o, h, w) if first else (n, h, w, o), (o, c, 3, 3) if first else (c, 3, 3, o)]
    return [rng.standard_normal(s).astype(dtype) for s in shapes]


def defined_gradient(x: Any, g: Any, first: bool) -> Any:
    """The weights' gradient in float64, in the order of the graph's result."""
    x, g = x.astype(np.float64), (g.transpose(0, 2, 3, 1) if first else g).astype(np.float64)
    h, v = g.shape[1:3]
    places = [[np.tensordot(x[:, i : i + h, j : j + v], g, ((0, 1, 2),) * 2) for j in range(3)] for i in range(3)]
    return np.array(places).transpose(3, 2, 0, 1) if first else np.array(places).transpose(2, 0, 1, 3)


@pytest.mark.sampled(30)
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize(("dtype", "most"), [(float16, 5e-4), (float32, 3e-7), (float64, 1e-15)])
@pytest.mark.parametrize("sizes", GRADIENTS)
def test_weight_gradients(sizes: Sizes, dtype: DType, most: float, first: bool) -> None:
    """The error, in units of the largest sum of absolute terms."""
    graph, arrays = gradient_of(sizes, dtype, first), gradient_operands(sizes, dtype.numpy, first)
    x, g, w = arrays
    error = np.abs(by_tiles(graph, arrays)[0] - (w - defined_gradient(x, g, first))).max()
    assert error <= most * defined_gradient(np.abs(x), np.abs(g), first).max()


@pytest.mark.sampled(14)
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("sizes", GRADIENTS)
def test_blocks_and_threads_do_not_show_in_weight_gradients(sizes: Sizes, first: bool) -> None:
    graph, arrays = gradient_of(sizes, first=first), gradient_operands(sizes, np.float32, first)
    built, executable = compile_graph(graph)
    have = run_built(built, executable, graph, arrays)[0]
    for most in (12 * 16, 1 << 12):
        for l2_bytes in (1 << 16, 1 << 18):
            machine = replace(SHARING.tuned(winograd_run_rows=most), l2_bytes=l2_bytes)
            built, executable = compile_graph(graph, machine=machine)
            for threads in (1, 3):
                assert same_bits(run_built(built, executable, graph, arrays, threads)[0], have)
    built, executable = compile_graph(graph, fusion=False)
    assert same_bits(run_built(built, executable, graph, arrays)[0], have)


@pytest.mark.parametrize("first", [False, True])
def test_totals_of_one_part_are_transformed_back_in_cache(first: bool) -> None:
    """In the block that has summed them, with lanes along that axis of the result with the smallest stride."""
    sizes = (1, 130, 14, 14, 140)
    graph, arrays = gradient_of(sizes, first=first), gradient_operands(sizes, np.float32, first)
    built, executable = compile_graph(graph)
    text = print_program(built.program)
    assert 0 < text.index("parallel") < text.index("local totals")
    assert set(re.findall(r"store p\d\[.* (?:(\d+)\*)?lane[vr]", text)) == {"9" if first else ""}
    x, g, w = arrays
    found = [run_built(built, executable, graph, arrays, threads)[0] for threads in (1, 2, 3)]
    most = 3e-7 * defined_gradient(np.abs(x), np.abs(g), first).max()
    assert np.abs(found[0] - (w - defined_gradient(x, g, first))).max() <= most
    assert all(same_bits(other, found[0]) for other in found[1:])


def test_lanes_of_weight_gradients_are_well_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three channels do not fill the lanes, even if their results are contiguous."""
    sizes = (1, 3, 12, 12, 32)
    monkeypatch.setattr(selection, "speed", lambda *_: 2.0)
    graph, arrays = gradient_of(sizes, first=True), gradient_operands(sizes, np.float32, first=True)
    built, executable = compile_graph(graph)
    text = print_program(built.program)
    assert set(re.findall(r"store p\d\[.* (?:(\d+)\*)?lane[vr]", text)) == {"27"}
    x, g, w = arrays
    found = run_built(built, executable, graph, arrays)[0]
    np.testing.assert_allclose(found, w - defined_gradient(x, g, first=True), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("sizes", "change"),
    [
        ((2, 32, 12, 12, 32), {"step": 2}),
        ((2, 32, 12, 12, 32), {"kernel": 2}),
        ((2, 7, 12, 12, 16), {}),
        ((2, 16, 12, 12, 7), {}),
        ((1, 16, 4, 4, 16), {}),
        ((9, 16, 5, 5, 32), {}),
        ((99, 32, 3, 3, 32), {}),
        ((1, 512, 8, 8, 512), {}),
    ],
)
def test_other_weight_gradients_are_summed_element_by_element(sizes: Sizes, change: dict[str, Any]) -> None:
    assert not transforms(gradient_of(sizes, **change))


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
    exact = by_numpy(gradients)(*(tc.tensor(a.astype(np.float64), requires_grad=True) for a in given))
    for have, want in zip(compiled(*leaves), exact, strict=True):
        scale = np.abs(want.detach().numpy()).max()
        np.testing.assert_allclose(have.detach().numpy() / scale, want.detach().numpy() / scale, rtol=0, atol=3e-6)
