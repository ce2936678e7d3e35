"""Layers and their gradients have the same bits eagerly and compiled, and the values of numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracecomp as tc
from tests.eager_kernels.test_bits import compiled, same_bits
from tests.references import by_numpy
from tracecomp import nn
from tracecomp.eager.evaluate import evaluate
from tracecomp.ir.op import OPS
from tracecomp.passes.cost.winograd import Convolution

F = nn.functional
Array = np.ndarray[Any, Any]
Case = tuple[int, int, int, int, tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...], int]

# Images, groups, channels and filters of a group, size, kernel, stride, dilation, padding.
CONVOLUTIONS: dict[str, Case] = {
    "lines": (2, 1, 3, 4, (30,), (5,), (1,), (2,), 2),
    "planes": (3, 1, 3, 8, (9, 11), (3, 3), (2, 1), (1, 1), 1),
    "volumes": (1, 2, 4, 3, (5, 6, 4), (2, 3, 2), (1, 2, 1), (1, 1, 1), 1),
    "single places": (2, 1, 16, 24, (7, 5), (1, 1), (1, 1), (1, 1), 0),
    "depthwise": (2, 12, 1, 1, (9, 9), (3, 3), (1, 1), (1, 1), 1),
    "windows side by side": (3, 1, 20, 16, (16, 17), (3, 1), (3, 1), (1, 2), 1),
    "tiles": (3, 1, 16, 24, (13, 14), (3, 3), (1, 1), (1, 1), 1),
    "tiles with a stride": (2, 1, 64, 64, (34, 31), (3, 3), (2, 2), (1, 1), 1),
    "dilated tiles in groups": (1, 2, 16, 32, (22, 20), (3, 3), (1, 1), (2, 1), 2),
    "tiles of long windows": (2, 1, 24, 32, (18, 21), (5, 3), (1, 1), (1, 1), 0),
    "tiles along one axis": (2, 1, 64, 64, (9, 40), (1, 3), (1, 1), (1, 1), 0),
}  # fmt: skip


@pytest.mark.sampled(18)
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_convolution_and_its_gradients_have_the_bits_of_their_programs(name: str) -> None:
    n, groups, c, o, size, kernel, stride, dilation, pad = CONVOLUTIONS[name]
    attrs: dict[str, Any] = {
        "stride": stride, "padding": ((pad, pad),) * len(size), "dilation": dilation, "groups": groups,
    }  # fmt: skip
    out = tuple(
        (m + 2 * pad - d * (k - 1) - 1) // s + 1 for m, k, s, d in zip(size, kernel, stride, dilation, strict=True)
    )
    if "tiles" in name:
        assert Convolution(c, o, n, kernel, out, stride, dilation, False).transformed
    rng = np.random.default_rng(0)
    shapes = (n, c * groups, *size), (o * groups, c, *kernel), (n, o * groups, *out)
    x, w, g = (rng.standard_normal(s).astype(np.float32) for s in shapes)
    for op, a, b, more in (
        ("conv", x, w, {}), ("conv_transpose", g, w, {"size": size}), ("conv_weight", x, g, {"kernel": kernel}),
    ):  # fmt: skip
        found = evaluate(OPS[op], [a, b], {**attrs, **more})
        assert same_bits(found, compiled(op, [a, b], **attrs, **more)), op
        assert np.allclose(found, OPS[op].impl(a, b, **attrs, **more), rtol=1e-4, atol=1e-3)
    alone = evaluate(OPS["conv"], [x[-1:], w], attrs)
    assert same_bits(alone, np.ascontiguousarray(evaluate(OPS["conv"], [x, w], attrs)[-1:]))
    assert same_bits(alone, compiled("conv", [np.ascontiguousarray(x[-1:]), w], **attrs))


def normal(*shape: int) -> tc.Tensor:
    return tc.randn(*shape, requires_grad=True)


def attention(q: tc.Tensor, k: tc.Tensor, v: tc.Tensor) -> tc.Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


LAYERS: dict[str, Callable[[], tuple[Any, ...]]] = {
    "linear": lambda: (nn.Linear(37, 19), normal(5, 37)),
    "one result": lambda: (nn.Linear(37, 1), normal(5, 37)),
    "a vector": lambda: (nn.Linear(37, 9), normal(37)),
    "perceptron": lambda: (nn.Sequential(nn.Linear(30, 40), nn.GELU(), nn.Linear(40, 8)), normal(3, 4, 30)),
    "attention": lambda: (attention, normal(2, 3, 10, 16), normal(2, 3, 10, 16), normal(2, 3, 10, 16)),
    "lstm": lambda: (nn.LSTM(10, 14, 2, batch_first=True), normal(3, 7, 10)),
    "gru": lambda: (nn.GRU(10, 14, bidirectional=True), normal(7, 3, 10)),
    "rnn": lambda: (nn.RNN(10, 14), normal(7, 3, 10)),
    "einsum": lambda: (lambda a, b: tc.einsum("bij,bkj->ik", a, b), normal(3, 4, 5), normal(3, 6, 5)),
    "matrix by vector": lambda: (lambda a, b: a @ b, normal(20, 30), normal(30)),
    "depthwise": lambda: (nn.Sequential(nn.Conv2d(8, 8, 3, groups=8), nn.Conv2d(8, 8, 1)), normal(2, 8, 9, 9)),
}  # fmt: skip


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_and_its_gradients_have_the_same_bits_compiled(name: str) -> None:
    tc.manual_seed(0)
    layer, *xs = LAYERS[name]()
    parameters = list(layer.parameters()) if isinstance(layer, nn.Module) else []

    def step(*xs: tc.Tensor) -> Any:
        out = layer(*xs)
        out = out[0] if isinstance(out, tuple) else out
        return (out.detach(), *tc.autograd.grad((out * out).sum(), [*xs, *parameters]))

    eager = step(*xs)
    fast = tc.compile(step)
    for _ in range(3):
        found = fast(*xs)
    for a, b, c in zip(eager, found, by_numpy(step)(*xs), strict=True):
        assert same_bits(a.numpy(), b.numpy())
        np.testing.assert_allclose(a.numpy(), c.numpy(), rtol=1e-4, atol=1e-5)
