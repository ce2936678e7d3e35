"""Shapes that choose particular schedules, compiled against numpy: the samples of operators are too small to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracecomp as tc
from tests.references import by_numpy
from tracecomp.base import config
from tracecomp.ir.graph import Graph
from tracecomp.ir.loop_printer import print_program
from tracecomp.ir.op import OPS
from tracecomp.ir.program import call_steps
from tracecomp.ir.types import TensorType, float32
from tracecomp.nn import functional as F
from tracecomp.passes.building import build
from tracecomp.passes.cost.machine import Machine, host, on
from tracecomp.passes.schedule import elementwise


def normal(*shape: int, seed: int = 0) -> tc.Tensor:
    return tc.tensor(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def compiled(f: Callable[..., Any], *args: Any, threads: int | None = None) -> Any:
    """The result of the native program: the third call."""
    c = tc.compile(f, threads=threads)
    for _ in range(2):
        c(*args)
    return c(*args)


ACROSS: dict[str, Callable[[tc.Tensor], Any]] = {
    "sum": lambda x: x.sum(),
    "row sums of squares": lambda x: x.square().sum(-1),
    "var": lambda x: x.var(),
    "norm": lambda x: x.norm(),
    "argmax": lambda x: x.argmax(),
    "softmax": lambda x: x.softmax(-1),
    "prod of halves": lambda x: (x.half() * 0.01 + 1).prod(-1),
    "log_softmax of numbers beside it": lambda x: (x.log_softmax(-1), x * 2, x.amin(0)),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ACROSS)
@pytest.mark.parametrize(("shape", "dims"), [((331, 70), (1, 0)), ((67, 3, 129), (2, 0, 1)), ((40, 9, 90), (2, 1, 0))])
def test_reductions_along_rows_that_lie_across_memory(name: str, shape: tuple[int, ...], dims: tuple[int, ...]) -> None:
    x, f = normal(*shape), ACROSS[name]
    found, want = compiled(lambda x: f(x.permute(dims)), x), f(x.permute(dims).contiguous())
    pairs = zip(found, want, strict=True) if isinstance(found, tuple) else [(found, want)]
    assert all(a.numpy().tobytes() == b.numpy().tobytes() for a, b in pairs)


@pytest.mark.parametrize(("shape", "axes", "turned_first"), [
    ((300, 200), (0, 1), True), ((300, 200), (1,), False), ((30, 20), (0, 1), False),
])  # fmt: skip
def test_what_is_reduced_across_memory_is_turned_first(shape: Any, axes: Any, turned_first: bool) -> None:
    graph = Graph("sum")
    x = graph.add_input(TensorType(float32, shape), "x")
    turned = graph.add(OPS["permute"], [x], {"dims": (1, 0)})[0]
    graph.add_output(graph.add(OPS["sum"], [turned], {"axes": axes})[0])
    labels = [step.label for step in call_steps(build(graph).program.steps)]
    assert ("permute" in labels[0]) is turned_first


@pytest.mark.parametrize("width", [4, 17, 37])
@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_interleaved_rows(count: int, width: int) -> None:
    x = normal(3, count, width)
    assert np.array_equal(compiled(lambda x: x.permute(0, 2, 1) + 1, x).numpy(), x.numpy().swapaxes(1, 2) + 1)


@pytest.mark.parametrize("step", [5, 7, 16, 61])
def test_lanes_far_apart(step: int) -> None:
    x = normal(9, 1003)
    assert np.array_equal(compiled(lambda x: x[:, ::step] * 2, x).numpy(), x.numpy()[:, ::step] * 2)


@pytest.mark.parametrize("rows, columns, inner", [(3, 3, 17), (4, 7, 64), (8, 50, 200), (13, 5, 333), (64, 3, 100)])
def test_products_summed_in_lanes(rows: int, columns: int, inner: int) -> None:
    x, w = normal(rows, inner), normal(columns, inner, seed=1)
    want = x.numpy().astype(np.float64) @ w.numpy().astype(np.float64).T
    np.testing.assert_allclose(compiled(lambda x, w: x @ w.t(), x, w).numpy(), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("shape", "dims"),
    [
        ((2, 2, 3, 5, 6, 40), (2, 5, 3, 0, 4, 1)),
        ((3, 3, 2, 10, 7, 35), (2, 5, 3, 0, 4, 1)),
        ((2, 100, 70), (2, 1, 0)),
        ((3, 41, 50), (2, 1, 0)),
    ],
)
def test_transposes_that_interleave(shape: tuple[int, ...], dims: tuple[int, ...]) -> None:
    x = tc.rand(*shape)
    assert np.array_equal(compiled(lambda x: x.permute(dims) + 1, x).numpy(), x.numpy().transpose(dims) + 1)


@pytest.mark.parametrize("stride", [1, 2, 3])
def test_large_depthwise_convolutions(stride: int) -> None:
    """Padded in blocks, whose windows may be strided."""
    x, w = normal(8, 96, 29, 28), normal(96, 1, 3, 3, seed=1)
    found = compiled(lambda x, w: F.conv2d(x, w, stride=stride, padding=1, groups=96), x, w).numpy()
    want = by_numpy(F.conv2d)(x, w, stride=stride, padding=1, groups=96).numpy()
    np.testing.assert_allclose(found, want, rtol=0, atol=1e-5)


@pytest.mark.sampled(33)
@pytest.mark.parametrize("dtype", [tc.float32, tc.float64, tc.float16])
@pytest.mark.parametrize(
    ("shape", "per_group", "kernel", "padding", "stride"),
    [
        ((2, 5, 28, 28), 1, (3, 3), (1, 1), 1),
        ((1, 4, 7, 45), 2, (3, 3), (2, 1), 1),
        ((2, 3, 30, 17), 1, (5, 5), (4, 2), 1),
        ((1, 6, 16, 70), 1, (2, 4), (1, 3), 1),
        ((3, 2, 3, 3), 1, (3, 3), (5, 5), 1),
        ((9, 4, 7, 7), 1, (3, 3), (1, 1), 1),
        ((2, 3, 14, 14), 1, (7, 7), (3, 3), 1),
        ((1, 3, 56, 40), 1, (7, 7), (3, 3), 1),
        ((2, 5, 28, 28), 1, (3, 3), (1, 1), 2),
        ((2, 4, 60, 41), 1, (5, 5), (2, 2), 2),
        ((1, 3, 37, 70), 1, (5, 4), (3, 2), 3),
    ],
)
def test_padding_that_windows_mask(
    shape: tuple[int, ...], per_group: int, kernel: tuple[int, ...], padding: tuple[int, ...], stride: int, dtype: Any
) -> None:
    """Check the forward pass and the gradient of the image, where every channel has separate filters."""
    groups = shape[1]
    x = normal(*shape).to(dtype)
    w = normal(groups * per_group, 1, *kernel, seed=1).to(dtype)

    def both(x: Any, w: Any) -> Any:
        x = x.detach().requires_grad_()
        y = F.conv2d(x, w, padding=padding, stride=stride, groups=groups)
        return y.detach(), tc.autograd.grad(y.sum(), x)[0]

    for found, want in zip(compiled(both, x, w), by_numpy(both)(x.double(), w.double()), strict=True):
        error = np.abs(found.numpy().astype(np.float64) - want.numpy()).max()
        assert error <= max(40, 2 * prod(kernel)) * np.finfo(found.numpy().dtype).eps


def test_a_single_weight_of_half_precision() -> None:
    """Phases of the gradient of the image have one place of the kernel."""
    x, w = normal(2, 1, 24, 29).to(tc.float16), normal(1, 1, 3, 3, seed=1).to(tc.float16)

    def gradient(x: Any, w: Any) -> Any:
        x = x.detach().requires_grad_()
        return tc.autograd.grad(F.conv2d(x, w, stride=(3, 2), padding=(1, 4), dilation=(2, 1)).sum(), x)[0]

    want = by_numpy(gradient)(x.double(), w.double()).numpy()
    np.testing.assert_allclose(compiled(gradient, x, w).numpy(), want, rtol=2e-3, atol=2e-3)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("transposed", ["nn", "tn", "nt", "tt"])
@pytest.mark.parametrize("batch, rows, inner, columns", [(1, 301, 300, 600), (1, 70, 260, 517), (3, 260, 270, 515)])
def test_products_packed_by_blocks(transposed: str, batch: int, rows: int, inner: int, columns: int) -> None:
    """Rows of 2 KB and more, so operands are packed and read ahead; blocks of rows and columns have rests."""
    x, y = normal(batch, rows, inner), normal(batch, inner, columns, seed=1)
    want = x.numpy().astype(np.float64) @ y.numpy().astype(np.float64)
    first, second = (o == "t" for o in transposed)
    x, y = x.mT.contiguous() if first else x, y.mT.contiguous() if second else y

    def product(x: tc.Tensor, y: tc.Tensor) -> tc.Tensor:
        return (x.mT if first else x) @ (y.mT if second else y)

    results = [compiled(product, x, y, threads=n).numpy() for n in (1, 2)]
    np.testing.assert_allclose(results[0], want, rtol=1e-4, atol=1e-3)
    assert np.array_equal(results[0], results[1])


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "kernel, dilation, size", [(3, 1, (14, 14)), (3, 1, (31, 45)), (3, 2, (20, 19)), (5, 1, (9, 30))]
)
def test_depthwise_convolutions_and_their_gradients(kernel: int, dilation: int, size: tuple[int, int]) -> None:
    x, w = normal(2, 6, *size), normal(6, 1, kernel, kernel, seed=1)

    def f(x: tc.Tensor, w: tc.Tensor) -> tuple[tc.Tensor, ...]:
        x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
        y = F.conv2d(x, w, groups=6, padding=1, dilation=dilation)
        return y.detach(), *tc.autograd.grad((y * y).sum(), (x, w))

    for have, want in zip(compiled(f, x, w), by_numpy(f)(x, w), strict=True):
        np.testing.assert_allclose(have.numpy(), want.numpy(), rtol=1e-4, atol=1e-3)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "stride, padding, kernel, side",
    [(2, 1, 3, 12), (2, 0, 3, 11), (3, 2, 4, 13), (2, 1, 2, 9), (2, 0, 1, 28), (3, 0, 1, 40), (4, 0, 1, 41)],
)
def test_gradients_of_strided_convolutions(stride: int, padding: int, kernel: int, side: int) -> None:
    x, w = normal(2, 3, side, side + 1), normal(5, 3, kernel, kernel, seed=1)

    def f(x: tc.Tensor, w: tc.Tensor) -> tc.Tensor:
        x = x.detach().requires_grad_()
        y = F.conv2d(x, w, stride=stride, padding=padding)
        return tc.autograd.grad((y * y).sum(), x)[0]

    np.testing.assert_allclose(compiled(f, x, w).numpy(), by_numpy(f)(x, w).numpy(), rtol=1e-4, atol=1e-3)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("stride, kernel, side", [(1, 3, 24), (2, 3, 14), (2, 5, 15), (1, 7, 9)])
def test_depthwise_gradients_of_data_that_lie_channels_last(stride: int, kernel: int, side: int) -> None:
    x, w = normal(2, side, side, 40), normal(40, 1, kernel, kernel, seed=1)

    def f(x: tc.Tensor, w: tc.Tensor) -> tuple[tc.Tensor, ...]:
        image, w = x.permute(0, 3, 1, 2).detach().requires_grad_(), w.detach().requires_grad_()
        y = F.conv2d(image, w, stride=stride, padding=kernel // 2, groups=40)
        gradient, of_weights = tc.autograd.grad((y * y).sum(), (image, w))
        return gradient.permute(0, 2, 3, 1) + 1, of_weights

    results = [compiled(f, x, w, threads=n) for n in (1, 2)]
    for have, same, want in zip(*results, by_numpy(f)(x, w), strict=True):
        np.testing.assert_allclose(have.numpy(), want.numpy(), rtol=1e-4, atol=2e-3)
        assert np.array_equal(have.numpy(), same.numpy())


@pytest.mark.sampled(3)
@pytest.mark.parametrize("batch, channels, filters, side", [(1, 200, 333, 7), (3, 256, 192, 2), (2, 144, 260, 9)])
def test_many_weights_that_few_results_read(batch: int, channels: int, filters: int, side: int) -> None:
    """Each block packs its own; the gradient's windows are flipped."""
    x, w = normal(batch, channels, side, side), normal(filters, channels, 3, 3, seed=1)

    def f(x: tc.Tensor, w: tc.Tensor) -> tuple[tc.Tensor, ...]:
        x = x.detach().requires_grad_()
        y = F.conv2d(x, w, padding=1)
        return y.detach(), tc.autograd.grad(y.sum(), x)[0]

    results = [compiled(f, x, w, threads=n) for n in (1, 2)]
    for have, same, want in zip(*results, by_numpy(f)(x, w), strict=True):
        np.testing.assert_allclose(have.numpy(), want.numpy(), rtol=1e-4, atol=2e-3)
        assert np.array_equal(have.numpy(), same.numpy())


