"""Numbers that a recording follows, given to code that wants plain ones: Python's library, numpy, caches."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

import tracecomp as torch

pytestmark = pytest.mark.filterwarnings("ignore:graph break in:UserWarning")

IMPORTS = """import cmath, decimal, json, math, statistics, numpy as np
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction"""
CALLS = [
    """json.dumps({"n": n, "all": [n, (n, 1)]}), json.dumps(*[n]), dict(**json.loads("{}"), n=n),
       timedelta(days=n).days, date(2020, 1, n).day, decimal.Decimal(n), statistics.mean([n, 2])""",
    """math.ldexp(1.0, n), cmath.sqrt(n), math.fsum([n, 1]), math.prod([n, 2]), math.floor(n), math.comb(n, 2),
       np.array([n, 1]), np.arange(n), np.sqrt(n), np.full((2,), n), np.prod((n, 2)), np.maximum(np.float32(1), n)""",
]
OPERATORS = [
    """n * 1j, 2j + n, n - 2j, n / 2j, 2j**n, n == 2j, Decimal(2) * n, n + Decimal(1), n % Decimal(2), Decimal(7) // n,
       Decimal(4) == n, n == Decimal(4), n > Decimal(4), n >= Fraction(4), timedelta(1) * n, n * timedelta(1)""",
    """np.float32(1) * n, n * np.float32(2), n - np.float16(1), n ** np.float32(2), np.float64(2) * n,
       np.ones(2, np.float32) * n, n + np.ones(2, np.float32), np.ones(2, np.int8) // n, pow(n, 2, 3), n**2, 2**n""",
    """"%*d" % (n, 7), "%.*f" % (n, 1.0), b"%*d" % (n, 7), "%(a)5d" % {"a": n}, "%d" % n, "%c" % (n + 60),
       round(n, -1), round(n, 1), round(n), round(1.23456, n), pow(2, n, 5), pow(2, 3, n), f"{n:>{n}}", "a".ljust(n)""",
]
SOURCES: dict[str, tuple[str, Callable[[int], tuple[Any, ...]]]] = {
    "size": ("lambda x: (lambda n: (x * 2, {}))(x.shape[0])", lambda k: (torch.ones(k),)),
    "argument": ("lambda x, n: (x * 2, {})", lambda k: (torch.ones(2), k)),
    "item": ("lambda x: (lambda n: (x * 2, {}))(x[0].long().item())", lambda k: (torch.ones(2) * k,)),
}


def told(value: object) -> str:
    """Types and values."""
    return str([told(v) for v in value]) if isinstance(value, list | tuple) else f"{type(value).__name__} {value!r}"


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("expression", CALLS + OPERATORS)
def test_it_is_given_the_plain_number(source: str, expression: str) -> None:
    text, arguments = SOURCES[source]
    names: dict[str, Any] = {}
    exec(IMPORTS, names)
    fn = eval(text.format(f"({expression})"), names)
    compiled = torch.compile(fn)
    for k in (3, 4, 5):
        assert told(compiled(*arguments(k))[1]) == told(fn(*arguments(k))[1])


def test_a_cache_is_filled_once_for_each_size() -> None:
    asked: list[object] = []

    @functools.lru_cache
    def mask(shape: tuple[int, ...], n: int) -> torch.Tensor:
        asked.append((type(n), shape))
        return torch.arange(n) % 2 == 0

    @torch.compile
    def masked(x: torch.Tensor) -> torch.Tensor:
        return x * mask((x.shape[0], 1), x.shape[0])

    for n in (3, 5, 6, 3, 7, 6, 8):
        x = torch.ones(n)
        assert masked(x).tolist() == [1.0, 0.0] * (n // 2) + [1.0] * (n % 2)
    assert asked == [(int, (n, 1)) for n in (3, 5, 6, 7, 8)]
    assert "graph break" not in str(masked.explain())


def test_a_cache_of_tensors_by_identity_is_a_graph_break() -> None:
    @functools.lru_cache
    def twice(t: torch.Tensor) -> torch.Tensor:
        return t * 2

    x, y = torch.ones(2), torch.full((2,), 5.0)
    twice(x)
    compiled = torch.compile(lambda t: twice(t) + 1)
    assert [compiled(t).tolist() for t in (x, y, x, y)] == [[3.0, 3.0], [11.0, 11.0]] * 2


def test_a_cache_of_tensors_with_a_history_is_filled_by_python() -> None:
    w = torch.ones(2, requires_grad=True)

    @functools.lru_cache
    def scale(n: int) -> torch.Tensor:
        return torch.arange(n) * w.sum()

    compiled = torch.compile(lambda x: x * scale(x.shape[0]))
    for n in (2, 3, 4, 2):
        assert compiled(torch.ones(n)).tolist() == [2.0 * i for i in range(n)]
