"""Formulas of several operators compute half types in float32 and round once, eagerly and compiled, as PyTorch does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracecomp
from tracecomp.nn import functional as F

HALVES = ("float16", "bfloat16")
FORMULAS: dict[str, Callable[..., Any]] = {
    "gelu": F.gelu, "gelu by tanh": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu, "mish": F.mish,
    "elu": F.elu, "selu": F.selu, "celu": lambda x: F.celu(x, 0.7), "leaky_relu": F.leaky_relu,
    "softplus": lambda x: F.softplus(x, 1.3), "logsigmoid": F.logsigmoid, "softsign": F.softsign,
    "tanhshrink": F.tanhshrink, "hardsigmoid": F.hardsigmoid, "hardswish": F.hardswish, "glu": F.glu,
    "softmax": lambda x: F.softmax(x, 1), "log_softmax": lambda x: F.log_softmax(x, 1),
    "layer_norm": lambda x: F.layer_norm(x, (16,), x[0], x[1]), "rms_norm": lambda x: F.rms_norm(x, (16,), x[0]),
    "group_norm": lambda x: F.group_norm(x, 4, x[0], x[1]),
    "batch_norm": lambda x: F.batch_norm(x, None, None, x[0], x[1], True),
    "instance_norm": lambda x: F.instance_norm(x.reshape(3, 4, -1)),
    "lerp": lambda x: tracecomp.lerp(x, x[0], 0.3), "lerp back": lambda x: tracecomp.lerp(x, x[0], 0.7),
    "lerp by weights": lambda x: tracecomp.lerp(x, x[0], x[1]),
    "addcmul": lambda x: tracecomp.addcmul(x, x[0], x, value=0.3),
    "addcdiv": lambda x: tracecomp.addcdiv(x, x[0], x, value=0.3),
}  # fmt: skip


def drawn(dtype: str) -> Any:
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    values = np.random.default_rng(0).standard_normal((24, 16)).astype(np.float32)
    return tracecomp.from_numpy(values).to(getattr(tracecomp, dtype))


def same(found: Any, want: Any, dtype: str) -> None:
    assert found.dtype is getattr(tracecomp, dtype)
    np.testing.assert_array_equal(found.detach().float().numpy(), want.detach().to(found.dtype).float().numpy())


@pytest.mark.sampled(10)
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", FORMULAS)
def test_results_and_gradients_are_rounded_once(name: str, dtype: str) -> None:
    formula = FORMULAS[name]

    def run(x: Any) -> tuple[Any, Any]:
        leaf = x.detach().requires_grad_()
        out = formula(leaf)
        return out, tracecomp.autograd.grad(out.sum(), leaf)[0]

    half = drawn(dtype)
    compiled = tracecomp.compile(run)
    for _ in range(2):
        found, wanted = compiled(half), compiled(half.float())
    for (value, gradient), want in ((run(half), run(half.float())), (found, wanted)):
        same(value, want[0], dtype)
        assert gradient.dtype is half.dtype


@pytest.mark.parametrize("dtype", HALVES)
def test_in_place(dtype: str) -> None:
    for function in (F.silu, F.elu, F.hardswish, F.leaky_relu):
        x = drawn(dtype)
        want = function(x)
        assert function(x, inplace=True) is x
        same(x, want, dtype)


@pytest.mark.parametrize("dtype", HALVES)
def test_normalisation_against_torch(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    mine = drawn(dtype) * 0.001
    theirs = torch.from_numpy(mine.float().numpy()).to(getattr(torch, dtype))
    for n, t, x in ((tracecomp, tracecomp.nn.functional, mine), (torch, torch.nn.functional, theirs)):
        results = [t.rms_norm(x, (16,)), t.layer_norm(x, (16,), n.ones(16), n.zeros(16)), t.softmax(x, 1)]
        assert all(r.dtype is x.dtype for r in results)
        found = [r.float().numpy() for r in results]
        if n is tracecomp:
            kept = found
    for a, b in zip(kept, found, strict=True):
        np.testing.assert_allclose(a, b, rtol=2.0**-7 if dtype == "bfloat16" else 2.0**-10, atol=1e-6)