@pytest.mark.parametrize("size, count", [(40, 5), (1000, 5), (1003, 64), (700, 128), (700, 129)])
@pytest.mark.parametrize("order", ["random", "rising", "falling", "equal"])
def test_first_elements_in_order(order: str, size: int, count: int) -> None:
    x = np.random.default_rng(0).integers(0, size, (3, size)).astype(np.float32)
    x = {"random": x, "rising": np.sort(x), "falling": -np.sort(x), "equal": 0 * x}[order]
    if order == "random":
        x[:, ::50] = np.nan
    values, places = compiled(lambda x: tuple(tc.topk(x, count)), tc.tensor(x))
    want = np.argsort(-np.nan_to_num(x, nan=np.inf), axis=1, kind="stable")[:, :count]
    assert np.array_equal(places.numpy(), want)
    assert np.array_equal(values.numpy(), np.take_along_axis(x, want, 1), equal_nan=True)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("rows, columns", [(64, 200), (130, 65), (16, 1000), (257, 191), (2048, 63)])
@pytest.mark.parametrize("leading", [(), (3,)])
def test_transposes_in_stripes(rows: int, columns: int, leading: tuple[int, ...]) -> None:
    x = normal(*leading, rows, columns)
    found = compiled(lambda x: x.transpose(-1, -2) + 1, x).numpy()
    assert np.array_equal(found, x.numpy().swapaxes(-1, -2) + 1)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("shapes", [((5, 6, 7),) * 3, ((64, 16, 40),) * 2, ((70, 90, 120),) * 3])
