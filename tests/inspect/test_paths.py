"""Values and sizes for which a program takes another path."""

from __future__ import annotations

from typing import Any

import numpy as np

import tracecomp as torch
from tracecomp.inspect import compare
from tracecomp.inspect.changes import _like, _rows, _with
from tracecomp.inspect.paths import Limits, limits


def test_limits_are_found_between_neighbours() -> None:
    assert limits([1, 9, 40], lambda n: (n > 4, n >= 23)) == [4, 5, 22, 23]
    assert limits([1, 9], lambda n: ()) == []


def test_sizes_on_both_sides_of_a_condition() -> None:
    def fn(x: Any) -> Any:
        return x * 2.0 if x.shape[0] * x.shape[1] > 30 else x - 1.0

    found = Limits(fn, ((torch.ones(9, 5),), {}))
    assert {6, 7} <= set(found.sizes(9, 0, 5, lambda n, call: _rows(9, n, call)))


def test_values_that_flip_a_condition() -> None:
    def fn(x: Any) -> Any:
        return x * 8.0 if x.abs().max() < 0.125 else x * 2.0

    x = torch.ones(3)
    found = Limits(fn, ((x,), {}))
    others = found.values(0, x._data, lambda array, call: _with(0, _like(x, array), call))
    assert any(0 < np.abs(other).max() < 0.125 for other in others)


def test_a_program_that_reads_no_value_has_no_other_paths() -> None:
    x = torch.ones(3)
    found = Limits(lambda x: x * 2.0, ((x,), {}))
    assert found.values(0, x._data, lambda array, call: _with(0, _like(x, array), call)) == []


def test_comparing_compiles_every_changed_call() -> None:
    """A budget would stop that: a compiled function records little that later calls do not use."""
    result = compare(lambda x, y: x * 2.0 + y, torch.ones(4, 3), torch.ones(4, 3))
    assert result.ok, str(result)
    assert result.calls.changed > 16


def test_complex_numbers_are_compared_before_they_are_split() -> None:
    z = torch.complex(torch.ones(2, 3), torch.ones(2, 3))
    result = compare(lambda z: (z * (1.0 + 2.0j)).conj(), z, changed=False)
    assert result.ok, str(result)
    assert [s.name for s in result.stages[:2]] == ["recorded", "complex_to_real"]
