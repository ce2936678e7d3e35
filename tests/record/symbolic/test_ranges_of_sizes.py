"""Ranges and quotients of dynamic sizes, with steps and divisors of both signs."""

from __future__ import annotations

from typing import Any

import pytest

import tracecomp as torch

SIZES = (6, 7, 8, 9, 13, 3, 2, 24)
RANGES = [
    "arange(n + 3, -3, -1)", "arange(n + 3, -3, -1.0)", "arange(n + 3, -3, -1.0, dtype=torch.int64)",
    "arange(-n, n, 3)", "arange(-n, n, 3.0)", "arange(n, -n - 5, -4)", "arange(0, 2 * n, 2.0, dtype=torch.float64)",
    "arange(2 * n, 1, -2, dtype=torch.float32)", "arange(-2 * n, -1)",
]  # fmt: skip
QUOTIENTS = ["n // -2", "n % -2", "(n + 5) // -3", "-n // -4", "(-n) % -4", "sum(divmod(n, -5))", "(n - 8) // -3"]


@pytest.mark.parametrize("expression", RANGES)
def test_a_range_of_a_size_is_recorded_twice(expression: str) -> None:
    program = eval(f"lambda x: (lambda n: torch.{expression})(x.shape[0]) * x.sum()", {"torch": torch})
    compiled = torch.compile(program)
    for n in SIZES:
        x = torch.ones(n) / 2
        found, expected = compiled(x), program(x)
        assert found.dtype == expected.dtype and torch.equal(found, expected)
    assert compiled.recordings == 2


@pytest.mark.parametrize("expression", QUOTIENTS)
def test_a_quotient_of_a_size_is_pythons(expression: str) -> None:
    program: Any = eval(f"lambda x: (lambda n: (x * ({expression}), {expression}))(x.shape[0])")
    compiled = torch.compile(program)
    for n in SIZES:
        x = torch.ones(n)
        assert compiled(x)[1] == program(x)[1] and torch.equal(compiled(x)[0], program(x)[0])