def test_concatenated_and_padded(shapes: tuple[tuple[int, ...], ...], axis: int) -> None:
    each = [normal(*s, seed=n) for n, s in enumerate(shapes)]
    want = np.concatenate([x.numpy() for x in each], axis)
    assert np.array_equal(compiled(lambda *each: tc.cat(each, axis), *each).numpy(), want)
    found = compiled(lambda x: F.pad(x, (1, 2, 3, 0)) * 2, each[0]).numpy()
    assert np.array_equal(found, np.pad(each[0].numpy() * 2, ((0, 0), (3, 0), (1, 2))))


@pytest.mark.parametrize("parts", [3, 9, 25, 58])
def test_parts_of_a_long_concatenation_are_copied_one_by_one(parts: int) -> None:
    """Each element is loaded once, without a condition, also where parts are views of memory in another layout."""
    each = [normal(2, 32, 8, 8, seed=n).contiguous(memory_format=tc.channels_last) for n in range(parts)]
    graph = tc.trace(lambda *each: tc.cat([x.permute(0, 2, 3, 1) for x in each], 3), *each)
    text = print_program(build(graph).program)
    assert text.count("store ") >= parts and "where" not in text and "select" not in text
    found = compiled(lambda *each: tc.cat([x.permute(0, 2, 3, 1) for x in each], 3), *each)
    assert np.array_equal(found.numpy(), np.concatenate([x.numpy().transpose(0, 2, 3, 1) for x in each], 3))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("columns", [9, 40, 64, 77, 512])
