"""A second backward works where nothing but numbers was saved, as in PyTorch, and raises where tensors were."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tracecomp as tc


def resized(x: Any, mode: str, **options: bool) -> Any:
    return tc.nn.functional.interpolate(x[None, None], size=(5, 4), mode=mode, **options).sum()


FREE: dict[str, Callable[[Any], Any]] = {
    "mean": lambda x: x.mean(),
    "mean of rows": lambda x: x.mean(0).sum(),
    "divided": lambda x: (x / 2 - 1).sum(),
    "stacked": lambda x: tc.stack([x, x]).sum(),
    "alpha": lambda x: tc.add(x, x, alpha=3).sum(),
    "lerp": lambda x: tc.lerp(x, x, 0.5).sum(),
    "degrees": lambda x: x.deg2rad().sum(),
    # Tensors that these make for themselves, of numbers, are not saved by PyTorch's nodes.
    "tril": lambda x: x.tril().sum(),
    "triu": lambda x: x.triu(1).sum(),
    "diag_embed": lambda x: tc.diag_embed(x, 1).sum(),
    "gradient": lambda x: tc.gradient(x, dim=0)[0].sum(),
    "resized nearest": lambda x: resized(x, "nearest"),
    "resized bilinear": lambda x: resized(x, "bilinear"),
    "resized bicubic": lambda x: resized(x, "bicubic"),
    "resized smoothly": lambda x: resized(x, "bilinear", antialias=True),
}
KEPT: dict[str, Callable[[Any], Any]] = {
    "exp": lambda x: x.exp().mean(),
    "product": lambda x: (x * x).mean(),
    "mask": lambda x: tc.where(x > 0, x, 0.0).sum(),
    "index": lambda x: (x * tc.arange(2.0)).sum(),
    "relu": lambda x: (x.relu() / 3).sum(),
}


@pytest.mark.parametrize("name", FREE)
def test_numbers_are_not_freed(name: str) -> None:
    x = tc.ones(3, 2, requires_grad=True)
    y = FREE[name](x)
    y.backward()
    assert x.grad is not None
    once = x.grad.clone()
    y.backward()
    assert tc.equal(x.grad, once * 2)


@pytest.mark.parametrize("name", KEPT)
def test_tensors_are_freed(name: str) -> None:
    x = tc.ones(3, 2, requires_grad=True)
    y = KEPT[name](x)
    y.backward()
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


def test_a_grid_has_a_gradient_of_zeros_where_elements_are_the_nearest() -> None:
    grid = tc.rand(1, 3, 3, 2).requires_grad_()
    tc.nn.functional.grid_sample(tc.rand(1, 2, 4, 4), grid, mode="nearest", align_corners=False).sum().backward()
    assert grid.grad is not None and not grid.grad.any()


def test_hooks_of_saved_tensors_do_not_see_what_a_function_made_for_itself() -> None:
    seen: list[Any] = []
    x = tc.ones(3, 2, requires_grad=True)
    with tc.autograd.graph.saved_tensors_hooks(lambda t: seen.append(t) or t, lambda t: t):
        x.tril().sum().backward()
    assert not seen and x.grad is not None


def test_a_recorded_pass_lets_go_of_what_a_function_made_for_itself() -> None:
    x = tc.rand(3, 2).requires_grad_()

    def step() -> Any:
        y = resized(x, "bicubic") + resized(x, "nearest") + x.tril().sum()
        x.grad = None
        (y * y).sum().backward()
        return y, x.grad

    compiled = tc.compile(step)
    for _ in range(3):
        found, wanted = compiled(), step()
        assert all(tc.equal(a, b) for a, b in zip(found, wanted, strict=True))
    assert len(compiled.graphs) == 1
