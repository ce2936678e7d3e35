"""Attributes of modules that change between calls: compiled calls compare those that may have, and no others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tracecomp import nn
from tracecomp.eager.modes import module_changes
from tracecomp.record.guards.state_guards import ModulesGuard
from tracecomp.runtime.object_layout import objects_are_known


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(6)
        self.linear = nn.Linear(6, 6)
        self.factor = 2.0

    def forward(self, x: Any) -> Any:
        return self.linear(self.norm(x)) * self.factor


@pytest.fixture
def made() -> tuple[Any, Any, Any]:
    torch.manual_seed(0)
    model, x = nn.Sequential(Scaled(), nn.Dropout(0.5), Scaled()).eval(), torch.randn(3, 6)
    compiled = torch.compile(model)
    with torch.no_grad():
        for _ in range(40):
            compiled(x)
    return model, compiled, x


def same(compiled: Any, model: Any, x: Any) -> None:
    with torch.no_grad():
        np.testing.assert_array_equal(compiled(x).numpy(), model(x).numpy())


@pytest.mark.skipif(not objects_are_known(), reason="calls go through Python on this interpreter")
def test_assignments_that_mean_nothing_leave_calls_native(
    made: tuple[Any, Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of these once had the attributes of all modules compared, which took milliseconds."""
    model, compiled, x = made
    other = nn.Linear(2, 2)
    model.step = other.step = 0  # new attributes: the native record is made again
    for _ in range(4):
        same(compiled, model, x)
    monkeypatch.setattr(ModulesGuard, "check", lambda *given: pytest.fail("modules are compared"))
    for n in range(3):
        model.eval()
        model.step = other.step = n
        same(compiled, model, x)


def test_one_changed_module_is_compared_alone(made: tuple[Any, Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    model, compiled, x = made
    seen: list[int] = []
    taken = "tracecomp.record.guards.state_guards.module_change"
    monkeypatch.setattr(taken, lambda module, *given: seen.append(id(module)))
    nn.LayerNorm(3).eps = 0.25
    same(compiled, model, x)
    assert seen == []
    model[0].norm.eps = model[0].norm.eps + 0.0  # an equal number, another object
    same(compiled, model, x)
    assert seen == [id(model[0].norm)]


@pytest.mark.parametrize("others", [0, 1, 200])
def test_changes_are_seen_however_many_follow(made: tuple[Any, Any, Any], others: int) -> None:
    model, compiled, x = made
    other = nn.LayerNorm(3)

    def change() -> None:
        for n in range(others):
            other.eps = float(n)

    before = compiled(x).tolist()
    model[2].norm.eps = 0.5
    change()
    same(compiled, model, x)
    assert compiled(x).tolist() != before
    model[0].factor = 3.0  # the program's own method reads it
    change()
    same(compiled, model, x)
    model[0].linear.register_forward_hook(lambda module, given, result: result + 1)
    change()
    same(compiled, model, x)
    model[2].norm = nn.Identity()
    change()
    same(compiled, model, x)
    model.train()
    change()
    torch.manual_seed(1)
    found = compiled(x)
    torch.manual_seed(1)
    assert found.tolist() == model(x).tolist() and (found == 0).sum() == 0


def test_modules_that_changed_since_an_epoch() -> None:
    first, second = nn.Linear(1, 1), nn.Linear(1, 1)
    epoch = module_changes.epoch
    assert module_changes.since(epoch) is None  # nothing has changed: nobody asks
    module_changes.changed(id(first))
    module_changes.changed(id(second))
    assert module_changes.since(epoch) == {id(first), id(second)}
    module_changes.changed()
    assert module_changes.since(epoch) is None
    epoch = module_changes.epoch
    for _ in range(100):
        module_changes.changed(id(first))
    assert module_changes.since(epoch) is None
    assert module_changes.since(module_changes.epoch - 3) == {id(first)}