def test_largest_and_smallest_with_nan_anywhere(columns: int) -> None:
    x = np.random.default_rng(0).standard_normal((columns + 1, columns)).astype(np.float32) * 50
    x[range(columns), range(columns)] = np.nan
    x[:, 3] = np.where(np.isnan(x[:, 3]), np.nan, -np.inf)
    found = compiled(lambda t: (t.amax(1), t.amin(1)), tc.tensor(x))
    for have, want in zip(found, (x.max(1), x.min(1)), strict=True):
        assert np.array_equal(have.numpy(), want, equal_nan=True)


@pytest.mark.sampled(7)
@pytest.mark.parametrize("shape", [(5, 9), (7, 512), (3, 777), (2, 33_000), (40, 3)])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_softmax_and_values_that_several_sweeps_read(shape: tuple[int, int], axis: int, dtype: type) -> None:
    x = np.random.default_rng(0).standard_normal(shape) * 5
    x[0, 1] = -np.inf
    given = tc.tensor(x.astype(dtype))
    wide = given.numpy().astype(np.float64)
    e = np.exp(wide - wide.max(axis, keepdims=True))
    want = e / e.sum(axis, keepdims=True)
    tolerance: dict[str, Any] = {"atol": 1e-3} if dtype is np.float16 else {"rtol": 1e-5, "atol": 1e-9}
    np.testing.assert_allclose(compiled(lambda t: tc.softmax(t, axis), given).numpy(), want, **tolerance)

    def several(t: tc.Tensor) -> tuple[tc.Tensor, ...]:
        e = tc.exp(t - t.amax(axis, keepdim=True))
        s = tc.sigmoid(t)
        total = e.sum(axis, keepdim=True)
        return s / total, e / total, (e * s).sum(axis)

    s = 1 / (1 + np.exp(-wide))
    exact = (s / e.sum(axis, keepdims=True), want, (e * s).sum(axis))
    for have, exactly in zip(compiled(several, given), exact, strict=True):
        np.testing.assert_allclose(have.numpy(), exactly, rtol=2e-2 if dtype is np.float16 else 1e-4, atol=1e-3)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("rows, columns", [(8, 9), (12, 33), (6, 64), (7, 64), (10, 200), (4, 256), (4, 257)])
