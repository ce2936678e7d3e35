"""Parts of concatenations are stored within the whole, by whoever makes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracecomp as tc
from tests.references import by_numpy
from tracecomp.ir.loop_printer import print_kernel
from tracecomp.nn import functional as F

torch = pytest.importorskip("torch")

Fn = Callable[..., Any]


def kernels(fn: Fn, *args: Any) -> list[str]:
    """The operators of each kernel of ``fn``; the calls give what numpy does, with any number of threads."""
    expected = by_numpy(fn)(*args).detach().numpy()
    run = tc.compile(fn)
    for threads in (1, 2, 1):
        tc.set_num_threads(threads)
        found = run(*args).detach().numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    return [call.kernel.name.split("_", 1)[1] for call in run.entries[0].plan.forward.steps()]


@pytest.fixture(autouse=True)
def _threads() -> Any:
    before = tc.get_num_threads()
    yield
    tc.set_num_threads(before)


def weights(*shapes: tuple[int, ...]) -> list[Any]:
    tc.manual_seed(0)
    return [tc.randn(*shape) for shape in shapes]


def test_products_side_by_side() -> None:
    x, v, w = weights((40, 24), (24, 32), (24, 48))
    assert kernels(lambda x: tc.cat([x @ v, x @ w], 1), x) == ["contract", "contract"]


def test_products_below_each_other_and_beside_a_sum() -> None:
    x, v, b = weights((40, 24), (24, 32), (40, 32))
    names = kernels(lambda x, b: tc.cat([tc.cat([x @ v, x @ v * 2 + b], 0), tc.exp(b)], 0), x, b)
    assert not any("concat" in name for name in names)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, v, b: tc.cat([x @ v, b], 1),  # inputs have memory elsewhere
        lambda x, v, b: (lambda y: tc.cat([y, b * 2], 1) * y.sum())(x @ v),  # another operator reads a part
        lambda x, v, b: (lambda y: tc.cat([y, y], 1))(x @ v),
        lambda x, v, b: tc.cat([x @ v[:, :8], tc.exp(b)], 1),  # short runs
        lambda x, v, b: tc.cat([tc.cumsum(x @ v, 1), tc.exp(b)], 1),  # made by statements that also read it
    ],
)
def test_other_concatenations_are_computed(fn: Fn) -> None:
    x, v, b = weights((40, 24), (24, 32), (40, 32))
    assert any("concat" in name for name in kernels(lambda x, b: fn(x, v, b), x, b))


def test_into_a_state() -> None:
    x, v, bank = weights((40, 24), (24, 32), (80, 32))

    def step(x: Any) -> Any:
        bank.copy_(tc.cat([x @ v + bank[40:], x @ v * 2 + bank[:40]]))
        return bank.sum()

    first = bank.clone()
    for _ in range(4):
        step(x)
    expected = bank.numpy().copy()
    bank.copy_(first)
    run = tc.compile(step)
    for _ in range(4):
        run(x)
    np.testing.assert_allclose(bank.numpy(), expected, rtol=1e-4, atol=1e-3)


def last(x: Any, fn: Fn) -> Any:
    """Apply ``fn`` to images in channels-last layout; its result has this layout, too."""
    return fn(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1).contiguous()


@pytest.mark.parametrize("kernel, padding", [(3, 1), (5, 2), (4, 1)])
def test_phases_of_a_strided_depthwise_gradient(kernel: int, padding: int) -> None:
    x, w = weights((2, 16, 16, 32), (32, 1, kernel, kernel))
    g = tc.randn(2, 8, 8, 32)

    def gradient(lib: Any, x: Any, w: Any, g: Any) -> Any:
        x = x.detach().requires_grad_(True)
        y = lib.nn.functional.conv2d(x.permute(0, 3, 1, 2), w, stride=2, padding=padding, groups=32)
        return lib.autograd.grad(y, x, g.permute(0, 3, 1, 2))[0].contiguous()  # in its argument's layout

    names = kernels(lambda x, g: gradient(tc, x, w, g), x, g)
    assert not any("concat" in name for name in names)
    expected = gradient(torch, *(torch.from_numpy(v.numpy()) for v in (x, w, g))).numpy()
    np.testing.assert_allclose(tc.compile(lambda x, g: gradient(tc, x, w, g))(x, g).numpy(), expected, atol=1e-5)


def test_phases_of_a_transposed_convolution() -> None:
    x, w = weights((2, 8, 8, 32), (32, 16, 4, 4))
    names = kernels(lambda x: last(x, lambda x: F.conv_transpose2d(x, w, stride=2, padding=1)), x)
    assert not any("concat" in name for name in names)


def test_kernels_that_follow_read_the_whole() -> None:
    x, v, w = weights((300, 24), (24, 32), (64, 2048))
    kernels(lambda x: tc.softmax(tc.cat([x @ v, tc.relu(x @ v) + 1], 1) @ w, 1), x)


@pytest.mark.parametrize("channels, kernel, size", [(3, 4, 28), (16, 2, 28), (7, 5, 20)])
@pytest.mark.parametrize("lies_last", [False, True], ids=["first", "last"])
def test_transposed_convolutions_of_tiles(channels: int, kernel: int, size: int, lies_last: bool) -> None:
    """Large enough for chains, whose blocks hold all the rows that a transpose brings together."""
    x, w = weights((8, 32, size, size), (32, channels, kernel, kernel))

    def plain(x: Any) -> Any:
        return F.conv_transpose2d(x, w, stride=kernel)

    kernels((lambda x: last(x, plain)) if lies_last else plain, x.permute(0, 2, 3, 1).contiguous() if lies_last else x)
    expected = torch.nn.functional.conv_transpose2d(*(torch.from_numpy(v.numpy()) for v in (x, w)), stride=kernel)
    np.testing.assert_allclose(tc.compile(plain)(x).numpy(), expected.numpy(), atol=1e-4)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, y: x * y,
        lambda x, y: x + y[0],
        lambda x, y: tc.exp(x * 2) - y,
        lambda x, y: tc.conj_physical(x),
        lambda x, y: tc.view_as_complex(tc.stack((x.real - y.imag, x.imag * y.real), -1)),
    ],
)
@pytest.mark.parametrize("shape", [(7, 5), (40, 33), (300, 301)])
def test_complex_results_are_woven_by_one_kernel(fn: Fn, shape: tuple[int, ...]) -> None:
    x, y = (torch.complex(torch.randn(*shape), torch.randn(*shape)) for _ in range(2))
    given = [tc.from_numpy(v.numpy()) for v in (x, y)]
    expected = by_numpy(fn)(*given).numpy()
    run = tc.compile(fn)
    for threads in (1, 2, 1):
        tc.set_num_threads(threads)
        np.testing.assert_allclose(run(*given).numpy(), expected, rtol=1e-5, atol=1e-5)
    assert len(list(run.entries[0].plan.forward.steps())) == 1


def test_two_complex_results_and_one_beside_a_real_one() -> None:
    x, y = (tc.complex(*weights((50, 41), (50, 41))) for _ in range(2))
    run = tc.compile(lambda x, y: (x + y, x * y))
    beside = tc.compile(lambda x, y: (x * y, x.real + y.real))
    for _ in range(3):
        for found, expected in zip(run(x, y), (x + y, x * y), strict=True):
            np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-5)
        for found, expected in zip(beside(x, y), (x * y, x.real + y.real), strict=True):
            np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-5)
    assert len(list(run.entries[0].plan.forward.steps())) == 2


def test_stacked_results_are_woven() -> None:
    x, y = weights((500, 31), (500, 31))
    names = kernels(lambda x, y: tc.stack((tc.exp(x) + y, tc.sin(y) * x, tc.cos(x - y)), -1), x, y)
    assert len(names) == 1


def test_rolled_flat() -> None:
    """A condition on the row of a flat position is one on the position, so there is nothing to divide."""
    (x,) = weights((200, 31))
    run = tc.compile(lambda x: tc.roll(x, 3))
    for _ in range(3):
        np.testing.assert_array_equal(run(x).numpy(), np.roll(x.numpy(), 3))
    (call,) = run.entries[0].plan.forward.steps()
    assert "//" not in print_kernel(call.kernel)
