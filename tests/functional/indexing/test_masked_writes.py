"""Writes where a mask holds: torch's meaning, one recording for every mask where all its places get the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracecomp

torch = pytest.importorskip("torch")

KEYS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "whole": lambda m, rows, columns: m,
    "rows": lambda m, rows, columns: rows,
    "columns": lambda m, rows, columns: (slice(None), columns),
    "rows of a part": lambda m, rows, columns: (rows, slice(1, 4)),
    "rows of one column": lambda m, rows, columns: (rows, 2),
    "a new axis": lambda m, rows, columns: (None, rows),
    "columns of one row": lambda m, rows, columns: (1, columns),
    "behind an ellipsis": lambda m, rows, columns: (..., columns),
}
VALUES = ((), (1,), (5,), (4,), (1, 5), (4, 1), (1, 1), (3,), (1, 1, 1), (2, 1, 5))


def written(T: Any, name: str, shape: tuple[int, ...], seed: int, run: Callable[..., Any]) -> Any:
    """The tensor after the write, with its gradients; or the kind of error."""
    draw = np.random.default_rng(seed)
    x, m, rows, columns = (draw.standard_normal(s).astype("f") for s in ((4, 5), (4, 5), (4,), (5,)))
    leaf = T.from_numpy(x).requires_grad_()
    v = T.from_numpy(draw.standard_normal(shape).astype("f")).requires_grad_()
    key = KEYS[name](*(T.from_numpy(mask > 0) for mask in (m, rows, columns)))

    try:
        found = run(leaf, key, v)
    except (RuntimeError, IndexError) as error:
        return type(error)
    found.sin().sum().backward()
    return [np.round(t.detach().numpy(), 4).tolist() for t in (found, leaf.grad, v.grad)]


def write(x: Any, key: Any, v: Any) -> Any:
    y = x * 1
    y[key] = v
    return y


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize("shape", VALUES, ids=str)
def test_masked_writes_are_those_of_torch(name: str, shape: tuple[int, ...]) -> None:
    for seed in range(3):
        assert written(tracecomp, name, shape, seed, write) == written(torch, name, shape, seed, write)


@pytest.mark.parametrize("name", KEYS)
def test_one_recording_serves_every_mask(name: str) -> None:
    compiled = tracecomp.compile(write, backend="interpret")
    for seed in range(5):
        assert written(tracecomp, name, (), seed, compiled) == written(torch, name, (), seed, write)
    assert str(compiled.explain()).splitlines()[0].endswith("recordings 1, in use 1")


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int64", "bool", "complex64"])
def test_a_number_fills_large_tensors_and_views_of_them(dtype: str) -> None:
    x = tracecomp.ones(80, 90, dtype=getattr(tracecomp, dtype))
    for part in (x.T[3:, ::2], x[:, 1:2].expand(80, 90), x):
        before = x._version
        part.fill_(1)
        assert x._version == before + 1
        assert bool((part == 1).all())
        assert not bool(part.zero_().any())
    leaf = tracecomp.ones(80, 90, requires_grad=True)
    y = leaf * 2
    y[:, 3:].zero_()
    y.sum().backward()
    assert leaf.grad is not None
    assert float(leaf.grad.sum()) == 2 * 80 * 3
