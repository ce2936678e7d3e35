"""``torch.compiler.set_stance`` and the limit of recordings: recorded, eager and refused calls."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

import tracecomp as torch
from tracecomp import _dynamo as dynamo
from tracecomp.base.errors import CaptureError
from tracecomp.compiler import set_stance


@pytest.fixture(autouse=True)
def default() -> Iterator[None]:
    yield
    set_stance("default")


def doubled(x: Any) -> Any:
    return x * 2


def compiled(*shapes: int, **options: Any) -> Any:
    """A compiled function with recordings for vectors of these sizes."""
    f = torch.compile(lambda x: doubled(x), dynamic=False, **options)
    for n in shapes:
        for _ in range(3):
            f(torch.ones(n))
    return f


def python_calls(f: Any, x: Any) -> int:
    """In how many of three calls Python ran the program."""
    entered = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code is doubled.__code__:
            entered.append(frame)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        for _ in range(3):
            assert f(x).tolist() == (x * 2).tolist()
    finally:
        sys.setprofile(before)
    return len(entered)


def test_by_default_calls_are_recorded_once() -> None:
    assert python_calls(compiled(3), torch.ones(3)) == 0
    assert python_calls(compiled(), torch.ones(3)) == 1


def test_all_calls_are_eager_when_that_is_forced() -> None:
    f = compiled(3)
    with set_stance("force_eager"):
        assert python_calls(f, torch.ones(3)) == 3
    assert python_calls(f, torch.ones(3)) == 0
    set_stance("force_eager")
    assert python_calls(compiled(3), torch.ones(3)) == 3


def test_what_fits_no_recording_is_eager() -> None:
    f = compiled(3)
    with set_stance("eager_on_recompile"):
        assert python_calls(f, torch.ones(3)) == 0
        assert python_calls(f, torch.ones(4)) == 3
    assert python_calls(f, torch.ones(4)) == 1
    assert f.recordings == 2


@pytest.mark.parametrize("made", [(), (3,)])
def test_what_fits_no_recording_is_an_error(made: tuple[int, ...]) -> None:
    f = compiled(*made)
    with set_stance("fail_on_recompile"):
        for n in made:
            assert python_calls(f, torch.ones(n)) == 0
        with pytest.raises(RuntimeError, match="Detected recompile when"):
            f(torch.ones(4))


def test_blocks_and_functions_give_the_stance_back() -> None:
    f = compiled(3)

    @set_stance("force_eager")
    def eagerly() -> int:
        """Its text."""
        with set_stance("default"):
            assert python_calls(f, torch.ones(3)) == 0
        return python_calls(f, torch.ones(3))

    assert eagerly() == 3 and eagerly() == 3 and eagerly.__doc__ == "Its text."
    assert python_calls(f, torch.ones(3)) == 0


def test_stances_that_do_not_exist() -> None:
    with pytest.raises(RuntimeError, match=r"invalid torch\.compile stance 'other'"):
        set_stance("other")
    with pytest.raises(RuntimeError, match="non-default stance cannot have force_backend set"):
        set_stance("force_eager", force_backend="eager")
    with pytest.raises(RuntimeError, match="cannot be called in a compiled function"):
        torch.compile(lambda x: set_stance("force_eager"))(torch.ones(1))


@pytest.mark.parametrize("name", ["cache_size_limit", "recompile_limit"])
def test_beyond_the_limit_calls_are_eager_after_one_warning(name: str) -> None:
    before = dynamo.config.recompile_limit
    with dynamo.config.patch({name: 2}):
        assert dynamo.config.cache_size_limit == dynamo.config.recompile_limit == 2
        f = compiled(2, 3)
        with pytest.warns(UserWarning, match=r"hit config.recompile_limit \(2\)") as told:
            assert [python_calls(f, torch.ones(n)) for n in (4, 5, 2, 3)] == [3, 3, 0, 0]
        assert len(told) == 1 and f.recordings == 2
        with pytest.raises(CaptureError, match="recompile_limit"):
            compiled(2, 3, 4, fullgraph=True)
    assert dynamo.config.cache_size_limit == before
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert python_calls(f, torch.ones(4)) == 1
