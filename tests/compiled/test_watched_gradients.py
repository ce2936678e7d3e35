"""Gradients of compiled calls while a mode sees each operator: the bits, and what the mode sees, as if uncompiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tracecomp import Tensor
from tracecomp.overrides import TorchFunctionMode
from tracecomp.utils._python_dispatch import TorchDispatchMode


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return torch.mul(3 * x * x, g)


def written(x: Tensor, w: Tensor) -> Tensor:
    y = (x * 2).reshape(-1)
    y[1:] = y[1:] * w[0, 0]
    y.mul_(w[1, 1])
    return y.exp()


PROGRAMS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "power": lambda x, w: x**2,
    "layer": lambda x, w: (x @ w).tanh() * x.exp(),
    "written": written,
    "function": lambda x, w: Cube.apply(x @ w).sigmoid(),
    "several": lambda x, w: ((h := (x @ w).exp().reshape(-1)), h.sum(0) * x),
    "sizes": lambda x, w: torch.cat([x, x.sin()]).mean(0) + torch.arange(x.shape[0]).sum() * w.sum(0),
}


def gradient(y: Any, x: Tensor, v: Tensor, **options: Any) -> Tensor:
    results = y if isinstance(y, tuple) else (y,)  # also those that others were computed from
    given = [v.expand(r.shape) * 1.0 for r in results]
    (found,) = torch.autograd.grad(results, x, given, retain_graph=True, **options)
    return found


def mapped(y: Any, x: Tensor, v: Tensor) -> list[Any]:
    return [torch.vmap(lambda v: gradient(y, x, v))(v)]


def mapped_twice(y: Any, x: Tensor, v: Tensor) -> list[Any]:
    rows = torch.vmap(torch.vmap(lambda v: gradient(y, x, v)))(v.reshape(2, -1))
    return [rows, gradient(y, x, v[0])]


def mapped_and_differentiated(y: Any, x: Tensor, v: Tensor) -> list[Any]:
    rows = torch.vmap(lambda v: gradient(y, x, v, create_graph=True))(v)
    return [rows.detach(), *torch.autograd.grad(rows.sin().sum(), x)]


def mapped_in_a_compiled_call(y: Any, x: Tensor, v: Tensor) -> list[Any]:
    return [torch.compile(mapped)(y, x, v)[0]]


def differentiated(y: Any, x: Tensor, v: Tensor) -> list[Any]:
    found = gradient(y, x, v[0], create_graph=True)
    (second,) = torch.autograd.grad(found.sin().sum(), x)
    # A compiled backward pass adds up its gradients for a tensor before they meet those of other nodes.
    return [found.detach(), second.to(torch.float32)]


def functionalized(y: Any, x: Tensor, v: Tensor) -> list[Any]:
    return [torch.func.functionalize(torch.vmap(lambda v: gradient(y, x, v)))(v)]


def dispatched(y: Any, x: Tensor, v: Tensor) -> list[Any]:
    seen: list[Any] = []

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    with Mode():
        found = gradient(y, x, v[1])
    return [found, seen]


def asked(y: Any, x: Tensor, v: Tensor) -> list[Any]:
    seen: list[Any] = []

    class Mode(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func.__name__)
            return func(*args, **(kwargs or {}))

    with Mode():
        found = gradient(y, x, v[1])
    return [found, seen]


def retained(y: Any, x: Tensor, v: Tensor) -> list[Any]:
    first = y[0] if isinstance(y, tuple) else y
    first.retain_grad()
    (y[-1] if isinstance(y, tuple) else y).sum().backward(retain_graph=True)
    return [first.grad, x.grad]


PASSES = [
    mapped, mapped_twice, mapped_and_differentiated, mapped_in_a_compiled_call, differentiated, functionalized,
    dispatched, asked, retained,
]  # fmt: skip


def inputs(size: int) -> tuple[Tensor, Tensor, Tensor]:
    rng = np.random.default_rng(size)
    x = torch.tensor(rng.standard_normal((size, 3)) / 2).requires_grad_()
    return x, torch.tensor(rng.standard_normal((3, 3)) / 2), torch.tensor(rng.standard_normal(4))


def check_same(found: list[Any], want: list[Any]) -> None:
    for a, b in zip(found, want, strict=True):
        if isinstance(a, Tensor):
            assert a.detach().numpy().tobytes() == b.detach().numpy().tobytes()
        else:
            assert a == b


@pytest.mark.filterwarnings("ignore:graph break in")
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_same_as_uncompiled(name: str, dynamic: bool) -> None:
    fn = PROGRAMS[name]
    compiled = torch.compile(fn, dynamic=dynamic)
    for size in (3, 3, 3) if not dynamic else (3, 4, 6, 9):
        for run in PASSES:
            x, w, v = inputs(size)
            want = run(fn(x, w), x, v)
            x, w, v = inputs(size)
            found = run(compiled(x, w), x, v)
            # If a size is part of a computation, a call for every size reads it from a tensor.
            tensors = dynamic and name == "sizes"
            check_same(found[:1] if tensors else found, want[:1] if tensors else want)
    assert dynamic or compiled.recordings == 1


def test_a_call_with_other_results_made_before_it_is_not_taken_for_the_recorded_one() -> None:
    rows = torch.compile(lambda y, x, v: torch.vmap(lambda v: gradient(y, x, v))(v))
    with pytest.warns(UserWarning, match="through operations made before the call"):
        for power in (2, 2, 3, 3, 2):
            x = torch.arange(3.0).requires_grad_()
            y = x**power
            np.testing.assert_array_equal(rows(y, x, torch.ones(2)), (power * x ** (power - 1)).detach().expand(2, 3))
