"""``compile(..., verify=...)``: calls compared with eager ones in use."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tests.compiled.frozen_values import unguarded
from tracecomp import nn
from tracecomp.base import config
from tracecomp.base.errors import WrongResult
from tracecomp.compiled.call_dispatch import CallDispatcher
from tracecomp.compiled.sampled_verification import Verifier
from tracecomp.passes.graph import algebra


class Step:
    """A training step, and how often Python ran it."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1))
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.calls = 0

    def __call__(self, x: Any) -> Any:
        self.calls += 1
        self.optimizer.zero_grad()
        loss = self.model(x).pow(2).mean()
        loss.backward()
        self.optimizer.step()
        return loss.detach()


@pytest.mark.parametrize("verify", ["first", 2])
def test_state_goes_on_as_if_nothing_was_compared(verify: Any) -> None:
    x = torch.linspace(-1, 1, 12).reshape(3, 4)
    found = []
    for options in ({}, {"verify": verify}):
        step = Step()
        run = torch.compile(step, **options)
        found.append(([run(x).item() for _ in range(6)], step.calls))
    assert found[0] == found[1]


def test_calls_after_a_comparison_are_native(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.linspace(-1, 1, 12).reshape(3, 4)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters())

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    run = torch.compile(step, verify=50)
    for _ in range(100):
        run(x)
    served = []
    in_python = CallDispatcher._run

    def noted(*args: Any) -> Any:
        served.append(args)
        return in_python(*args)

    monkeypatch.setattr(CallDispatcher, "_run", noted)
    for _ in range(10):
        run(x)
    assert not served


def test_after_the_first_call_nothing_stands_in_between() -> None:
    run = torch.compile(lambda x: x * 2, verify="first")
    assert isinstance(run.__call__, Verifier)
    for _ in range(3):
        run(torch.ones(3))
    assert not isinstance(run.__call__, Verifier)


@pytest.mark.parametrize("mismatch", ["raise", "warn"])
def test_wrong_result_is_told(mismatch: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(algebra, "is_right_identity", lambda op, value, dtype: op.name == "mul" and value in (1, 7))
    total = torch.zeros(3)

    def fn(x: Any) -> Any:
        total.add_(1)
        return x * 7.0

    with config.override(cache_dir=str(tmp_path)):  # keeps the miscompiled code out of other tests' cache
        run = torch.compile(fn, verify=2, mismatch=mismatch)
        run(torch.ones(3))
        if mismatch == "warn":
            with pytest.warns(UserWarning, match="call 2 of fn differs from the eager call"):
                run(torch.ones(3))
            np.testing.assert_array_equal(total.numpy(), [2, 2, 2])
        else:
            with pytest.raises(WrongResult, match="call 2 of fn differs from the eager call"):
                run(torch.ones(3))
            np.testing.assert_array_equal(total.numpy(), [1, 1, 1])  # as before that call


@pytest.mark.parametrize(("options", "word"), [({"verify": 0}, "verify"), ({"verify": "all"}, "verify"),
                                               ({"verify": 2, "mismatch": "log"}, "mismatch")])  # fmt: skip
def test_options_that_do_not_exist(options: Any, word: str) -> None:
    with pytest.raises(ValueError, match=f"{word} must be"):
        torch.compile(lambda x: x, **options)


def test_the_environment_switches_it_on() -> None:
    scale = [2.0]
    with config.override(check_calls=2):
        run = torch.compile(lambda x: x * scale[0])
        plain = torch.compile(lambda x: x, disable=True)
    assert isinstance(run.__call__, Verifier) and run.__call__.every == 2
    assert not isinstance(plain.__call__, Verifier)
    for n in range(4):
        assert run(torch.ones(1)).item() == 2.0, n


def test_calls_in_between_run_without_python() -> None:
    run = torch.compile(lambda x: x * 2, verify=10)
    for _ in range(4):
        run(torch.ones(3))
    assert run.__call__.run != run._general


def test_compiled_functions_in_a_compared_call_are_eager() -> None:
    calls = []

    @torch.compile
    def inner(x: Any) -> Any:
        return x * 2

    def outer(x: Any) -> Any:
        calls.append(inner(x).sum().item())
        return inner(x) + 1

    run = torch.compile(outer, verify=2)
    run.quiet = inner.quiet = True
    for _ in range(4):
        run(torch.ones(3))
    assert calls == [6.0] * 4


def test_a_clock_is_not_a_difference() -> None:
    def fn(x: Any) -> Any:
        return x * time.perf_counter()

    run = torch.compile(fn, verify=1)
    run.quiet = True
    for _ in range(4):
        run(torch.ones(1))


def test_a_difference_in_a_part_has_its_line() -> None:
    state = {"k": 2.0}

    def fn(x: Any) -> Any:
        y = x * state["k"]
        now = time.perf_counter()
        return y + 0 * now

    run = torch.compile(fn, verify=1)
    run.quiet = True
    for _ in range(3):
        run(torch.ones(1))
    state["k"] = 3.0
    unguarded(run.parts.used()[0], (torch.ones(1),))
    with pytest.raises(WrongResult) as wrong:
        run(torch.ones(1))
    assert wrong.value.source is not None
    assert wrong.value.source.line == fn.__code__.co_firstlineno + 1
