"""Inputs that do not lead to a result have no gradient of it, compiled as eager: None, not zeros."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pytest

import tracecomp as torch

LAYERS = torch.nn.ModuleDict({"a": torch.nn.Linear(2, 2), "b": torch.nn.Linear(2, 2)})


def _in_place(x: Any, y: Any) -> Any:
    z = x * 1
    z[0] = y.sum()
    return z * 2, x * 3, y * 4


def _detached(x: Any, y: Any) -> Any:
    with torch.no_grad():
        z = y * 2
    return x * z, y.detach() * x, (y * 0).sum()


def _inner(x: Any, y: Any) -> Any:
    z = x * 2
    return z, z * y, y * 3


PROGRAMS: dict[str, Callable[[Any, Any], tuple[Any, ...]]] = {
    "apart": lambda x, y: (x * 2, y * 3, x * y),
    "a result of others": _inner,
    "detached": _detached,
    "in place": _in_place,
    "modules": lambda x, y: (LAYERS["a"](x), LAYERS["b"](y), LAYERS["b"](x)),
    "zeros": lambda x, y: (x.floor(), y.sign() * x, y.argmax() * x),
    "views": lambda x, y: (x[:1], torch.stack([x, y])[0], y.reshape(2, 1)),
}


@pytest.mark.filterwarnings("ignore:graph break")  # each choice of results is another recording of the backward pass
@pytest.mark.parametrize("name", PROGRAMS)
def test_inputs_without_gradients(name: str) -> None:
    fn = PROGRAMS[name]
    compiled = torch.compile(fn)
    for k in range(3):
        for chosen in [c for n in (1, 2, 3) for c in combinations(range(3), n)]:
            assert gradients(compiled, chosen, k) == gradients(fn, chosen, k), (chosen, k)


def gradients(fn: Callable[..., tuple[Any, ...]], chosen: tuple[int, ...], seed: int) -> list[Any]:
    """``.grad`` of all leaves, and what ``autograd.grad`` returns, differentiated again too."""
    LAYERS.zero_grad()
    inputs = [torch.tensor(np.array([1.5, -2.5], np.float32) + k + seed, requires_grad=True) for k in range(2)]
    results = fn(*inputs)
    roots = [results[k].sum() for k in chosen if results[k].requires_grad]
    if not roots:
        return []
    leaves = [*inputs, *LAYERS.parameters()]
    found = [
        torch.autograd.grad(roots, leaves, retain_graph=True, create_graph=c, allow_unused=True) for c in (False, True)
    ]
    torch.autograd.backward(roots)
    return [None if g is None else g.tolist() for g in (*found[0], *found[1], *[t.grad for t in leaves])]


def test_the_error_says_which_input() -> None:
    x, y = (torch.ones(2, requires_grad=True) for _ in range(2))
    with pytest.raises(RuntimeError, match="Tensor at index 1 appears to not have been used"):
        torch.autograd.grad((x * 2).sum(), [x, y])
