"""Views that are gone at once, by the way a first call found (``functional/viewed.py``), against PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracecomp

torch = pytest.importorskip("torch")

VIEWS: dict[str, Callable[[Any], Any]] = {
    "view": lambda x: x.view(2, -1), "reshape": lambda x: x.reshape(4, 6), "flatten": lambda x: x.flatten(1),
    "unflatten": lambda x: x.unflatten(0, (1, -1)), "permute": lambda x: x.permute(2, 0, 1), "transpose": lambda x:
    x.transpose(0, -1), "movedim": lambda x: x.movedim(0, 1), "unsqueeze": lambda x: x.unsqueeze(-1), "squeeze":
    lambda x: x.squeeze(), "expand": lambda x: x.unsqueeze(0).expand(3, -1, -1, -1), "narrow": lambda x:
    x.narrow(1, 1, 2), "select": lambda x: x.select(2, -1), "unfold": lambda x: x.unfold(2, 2, 2), "diagonal":
    lambda x: x.diagonal(0, 1, 2), "chunk": lambda x: x.chunk(2), "split": lambda x: x.split(2, 1), "unbind":
    lambda x: x.unbind(1), "tensor_split": lambda x: x.tensor_split(3, dim=2), "twice": lambda x: x.view(2, -1).t(),
    "of a part": lambda x: x[..., 1:].transpose(0, 1), "first of several": lambda x: x.chunk(2)[0].unsqueeze(0),
    "new axis": lambda x: x[:, None, ..., 0],
}  # fmt: skip


def outcome(t: Any, view: Callable[[Any], Any], kind: str) -> Any:
    """Return the effects of one use of a view: elements, strides, gradients, and writes through it and through its
    base."""
    leaf = t.from_numpy(np.arange(24, dtype=np.float32).reshape(2, 3, 4)).clone()
    if kind == "history":
        leaf.requires_grad_()
    x = leaf * 1.0 if kind == "history" else leaf
    found = []
    with t.set_grad_enabled(kind != "no_grad"):
        views = view(x)
    for v in views if isinstance(views, tuple) else (views,):
        steps = [s for s, n in zip(v.stride(), v.shape, strict=True) if n > 1]
        found += [v.detach().numpy().copy(), steps, v.requires_grad, v._is_view(), v._base is x]
        try:
            v.mul_(2.0)
            x.add_(1.0)
            found += [v._version, x._version, v.detach().numpy().copy()]
        except RuntimeError:
            found.append("refused")
    found.append(x.detach().numpy().copy())
    if kind == "history":
        try:
            (x * x).sum().backward()
            found.append(leaf.grad.numpy())
        except RuntimeError:
            found.append("refused")
    return found


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("kind", ["plain", "history", "no_grad"])
def test_views_are_what_they_are_in_pytorch_at_every_call(name: str, kind: str) -> None:
    wanted = outcome(torch, VIEWS[name], kind)
    for _ in range(3):
        np.testing.assert_equal(outcome(tracecomp, VIEWS[name], kind), wanted)


def test_other_strides_and_a_first_call_without_gradients_are_calls_of_their_own() -> None:
    x = tracecomp.arange(6.0).reshape(2, 3).clone()
    assert x.reshape(6)._base is x
    assert x.t().reshape(6).tolist() == [0, 3, 1, 4, 2, 5]
    assert not x.t().reshape(6)._is_view()
    with tracecomp.no_grad():
        assert tracecomp.arange(10.0).chunk(5)[0]._is_view()
    leaf = tracecomp.arange(10.0, requires_grad=True)
    one = (leaf * 2.0).tensor_split(5)[0]
    one.add_(1.0)  # a view made under no_grad could not be written so
    one.sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.tolist() == [2.0] * 2 + [0.0] * 8
