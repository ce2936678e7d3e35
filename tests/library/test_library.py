"""Custom operators: definitions, gradients by formula, namespaces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tracecomp import library


def test_a_custom_operator_is_called_by_name_and_differentiated_by_its_formula() -> None:
    @library.custom_op("mine::cube", mutates_args=())
    def cube(x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        return torch.tensor(x.numpy() ** 3 * scale)

    @cube.register_fake
    def _(x: Any, scale: float = 1.0) -> Any:
        return torch.empty_like(x)

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[0])
        ctx.scale = inputs[1]

    def backward(ctx: Any, grad: Any) -> Any:
        (x,) = ctx.saved_tensors
        return grad * 3 * x**2 * ctx.scale, None

    x = torch.tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(RuntimeError, match="no autograd formula"):
        cube(x).sum().backward()
    cube.register_autograd(backward, setup_context=setup)
    y = library.ops.mine.cube(x, scale=2.0)
    assert y.tolist() == [2.0, 16.0]
    y.sum().backward()
    assert x.grad.tolist() == [6.0, 24.0]
    assert library.ops.mine.cube.default(x.detach()).tolist() == [1.0, 8.0]


def test_a_library_defines_and_implements() -> None:
    mine = library.Library("mine2", "DEF")
    mine.define("shift(Tensor x, int by=1) -> Tensor")
    with pytest.raises(NotImplementedError, match="mine2::shift"):
        library.ops.mine2.shift(torch.ones(1))
    mine.impl("shift", lambda x, by=1: x + by, "CompositeImplicitAutograd")
    x = torch.ones(2, requires_grad=True)
    library.ops.mine2.shift(x, 3).sum().backward()
    assert x.grad.tolist() == [1.0, 1.0] and "shift" in dir(library.ops.mine2)
    with pytest.raises(AttributeError, match="nothing"):
        library.ops.mine2.nothing  # noqa: B018


def test_lists_of_tensors_get_lists_of_gradients_and_results_may_be_several() -> None:
    @library.custom_op("mine::both", mutates_args=())
    def both(xs: list[torch.Tensor], y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return xs[0] * y, xs[1] + y

    both.register_autograd(lambda ctx, a, b: ([a * ctx.y, b], None), setup_context=lambda ctx, inputs, output: setattr(
        ctx, "y", inputs[1]
    ))  # fmt: skip
    a, b = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    first, second = both([a, b], torch.tensor([3.0, 4.0]))
    (first.sum() + 2 * second.sum()).backward()
    assert a.grad.tolist() == [3.0, 4.0] and b.grad.tolist() == [2.0, 2.0]


def test_aten_operators_are_the_functions_and_compiled_libraries_are_only_noted(tmp_path: Path) -> None:
    assert library.ops.aten.relu.default(torch.tensor([-1.0, 1.0])).tolist() == [0.0, 1.0]
    assert np.allclose(library.ops.aten.add.Tensor(torch.ones(1), 2).tolist(), 3)
    with pytest.raises(OSError, match=r"x\.so"):
        library.ops.load_library("x.so")
    (tmp_path / "y.so").touch()
    library.ops.load_library(tmp_path / "y.so")
    assert str(tmp_path / "y.so") in library.ops.loaded_libraries


def test_what_a_custom_operator_computes_is_compiled() -> None:
    library.custom_op("mine::plain", lambda x: x.exp() + 1, mutates_args=(), schema="(Tensor x) -> Tensor")
    compiled = torch.compile(lambda x: library.ops.mine.plain(x) * 2)
    x = torch.tensor([0.0, 1.0])
    for _ in range(3):
        np.testing.assert_allclose(compiled(x).numpy(), (np.exp([0.0, 1.0]) + 1) * 2, rtol=1e-6)
    assert len(compiled.graphs) == 1
