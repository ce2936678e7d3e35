"""Code that the cycle collector runs during a recording does not belong to the program."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from typing import Any

import pytest

import tracecomp as tc
from tracecomp.eager_kernels import background

LEFT: list[float] = []


class Timed:
    """Asks for the time when it is let go of: a recorded program that does so is refused."""

    def __init__(self) -> None:
        self.own = self

    def __del__(self) -> None:
        LEFT.append(time.time())


def times() -> Iterator[int]:
    try:
        yield 1
    finally:
        LEFT.append(time.time())


def left_generator() -> Any:
    """A generator that waits, in a cycle."""
    held: list[Any] = [times()]
    next(held[0])
    held.append(held)
    return held


@pytest.fixture(params=["alone", "beside another's callback"])
def callbacks(request: pytest.FixtureRequest) -> Iterator[None]:
    """Other callbacks, such as a test runner's, also run at collections, and read the time."""

    def told(phase: str, info: object) -> None:
        time.perf_counter()

    before = list(gc.callbacks)
    background.finish()  # a collection does nothing while another thread collects
    gc.disable()  # the program's own collection is the one that finds the cycle
    if request.param != "alone":
        gc.callbacks.append(told)
        gc.callbacks.insert(0, told)
    yield
    gc.callbacks[:] = before
    gc.enable()


@pytest.mark.sampled(4)
@pytest.mark.usefixtures("callbacks")
@pytest.mark.parametrize("make", [Timed, left_generator])
def test_a_collection_during_a_recording_is_not_observed(make: Any) -> None:
    def program(x: tc.Tensor) -> tc.Tensor:
        y = x * 2
        gc.collect()
        return y + 1

    compiled, x = tc.compile(program, fullgraph=True), tc.ones(3)
    gc.collect()
    LEFT.clear()
    make()
    assert compiled(x).tolist() == [3.0] * 3
    assert len(LEFT) == 1 and compiled.recordings == 1
    assert compiled(x).tolist() == [3.0] * 3
