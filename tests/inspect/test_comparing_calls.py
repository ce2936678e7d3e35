"""Comparisons put everything back, make several calls, check derivatives, and say where NaN begins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tests.autograd.doubled import Double
from tracecomp import nn
from tracecomp.compiled.program_state import ProgramState, TensorState
from tracecomp.inspect import compare
from tracecomp.inspect.derivatives import differs_from_differences
from tracecomp.inspect.line_watch import line_that_changes
from tracecomp.inspect.wide import witness
from tracecomp.ir.graph import Graph
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
    state = ProgramState({"program": program, "x": x})
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
    said = differs_from_differences(lambda at: float((3 * at[0] + np.sin(at[0])).sum()), [x], 0, slope + np.cos(x))
    assert bool(said) is wrong


def test_kinks_have_no_one_derivative() -> None:
    x = np.array([2.0, 2.0, 1.0])
    assert differs_from_differences(lambda at: float(at[0].max()), [x], 0, np.array([1.0, 0.0, 0.0])) == ""


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
