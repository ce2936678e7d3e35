"""Graphs in parts: the code and its results, compared with torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tracecomp
from tracecomp.fx.passes.split_module import split_module

torch = pytest.importorskip("torch")
from torch.fx.passes.split_module import split_module as split_by_torch  # noqa: E402

CALLBACKS: dict[str, Callable[[Any], int]] = {
    "one": lambda node: 0,
    "halves": lambda node: int(node.name in ("second", "mul", "sub")),
    "numbers not in order": lambda node: {"first": 2, "relu": 2, "second": 0, "mul": 1, "sub": 1}[node.name],
}


def network(P: Any) -> Any:
    class Network(P.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = P.nn.Linear(3, 4), P.nn.Linear(4, 3)
            self.scale = P.nn.Parameter(P.ones(3) * 2)

        def forward(self, x: Any, y: Any) -> Any:
            hidden = P.relu(self.first(x))
            out = self.second(hidden) * self.scale
            return out - y, hidden

    P.manual_seed(0)
    return Network()


def shown(module: Any) -> list[str]:
    """The code's words; torch writes the annotations of this file's ``forward`` into it."""
    return str(module.code).replace(" : _Any_", "").split()


@pytest.mark.parametrize("name", CALLBACKS)
def test_parts_are_those_of_torch(name: str) -> None:
    codes = []
    for P, split in ((torch, split_by_torch), (tracecomp, split_module)):
        traced = P.fx.symbolic_trace(network(P))
        names: dict[str, str] = {}
        parted = split(traced, traced, CALLBACKS[name], names)
        x, y = P.ones(2, 3), P.ones(3)
        for mine, other in zip(parted(x, y), traced(x, y), strict=True):
            assert mine.tolist() == other.tolist()
        inner = {n: shown(m) for n, m in parted.named_children() if hasattr(m, "code")}
        codes.append((shown(parted), inner, names))
    assert codes[1] == codes[0]


def test_parts_that_need_each_other_are_refused() -> None:
    for P, split in ((torch, split_by_torch), (tracecomp, split_module)):
        traced = P.fx.symbolic_trace(eval("lambda x: P.relu(x + 1) * 2", {"P": P}))
        with pytest.raises(RuntimeError, match="cycle exists between partitions"):
            split(traced, traced, lambda node: int(node.name == "relu"))
