"""Which results of a kernel are stored for others, and which are computed again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tracecomp as torch
from tests.references import by_numpy
from tracecomp.nn import functional
from tracecomp.passes.building import build


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


def test_what_an_input_gives_again_is_not_stored() -> None:
    normal = stored(lambda x: functional.batch_norm(x, None, None, training=True), torch.randn(8, 6, 40, 40))
    assert not any("sub" in kernel for kernel in normal) and len(normal[-1]) == 1


def test_an_input_that_is_overwritten_is_not_kept_for_it() -> None:
    """Else the new state would have to be copied over the old one."""
    x, w = torch.randn(64, 96), torch.randn(96, 96)

    def step(x: Any) -> Any:
        y = x * 2
        z = y @ w
        x.copy_(z)
        return (z.sum() + y).sum()

    eager, compiled = x.clone(), torch.compile(step)
    for _ in range(3):
        want, found = by_numpy(step)(eager), compiled(x)
        assert abs(want.item() - found.item()) <= 1e-4 * abs(want.item())
        eager.div_(200), x.div_(200)


def test_gathered_elements_are_computed_where_they_are_wanted() -> None:
    def loss(x: Any, y: Any) -> Any:
        return functional.cross_entropy(x, y)

    x, y = torch.randn(64, 1000), torch.randint(0, 1000, (64,))
    assert all(v.type.numel <= 64 for v in _values(loss, x, y))
    found = [torch.compile(loss)(x, y).item()]
    wide = x.numpy().astype("float64")
    want = (np.log(np.exp(wide).sum(1)) - wide[np.arange(64), y.numpy()]).mean()
    np.testing.assert_allclose(found, [want], rtol=1e-5)


def _values(step: Callable[..., Any], *args: Any) -> list[Any]:
    partition = build(torch.trace(step, *args), {}).lowered.partition
    return [v for g in partition.groups for v in partition.stored[g]]