def test_several_short_rows_at_once_are_the_rows_one_by_one(rows: int, columns: int) -> None:
    """The order within a row is its own: each row has the bits that it has alone."""
    x = normal(rows, columns)
    x[0, 2], x[-1, 0], x[1] = np.nan, np.inf, 0.0

    def f(x: tc.Tensor) -> tuple[tc.Tensor, ...]:
        d = x - x.mean(1, keepdim=True)
        norm = d / ((d * d).mean(1, keepdim=True) + 1e-5).sqrt()
        return norm, tc.softmax(x, 1), tc.logsumexp(x, 1), x.argmax(1), x.argmin(1)

    whole = compiled(f, x)
    for n in range(rows):
        for have, want in zip(whole, compiled(f, x[n : n + 1]), strict=True):
            assert np.array_equal(have[n : n + 1].numpy(), want.numpy(), equal_nan=want.dtype.is_floating_point)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("shape", [(2, 20, 9, 37), (1, 33, 5, 16), (3, 16, 58, 18), (2, 64, 14, 40)])
@pytest.mark.parametrize("sides", [(1, 1, 1, 1), (2, 0, 0, 3), (0, 0, 0, 0)])
def test_padded_rows_turned(sides: tuple[int, ...], shape: tuple[int, ...]) -> None:
    x = normal(*shape)
    want = np.pad(x.numpy(), ((0, 0), (0, 0), sides[2:], sides[:2])).transpose(0, 2, 3, 1)
    have = compiled(lambda x: F.pad(x, sides).permute(0, 2, 3, 1).contiguous(), x).numpy()
    assert np.array_equal(have, want)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("count", [2, 3])
