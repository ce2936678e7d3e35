"""The function of a frame, found without a search."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

import tracecomp as tc
from tracecomp.record import frames


def adding(x: float) -> Callable[[], Any]:
    def inner() -> tuple[Any, float]:
        return frames.function_of(sys._getframe()), x

    return inner


@pytest.mark.parametrize("known", [True, False])
def test_functions_that_share_their_code_are_told_apart(known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not known:
        monkeypatch.setattr(frames, "_function_word", lambda: None)
    first, second = adding(1.0), adding(2.0)
    assert first()[0] is first and second()[0] is second

    def steps() -> Iterator[Any]:
        yield frames.function_of(sys._getframe())

    assert next(steps()) is steps


def test_a_tracer_sees_the_function_that_is_called() -> None:
    called = []

    def tracer(frame: FrameType, event: str, arg: Any) -> None:
        called.append(frames.function_of(frame))

    inner = adding(1.0)
    before = sys.gettrace()
    sys.settrace(tracer)
    inner()
    sys.settrace(before)
    assert called[0] is inner


def test_recording_does_not_search_all_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    assert frames._function_word() is not None

    def refuse(*objects: Any) -> Any:
        raise AssertionError("all objects are searched")

    scale = 2.0

    def helper(x: tc.Tensor) -> tc.Tensor:
        return x * scale

    c = tc.compile(lambda x: helper(x) + 1)
    monkeypatch.setattr(gc, "get_referrers", refuse)
    assert c(tc.ones(3)).tolist() == [3.0] * 3
    scale = 3.0
    assert c(tc.ones(3)).tolist() == [4.0] * 3
