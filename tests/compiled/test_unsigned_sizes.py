"""Unsigned integers wider than a byte in recordings whose sizes vary: the operators that eager mode has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracecomp as torch

OPERATORS: dict[str, Callable[[Any], Any]] = {
    "product": lambda x: x * x, "sum": lambda x: x + x, "scaled": lambda x: x * 3, "total": lambda x: x.sum(),
    "absolute": lambda x: x.abs(), "compared": lambda x: x > 1, "bits": lambda x: x & 3, "rounded": lambda x: x // 2,
    "largest": lambda x: x.max(), "clamped": lambda x: x.clamp(1, 2), "sorted": lambda x: x.sort(-1).values,
    "seen as another dtype": lambda x: x.view(torch.uint8).sum(),
    "mapped": lambda x: torch.func.vmap(lambda v: v * v.sum())(x),
    "joined": lambda x: torch.cat([x, x[:1]]), "chosen": lambda x: torch.where(x > 1, x, x * 2),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["uint16", "uint32", "uint64"])
@pytest.mark.parametrize("name", OPERATORS)
def test_sizes_vary(name: str, dtype: str) -> None:
    fn = OPERATORS[name]
    compiled = torch.compile(fn)
    for rows in (3, 4, 6, 7):
        x = torch.from_numpy((np.arange(4 * rows) * 5 % 7).astype(dtype).reshape(rows, 4))
        assert outcome(compiled, x) == outcome(fn, x)


def outcome(fn: Callable[[Any], Any], x: Any) -> Any:
    try:
        found = fn(x)
    except (NotImplementedError, RuntimeError) as error:
        return type(error)
    return str(found.dtype), found.tolist()


@pytest.mark.parametrize("dtype", ["uint16", "uint32", "uint64"])
@pytest.mark.parametrize("name", OPERATORS)
def test_other_sizes_vary(name: str, dtype: str) -> None:
    """The tensor keeps its size, and a number of the call or the size of another tensor varies."""

    def fn(x: Any, n: int, y: Any) -> Any:
        return OPERATORS[name](x), torch.zeros(x.shape[0], n) + n, y * 2

    compiled = torch.compile(fn)
    x = torch.from_numpy((np.arange(12) * 5 % 7).astype(dtype).reshape(3, 4))
    for n, rows in ((3, 2), (2, 2), (5, 2), (2, 3), (4, 5), (4, 6)):
        y = torch.ones(rows, 2)
        assert outcomes(compiled, x, n, y) == outcomes(fn, x, n, y)


def outcomes(fn: Callable[..., Any], *args: Any) -> Any:
    try:
        found = fn(*args)
    except (NotImplementedError, RuntimeError) as error:
        return type(error)
    return [(str(t.dtype), t.tolist()) for t in found]
