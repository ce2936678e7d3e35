"""Ranges and quotients of dynamic sizes, with steps and divisors of both signs."""

from __future__ import annotations

import random
from typing import Any

import pytest

import tracecomp as torch
from tracecomp.record.size_forms import Form

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


def test_a_product_of_forms_is_divided_by_each() -> None:
    rng = random.Random(0)

    def form() -> Form:
        """A polynomial with up to three terms in two sizes."""
        total = Form.constant(rng.choice((0, 1, 3, -2)))
        for _ in range(rng.randint(1, 2)):
            size = Form.of_size(rng.randint(0, 1))
            square = size.times(Form.of_size(1)) if rng.random() < 0.3 else None
            total = total.plus(size if square is None else square, rng.choice((1, 2, -3, 16)))
        return total

    for _ in range(300):
        a, b = form(), form()
        product = a.times(b)
        if product is not None and b.terms:
            assert product.exactly_over(b) == a
            rest = product.plus(Form.constant(1)).exactly_over(b)
            assert rest is None or rest.times(b) == product.plus(Form.constant(1))


def test_a_size_that_views_infer_is_exact() -> None:
    compiled = torch.compile(lambda x: torch.cat([x, x[:1]]).view(x.shape[0] + 1, -1, 2))
    for n in (5, 6, 7, 3):
        assert compiled(torch.ones(n, 8)).shape == (n + 1, 4, 2)
    assert compiled.recordings == 2
