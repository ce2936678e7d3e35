"""Counts of compilations by PyTorch's tools, and names of its compiler that programs use."""

from __future__ import annotations

from typing import Any

import pytest

import tracecomp as torch
from tests.collecting import collect
from tracecomp import _dynamo, _logging
from tracecomp._dynamo.testing import CompileCounter, CompileCounterWithBackend, same
from tracecomp._dynamo.utils import counters


@pytest.mark.parametrize("make", [CompileCounter, lambda: CompileCounterWithBackend("inductor")])
def test_a_counter_counts_recordings_and_operators(make: Any) -> None:
    counter = make()
    f = torch.compile(lambda x, k: (x * 2).sum() if k == "sum" else x, backend=counter)
    for _ in range(3):
        assert f(torch.ones(3), "sum") == 6
    assert (counter.frame_count, counter.op_count, len(counter.graphs)) == (1, 2, 1)
    f(torch.ones(3), "same")
    assert counter.frame_count == 2
    counter.clear()
    f(torch.ones(3), "sum")
    assert (counter.frame_count, counter.op_count) == (0, 0)
    f(torch.ones(3).double(), "sum")
    assert counter.frame_count == 1
    counter.frame_count = 0
    assert counter.frame_count == 0


def test_counters_count_what_all_functions_do() -> None:
    others = [torch.compile(lambda x, n=n: x + n) for n in range(4)]
    assert all(other(torch.ones(2)).shape == (2,) for other in others)
    counters.clear()
    others.clear()  # functions that are gone take nothing from the count of others
    collect()
    assert not counters["stats"] and not counters["graph_break"] and not counters["unknown"]
    f, g = torch.compile(lambda x: x * 2), torch.compile(lambda x: torch.from_numpy(x.numpy() * 2))
    with pytest.warns(UserWarning, match="graph break in"):
        f(torch.ones(2)), f(torch.ones(2, dtype=torch.float64)), g(torch.ones(2))
    assert counters["stats"]["unique_graphs"] == counters["frames"]["ok"] >= 2
    assert any("numpy" in why for why in counters["graph_break"])
    counters.clear()
    assert not counters["stats"]


def test_results_are_the_same_up_to_a_tolerance() -> None:
    a, b = torch.ones(3), torch.ones(3) + 1e-5
    assert same({"x": [a, 1.0]}, {"x": [b, 1.0]})
    assert not same(a, b, tol=1e-7)
    assert not same(a, a.double()) and same(a, a.double(), exact_dtype=False)
    assert not same([a], [a, a]) and not same({"x": a}, {"y": a}) and not same(a, 1.0) and not same(a, a[:2])
    nan = torch.tensor(float("nan"))
    assert not same(nan, nan) and same(nan, nan, equal_nan=True)
    assert same(a, 3 * a, cos_similarity=True) and not same(a, -a, cos_similarity=True)


def test_backends_that_take_graphs_are_registered_and_refused_when_used() -> None:
    @_dynamo.register_backend(name="own_of_test_counting")
    def own(graph: Any, inputs: Any) -> Any:
        return graph

    assert _dynamo.lookup_backend("own_of_test_counting") is own
    assert _dynamo.lookup_backend(own) is own
    backends: tuple[Any, ...] = ("own_of_test_counting", own)
    for backend in backends:
        with pytest.raises(NotImplementedError, match="needs PyTorch graphs, which do not exist here"):
            torch.compile(lambda x: x, backend=backend)
    with pytest.raises(AssertionError, match="duplicate name"):
        _dynamo.register_backend(own, name="own_of_test_counting")
    for name in ("inductor", "nowhere"):
        with pytest.raises(RuntimeError, match="Invalid backend"):
            _dynamo.lookup_backend(name)


def test_marks_that_change_nothing_and_what_is_not_here() -> None:
    @torch.compiler.nested_compile_region
    def inner(x: Any) -> Any:
        return x * 2

    f = torch.compile(lambda x: inner(x) + _dynamo.nonstrict_trace(inner)(x), mode="lite", fullgraph=True)
    assert f(torch.ones(2)).tolist() == f(torch.ones(2)).tolist() == [4, 4]
    assert torch.compiler.save_cache_artifacts() is None
    with pytest.raises(RuntimeError, match="TRACECOMP_CACHE_DIR"):
        torch.compiler.load_cache_artifacts(b"")
    with pytest.warns(UserWarning, match="TRACECOMP_LOG"):
        _logging.set_logs(recompiles=True)
    with pytest.raises(ValueError, match="Unrecognized log artifact name passed to set_logs: nothing"):
        _logging.set_logs(nothing=True)
