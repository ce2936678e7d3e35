"""Values that ``saved_tensors_hooks`` keep have the tangents of the tensors that were saved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tracecomp.func import grad, jvp

saved_tensors_hooks = torch.autograd.graph.saved_tensors_hooks


class Cube(torch.autograd.Function):
    """Saves an input and its result."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        y = x**3
        ctx.save_for_backward(x, y)
        ctx.save_for_forward(x)
        return y

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        x, y = ctx.saved_tensors
        return g * (2 * x**2 + y / x)

    @staticmethod
    def jvp(ctx: Any, t: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 3 * x**2 * t


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "operand": lambda x: (x * x * x).sum(),
    "result": lambda x: (x.exp() * x).sum(),
    "view": lambda x: (x[1:] * x.flip(0)[:-1]).prod(),
    "matrix": lambda x: (x.outer(x) @ x).tanh().sum(),
    "Function": lambda x: (Cube.apply(x) * x).sum(),
    "in place": lambda x: (x.sin().mul_(2).exp() * x).sum(),
}
HOOKS: dict[str, Callable[[Any], Any]] = {
    "the same": lambda f: _hooked(f, lambda t: t),
    "copies": lambda f: _hooked(f, lambda t: t * 1),
    "numpy": lambda f: _hooked(f, lambda t: torch.from_numpy(t.detach().numpy().copy())),
    "save_on_cpu": lambda f: _within(torch.autograd.graph.save_on_cpu, f),
}


def _hooked(fn: Callable[[Any], Any], pack: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return _within(lambda: saved_tensors_hooks(pack, lambda t: t), fn)


def _within(block: Callable[[], Any], fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        with block():
            return fn(x)

    return run


@pytest.mark.parametrize("hooks", HOOKS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_hooks_keep_tangents(name: str, hooks: str) -> None:
    x, direction = torch.tensor([0.5, 1.0, 1.5]), torch.tensor([1.0, 2.0, 3.0])
    fn = FUNCTIONS[name]
    plain = jvp(grad(fn), (x,), (direction,))
    for hooked in (HOOKS[hooks](fn), torch.compile(HOOKS[hooks](fn))):
        for _ in range(3):
            found = jvp(grad(hooked), (x,), (direction,))
            for a, b in zip(found, plain, strict=True):
                np.testing.assert_array_equal(a.detach().numpy(), b.detach().numpy())
