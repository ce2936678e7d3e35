"""Diagonals are views, whatever the memory layout of their plane: against torch, eager and compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tracecomp

torch = pytest.importorskip("torch")

PLANES: dict[str, Callable[[Any], Any]] = {
    "every other row": lambda a: a[::2],
    "columns left out": lambda a: a[:, 1:],
    "a corner": lambda a: a[1:, :3],
    "turned": lambda a: a.t(),
    "a corner, turned": lambda a: a[:3, 2:].t(),
    "batches": lambda a: a.view(2, 2, 6)[:, :, 1:4],
    "one row": lambda a: a[1:2, ::2],
    "dense": lambda a: a,
}


def seen(T: Any, plane: Callable[[Any], Any], offset: int, compiled: bool) -> list[Any]:
    """Return the memory after a write to a diagonal, and a gradient through it."""

    def program(a: Any, w: Any) -> Any:
        d = plane(a).diagonal(offset, -2, -1)
        d.add_(5)
        loss = (plane(w * 1).diagonal(offset, -2, -1) * d).sum()
        h = w * 2
        plane(h).diagonal(offset, -2, -1).mul_(d)
        return d, loss, h.sum()

    run = T.compile(program) if compiled else program
    found: list[Any] = []
    for k in range(3 if compiled else 1):
        a = T.arange(24, dtype=T.float32).reshape(4, 6) + k
        w = T.ones(4, 6, requires_grad=True)
        d, loss, total = run(a, w)
        (loss + total).backward()
        found = [
            d.tolist(),
            [s for s, n in zip(d.stride(), d.shape, strict=True) if n > 1],
            d.numel() and d.data_ptr() - a.data_ptr(),
            a.tolist(),
            w.grad.tolist(),
        ]
        if not compiled:
            continue
        if found[3] != seen_at(plane, offset, k):
            return [k, found[3]]
    return found


def seen_at(plane: Callable[[Any], Any], offset: int, k: int) -> Any:
    a = torch.arange(24, dtype=torch.float32).reshape(4, 6) + k
    plane(a).diagonal(offset, -2, -1).add_(5)
    return a.tolist()


@pytest.mark.parametrize("name", PLANES)
@pytest.mark.parametrize("offset", [0, 1, -1])
def test_diagonals_are_views_as_in_torch(name: str, offset: int) -> None:
    assert seen(tracecomp, PLANES[name], offset, False) == seen(torch, PLANES[name], offset, False)


@pytest.mark.parametrize("name", PLANES)
def test_compiled_writes_to_diagonals_reach_their_memory(name: str) -> None:
    compiled = seen(tracecomp, PLANES[name], 0, True)
    assert len(compiled) == 5, compiled
