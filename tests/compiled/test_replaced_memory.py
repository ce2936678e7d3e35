"""``t.data = other`` between calls: views keep the old memory, or are views no more, and compiled calls see it."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

import tracecomp as torch

MAKERS: dict[str, Callable[[], tuple[torch.Tensor, torch.Tensor]]] = {
    "reshaped": lambda: _of(torch.arange(6.0), lambda b: b.reshape(2, 3)),
    "part": lambda: _of(torch.arange(6.0), lambda b: b[1:4]),
    "turned": lambda: _of(torch.arange(6.0).reshape(2, 3), lambda b: b.t()),
    "view of a view": lambda: _of(torch.arange(8.0), lambda b: b[1:7].reshape(2, 3)[0]),
    "alias": lambda: _of(torch.arange(6.0), lambda b: b.data),
    "detached": lambda: _of(torch.nn.Parameter(torch.arange(6.0)), lambda b: b.detach()),
}


def _of(base: torch.Tensor, view: Callable[[torch.Tensor], torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    return base, view(base)


def _full(t: torch.Tensor, value: float) -> torch.Tensor:
    return torch.full(tuple(t.shape), value)


def _write(t: torch.Tensor) -> None:
    with torch.no_grad():
        t.add_(1)


CHANGES: dict[str, Callable[[torch.Tensor, torch.Tensor], None]] = {
    "view replaced": lambda base, view: setattr(view, "data", _full(view, 7.0)),
    "base replaced": lambda base, view: setattr(base, "data", _full(base, 5.0)),
    "view written": lambda base, view: _write(view),
    "base written": lambda base, view: _write(base),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("order", [*itertools.permutations(CHANGES, 3)], ids="-".join)
@pytest.mark.parametrize("reads_base", [False, True])
def test_replaced_memory_is_seen(name: str, order: tuple[str, ...], reads_base: bool) -> None:
    base, view = MAKERS[name]()

    def f(x: torch.Tensor) -> torch.Tensor:
        return x + view.sum() * 3 + (base.sum() if reads_base else 0)

    compiled = torch.compile(f, backend="interpret")
    x = torch.zeros(2)
    for change in ("", *order):
        if change:
            CHANGES[change](base, view)
        for _ in range(2):
            assert compiled(x).tolist() == f(x).tolist(), change
