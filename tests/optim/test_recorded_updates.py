"""Recorded steps: the nodes of one update are copied for other parameters, and the recording is the same without."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tests.eager.unheard import Unheard
from tests.optim.test_served import CASES
from tracecomp.eager.device import use
from tracecomp.ir.printer import print_graph
from tracecomp.optim import served
from tracecomp.record.recorder import Recorder

Case = tuple[list[torch.nn.Parameter], Callable[[Any], Any]]


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """No class that overrides operators, and no machine code from other tests."""
    monkeypatch.setattr(use, "begun", Unheard())
    monkeypatch.setattr(served, "PLAIN", {int})
    monkeypatch.setattr(served, "PLAIN_TENSORS", {torch.Tensor, torch.nn.Parameter})
    served._served.clear()


def tensors(*shapes: tuple[int, ...], dtype: Any = np.float32) -> list[torch.nn.Parameter]:
    rng = np.random.default_rng(0)
    return [torch.nn.Parameter(torch.from_numpy(np.asarray(rng.standard_normal(s), dtype))) for s in shapes]


def step_of(params: list[Any], name: str, **options: Any) -> Callable[[Any], Any]:
    made = getattr(torch.optim, name)(params, lr=0.01, **options)

    def step(x: Any) -> Any:
        made.zero_grad()
        loss = sum(((p * x).abs() ** 2).sum() for p in params)
        loss.backward()
        made.step()
        return loss.detach()

    return step


def optimizer_case(name: str) -> Case:
    shapes = [(5, 7), (3, 4)] if name == "Muon" else [(5, 7), (33,), (), (5, 7)]
    params = [*tensors(*shapes), *tensors(*shapes)]
    return params, step_of(params, name.split()[0], **CASES[name])


def kinds_case() -> Case:
    """Kinds of parameters that follow one another: dtypes, layouts, views of one memory, complex ones."""
    base = torch.ones(12)
    views = [base[:4].requires_grad_(), base[4:8].requires_grad_(), base[8:].requires_grad_()]
    turned = [torch.nn.Parameter(torch.ones(3, 4).t()), torch.nn.Parameter(torch.ones(4, 3))]
    wide = [*tensors((4, 3), (4, 3), dtype=np.float64), *tensors((4, 3), (4, 3), dtype=np.float16)]
    params: list[Any] = [*wide, *views, *turned, *[torch.nn.Parameter(torch.ones(3) * (1 + 2j)) for _ in range(2)]]
    return params, step_of(params, "AdamW")


def equal_values_case() -> Case:
    """The gradient of the first parameter is the parameter itself, that of the second is not."""
    first, second = tensors((4,), (4,))
    made = torch.optim.SGD([first, second], lr=0.01, weight_decay=0.1)

    def step(x: Any) -> Any:
        first.grad, second.grad = first.detach() * 1.0, second.detach() * x
        made.step()
        return (first * 0.1 + first).detach()

    return [first, second], step


def two_steps_case() -> Case:
    params = tensors((4,), (4,), (4,))
    made = [torch.optim.Adam(params, lr=0.01), torch.optim.SGD(params[:2], lr=0.1, momentum=0.9)]

    def step(x: Any) -> Any:
        for p in params:
            p.grad = p.detach() * x
        for each in (*made, made[0]):
            each.step()
        return x * 2

    return params, step


def schedule_case() -> Case:
    params = tensors((4,), (4,), (4,))
    groups = [{"params": params[:2], "lr": 0.1}, {"params": params[2:], "weight_decay": 0.0}]
    made = torch.optim.AdamW(groups, lr=0.01, maximize=True)

    def step(x: Any) -> Any:
        made.zero_grad()
        loss = sum((p * x).sum() for p in params)
        loss.backward()
        made.step()
        return loss.detach()

    return params, step


PROGRAMS: dict[str, Callable[[], Case]] = {
    **{name: lambda name=name: optimizer_case(name) for name in CASES},  # type: ignore[misc]
    "kinds": kinds_case, "equal values": equal_values_case, "two steps": two_steps_case, "groups": schedule_case,
}  # fmt: skip


def recorded(program: Callable[[], Case]) -> list[object]:
    """Results, parameters, counts of writes and the last recording of a few calls."""
    params, step = program()
    compiled = torch.compile(step)
    x = torch.ones(())
    found: list[object] = [compiled(x).numpy().tobytes() for _ in range(4)]
    found += [(p.detach().numpy().tobytes(), p._version) for p in params]
    recording = compiled.entries[-1].recording
    found += [print_graph(recording.graph, comments=True), [b.kind for b in recording.inputs]]
    return [*found, [n for _, n in recording.updates], [n for _, n in recording.writes], len(recording.predicates)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_recordings_are_the_same_without_copies(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    copied = recorded(PROGRAMS[name])
    monkeypatch.setattr(Recorder, "repeats_nodes", False)
    assert copied == recorded(PROGRAMS[name])


def operators_of_a_step(count: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many operators a recorded step runs and records one by one for ``count`` equal parameters."""
    params = tensors(*[(4,)] * count)
    made = torch.optim.AdamW(params, lr=0.01)
    for p in params:
        p.grad = torch.ones(4)
    seen: list[str] = []

    def node(self: Any, op: Any, *args: Any) -> None:
        seen.append(op.name)
        whole(self, op, *args)

    whole = Recorder.node
    with monkeypatch.context() as patched:
        patched.setattr(Recorder, "node", node)
        torch.compile(lambda x: (made.step(), x * 2)[1])(torch.ones(()))
    return len(seen)


def test_operators_are_recorded_once_for_equal_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = operators_of_a_step(3, monkeypatch), operators_of_a_step(12, monkeypatch)
    assert few > 20
    assert many - few < 9 * 10  # of 37 for each: machine code for frequent eager functions is recorded, too
