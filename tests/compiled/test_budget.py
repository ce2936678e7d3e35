"""The cost limit of recording and compiling: a function that cannot win it back runs eagerly, and says so once."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tracecomp.compiled import budget
from tracecomp.compiled.budget import FREE, Budget
from tracecomp.compiled.recompile_policy import MAX_PARTIAL_RECORDINGS

Costs = Callable[[float, float], None]


@pytest.fixture
def costs(monkeypatch: pytest.MonkeyPatch) -> Costs:
    """Sets what one recording or program costs, and an eager call."""
    now = [0.0]

    def set_costs(making: float, eager: float) -> None:
        spending, eagerly = Budget.spending, Budget.eagerly

        @contextmanager
        def slow_spending(self: Budget) -> Iterator[None]:
            with spending(self):
                now[0] += making
                yield

        def slow_eagerly(self: Budget, fn: Any, args: Any, kwargs: Any, rent: Any) -> Any:
            def slow(*args: Any, **kwargs: Any) -> Any:
                now[0] += eager
                return fn(*args, **kwargs)

            return eagerly(self, slow, args, kwargs, rent)

        monkeypatch.setattr(Budget, "spending", slow_spending)
        monkeypatch.setattr(Budget, "eagerly", slow_eagerly)

    monkeypatch.setattr(budget, "clock", lambda: now[0])
    return set_costs


def words(x: Any, how: str) -> Any:
    return x * len(how)


def calls(compiled: Any, fn: Callable[..., Any], arguments: Any) -> None:
    for given in arguments:
        np.testing.assert_array_equal(compiled(*given).numpy(), fn(*given).numpy())


def test_a_function_whose_recordings_serve_no_call_stops_and_says_why(costs: Costs) -> None:
    costs(5.0, 1.0)

    compiled = torch.compile(words)
    x = torch.ones(3)
    kinds = [(x, "x" * n) for n in range(1, 100)]
    with pytest.warns(UserWarning, match="now run eagerly") as said:
        calls(compiled, words, kinds[:MAX_PARTIAL_RECORDINGS])
    (one,) = said
    assert str(one.message).startswith(
        f"words spent 40.0 s on {FREE} recordings and programs, and none of them fitted the last 16"
    )
    assert "Its calls now run eagerly. Pass numbers that differ as tensors" in str(one.message)
    assert one.filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        calls(compiled, words, kinds)
    assert compiled.recordings == FREE and not compiled.entries
    assert compiled.__call__ is compiled.fn  # nothing of this package is between the caller and the function
    assert "runs eagerly: it spent 40.0 s" in str(compiled.explain())


def test_the_cause_is_the_line_whose_value_differs(costs: Costs) -> None:
    costs(5.0, 1.0)

    def by_values(x: Any) -> Any:
        return x * len(str(x.tolist()))

    compiled = torch.compile(by_values)
    with pytest.warns(UserWarning, match=r"the value at .*test_budget.py:\d+ differs .* move it out of by_values"):
        calls(compiled, by_values, [(torch.tensor([float(n)]),) for n in range(40)])
    assert compiled.eager_because is not None and compiled.recordings <= FREE


def test_what_serves_calls_goes_on_as_far_as_it_has_won(costs: Costs) -> None:
    costs(5.0, 1.0)

    compiled = torch.compile(words)
    x = torch.ones(3)
    calls(compiled, words, [(x, "x" * n) for n in range(1, 5) for _ in range(12)])
    assert compiled.recordings == 4 and compiled._recompile.budget.made == FREE
    # 44 served calls have won at most 44 seconds, and 40 were spent.
    calls(compiled, words, [(x, "y" * 20)] * 4)
    assert compiled.recordings == 5 and compiled._recompile.budget.made == FREE + 1  # its program is not paid for
    calls(compiled, words, [(x, "y" * 21)])
    assert compiled.recordings == 5
    calls(compiled, words, [(x, "x" * n) for n in range(1, 5) for _ in range(12)])
    calls(compiled, words, [(x, "y" * 21)])
    assert compiled.recordings == 6


def test_what_has_served_calls_gets_another_recording_when_eager_calls_have_cost_as_much(costs: Costs) -> None:
    costs(5.0, 1.0)

    compiled = torch.compile(words)
    x = torch.ones(3)
    calls(compiled, words, [(x, "x" * n) for n in range(1, 5) for _ in range(3)])
    recordings: list[int] = []
    eager_calls = 0
    with pytest.warns(UserWarning, match="Calls that no recording matches now run eagerly"):
        for n in range(5, 60):
            calls(compiled, words, [(x, "x" * n)])
            if compiled.recordings == 4 + len(recordings):
                eager_calls += 1
            else:
                recordings.append(eager_calls)
    # The first recordings have served calls, these do not: each has to be paid twice as often as the one before.
    assert recordings == [5, 10, 20, 40]


def test_programs_for_sizes_are_made_when_eager_calls_have_cost_as_much(costs: Costs) -> None:
    costs(5.0, 1.0)

    def step(x: Any) -> Any:
        return x.sort(0)[0] * 2

    compiled = torch.compile(step)
    made = []
    for n in [40, 41, *range(50, 57), *[57] * 20]:
        calls(compiled, step, [(torch.arange(float(n)),)])
        made.append(compiled._recompile.budget.made)
    assert made[-20] == FREE and made[-1] > FREE
    served = compiled.entries[0].calls()
    calls(compiled, step, [(torch.arange(57.0),)] * 5)
    assert compiled.entries[0].calls() == served + 5


def test_recordings_that_have_served_stay_when_no_more_are_made(costs: Costs) -> None:
    costs(5.0, 0.1)

    compiled = torch.compile(words)
    x = torch.ones(3)
    calls(compiled, words, [(x, "x")] * 9)
    with pytest.warns(UserWarning, match="Calls that no recording matches now run eagerly"):
        calls(compiled, words, [(x, "y" * n) for n in range(2, 40)])
    assert len(compiled.entries) == 1 and compiled.eager_because is None
    served = compiled.entries[0].calls()
    calls(compiled, words, [(x, "x")] * 4)
    assert compiled.entries[0].calls() == served + 4


def test_programs_for_sizes_are_made_as_far_as_they_pay(costs: Costs) -> None:
    costs(5.0, 0.1)

    def step(x: Any) -> Any:
        return x.sort(0)[0] * 2

    compiled = torch.compile(step)
    calls(compiled, step, [(torch.arange(float(n)),) for n in range(40, 60)])
    assert compiled.recordings == 2 and compiled._recompile.budget.made == FREE


def test_fullgraph_records_every_call(costs: Costs) -> None:
    costs(5.0, 1.0)
    compiled = torch.compile(lambda x, how: x * len(how), fullgraph=True)
    for n in range(1, 20):
        compiled(torch.ones(3), "x" * n)
    assert compiled.recordings == 19


def test_reset_begins_anew(costs: Costs) -> None:
    costs(5.0, 1.0)
    compiled = torch.compile(lambda x, how: x * len(how))
    with pytest.warns(UserWarning, match="now run eagerly"):
        for n in range(1, 20):
            compiled(torch.ones(3), "x" * n)
    assert compiled.eager_because is not None
    compiled.reset()
    for _ in range(3):
        assert compiled(torch.ones(3), "xx").tolist() == [2, 2, 2]
    assert compiled.entries[0].calls() == 2


def test_calls_that_are_not_recorded_may_wait_for_each_other(costs: Costs) -> None:
    costs(5.0, 1.0)
    together = threading.Barrier(2, timeout=60)
    waits = threading.local()

    def meet(x: Any, how: str) -> Any:
        if getattr(waits, "now", False):
            together.wait()
        return x * len(how)

    compiled = torch.compile(meet)
    for n in range(1, FREE + 2):
        compiled(torch.ones(3), "x" * n)

    def call(how: str) -> list[float]:
        waits.now = True
        result: list[float] = compiled(torch.ones(3), how).tolist()
        return result

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(call, ["y" * 20, "y" * 21])) == [[20.0] * 3, [21.0] * 3]
