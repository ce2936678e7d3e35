"""Convolutions in parts: of those that would mostly multiply padding, only what sees the image is computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tests.passes.row_fusion.test_search import Function, bits, optimised
from tracecomp.nn import functional
from tracecomp.passes import lower
from tracecomp.passes.graph.convolutions import seen_along


@pytest.mark.parametrize("step, apart", [(1, 1), (2, 1), (1, 5), (3, 2)])
def test_positions_that_see_the_image(step: int, apart: int) -> None:
    count, others, low, size = 9, 4, 7, 6
    found = {
        (a, b) for seen in seen_along(count, step, others, apart, low, size)
        for a in range(seen.first, seen.first + seen.count) for b in seen.others
    }  # fmt: skip
    every = ((a, b) for a in range(count) for b in range(others))
    assert found == {(a, b) for a, b in every if 0 <= a * step + b * apart - low < size}


def both(**options: Any) -> Function:
    """A convolution and its gradients."""

    def fn(x: Any, w: Any) -> Any:
        x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
        y = getattr(functional, f"conv{x.ndim - 2}d")(x, w, **options)
        return y.detach(), *torch.autograd.grad((y * y).sum(), (x, w))

    return fn


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("shape", "kernel", "options"),
    [
        ((1, 8, 33, 33), (3, 3), {"padding": 12, "dilation": 12}),
        ((2, 16, 40, 24), (3, 3), {"padding": (18, 8), "dilation": (18, 8)}),
        ((1, 8, 30, 51), (3, 3), {"padding": 24, "dilation": 24, "stride": (1, 2)}),
        ((2, 16, 20, 26), (3, 3), {"padding": (36, 16), "dilation": (36, 16)}),
        ((2, 16, 50), (4,), {"padding": 30, "dilation": 20}),
        ((1, 16, 24, 24), (3, 3), {"padding": 20, "dilation": 12, "groups": 2}),
    ],
)
def test_dilated_convolutions_and_their_gradients(
    shape: tuple[int, ...], kernel: tuple[int, ...], options: dict[str, Any]
) -> None:
    fn, groups = both(**options), options.get("groups", 1)
    args = [torch.randn(*shape), torch.randn(2 * shape[1], shape[1] // groups, *kernel)]
    graph = optimised(fn, *args)
    assert sum(n.op.name == "contract" for n in graph.live_nodes()) > 3
    program = lower(graph).program
    assert bits(graph, program, 1) == bits(graph, program, 2) == bits(graph, program, 3)
    compiled = torch.compile(fn)
    for _ in range(2):
        found = compiled(*args)
    for have, want in zip(found, fn(*(a.double() for a in args)), strict=True):
        error = np.abs(have.numpy() - want.numpy()).max()
        assert error <= 1e-5 * np.abs(want.numpy()).max()


def test_windows_that_mostly_see_the_image_stay_whole() -> None:
    args = [torch.randn(1, 16, 33, 33), torch.randn(16, 16, 3, 3)]
    graph = optimised(lambda x, w: functional.conv2d(x, w, padding=2, dilation=2), *args)
    assert sum(n.op.name == "contract" for n in graph.live_nodes()) == 1
