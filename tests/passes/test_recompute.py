"""Which results of a kernel are stored for others, and which are computed again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tracecomp as torch
from tracecomp.nn import functional
from tracecomp.passes import build


def stored(step: Callable[..., Any], *args: Any) -> list[list[str]]:
    """The operators whose results each kernel stores."""
    partition = build(torch.trace(step, *args), {}).lowered.partition
    return [[v.node.op.name for v in partition.stored[g] if v.node is not None] for g in partition.groups]


def test_an_activation_and_its_gradient_share_the_least() -> None:
    v, w = torch.randn(32, 48, requires_grad=True), torch.randn(48, 16, requires_grad=True)

    def step(x: Any) -> Any:
        y = functional.gelu(x @ v, approximate="tanh") @ w
        (y * y).sum().backward()
        return v.grad, w.grad

    assert stored(step, torch.randn(64, 32))[0] == ["contract", "tanh", "mul"]  # before it, its tanh, the activation


def test_normalisation_is_computed_again_from_its_row_statistics() -> None:
    x = torch.randn(64, 96, requires_grad=True)
    w = torch.randn(96, 96)

    def step() -> Any:
        y = functional.layer_norm(x, (96,)) @ w
        (y * y).sum().backward()
        return x.grad

    first = stored(step)[0]
    assert len(first) == 3  # the result for the product; two values per row


def test_a_long_chain_is_stored() -> None:
    v, w = torch.randn(32, 48), torch.randn(48, 16)

    def step(x: Any) -> Any:
        y = x @ v
        z = y
        for k in range(20):
            z = z * y + k
        return (z @ w, z * 2 + (z @ w).sum())

    kernels = stored(step, torch.randn(64, 32))
    assert kernels[0] == ["add"]


def test_one_result_is_not_exchanged_for_another() -> None:
    v, w = torch.randn(32, 48), torch.randn(48, 16)

    def step(x: Any) -> Any:
        y = torch.exp(x @ v) + 1
        return torch.exp(y + (x @ v @ w).sum())

    assert stored(step, torch.randn(64, 32))[0] == ["contract", "add"]
