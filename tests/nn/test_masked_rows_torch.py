"""Attention rows that a mask leaves nothing: weights and gradients without NaN, of every kind of mask."""

from __future__ import annotations

import math
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import tracecomp  # noqa: E402

ALLOWED = [[True, False, True], [False, False, False], [False, True, False]]


def attention(t: Any, kind: str, compiled: bool) -> list[Any]:
    allowed = t.tensor(ALLOWED)
    mask = allowed if kind == "bool" else t.zeros(3, 3).masked_fill(~allowed, -math.inf)
    fn = t.nn.functional.scaled_dot_product_attention
    run = t.compile(fn) if compiled else fn
    for _ in range(2):
        q = t.linspace(-1.0, 1.0, 6).reshape(1, 3, 2).requires_grad_()
        out = run(q, q * 2, q + 1, attn_mask=mask)
        (grad,) = t.autograd.grad(out.square().sum(), q)
    return [out.tolist(), grad.tolist()]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("kind", ["bool", "float"])
def test_masked_rows_are_zero(kind: str, compiled: bool) -> None:
    want, got = attention(torch, kind, False), attention(tracecomp, kind, compiled)
    assert got[0][0][1] == [0.0, 0.0]
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(torch.tensor(a), torch.tensor(b))


def test_multi_head_attention_without_weights() -> None:
    found = []
    for t in (torch, tracecomp):
        layer = t.nn.MultiheadAttention(2, 1, bias=False, batch_first=True)
        for p in layer.parameters():
            p.data = t.linspace(-1.0, 1.0, p.numel()).reshape(p.shape)
        x = t.linspace(-1.0, 1.0, 6).reshape(1, 3, 2)
        mask = t.zeros(3, 3).masked_fill(~t.tensor(ALLOWED), -math.inf)
        found.append(layer(x, x, x, attn_mask=mask, need_weights=False)[0].tolist())
    torch.testing.assert_close(torch.tensor(found[1]), torch.tensor(found[0]))
