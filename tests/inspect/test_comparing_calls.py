"""Comparisons put everything back, make several calls, check derivatives, and say where NaN begins."""

from __future__ import annotations

from collections import Counter, OrderedDict
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tests.autograd.doubled import Double
from tracecomp import nn
from tracecomp.base.errors import CaptureError
from tracecomp.compiled.differences import differ_often, difference
from tracecomp.compiled.program_state import ProgramState, SavedState, TensorState
from tracecomp.inspect import compare
from tracecomp.inspect.derivatives import differs_from_differences
from tracecomp.inspect.eager_check import numpy_alone
from tracecomp.inspect.line_watch import line_that_changes
from tracecomp.inspect.wide import witness
from tracecomp.ir.graph import Graph
from tracecomp.ir.op import OPS
from tracecomp.ir.types import TensorType, float32

HERE = Path(__file__).name
counted = 0


class Program(nn.Module):
    """State of every kind."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.optimizer = torch.optim.AdamW(self.parameters())
        self.history: list[float] = []
        self.options = {"scale": 2.0}

    def forward(self, x: Any) -> Any:
        global counted
        counted += 1
        self.options["last"] = counted
        self.optimizer.zero_grad()
        loss = (self.norm(self.layer(x)) * torch.rand(4) * self.options["scale"]).pow(2).mean()
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def values(program: Program, x: Any) -> dict[str, Any]:
    found = ProgramState({"program": program, "x": x}).values
    return {k: (v.array.tobytes(), v.requires_grad) if isinstance(v, TensorState) else v for k, v in found.items()}


@pytest.mark.slow
def test_nothing_is_left_behind() -> None:
    program, x = Program(), torch.randn(6, 4)
    before = values(program, x)
    versions = [p._version for p in program.parameters()]
    compare(program, x)
    assert values(program, x) == before
    assert [p._version for p in program.parameters()] == versions
    assert all(p.grad is None for p in program.parameters())
    assert counted == 0


def test_state_is_put_back_in_place() -> None:
    program, x = Program(), torch.randn(6, 4)
    state = SavedState({"program": program, "x": x})
    weight = program.layer.weight
    before = values(program, x)
    program(x)
    program.extra = 3
    program.history.append(1.0)
    program.layer.weight = nn.Parameter(torch.zeros(4, 4))
    x.add_(1)
    assert values(program, x) != before
    state.restore()
    assert values(program, x) == before
    assert program.layer.weight is weight


def test_containers_of_other_meanings_are_put_back() -> None:
    counts, order, heap = Counter("abb"), OrderedDict(a=1, b=2), [(1, "a")]

    @torch.no_grad()
    def program() -> None:
        counts.update("abc")
        order.move_to_end("a")
        heap.append((2, "b"))

    state = SavedState({"program": program})
    program()
    state.restore()
    assert (counts, [*order], heap) == (Counter("abb"), ["a", "b"], [(1, "a")])


def test_program_that_reads_an_iterator_is_refused() -> None:
    numbers = count(2.0)

    def program(x: Any) -> Any:
        return x * next(numbers)

    with pytest.raises(CaptureError, match="two eager calls of program from the same state differ: result"):
        compare(program, torch.ones(3))


def test_numpy_alone_goes_past_calls_that_machine_code_serves() -> None:
    x = torch.linspace(-20, 20, 1001)
    for _ in range(200):
        native = torch.exp(x)
    wanted = OPS["exp"].impl(x.numpy())
    with numpy_alone():
        np.testing.assert_array_equal(torch.exp(x).numpy(), wanted)
    assert not np.array_equal(native.numpy(), wanted)  # the last places differ, which shows what ran


def test_rounding_of_half_types_is_counted() -> None:
    exact = torch.linspace(1, 2, 301)
    rounded = exact.bfloat16().numpy()
    truncated = (exact.view(torch.int32) & -65536).view(torch.float32).bfloat16().numpy()
    assert difference(truncated, rounded).agrees(8e-3) and differ_often(truncated, rounded)
    few = rounded.copy()
    few[:40] = truncated[:40]
    assert not differ_often(few, rounded)


def test_wrong_custom_gradient_is_told() -> None:
    result = compare(lambda x: Double.apply(x).sum(), torch.ones(3, requires_grad=True), changed=False)
    assert result.ok  # eager and compiled agree: it is the program's own
    [note] = result.notes
    assert "Double.backward is not the derivative of its forward" in note and HERE in note


def test_where_nan_begins() -> None:
    def unstable(x: Any) -> Any:
        e = torch.exp(x)
        return e / e.sum()

    x = torch.tensor([1.0, 200.0])
    result = compare(unstable, x, changed=False)
    assert result.ok and "infinity begins in exp: exp(200) = inf at [1], on both sides" in result.notes[0]
    result = compare(unstable, x, check_finite=True, changed=False)
    assert not result.ok and result.divergence is not None
    assert result.divergence.stage == "not finite" and HERE in result.divergence.source


def test_line_that_changes_state() -> None:
    total = torch.zeros(2)

    def fn(x: Any) -> Any:
        y = x * 2
        total.add_(y)
        return total * 1

    first = fn.__code__.co_firstlineno
    found = line_that_changes(fn, ((torch.ones(2),), {}), "total", {"fn": fn})
    assert found is not None and found.line == first + 2
    np.testing.assert_array_equal(total.numpy(), [0, 0])


@pytest.mark.parametrize(("slope", "wrong"), [(3.0, False), (3.01, True)])
def test_gradients_against_differences(slope: float, wrong: bool) -> None:
    x = np.linspace(0.5, 2, 7)
    said = differs_from_differences(lambda at: 3 * at[0] + np.sin(at[0]), [x], 0, slope + np.cos(x))
    assert bool(said) is wrong


def test_differences_of_a_sum_that_cancels_show_rounding_alone() -> None:
    x = np.linspace(0.5, 2, 7)

    def terms(at: list[Any]) -> Any:
        return np.concatenate([1e3 * at[0], -1e3 * at[0], 1e-8 * at[0]])

    assert differs_from_differences(terms, [x], 0, np.full(7, 1e-8)) == ""


def test_gradient_of_a_symmetric_matrix() -> None:
    x = np.array([[2.0, 0.5], [0.5, 3.0]])
    # ``below`` reads the lower triangle alone, and its gradient is spread over both.
    below, gradient = (lambda at: at[0][1:, 0] * 3), np.array([[0.0, 1.5], [1.5, 0.0]])
    assert differs_from_differences(below, [x], 0, gradient, symmetric=True) == ""
    assert differs_from_differences(below, [x], 0, gradient * 2, symmetric=True) != ""


def test_kinks_have_no_one_derivative() -> None:
    x = np.array([2.0, 2.0, 1.0])
    assert differs_from_differences(lambda at: at[0].max(keepdims=True), [x], 0, np.array([1.0, 0.0, 0.0])) == ""


def test_witness_has_more_places() -> None:
    graph = Graph("sum")
    x = graph.add_input(TensorType(float32, (3,)), "x")
    graph.add_output(graph.apply("sum", graph.apply("exp", x), axes=(0,)))
    array = np.array([0.1, 0.2, 0.3], np.float32)
    [found] = witness(graph, [array]) or []
    np.testing.assert_allclose(found, np.exp(array.astype(np.float64)).sum(), rtol=1e-15)


def test_what_is_returned_and_then_written_over_is_no_fault() -> None:
    """The result is a copy of an argument that is written after it."""

    def program(x: torch.Tensor) -> torch.Tensor:
        kept = x.clone()
        x[0] = x.sum()
        return kept

    result = compare(program, torch.ones(8, 2), changed=False)
    assert result.ok and "<pre" in result._repr_html_(), str(result)


def test_a_captured_tensor_that_shows_elements_twice_is_not_written() -> None:
    wide = torch.ones(1, 3).expand(4, 3).detach()
    result = compare(lambda x: x * wide, torch.ones(4, 3))
    assert result.ok, str(result)


def test_a_program_that_raises_later_is_compared() -> None:
    """The given call does not raise; one of those after it does, either way."""
    total = torch.ones(1) * 1e30

    def program(x: torch.Tensor) -> torch.Tensor:
        total.mul_(1e5)
        return x * int(total.item() // 1e30)

    result = compare(program, torch.ones(2), changed=False)
    assert result.ok, str(result)


def test_rounding_of_large_sums_is_no_fault() -> None:
    rng = np.random.default_rng(0)
    x = torch.tensor((rng.standard_normal(200_000) * 1e3).astype(np.float32))
    assert compare(lambda x: x.sum(), x, changed=False).ok
