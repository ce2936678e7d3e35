"""``compare`` agrees on correct programs and finds faults planted in a pass and in codegen."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tracecomp.base.errors import CaptureError
from tracecomp.codegen.math import exponential, functions
from tracecomp.compiled.differences import difference
from tracecomp.inspect import compare, explain
from tracecomp.ir.graph import Value
from tracecomp.passes.graph import algebra, rule_sets
from tracecomp.passes.program.arena import Lifetime

HERE = Path(__file__).name


def line_of(marker: str) -> str:
    """``file.py:line`` of the line of this file that ends in ``# marker``."""
    for number, line in enumerate(Path(__file__).read_text().splitlines(), 1):
        if line.endswith(f"# {marker}"):
            return f"{HERE}:{number}"
    raise AssertionError(marker)


class Step:
    """A training step with momentum kept in state."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.weight = torch.tensor(rng.standard_normal((8, 4)).astype(np.float32), requires_grad=True)
        self.momentum = torch.zeros(8, 4)
        self.__name__ = "step"

    def __call__(self, x: Any, y: Any) -> Any:
        self.weight.grad = None
        h = x @ self.weight.T
        h = h * 2.0  # doubled
        h = torch.exp(-h * h)  # exponential
        loss = ((h - y) ** 2).mean()
        loss.backward()
        with torch.no_grad():
            self.momentum.mul_(0.9).add_(self.weight.grad)  # type: ignore[arg-type]
            self.weight.sub_(0.1 * self.momentum)
        return loss


def operands() -> tuple[Any, Any]:
    rng = np.random.default_rng(1)
    return (torch.tensor(rng.standard_normal((16, 4)).astype(np.float32)),
            torch.tensor(rng.random((16, 8)).astype(np.float32)))  # fmt: skip


@pytest.mark.slow
def test_agreement_leaves_no_state_behind() -> None:
    step, other = Step(), Step()
    lines: list[str] = []
    result = compare(step, *operands(), report=lines.append)
    assert result.ok and result.divergence is None and "everything agrees" in str(result)
    assert [s.name for s in result.stages][:3] == ["recorded", "complex_to_real", "simplify"]
    assert {"kernels", "native"} <= {s.name for s in result.stages}
    assert any("kernel 1 of" in line for line in lines)
    np.testing.assert_array_equal(step.weight.detach().numpy(), other.weight.detach().numpy())
    np.testing.assert_array_equal(step.momentum.numpy(), other.momentum.numpy())


def test_fault_in_a_pass_is_located(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(algebra, "is_right_identity", lambda op, value, dtype: op.name == "mul" and value in (1, 2))
    result = compare(Step(), *operands())
    assert not result.ok and result.divergence is not None
    assert result.divergence.stage == "simplify"
    assert result.divergence.node.startswith("mul(")
    assert line_of("doubled") in result.divergence.source
    assert "DIFFERS" in str(result) and line_of("doubled") in str(result)


def test_fault_in_codegen_is_located(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(functions._IN_LINE, "exp", exponential.exp2)
    result = compare(Step(), *operands())
    assert not result.ok and result.divergence is not None
    assert result.divergence.stage == "kernels" and "exp" in result.divergence.kernel
    assert result.divergence.node.startswith("exp(")
    assert line_of("exponential") in result.divergence.source


@pytest.mark.slow
def test_fault_in_a_lowering_step_is_located(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every kernel is right, but two values that are needed at once share one place."""

    def overlapping(lifetimes: Iterable[Lifetime]) -> tuple[dict[Value, int], int]:
        values = {x.value: x.nbytes for x in lifetimes}
        return dict.fromkeys(values, 0), max(values.values(), default=0)

    def products(x: Any, v: Any, w: Any) -> Any:
        return (x @ v) @ (x @ w)

    args = [torch.arange(81.0).reshape(9, 9) / 80 - 0.5 * n for n in range(3)]
    assert compare(products, *args).ok
    monkeypatch.setattr("tracecomp.passes.program.lower.plan_arena", overlapping)
    result = compare(products, *args)
    assert result.divergence is not None and result.divergence.stage == "native"
    assert result.divergence.step == "arena" and "wrong from lowering step arena on" in str(result)


def test_fault_in_the_derivative_is_located(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = torch.ones(4, requires_grad=True)

    def forward(x: Any) -> Any:
        return torch.exp(x * weight) * 0.5 + torch.abs(x * weight * 3)

    result = compare(forward, torch.linspace(-1, 1, 4))
    assert result.ok and {"kernels", "backward kernels", "backward native"} <= {s.name for s in result.stages}
    monkeypatch.setitem(rule_sets.SIMPLIFICATION._by_op, "sign", [lambda g, a: g.apply("abs", a.inputs[0])])
    result = compare(forward, torch.linspace(-1, 1, 4))
    assert result.divergence is not None and result.divergence.stage == "backward simplify"
    assert result.divergence.node.startswith("sign(") and HERE in result.divergence.source


@pytest.mark.slow
def test_linear_algebra_of_the_host() -> None:
    def solve(x: Any) -> Any:
        return torch.exp(torch.linalg.inv(x * 2 + torch.eye(3) * 9) * 3)

    result = compare(solve, torch.linspace(0, 1, 9).reshape(3, 3))
    assert result.ok and result.kernels >= 2


def test_program_that_never_settles() -> None:
    kept: list[Any] = []

    def grows(x: Any) -> Any:
        kept.append(x * 1.5)
        return kept[-1] + 1

    with pytest.raises(CaptureError):
        compare(grows, torch.ones(3))


def test_explain_names_the_decisions() -> None:
    text = explain(Step(), *operands()).text(everything=True)
    for part in ("captured step", "arguments:", "state written:", "steps:", "simplify", "kernel 0", "memory"):
        assert part in text


@pytest.mark.parametrize(
    ("have", "want", "ulp"),
    [([1.0], [1.0], 0), ([np.nextafter(np.float32(1), np.float32(2))], [1.0], 1), ([np.nan], [np.nan], 0),
     ([0.0], [-0.0], 0), ([np.inf], [np.inf], 0), ([np.nan], [1.0], np.inf), ([1e-45], [-1e-45], 2)],
)  # fmt: skip
def test_units_in_the_last_place(have: list[float], want: list[float], ulp: float) -> None:
    assert difference(np.array(have, np.float32), np.array(want, np.float32)).ulp == ulp


def test_neighbouring_doubles_are_one_apart() -> None:
    assert difference(np.array([np.nextafter(-3.0, 0.0)]), np.array([-3.0])).ulp == 1


def test_difference_of_integers_types_and_nothing() -> None:
    assert not difference(np.array([3]), np.array([4])).agrees()
    assert not difference(np.zeros(3, np.float32), np.zeros(3)).agrees()
    assert difference(np.zeros((0, 3)), np.zeros((0, 3))).agrees()
