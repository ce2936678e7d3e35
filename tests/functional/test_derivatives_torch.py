"""Derivatives where formulas have a fold although the function has none: at zero and where operands are equal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tracecomp as tc  # noqa: E402

POINTS = np.array([-2.0, -0.5, 0.0, 0.5, 3.0])
SMOOTH: dict[str, tuple[Callable[[Any, Any], Any], int]] = {  # and how many derivatives are compared
    "logsigmoid": (lambda t, x: t.nn.functional.logsigmoid(x), 2),
    "binary_cross_entropy_with_logits": (
        lambda t, x: t.nn.functional.binary_cross_entropy_with_logits(x, t.full_like(x, 0.3), reduction="none"), 2),
    "multilabel_soft_margin_loss": (
        lambda t, x: t.nn.functional.multilabel_soft_margin_loss(x, t.ones_like(x), reduction="none"), 2),
    "huber_loss": (lambda t, x: t.nn.functional.huber_loss(x, t.zeros_like(x), reduction="none"), 2),
    "smooth_l1_loss": (lambda t, x: t.nn.functional.smooth_l1_loss(x, t.zeros_like(x), reduction="none"), 2),
    "logaddexp": (lambda t, x: t.logaddexp(x, x.flip(0)), 2),
    "logaddexp2": (lambda t, x: t.logaddexp2(x, x.flip(0)), 2),
    "i0": (lambda t, x: t.special.i0(x), 2),
    "erfcx": (lambda t, x: t.special.erfcx(x * 20), 2),
    "digamma": (lambda t, x: t.digamma(x + 3), 2),
    "lgamma": (lambda t, x: t.lgamma(x + 3), 3),
    "bernoulli": (lambda t, x: t.distributions.Bernoulli(logits=x).log_prob(t.ones_like(x)), 2),
    "tanh_transform": (
        lambda t, x: t.distributions.transforms.TanhTransform().log_abs_det_jacobian(x, t.tanh(x)), 1),
    "sigmoid_transform": (
        lambda t, x: t.distributions.transforms.SigmoidTransform().log_abs_det_jacobian(x, t.sigmoid(x)), 1),
    "fmax": (lambda t, x: t.fmax(x, -x) * x, 1),
    "fmin": (lambda t, x: t.fmin(x * 2, x + x) * x, 1),
}  # fmt: skip


def derivatives(t: Any, fn: Callable[[Any, Any], Any], order: int, x: Any) -> tuple[Any, ...]:
    x = x.detach().requires_grad_()
    found, y = [], fn(t, x)
    for _ in range(order):
        (y,) = t.autograd.grad(y.sum(), x, create_graph=True)
        found.append(y.detach())
    return tuple(found)


@pytest.mark.parametrize("name", SMOOTH)
def test_derivatives_of_smooth_functions_at_folds_of_their_formulas(name: str) -> None:
    fn, order = SMOOTH[name]
    want = derivatives(torch, fn, order, torch.tensor(POINTS))
    compiled = tc.compile(lambda x: derivatives(tc, fn, order, x))
    for run in (lambda x: derivatives(tc, fn, order, x), compiled, compiled, compiled):
        for w, f in zip(want, run(tc.tensor(POINTS)), strict=True):
            np.testing.assert_allclose(f.numpy(), w.numpy(), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("base", ["logaddexp", "logaddexp2", "fmax", "fmin"])
def test_pairs_with_nan_and_infinities(base: str) -> None:
    a, b = (m.ravel() for m in np.meshgrid(*[[-np.inf, -1.0, 0.0, np.inf, np.nan]] * 2))
    want = getattr(torch, base)(torch.tensor(a), torch.tensor(b))
    found = getattr(tc, base)(tc.tensor(a), tc.tensor(b))
    np.testing.assert_allclose(found.numpy(), want.numpy(), rtol=1e-14, atol=1e-15)


def test_second_derivative_of_copysign_at_zero() -> None:
    x = tc.tensor([0.0, 2.0], requires_grad=True)
    (g,) = tc.autograd.grad(tc.copysign(x, tc.tensor([-1.0, -1.0])).square().sum(), x, create_graph=True)
    (h,) = tc.autograd.grad(g.sum(), x)
    assert h.tolist() == [0.0, 2.0]
