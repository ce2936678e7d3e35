"""Learning-rate schedules that step inside compiled programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tracecomp as torch
from tracecomp import nn
from tracecomp.base.errors import CaptureError
from tracecomp.optim import lr_scheduler

SCHEDULES: dict[str, Callable[[Any], Any]] = {
    "StepLR": lambda o: lr_scheduler.StepLR(o, 3, 0.5),
    "Lambda": lambda o: lr_scheduler.LambdaLR(o, lambda n: min(1.0, (n + 1) / 4)),
    "Cosine": lambda o: lr_scheduler.CosineAnnealingLR(o, 10),
    "WarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 4),
    "OneCycle": lambda o: lr_scheduler.OneCycleLR(o, 0.2, total_steps=30),
    "Sequential": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.LinearLR(o, total_iters=3), lr_scheduler.ExponentialLR(o, 0.9)], [3]
    ),
    "Chained": lambda o: lr_scheduler.ChainedScheduler(
        [lr_scheduler.LinearLR(o, total_iters=3), lr_scheduler.ExponentialLR(o, 0.9)]
    ),
}


def training(make: Callable[[Any], Any]) -> tuple[Callable[..., Any], Any]:
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    opt = torch.optim.AdamW(model.parameters(), lr=0.1)
    schedule = make(opt)

    def step(x: Any, y: Any) -> Any:
        opt.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        opt.step()
        schedule.step()
        return loss

    return step, opt


@pytest.mark.parametrize("name", SCHEDULES)
def test_rates_and_losses_follow_the_schedule(name: str) -> None:
    eager, one = training(SCHEDULES[name])
    other_step, other = training(SCHEDULES[name])
    compiled = torch.compile(other_step)
    for _ in range(12):
        x, y = torch.randn(4, 3), torch.randn(4, 1)
        assert eager(x, y).item() == pytest.approx(compiled(x, y).item(), rel=1e-4)
        assert one.param_groups[0]["lr"] == other.param_groups[0]["lr"]
    assert compiled.recordings == 1


@pytest.mark.filterwarnings("ignore:Detected call")
def test_an_optimizer_after_its_schedule_is_refused() -> None:
    p = nn.Parameter(torch.ones(2))
    opt = torch.optim.SGD([p], lr=0.1)
    schedule = lr_scheduler.ExponentialLR(opt, 0.5)

    def step() -> None:
        p.grad = torch.ones(2)
        schedule.step()
        opt.step()

    with pytest.raises(
        CaptureError, match=r"reads lr after a schedule's step in the same call, at .*test_lr_scheduler.py:\d+. Step"
    ):
        torch.compile(step, fullgraph=True)()


def test_a_schedule_that_depends_on_the_call_is_refused() -> None:
    p = nn.Parameter(torch.ones(2))
    opt = torch.optim.SGD([p], lr=0.1)
    schedule = lr_scheduler.ReduceLROnPlateau(opt)

    def step(x: Any) -> Any:
        loss = (p * x).sum()
        schedule.step(loss)
        return loss

    with pytest.raises(
        CaptureError,
        match=r"calls ReduceLROnPlateau.step with a value of the compiled call, at .*test_lr_scheduler.py:\d+",
    ):
        torch.compile(step, fullgraph=True)(torch.ones(2))
