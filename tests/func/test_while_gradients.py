"""Gradients of while_loop against torch's of the same loop in Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracecomp
from tracecomp.eager.tensor import Tensor
from tracecomp.ops.reversal import SLOTS

torch = pytest.importorskip("torch")
RNG = np.random.default_rng(5)
X = RNG.standard_normal((2, 3)) / 2
W = RNG.standard_normal((3, 3)) / 2
COUNTS = [0, 1, 2, 7, SLOTS, SLOTS + 1, 3 * SLOTS - 1]


def step(lib: Any, x: Any, w: Any, total: Any) -> tuple[Any, Any]:
    """One step, which reads ``w`` from around the loop."""
    x = lib.tanh(x @ w) + x * 0.1
    return x, total + (x * x).sum()


def by_python(x: Any, w: Any, n: int) -> tuple[Any, Any]:
    total = torch.zeros((), dtype=torch.float64)
    for _ in range(n):
        x, total = step(torch, x, w, total)
    return x, total


def by_operator(x: Any, w: Any, n: Tensor) -> tuple[Any, Any]:
    """Carries a counter, the state and a sum."""
    first = (tracecomp.tensor(0), x, tracecomp.zeros((), dtype=tracecomp.float64))
    _, x, total = tracecomp.while_loop(
        lambda i, x, total: i < n, lambda i, x, total: (i + 1, *step(tracecomp, x, w, total)), first
    )
    return x, total


def gradients(lib: Any, loop: Callable[..., Any], n: Any, order: int = 1) -> list[Any]:
    """The loss, its gradients, and gradients of the sum of their squares."""
    x, w = lib.tensor(X, requires_grad=True), lib.tensor(W, requires_grad=True)
    y, total = loop(x, w, n)
    loss = y.sin().sum() + total * total
    found = [loss]
    for k in range(order):
        grads = lib.autograd.grad(loss, (x, w), create_graph=k < order - 1, allow_unused=True)
        found += [lib.zeros_like(t) if g is None else g for g, t in zip(grads, (x, w), strict=True)]
        loss = sum((g * g).sum() for g in grads if g is not None)
    return found


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("n", COUNTS)
def test_eager(n: int) -> None:
    found = gradients(tracecomp, by_operator, tracecomp.tensor(n))
    for a, b in zip(found, gradients(torch, by_python, n), strict=True):
        close(a, b)


@pytest.mark.parametrize("n", [1, 3])
def test_second_derivatives(n: int) -> None:
    found = gradients(tracecomp, by_operator, tracecomp.tensor(n), order=2)
    for a, b in zip(found, gradients(torch, by_python, n, order=2), strict=True):
        close(a, b)


@pytest.mark.parametrize("backend", ["interpret", "native"])
def test_a_compiled_training_step_is_one_recording_for_all_counts(backend: str) -> None:
    x, w = tracecomp.tensor(X), tracecomp.tensor(W, requires_grad=True)

    def train(n: Tensor) -> Any:
        w.grad = None
        y, total = by_operator(x, w, n)
        loss = y.sin().sum() + total * total
        loss.backward()
        return loss.detach(), w.grad

    run = tracecomp.compile(train, backend=backend)
    for n in [*COUNTS, 1000] if backend == "native" else COUNTS:
        loss, grad = run(tracecomp.tensor(n))
        expected = gradients(torch, by_python, n)
        close(loss, expected[0])
        close(grad, expected[2])
    assert run.recordings == 1


def test_differentiated_from_outside_of_the_compiled_call() -> None:
    run = tracecomp.compile(by_operator)
    for n in (3, 0, 5, 2):
        found = gradients(tracecomp, run, tracecomp.tensor(n), order=2)
        expected = gradients(torch, by_python, n, order=2)
        for a, b in zip(found[: len(expected)], expected, strict=True):
            close(a, b)
    assert run.recordings == 1


def test_steps_that_depend_on_values_and_a_test_that_reads_what_requires_grad() -> None:
    """A fixed point of x = cos(a x), to a tolerance, and carries of other types on the way."""

    def solve(lib: Any, a: Any, x: Any) -> Any:
        if lib is torch:
            flag = torch.tensor(False)
            while not flag:
                new = torch.cos(a * x)
                flag, x = (new - x).abs() < 1e-9, new
            return x
        return tracecomp.while_loop(
            lambda flag, x: flag.logical_not() & (a.detach() < 2),
            lambda flag, x: (new := tracecomp.cos(a * x), (new - x).abs() < 1e-9)[::-1],
            (tracecomp.tensor(False), x),
        )[1]

    for value in (0.3, 0.7, 0.95):
        found = []
        for lib in (tracecomp, torch):
            a = lib.tensor(value, dtype=lib.float64, requires_grad=True)
            x = lib.tensor(0.5, dtype=lib.float64, requires_grad=True)
            y = solve(lib, a, x)
            found.append([y, *lib.autograd.grad(y, (a, x))])
        for p, q in zip(*found, strict=True):
            close(p, q)


def test_loops_in_loops_scans_and_choices() -> None:
    n, m = tracecomp.tensor(3), tracecomp.tensor(2)

    def inner(x: Tensor, w: Tensor) -> Tensor:
        found = tracecomp.while_loop(lambda j, x: j < m, lambda j, x: (j + 1, (x @ w).sin()), (tracecomp.tensor(0), x))
        return found[1]

    def program(x: Tensor, w: Tensor) -> Tensor:
        _, x = tracecomp.while_loop(lambda i, x: i < n, lambda i, x: (i + 1, inner(x, w) + x), (tracecomp.tensor(0), x))
        x = tracecomp.scan(lambda c, s: (inner(c, w) * s, c), x, tracecomp.ones(2, dtype=tracecomp.float64))[0]
        return tracecomp.cond(x.sum() > 100, lambda x: x, lambda x: inner(x, w), (x,)).sum()

    def same_in_torch(x: Any, w: Any) -> Any:
        def twice(x: Any) -> Any:
            return ((x @ w).sin() @ w).sin()

        for _ in range(3):
            x = twice(x) + x
        return twice(twice(twice(x))).sum()

    tx, tw = torch.tensor(X, requires_grad=True), torch.tensor(W, requires_grad=True)
    expected = torch.autograd.grad(same_in_torch(tx, tw), (tx, tw))
    run = tracecomp.compile(program)
    for call in (program, run, run):
        x, w = tracecomp.tensor(X, requires_grad=True), tracecomp.tensor(W, requires_grad=True)
        for a, b in zip(tracecomp.autograd.grad(call(x, w), (x, w)), expected, strict=True):
            close(a, b)


def test_what_has_no_gradient() -> None:
    """A const that only the test reads gets zeros; a loop of integers keeps no history."""
    x, limit = tracecomp.tensor(1.0, requires_grad=True), tracecomp.tensor(10.0, requires_grad=True)
    (y,) = tracecomp.while_loop(lambda x: x < limit, lambda x: (x * 3,), (x,))
    y.backward()
    assert (x.grad.item(), limit.grad.item()) == (27.0, 0.0)
    (n,) = tracecomp.while_loop(lambda n: n < limit, lambda n: (n * 2,), (tracecomp.tensor(1),))
    assert n.item() == 16 and not n.requires_grad


def test_a_detach_in_the_body_is_refused() -> None:
    x = tracecomp.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="body_fn uses detach"):
        tracecomp.while_loop(lambda x: x.sum() < 9, lambda x: (x.detach() * x * 2,), (x,))
