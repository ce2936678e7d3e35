"""Simplified indices have the values of Python's integers."""

from __future__ import annotations

import random

from tracecomp.ir.index import Index, Var, index

VARS = [Var("a", 6), Var("b", 147), Var("c", 4)]


def grown(rng: random.Random) -> tuple[Index, str]:
    """A random index and the Python expression of its value."""
    found, text = Index(), "0"
    for _ in range(rng.randint(2, 7)):
        n = rng.choice((2, 3, 7, 49, 64, 147))
        match rng.randint(0, 4):
            case 0 | 1:
                var, factor = rng.choice(VARS), rng.choice((1, 1, 3, 49, 147, -2))
                found, text = found + index(var) * factor, f"({text} + {var.name} * {factor})"
            case 2:
                shift = rng.choice((-50, -1, 5, 49))
                found, text = found + shift, f"({text} + {shift})"
            case 3:
                found, text = found // n, f"({text} // {n})"
            case _:
                found, text = found % n, f"({text} % {n})"
    return found, text


def test_random_indices() -> None:
    rng = random.Random(0)
    for _ in range(400):
        found, text = grown(rng)
        for _ in range(20):
            point = {v: rng.randrange(v.extent) for v in VARS}
            value = found.substitute({v: Index((), n) for v, n in point.items()})
            assert value == Index((), eval(text, {v.name: n for v, n in point.items()})), (found, text, point)


def test_a_quotient_of_a_quotient_is_one() -> None:
    b = index(VARS[1])
    assert b // 7 // 7 == b // 49
    assert (b // 7 + 3) // 2 == (b + 21) // 14
