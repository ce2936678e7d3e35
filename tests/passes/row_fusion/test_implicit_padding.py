"""Padding that no kernel stores: zero terms are left out, and no kernel reads outside of the image."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tests.passes.row_fusion.test_search import Function, bits, interpreted, optimised, outputs, unfused
from tracecomp.ir.loop_verify import verify_program
from tracecomp.ir.program import Program
from tracecomp.nn import functional
from tracecomp.passes.building import lower
from tracecomp.passes.cost.machine import host
from tracecomp.runtime.executable import Executable


def kernels(program: Program) -> set[str]:
    return {step.kernel.name for step in program.steps}


def depthwise(kernel: int, stride: int, dilation: int) -> Function:
    """A convolution of an image in channels-last layout; the result has this layout, too."""

    def fn(x: Any, w: Any) -> Any:
        options = {"stride": stride, "padding": dilation * (kernel // 2), "dilation": dilation, "groups": w.shape[0]}
        return functional.conv2d(x.permute(0, 3, 1, 2), w, **options).permute(0, 2, 3, 1).contiguous()

    return fn


def gradient(fn: Function) -> Function:
    """The gradient of the weights."""

    def of_weights(x: Any, w: Any, g: Any) -> Any:
        w = w.detach().requires_grad_()
        return torch.autograd.grad(fn(x, w), w, g)[0]

    return of_weights


CASES = [
    (3, 1, 1, (2, 9, 11)), (3, 2, 1, (1, 14, 15)), (5, 2, 1, (2, 12, 13)), (7, 1, 1, (1, 7, 7)),
]  # fmt: skip


@pytest.mark.sampled(12)
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("kernel, stride, dilation, size", CASES)
def test_depthwise_convolutions_of_channels_last(
    kernel: int, stride: int, dilation: int, size: tuple[int, int, int], backward: bool
) -> None:
    """Neither they nor gradients of their weights store a padded image; bits are those of programs that do."""
    fn, args = depthwise(kernel, stride, dilation), [torch.randn(*size, 48), torch.randn(48, 1, kernel, kernel)]
    if backward:
        fn, args = gradient(fn), [*args, torch.randn(*fn(*args).shape)]
    graph = optimised(fn, *args)
    together, apart = lower(graph).program, unfused(graph, host()).program
    assert not any("pad" in name for name in kernels(together)) and any("pad" in name for name in kernels(apart))
    verify_program(together)
    wanted = bits(graph, apart, 1)
    assert all(bits(graph, together, threads) == wanted for threads in (1, 2, 3))
    assert interpreted(graph, together) == wanted


def test_an_infinite_weight_against_padding_adds_nothing() -> None:
    """The terms are left out; 3 rows and columns away from the border windows see the image at that place."""
    x, w = torch.ones(1, 7, 7, 16), torch.ones(16, 1, 7, 7)
    w[:, :, 0, 0] = float("inf")
    graph = optimised(depthwise(7, 1, 1), x, w)
    found = outputs(graph)
    Executable(lower(graph).program).run([x.numpy(), w.numpy()], found, 1)
    inside = np.arange(7) >= 3
    assert np.array_equal(np.isinf(found[0]).any((0, 3)), np.outer(inside, inside)) and not np.isnan(found[0]).any()
