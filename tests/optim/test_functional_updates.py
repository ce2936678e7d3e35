"""Updates of lists of tensors, as libraries with their own optimizers call them, against the optimizers."""

from __future__ import annotations

from typing import Any

import pytest

import tracecomp as tc
from tracecomp.optim import _functional
from tracecomp.optim.adam import adam, adamw
from tracecomp.optim.sgd import sgd


def parameters() -> list[Any]:
    start = [tc.tensor([0.3, -1.0, 2.0]), tc.tensor([[1.0 + 2.0j]])]
    return [tc.nn.Parameter(p.clone()) for p in start]


def gradients(step: int) -> list[Any]:
    return [tc.tensor([0.5, -0.25, 1.0]) * (step + 1), tc.tensor([[0.5 - 1.0j]]) / (step + 1)]


def run_optimizer(make: Any) -> list[Any]:
    params = parameters()
    optimizer = make(params)
    for step in range(3):
        for p, grad in zip(params, gradients(step), strict=True):
            p.grad = grad
        optimizer.step()
    return [p.detach() for p in params]


@pytest.mark.parametrize("amsgrad", [False, True])
@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize(("update", "kind"), [(adam, tc.optim.Adam), (adamw, tc.optim.AdamW)])
def test_adam(update: Any, kind: Any, maximize: bool, amsgrad: bool) -> None:
    params = [p.detach() for p in parameters()]
    means, squares, largest = ([tc.zeros_like(p) for p in params] for _ in range(3))
    steps = [tc.tensor(0.0) for _ in params]
    for step in range(3):
        update(
            params, gradients(step), means, squares, largest if amsgrad else [], steps, amsgrad=amsgrad, beta1=0.8,
            beta2=0.9, lr=0.1, weight_decay=0.01, eps=1e-6, maximize=maximize,
        )  # fmt: skip
    options = {"lr": 0.1, "betas": (0.8, 0.9), "eps": 1e-6, "weight_decay": 0.01}
    expected = run_optimizer(lambda p: kind(p, amsgrad=amsgrad, maximize=maximize, **options))
    assert all(tc.equal(a, b) for a, b in zip(params, expected, strict=True))
    assert [float(s) for s in steps] == [3, 3] and all(bool((s != 0).any()) for s in squares)


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_sgd(momentum: float, nesterov: bool) -> None:
    nesterov = nesterov and momentum > 0
    params = [p.detach() for p in parameters()]
    buffers: list[Any] = [None, None]
    for step in range(3):
        sgd(
            params, gradients(step), buffers, weight_decay=0.1, momentum=momentum, lr=0.1, dampening=0.0,
            nesterov=nesterov, maximize=False,
        )  # fmt: skip
    expected = run_optimizer(lambda p: tc.optim.SGD(p, 0.1, momentum, weight_decay=0.1, nesterov=nesterov))
    assert all(tc.equal(a, b) for a, b in zip(params, expected, strict=True))
    assert all((buffer is None) == (momentum == 0) for buffer in buffers)


def test_refusals() -> None:
    update: Any = adam
    names = {"amsgrad": False, "beta1": 0.9, "beta2": 0.9, "lr": 0.1, "weight_decay": 0.0, "eps": 1e-8}
    lists = [[tc.ones(2)] for _ in range(4)]
    with pytest.raises(RuntimeError, match="must contain a list of singleton tensors"):
        update(*lists, [], [1], maximize=False, **names)
    with pytest.raises(RuntimeError, match="Divide the gradients by the scale"):
        update(*lists, [], [tc.tensor(0.0)], maximize=False, grad_scale=tc.tensor(2.0), **names)
    assert (_functional.adam, _functional.adamw, _functional.sgd) == (adam, adamw, sgd)
