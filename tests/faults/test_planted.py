"""A few of the planted faults, and programs without any; ``python -m tests.faults`` tries all."""

from __future__ import annotations

import inspect
import textwrap

import pytest

import tracecomp
from tests.faults import programs
from tests.faults.alarms import alarm
from tests.faults.planted import FAULTS, Fault
from tests.faults.planted_operators import MORE
from tests.faults.planted_stages import STAGES
from tests.faults.planting import Edit, code_of, find
from tests.faults.trying import try_fault
from tracecomp.inspect import compare

QUICK = (
    "algebra:add_of_neg", "views:slice_of_slice", "CopySlices.backward", "arena:plan_arena",
    "concat_in_place:_outermost", "Recorder.constant",
    "guard:ValueGuard.check", "size_range:SizeRange.holds", "parts:unpacked",
    "_Coming.wait", "Viewed.__call__", "served_kinds:kind_of", "sort:_by_rank",
)  # fmt: skip
"""Places of faults that are found in a second or two, one of each kind."""


def quick() -> list[Fault]:
    """The first fault at each of the places."""
    return [next(f for f in (*FAULTS, *MORE, *STAGES) if place in f.what) for place in QUICK]


@pytest.mark.parametrize("fault", quick(), ids=lambda f: f.what[:40])
def test_fault_is_located(fault: Fault) -> None:
    found = try_fault(fault)
    assert found.flagged and found.stage and found.line, found.said


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", ["aliases", "counting", "dropping", "branching", "shapes", "several"])
def test_no_alarm_where_nothing_is_planted(name: str) -> None:
    fn, args = getattr(programs, name)()
    result = compare(fn, *args)
    assert result.ok, str(result)
    assert result.calls.changed > 5


def test_faults_are_planted_in_every_part() -> None:
    assert len(FAULTS) >= 80
    assert len({f.room for f in FAULTS}) >= 15


@pytest.mark.parametrize("fault", [*FAULTS, *MORE, *STAGES], ids=lambda f: f.what[:60])
def test_a_fault_changes_code_that_is_there(fault: Fault) -> None:
    """Code that faults replace may move; its fault's description must follow."""
    if isinstance(plant := fault.plant, Edit):
        function = find(plant.where)
        source = textwrap.dedent(inspect.getsource(function))
        assert plant.old in source
        assert code_of(function, source.replace(plant.old, plant.new, 1)) != function.__code__


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", [3, 15, 29, 143, 161])
def test_no_alarm_on_random_programs(seed: int) -> None:
    """With these ``compare`` once had reason, or gave an alarm without one; the command tries as many as one likes."""
    assert alarm(seed) is None
    assert tracecomp.__name__ == "tracecomp"  # ``compare`` changes what a program sees, and leaves nothing changed
