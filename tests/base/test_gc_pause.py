"""The collector of cycles rests while a program is compiled, and is afterwards as it was."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tracecomp
from tracecomp.base import config
from tracecomp.base.gc_pause import collected, without_collecting
from tracecomp.eager_kernels import background
from tracecomp.passes import pipeline


@pytest.fixture(autouse=True)
def enabled() -> Iterator[None]:
    before = gc.isenabled()
    gc.enable()
    yield
    (gc.enable if before else gc.disable)()


@pytest.mark.parametrize("before", [True, False])
def test_the_collector_rests_while_passes_run(before: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[bool] = []
    run = pipeline.run

    def noted(*args: Any) -> Any:
        found.append(gc.isenabled())
        return run(*args)

    background.finish()  # work that other tests left to the background thread runs passes, too
    monkeypatch.setattr(pipeline, "run", noted)
    compiled = tracecomp.compile(lambda x: x.sin() + 1)
    (gc.enable if before else gc.disable)()
    with config.override(cache_dir=str(tmp_path), eager="numpy"):  # eager kernels are compiled without a rest
        for _ in range(2):
            compiled(tracecomp.ones(3))
    assert found == [False] and gc.isenabled() is before


def test_work_beside_the_program_does_not_stop_it() -> None:
    states: list[bool] = []
    assert background.begin("asks", lambda: without_collecting(lambda: states.append(gc.isenabled())))
    background.finish()
    assert states == [True]


def test_it_is_started_again_by_who_stopped_it() -> None:
    def outer() -> None:
        without_collecting(lambda: states.append(gc.isenabled()))
        states.append(gc.isenabled())

    states: list[bool] = []
    without_collecting(outer)
    assert states == [False, False] and gc.isenabled()
    with pytest.raises(ZeroDivisionError):
        without_collecting(lambda: 1 / 0)
    assert gc.isenabled()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_child_collects() -> None:
    def work() -> None:
        child = os.fork()
        if not child:
            os._exit(0 if gc.isenabled() else 1)
        assert os.waitpid(child, 0)[1] == 0 and not gc.isenabled()

    without_collecting(work)
    assert gc.isenabled()


def test_finalizers_of_others_are_no_part_of_a_recording() -> None:
    """A cycle that is collected while a program runs has the same effects as one that is collected later."""
    done: list[str] = []

    class Other:
        def __del__(self) -> None:
            done.append(os.environ.get("HOME", ""))  # from a program this would be a value from outside

    def program(x: tracecomp.Tensor) -> tracecomp.Tensor:
        kept = [[n] for n in range(3000)]  # enough for the collector to begin
        return x + len(kept)

    compiled = tracecomp.compile(program)
    for _ in range(3):
        other: Any = Other()
        other.itself = other
        del other
        assert compiled(tracecomp.ones(2)).tolist() == [3001.0, 3001.0]
    gc.collect()
    assert len(done) == 3 and compiled.recordings == 1


def test_a_thread_that_leaves_does_not_start_it_for_another() -> None:
    states: list[bool] = []
    inside, leave = threading.Event(), threading.Event()

    def first() -> None:
        inside.set()
        leave.wait()

    thread = threading.Thread(target=lambda: without_collecting(first))
    thread.start()
    inside.wait()

    def second() -> None:
        leave.set()
        thread.join()
        states.append(gc.isenabled())

    without_collecting(second)
    assert states == [False] and gc.isenabled()


class Cycle:
    def __init__(self) -> None:
        self.itself = self


def test_garbage_is_found_while_another_thread_collects() -> None:
    """``gc.collect`` does nothing then; here that thread pauses in a finalizer."""
    collecting, proceed = threading.Event(), threading.Event()

    class Pausing(Cycle):
        def __del__(self) -> None:
            collecting.set()
            proceed.wait()

    def collect() -> None:
        Pausing()
        gc.collect()

    thread = threading.Thread(target=collect)
    thread.start()
    collecting.wait()
    kept = weakref.ref(Cycle())
    threading.Timer(0.05, proceed.set).start()
    assert collected(lambda: kept() is None)
    thread.join()


def test_a_finalizer_does_not_wait_for_its_own_collection_for_ever() -> None:
    found = []

    class Asking(Cycle):
        def __del__(self) -> None:
            found.append(collected(lambda: True))
            kept = Cycle()
            found.append(collected(lambda: kept is None))

    Asking()
    gc.collect()
    assert found == [True, False]
