"""Gradient and inference modes around compiled calls and inside them: every call leaves what an eager call leaves."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import pytest

import tracecomp

MODES: dict[str, Callable[[], Any]] = {
    "default": nullcontext,
    "no_grad": tracecomp.no_grad,
    "enable_grad": tracecomp.enable_grad,
    "inference": tracecomp.inference_mode,
    "no inference": lambda: tracecomp.inference_mode(False),
}


def product(x: Any) -> tuple[Any, ...]:
    y = x * x
    return y, y + 1


def looked_at(x: Any) -> tuple[Any, ...]:
    y = x * 2
    return y, y[1:], y.detach()


def written(x: Any) -> tuple[Any, ...]:
    y = x * 3
    y.mul_(x)
    y[0] = 5.0
    return (y,)


def argument_written(x: Any) -> tuple[Any, ...]:
    y = x.clone()
    y.add_(x.exp())
    return y, x


def leaf(x: Any) -> tuple[Any, ...]:
    y = x.detach().clone().requires_grad_()
    return y, y * y


PROGRAMS = (product, looked_at, written, argument_written, leaf)


@contextmanager
def modes(names: tuple[str, ...]) -> Iterator[None]:
    with MODES[names[0]](), MODES[names[1]]():
        yield


def facts(results: tuple[Any, ...], x: Any) -> list[Any]:
    """Return every fact of the results that a program can read, and the gradients that they lead to."""
    found: list[Any] = []
    for y in results:
        found.append((y.detach().tolist(), y.requires_grad, y.is_leaf, y.is_inference(), y._version))
        if x.requires_grad and y.requires_grad and y.grad_fn is not None:
            seed = tracecomp.arange(1.0, y.numel() + 1)
            (g,) = tracecomp.autograd.grad(y, [x], seed, retain_graph=True, allow_unused=True)
            # The results of a compiled call have one node, so none of its inputs is unused.
            found.append([0.0] * x.numel() if g is None else g.tolist())
    return found


def outcome(fn: Callable[..., Any], outer: tuple[str, ...], inference: bool) -> Any:
    """Return the effects of a call of ``fn``, or its error."""
    with tracecomp.inference_mode(inference):
        x = tracecomp.tensor([0.5, 1.5, -2.0])
        x = x if inference else x.requires_grad_()
    try:
        with modes(outer):
            results = fn(x)
    except RuntimeError as error:
        return str(error)
    return facts(results, x)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
@pytest.mark.parametrize("inner", list(MODES))
@pytest.mark.filterwarnings("ignore:graph break in fn")
def test_modes_inside_and_outside_leave_what_eager_calls_leave(program: Callable[..., Any], inner: str) -> None:
    def fn(x: Any) -> Any:
        with MODES[inner]():
            found = program(x)
        return *found, x + 1

    run = tracecomp.compile(fn)
    for outer, inference in itertools.product(itertools.product(MODES, repeat=2), (False, True)):
        want = outcome(fn, outer, inference)
        for call in range(3):
            assert outcome(run, outer, inference) == want, (outer, inference, call)


def test_a_history_made_under_no_grad_is_differentiated_twice() -> None:
    def fn(x: Any) -> Any:
        with tracecomp.enable_grad():
            return x**3

    run = tracecomp.compile(fn)
    for _ in range(3):
        x = tracecomp.tensor([1.0, 2.0]).requires_grad_()
        with tracecomp.no_grad():
            y = run(x)
        (g,) = tracecomp.autograd.grad(y.sum(), x, create_graph=True)
        (h,) = tracecomp.autograd.grad(g.sum(), x)
        np.testing.assert_array_equal(h.numpy(), [6.0, 12.0])


def test_an_argument_written_inside_enable_grad_gets_its_history() -> None:
    def fn(x: Any, y: Any) -> None:
        with tracecomp.enable_grad():
            y.mul_(x)

    run = tracecomp.compile(fn)
    for _ in range(3):
        x, y = tracecomp.tensor([1.0, 2.0]).requires_grad_(), tracecomp.tensor([3.0, 4.0])
        with tracecomp.no_grad():
            run(x, y)
        assert y.requires_grad
        y.sum().backward()
        np.testing.assert_array_equal(x.grad.numpy(), [3.0, 4.0])
