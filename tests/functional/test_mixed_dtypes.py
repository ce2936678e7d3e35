"""Operands of different dtypes: the result's dtype and values are PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracecomp
from tracecomp.nn import functional as F

DTYPES = ("bool", "uint8", "int8", "int32", "int64", "float16", "bfloat16", "float32", "float64")
LOSSES = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")


def outcome(torch: Any, name: str, first: str, second: str) -> Any:
    a = torch.tensor([0, 1, 1]).to(getattr(torch, first))
    b = torch.tensor([1, 1, 0]).to(getattr(torch, second))
    try:
        found = getattr(torch.nn.functional, name)(a, b, reduction="none")
    except RuntimeError:
        return "RuntimeError"
    return str(found.dtype).split(".")[-1], found.float().tolist()


@pytest.mark.parametrize("name", LOSSES)
def test_losses_promote_their_operands(name: str) -> None:
    torch = pytest.importorskip("torch")
    for first in DTYPES:
        for second in DTYPES:
            want = outcome(torch, name, first, second)
            if want != "RuntimeError":  # squares of integers have a mean here
                assert outcome(tracecomp, name, first, second) == want, (first, second)


def test_huber_loss_does_not_round_to_integers() -> None:
    with pytest.raises(RuntimeError, match="can't be cast"):
        F.huber_loss(tracecomp.tensor([1, 2]), tracecomp.tensor([1.0, 2.0]))


@pytest.mark.parametrize("dtype", ("float16", "bfloat16", "float32", "float64"))
@pytest.mark.parametrize("compiled", (False, True))
def test_ldexp_scales_exactly(dtype: str, compiled: bool) -> None:
    rng = np.random.default_rng(0)
    span = 1000 if dtype == "float64" else 120
    kind = getattr(tracecomp, dtype)
    x = tracecomp.tensor(rng.standard_normal(3000) * 2.0 ** rng.integers(-span, span, 3000)).to(kind)
    exponent = np.concatenate([rng.integers(-2200, 2200, 1000), rng.integers(-span, span, 2000)])
    ldexp = tracecomp.compile(tracecomp.ldexp) if compiled else tracecomp.ldexp
    with np.errstate(over="ignore"):
        want = np.ldexp(x.double().numpy(), exponent)
    for _ in range(2):
        found = ldexp(x, tracecomp.tensor(exponent))
        assert found.dtype is kind
        assert tracecomp.equal(found, tracecomp.tensor(want).to(kind))


def test_ldexp_has_a_gradient() -> None:
    x = tracecomp.tensor([1.5, -2.0]).requires_grad_()
    tracecomp.ldexp(x, tracecomp.tensor([3, -2])).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [8.0, 0.25]


@pytest.mark.parametrize("dtype", ("uint8", "int8", "int32", "int64"))
def test_threshold_of_integers_truncates_its_numbers(dtype: str) -> None:
    kind = getattr(tracecomp, dtype)
    found = F.threshold(tracecomp.tensor([1, 2, 3]).to(kind), 1.5, 2.5)
    assert found.dtype is kind and found.tolist() == [2, 2, 3]


def test_new_of_a_size_is_a_shape() -> None:
    x = tracecomp.ones(2, 3)
    assert x.new(x.size()).shape == x.new(2, 3).shape == (2, 3)
    assert x.new((2, 3)).tolist() == x.new([2.0, 3.0]).tolist() == [2.0, 3.0]
