"""Small operators on every pair of telling values of every dtype, against PyTorch: eagerly and compiled.

Samples of records are few numbers; a fault that these do not meet (a sign of -1, a bool of False) lives. Here no value
of bool is left out, and integers and floats have both signs, both ends and their neighbours.
"""

from __future__ import annotations

from typing import Any

import pytest

import tracecomp as tc

torch = pytest.importorskip("torch")

INTS = ("uint8", "int8", "int16", "int32", "int64")
FLOATS = ("float16", "bfloat16", "float32", "float64")
TWO = ("add", "mul", "maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or",
       "logical_xor")  # fmt: skip
BITS = ("bitwise_and", "bitwise_or", "bitwise_xor")
ONE = ("sign", "logical_not")
INDICES = ("index_select", "gather", "getitem", "take")


def values(dtype: str) -> list[Any]:
    """Every bool; of numbers both ends, zero, and the small ones around it, negative ones included."""
    if dtype == "bool":
        return [True, False]
    kind = getattr(torch, dtype)
    if dtype in INTS:
        info = torch.iinfo(kind)
        return sorted({n for n in (*range(-5, 6), info.min, info.min + 1, info.max - 1, info.max) if n >= info.min})
    return [-float("inf"), -3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0, float("inf"), float("nan")]


def agree(name: str, *rows: list[Any], dtype: str) -> None:
    """``name`` gives PyTorch's dtype and values, both ways."""
    wanted = getattr(torch, name)(*(torch.tensor(r, dtype=getattr(torch, dtype)) for r in rows))
    given = [tc.tensor(r, dtype=getattr(tc, dtype)) for r in rows]
    made = getattr(tc, name)
    compiled = tc.compile(lambda *a: made(*a))
    for found in (made(*given), *(compiled(*given) for _ in range(3))):  # the first call may run as recorded
        assert str(found.dtype).split(".")[-1] == str(wanted.dtype).split(".")[-1]
        torch.testing.assert_close(torch.tensor(found.tolist(), dtype=wanted.dtype), wanted, rtol=0, atol=0,
                                   equal_nan=True)  # fmt: skip


@pytest.mark.parametrize("dtype", ["bool", *INTS, *FLOATS])
def test_every_pair(dtype: str) -> None:
    some = values(dtype)
    pairs = [(a, b) for a in some for b in some]
    for name in TWO if dtype in FLOATS else (*TWO, *BITS):
        agree(name, [a for a, _ in pairs], [b for _, b in pairs], dtype=dtype)


@pytest.mark.parametrize("dtype", ["bool", *INTS, *FLOATS])
def test_every_value(dtype: str) -> None:
    for name in ONE:
        agree(name, values(dtype), dtype=dtype)


def _taken(t: Any, name: str, x: Any, at: Any) -> Any:
    if name == "getitem":
        return x[at]
    return t.take(x, at) if name == "take" else getattr(t, name)(x, 0, at)


@pytest.mark.parametrize("name", INDICES)
@pytest.mark.parametrize("size", [1, 2, 7])
def test_indices_within_and_beyond(name: str, size: int) -> None:
    """An index gives PyTorch's element or an error: no index beyond the end is taken for another."""
    outcomes: list[list[Any]] = []
    for t in (torch, tc):
        x = t.arange(10, 10 + size)
        ways = [lambda x, at, t=t: _taken(t, name, x, at)]
        ways += [tc.compile(ways[0])] if t is tc else []
        for way in (*ways, ways[-1], ways[-1]):  # a first compiled call may run as recorded
            outcomes.append([])
            for n in range(-2 * size - 1, 2 * size + 2):
                try:
                    outcomes[-1].append(way(x, t.tensor([n])).tolist())
                except (IndexError, RuntimeError):
                    outcomes[-1].append("error")
    assert all(o == outcomes[0] for o in outcomes)
