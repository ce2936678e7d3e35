"""Results are row-major wherever PyTorch's are, so that ``view`` accepts them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracecomp

torch = pytest.importorskip("torch")

OPERANDS: dict[str, Callable[[Any], Any]] = {
    "last axes swapped": lambda x: x.transpose(2, 3),
    "first axes swapped": lambda x: x.permute(1, 0, 2, 3),
    "channels last": lambda x: x.permute(0, 2, 3, 1),
    "turned around": lambda x: x.permute(3, 2, 1, 0),
    "part of a permuted one": lambda x: x.transpose(1, 2)[:, ::2],
    "expanded": lambda x: x[:1].expand(2, 3, 4, 5).transpose(1, 3),
}
OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "clone": lambda t, x: x.clone(), "double": lambda t, x: x.double(), "cat": lambda t, x: t.cat([x, x], 1),
    "stack": lambda t, x: t.stack([x, x]), "sum": lambda t, x: x.sum(1), "amax": lambda t, x: x.amax((0, 1)),
    "std": lambda t, x: x.std(1), "norm": lambda t, x: x.norm(dim=1), "any": lambda t, x: (x > 1).any(1),
    "softmax": lambda t, x: x.softmax(1), "log_softmax": lambda t, x: x.log_softmax(-1),
    "cumsum": lambda t, x: x.cumsum(1), "matmul": lambda t, x: x @ x.transpose(-1, -2),
    "layer_norm": lambda t, x: t.nn.functional.layer_norm(x, x.shape[-1:]),
    "rms_norm": lambda t, x: t.nn.functional.rms_norm(x, x.shape[-1:]), "roll": lambda t, x: x.roll(1, 2),
    "masked_fill": lambda t, x: x.masked_fill(x > 1, 0.0),
    "tril": lambda t, x: x.tril(), "flip": lambda t, x: x.flip(1),
    "scatter": lambda t, x: x.index_add(0, t.tensor([0]), x[:1]), "sort": lambda t, x: x.sort(1)[0],
    "one_hot": lambda t, x: t.nn.functional.one_hot(x.long(), 3), "median": lambda t, x: x.median(1)[0],
    "exp": lambda t, x: x.exp(), "add": lambda t, x: x + 1, "einsum": lambda t, x: t.einsum("abcd,abce->abde", x, x),
    "attention": lambda t, x: t.nn.functional.scaled_dot_product_attention(x, x, x),
}  # fmt: skip


@pytest.mark.parametrize("operand", OPERANDS.values(), ids=OPERANDS)
@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_what_torch_can_view_can_be_viewed(operand: Callable[..., Any], operation: Callable[..., Any]) -> None:
    values = np.arange(120.0, dtype="float32").reshape(2, 3, 4, 5) / 60
    want = operation(torch, operand(torch.tensor(values)))
    got = operation(tracecomp, operand(tracecomp.tensor(values)))
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-5, atol=1e-5)
    if want.is_contiguous():
        assert got.view(-1).data_ptr() == got.data_ptr()


def test_orders_that_torch_keeps_are_kept() -> None:
    for t in (torch, tracecomp):
        x = t.arange(6.0).view(2, 3).t()
        assert [y.stride() for y in (x.clone(), x.exp(), x + 1, x.double())] == [(1, 3)] * 4
