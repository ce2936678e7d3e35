"""Attributes of modules that change between calls: compiled calls compare those that may have, and no others."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tests.compiled.frequent_calls import needs_native_calls
from tracecomp import nn
from tracecomp.eager.modes import MEMORY, module_changes
from tracecomp.record.guards.state_guards import ModulesGuard


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


@needs_native_calls
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


def test_a_watch_tells_of_its_modules_and_of_other_things() -> None:
    first, second = nn.Linear(1, 1), nn.Linear(1, 1)
    watch = module_changes.watch()
    module_changes.add(first, watch)
    second.eps = 1.0
    module_changes.changed(id(second))
    assert (watch.moved, watch.take()) == (False, set())
    module_changes.changed(id(first))
    assert (watch.moved, watch.take()) == (True, {id(first)})
    assert (watch.moved, watch.take()) == (False, set())
    first.weight.data = second.weight  # not an attribute of the module
    assert watch.take() == {MEMORY}
    module_changes.changed()
    changed = watch.take()
    assert changed is None
    watch.put_back(changed)
    assert (watch.moved, watch.take()) == (True, None)


def test_watches_end_with_their_recordings() -> None:
    module = nn.Linear(1, 1)
    before = len(module_changes._watches)
    watch = module_changes.watch()
    module_changes.add(module, watch)
    assert len(module_changes._watches) == before + 1 and len(module_changes._of[id(module)]) == 1
    del watch
    assert len(module_changes._watches) == before and not module_changes._of[id(module)]


def test_threads_may_record_while_others_change_modules() -> None:
    """A set of weak references once changed while it was read."""
    module, failed = nn.LayerNorm(1), []

    def record() -> None:
        for _ in range(2000):
            watch = module_changes.watch()
            module_changes.add(module, watch)

    def change() -> None:
        try:
            for n in range(2000):
                module.eps = float(n)
                module_changes.changed()
        except RuntimeError as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for work in (record, change, record, change)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_moving_a_model_to_where_it_is_changes_nothing(made: tuple[Any, Any, Any]) -> None:
    model, compiled, x = made
    same(compiled, model, x)
    model[0].norm.weight.grad = torch.ones(6)
    held = [p._data for p in model.parameters()], model[0].norm.weight.grad
    model.to("cpu").to(torch.float32).float()
    assert all(p._data is array for p, array in zip(model.parameters(), held[0], strict=True))
    assert model[0].norm.weight.grad is held[1]
    model.double()
    assert {p.dtype for p in model.parameters()} == {torch.float64} and model[0].norm.weight.grad.dtype is torch.float64
    same(compiled, model, x.double())
