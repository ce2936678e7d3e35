"""The cost of a recording, counted in operations: it grows in proportion to the program."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tracecomp as torch
from tests.eager.unheard import Unheard
from tracecomp.base.gc_pause import YOUNG, RareCollections
from tracecomp.base.patches import patches
from tracecomp.eager.device import use
from tracecomp.record import recorder
from tracecomp.record.instruction_trace import InstructionTrace
from tracecomp.record.value_table import ValueTable


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Earlier tests have defined classes of tensors and replaced functions, for good."""
    monkeypatch.setattr(use, "begun", Unheard())
    monkeypatch.setitem(patches, "count", 0)
    monkeypatch.setattr(recorder, "_are_own", lambda count: True)


def calls(owner: type, name: str, run: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> int:
    """How often ``run`` calls a method."""
    seen: list[None] = []
    whole = getattr(owner, name)

    def counted(*args: Any) -> Any:
        seen.append(None)
        return whole(*args)

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, counted)
        run()
    return len(seen)


def chain(length: int) -> Callable[[], object]:
    def fn(x: Any) -> Any:
        for _ in range(length):
            x = (x * 1.5).sin()
        return x

    return lambda: torch.compile(fn)(torch.ones(3))


def test_frames_in_operators_are_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.ones(3).mul(1.5).sin()
    few, many = [calls(InstructionTrace, "_called", chain(n), monkeypatch) for n in (20, 120)]
    assert many - few <= 20 * 200  # of about eighty for each operator; functions served by machine code have one more


def replaced(count: int) -> Callable[[], object]:
    params = [torch.nn.Parameter(torch.ones(3)) for _ in range(count)]

    def fn(x: Any) -> Any:
        for p in params:
            p.data = p.data - 0.1 * x
        return x * 2

    return lambda: torch.compile(fn)(torch.ones(3))


def test_replaced_memory_is_looked_for_among_views_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = [calls(ValueTable, "root", replaced(n), monkeypatch) for n in (10, 40)]
    assert many <= 4.5 * few


def test_views_of_replaced_memory_are_found() -> None:
    base = torch.ones(6)
    view = base[1:3]

    def of_outside(x: Any) -> Any:
        y = view * x
        base.data = x.repeat(6) * 2
        return y + view

    def of_the_call(x: Any) -> Any:
        y = base[2:]
        base.data = x.repeat(6) * 3
        return y * x

    for fn in (of_outside, of_the_call):
        expected = [fn(torch.ones(1)).tolist() for _ in range(3)]
        base.data = torch.ones(6)
        compiled = torch.compile(fn)
        assert [compiled(torch.ones(1)).tolist() for _ in range(3)][-1] == expected[-1]


def test_warnings_of_operators_are_shown_in_every_call() -> None:
    def fn(x: Any) -> Any:
        return x.T * 2

    def shown(run: Callable[..., object]) -> int:
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            for _ in range(4):
                run(torch.ones(2, 3, 4))
        return len([w for w in found if "dimension" in str(w.message)])

    fn(torch.ones(2, 3))
    assert shown(fn) == shown(torch.compile(fn)) > 0


@pytest.fixture
def thresholds() -> Iterator[tuple[int, int, int]]:
    before = gc.get_threshold()
    yield before
    gc.set_threshold(*before)


def test_collections_are_as_before_after_a_recording(thresholds: tuple[int, int, int]) -> None:
    seen: list[tuple[int, int, int]] = []

    def asks(x: Any) -> Any:
        y = x * 2
        seen.append(gc.get_threshold())
        return y

    for fn in (lambda x: x * 2, asks):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.compile(fn)(torch.ones(3))
        assert gc.get_threshold() == thresholds
    assert seen == [thresholds]


def test_thresholds_that_a_program_sets_stay(thresholds: tuple[int, int, int]) -> None:
    rare = RareCollections()
    for own, meanwhile in ((700, YOUNG), (0, 0), (2 * YOUNG, 2 * YOUNG)):
        gc.set_threshold(own, 10, 10)
        rare.start()
        assert gc.get_threshold()[0] == meanwhile
        rare.stop()
        assert gc.get_threshold()[0] == own
    gc.set_threshold(700, 10, 10)
    rare.start()
    gc.set_threshold(500, 10, 10)
    rare.stop()
    assert gc.get_threshold()[0] == 500
