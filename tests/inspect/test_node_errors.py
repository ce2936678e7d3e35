"""How far the nodes of a graph are from float64."""

from __future__ import annotations

from typing import Any

import numpy as np

import tracecomp as torch
from tracecomp.inspect.node_errors import node_errors


def by_operator(fn: Any, *arrays: np.ndarray[Any, Any]) -> dict[str, float]:
    graph = torch.trace(fn, *map(torch.from_numpy, arrays))
    return {node.op.name: error for node, error in node_errors(graph, arrays).items()}


def test_rounding_is_a_few_units_and_cancellation_shows() -> None:
    x = np.linspace(1, 2, 50, dtype=np.float32)
    found = by_operator(lambda x: (x.exp() + 1e4) - 1e4, x)
    eps = float(np.finfo(np.float32).eps)
    assert 0 < found["exp"] < eps and found["add"] < eps
    exact = np.exp(x.astype(np.float64))
    lost = np.abs((np.exp(x) + np.float32(1e4)) - np.float32(1e4) - exact).max() / exact.max()
    assert np.isclose(found["sub"], lost, rtol=0.05) and found["sub"] > 100 * eps


def test_an_overflow_counts_as_wholly_wrong_and_integers_do_not_count() -> None:
    found = by_operator(lambda x: (x.exp(), (x > 1).sum()), np.array([1.0, 200.0], np.float32))
    assert found["exp"] == 1.0 and "gt" not in found and "sum" not in found


def test_what_depends_on_the_width_of_a_type_goes_on_from_there() -> None:
    x = np.array([1.1, 3.3], np.float32)
    found = by_operator(lambda x: x.view(torch.int32).bitwise_and(-65536).view(torch.float32) * 3, x)
    assert found["mul"] < 1e-6
