"""Operands with large strides: results have the bits and strides of those of row-major copies."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tests.eager_kernels.test_bits import near_the_exact_sum
from tracecomp.eager_kernels.sums import reduce_in_order
from tracecomp.ir.arrays import fill, row_major_copy

SHAPES = ((4096, 512), (8192, 64), (300, 70), (64, 128, 24), (1000, 33), (5, 40, 2048), (16384, 4), (4096, 3, 4))


def data(shape: tuple[int, ...], dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    return np.asarray(np.random.default_rng(0).standard_normal(shape) * 1.01).astype(dtype)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_sums_have_the_order_of_their_axes(shape: tuple[int, ...], dtype: Any) -> None:
    base = data(shape, dtype)
    for order in itertools.permutations(range(len(shape))):
        turned = base.transpose(order)
        for x in (turned, turned[..., 1:]):
            for count in range(1, x.ndim + 1):
                for axes in itertools.combinations(range(x.ndim), count):
                    found, wanted = (reduce_in_order("sum", v, axes) for v in (x, np.ascontiguousarray(x)))
                    assert found.dtype == dtype and found.shape == wanted.shape
                    assert found.tobytes() == wanted.tobytes(), (order, axes)
            if x is turned:
                assert near_the_exact_sum(reduce_in_order("sum", x, (x.ndim - 1,)), x, (x.ndim - 1,)), order


@pytest.mark.parametrize("shape", [(), (1,), (3,), (1, 1), (0, 3)], ids=str)
def test_sums_of_few_elements(shape: tuple[int, ...]) -> None:
    x = torch.from_numpy(data(shape)).requires_grad_()
    total = x.sum()
    assert total.shape == () and total.item() == pytest.approx(float(x.detach().numpy().sum()), rel=1e-6)
    assert torch.equal(torch.autograd.grad(total.sum(), x)[0], torch.ones(shape))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.complex128])
def test_copies_hold_every_element(dtype: Any) -> None:
    for shape in ((1024, 1100), (700, 3, 600), (2, 1024, 700), (1, 1200, 1000)):
        base = np.arange(np.prod(shape)).astype(dtype).reshape(shape)
        for order in itertools.permutations(range(len(shape))):
            x = base.transpose(order)
            assert np.array_equal(row_major_copy(x), x)
            made = np.empty(base.shape, dtype).transpose(order)
            fill(made, np.ascontiguousarray(x))
            assert np.array_equal(made, x)


CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, y: x.T + y,
    "other": lambda x, y: y + x.T,
    "where": lambda x, y: x.T.where(y < 0, y),
    "row": lambda x, y: x.T * y[0],
    "channels": lambda x, y: x.view(4, 8, 128, 128).to(memory_format=torch.channels_last) - y.view(4, 8, 128, 128),
    "expanded": lambda x, y: x.T + y[:1].expand(512, 1024),
}


@pytest.mark.parametrize("name", CALLS)
def test_elementwise_results_lie_as_they_did(name: str) -> None:
    x, y = torch.from_numpy(data((1024, 512))), torch.from_numpy(data((512, 1024)))
    found = CALLS[name](x, y)
    peer = pytest.importorskip("torch")
    if name != "channels":
        wanted = CALLS[name](peer.from_numpy(x.numpy()), peer.from_numpy(y.numpy()))
        assert found.stride() == wanted.stride()
        np.testing.assert_array_equal(found.numpy(), wanted.numpy())
    else:
        assert found.stride() == (8 * 128 * 128, 1, 8 * 128, 8)
        plain = x.view(4, 8, 128, 128) - y.view(4, 8, 128, 128)
        np.testing.assert_array_equal(found.numpy(), plain.numpy())