def test_stacked_operands_are_read_where_they_stand(count: int, axis: int, tmp_path: Path) -> None:
    each = [normal(30, 200, seed=n) for n in range(count)]

    def stacked(*each: tc.Tensor) -> tc.Tensor:
        return tc.stack(each, axis)

    with config.override(cache_dir=str(tmp_path / "cache"), dump=str(tmp_path / "dump")):
        found = compiled(stacked, *each)
    assert np.array_equal(found.numpy(), np.stack([x.numpy() for x in each], axis))
    (loops,) = (tmp_path / "dump" / "stacked").glob("*_program.ir")
    assert ("select" in loops.read_text()) == (axis == 2)  # places along the last axis are written by turns


COLUMNS: dict[str, tuple[tuple[int, ...], Callable[[tc.Tensor], Any]]] = {
    "one sum": ((301, 1003), lambda x: x.sum(0)),
    "fewer rows than columns have chunks": ((13, 50001), lambda x: x.sum(0)),
    "products with a vector": ((400, 777), lambda x: x.t() @ x[:, 0]),
    "several and what follows": ((6, 100, 1300), lambda x: (x.sum(1) * 2, x.amax(1) + x.amin(1), (x * x).mean(1))),
    "over two axes": ((3, 19, 40, 500), lambda x: x.sum((0, 2))),
    "whole numbers": ((200, 1501), lambda x: (x * 100).to(tc.int32).sum(0)),
    "conditions": ((200, 5500), lambda x: ((x > 3.5).any(0), (x > -3.5).all(0))),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", COLUMNS)
def test_sums_down_columns_of_large_memory(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A few rows at a time have the bits of chunks of columns, whatever their width and however many threads."""
    shape, f = COLUMNS[name]
    x, chosen = normal(*shape), []
    wide = vars(elementwise)["column_sums"]

    def noted(*args: Any) -> Any:
        chosen.append(args)
        return wide(*args)

    def results(threads: int, machine: Machine) -> list[Any]:
        with on(machine), config.override(cache_dir=str(tmp_path / str(len(list(tmp_path.iterdir()))))):
            found = compiled(f, x, threads=threads)
        return [r.numpy() for r in (found if isinstance(found, tuple) else (found,))]

    monkeypatch.setattr(elementwise, "column_sums", noted)
    have = results(1, host())
    first = len(chosen)
    again = results(2, host().tuned(parallel_work=1, column_run_bytes=1000))
    second = len(chosen)
    want = results(1, replace(host(), l2_bytes=1 << 40))
    assert 0 < first < second == len(chosen)
    eager = f(x)
    for a, b, c, d in zip(have, again, want, eager if isinstance(eager, tuple) else (eager,), strict=True):
        assert np.array_equal(a, c) and np.array_equal(b, c)
        np.testing.assert_allclose(a, d.numpy(), rtol=1e-4, atol=1e-3)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("dtype", [tc.float32, tc.float64])
@pytest.mark.parametrize("rows, inner", [(1, 100), (3, 64), (4, 40), (7, 128), (33, 200), (130, 65)])
def test_products_of_several_rows_with_a_vector_are_those_one_by_one(rows: int, inner: int, dtype: Any) -> None:
    x, w = normal(inner).to(dtype), normal(2, rows, inner, seed=1).to(dtype)
    whole = compiled(lambda w, x: w @ x, w, x).numpy()
    np.testing.assert_allclose(whole, w.numpy() @ x.numpy(), rtol=1e-4, atol=1e-4)
    for n in range(rows):
        assert np.array_equal(compiled(lambda w, x: w @ x, w[:, n : n + 1], x).numpy(), whole[:, n : n + 1])


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "shape, axis", [((7, 300), 0), ((1, 301), 0), ((3, 5, 257), 1), ((4, 8192), 0), ((2, 3, 8193), 1)]
)
@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32])
def test_running_totals_of_many_lines(name: str, shape: tuple[int, ...], axis: int, dtype: Any) -> None:
    a = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    x = tc.tensor((a * 4).astype(dtype))
    want = getattr(x, name)(axis).numpy()
    for threads in (1, 2):
        assert compiled(lambda x: getattr(x, name)(axis), x, threads=threads).numpy().tobytes() == want.tobytes()


SHARED = {
    "transposed, one stripe": ((3000, 50), lambda x: x.t().contiguous()),
    "transposed, a stripe and a rest": ((999, 100), lambda x: x.t().contiguous()),
    "transposed, rests only": ((40, 13), lambda x: x.t().contiguous()),
    "columns, a rest of lanes": ((300, 150), lambda x: x.softmax(0)),
    "columns, few": ((500, 37), lambda x: x.std(0)),
    "columns in blocks": ((700, 130), lambda x: x.sum(0)),
    "a row by a matrix": ((700, 130), lambda x: x.t() @ x[:, 0]),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", SHARED)
def test_rests_are_shared_like_the_rest(name: str) -> None:
    shape, f = SHARED[name]
    x = normal(*shape)
    with on(host().tuned(parallel_work=1)):
        results = [compiled(f, x, threads=n).numpy() for n in (1, 2, 3)]
    np.testing.assert_allclose(results[0], by_numpy(f)(x).numpy(), rtol=1e-4, atol=1e-4)
    assert all(np.array_equal(r, results[0]) for r in results)


@pytest.mark.parametrize("shape", [(19, 257), (16, 300), (257, 19), (40, 600)])
def test_a_transpose_that_is_one_panel_asks_for_no_next_one(shape: tuple[int, int]) -> None:
    x = normal(*shape)
    with on(Machine(vector_bytes=32, registers=16, l2_bytes=8000, l3_bytes=1 << 18)):
        assert np.array_equal(compiled(lambda x: x.t() * 2, x).numpy(), x.numpy().T * 2)


@pytest.mark.sampled(20)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize(
    "shape",
    [(128, 64, 32), (67, 40, 33), (7, 300, 17), (130, 9, 5, 24), (12, 64, 256), (6, 5, 3), (40, 1, 64), (40, 64, 1)],
)
def test_sums_down_columns_of_several_variables(shape: tuple[int, ...], written: bool, threads: int) -> None:
    """Operands that are the same for some of the columns keep several variables. Bits are those of eager mode."""
    x, m, r = normal(*shape), normal(shape[-1], seed=1), normal(*shape[1:-1], 1, seed=2)

    def f(x: tc.Tensor, m: tc.Tensor, r: tc.Tensor) -> tuple[tc.Tensor, ...]:
        d = (x - m) * r
        sums = d.sum(0), (d * d).sum(0)
        return (*sums, d) if written else sums

    for found, want in zip(compiled(f, x, m, r, threads=threads), f(x, m, r), strict=True):
        assert np.array_equal(found.numpy(), want.numpy())
