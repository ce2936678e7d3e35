"""``vmap`` over a dimension of size 0: results of the shapes and dtypes that PyTorch gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tracecomp

FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "elementwise": lambda torch, v: v * 2,
    "sum": lambda torch, v: v.sum(),
    "largest": lambda torch, v: v.max(),
    "product": lambda torch, v: v @ torch.ones(3, 2),
    "sorted": lambda torch, v: v.sort().values,
    "index": lambda torch, v: v[torch.tensor([0, 2])],
    "compared": lambda torch, v: torch.where(v > 0, v, -v) > 1,
    "several": lambda torch, v: (v, v.sum(), torch.ones(2)),
    "gradient": lambda torch, v: torch.func.grad(lambda u: (u * u).sum())(v),
    "forward derivative": lambda torch, v: torch.func.jvp(lambda u: u.sin(), (v,), (v,)),
    "inner vmap": lambda torch, v: torch.func.vmap(lambda u: u * 2)(v),
    "write": lambda torch, v: v.clone().mul_(2),
}


@pytest.mark.parametrize("chunk_size", [None, 2])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_shapes_of_an_empty_batch(name: str, axis: int, chunk_size: int | None) -> None:
    reference = pytest.importorskip("torch")

    def seen(torch: Any, compiled: bool = False) -> Any:
        # PyTorch raises AssertionError for chunks of an empty batch.
        chunks = chunk_size if torch is tracecomp else None
        mapped = torch.func.vmap(lambda v: FUNCTIONS[name](torch, v), in_dims=axis, chunk_size=chunks)
        mapped = torch.compile(mapped) if compiled else mapped
        for _ in range(2):
            found = mapped(torch.zeros(0, 3) if axis == 0 else torch.zeros(3, 0))
        found = found if isinstance(found, tuple) else (found,)
        return [(str(t.dtype).split(".")[-1], tuple(t.shape)) for t in found]

    assert seen(tracecomp) == seen(tracecomp, compiled=True) == seen(reference)


def test_gradients_of_an_empty_batch() -> None:
    x, w = tracecomp.zeros(0, 3, requires_grad=True), tracecomp.ones(3, requires_grad=True)
    tracecomp.func.vmap(lambda v: (v * w).sum())(x).sum().backward()
    assert x.grad is not None and x.grad.shape == (0, 3)
    assert w.grad is not None and w.grad.tolist() == [0, 0, 0]
