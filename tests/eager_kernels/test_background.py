"""The thread that compiles what eager programs call often: waiting for it ends, whatever was interrupted before."""

from __future__ import annotations

import io
import sys
import threading
from functools import partial
from queue import SimpleQueue
from typing import Any

import pytest

from tracecomp.base import progress
from tracecomp.eager_kernels.background import MOST_WAITING, _Background


class Interrupted(SimpleQueue[Any]):
    """Ctrl-C comes when the first piece of work is put in."""

    came = False

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        if not self.came:
            self.came = True
            raise KeyboardInterrupt
        super().put(item)


def waited(background: _Background) -> bool:
    """Whether ``finish`` returns."""
    waiting = threading.Thread(target=background.finish, daemon=True)
    waiting.start()
    waiting.join(60)
    return not waiting.is_alive()


def test_finish_returns_after_an_interrupted_request() -> None:
    background, done = _Background(), []
    background.waiting = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        background.add("a", lambda: done.append("a"))
    assert waited(background)
    background.add("b", lambda: done.append("b"))
    assert waited(background) and done == ["b"]
    background.end()


def test_finish_waits_for_work_that_work_adds() -> None:
    background, done = _Background(), []

    def first() -> None:
        background.add("second", lambda: done.append("second"))
        done.append("first")

    background.add("first", first)
    assert waited(background) and done == ["first", "second"]
    background.end()


def test_waiting_without_a_thread_leaves_the_queue_free() -> None:
    """Each wait left a mark in the queue, which was full in the end and refused all work."""
    background, done = _Background(), []
    for _ in range(2 * MOST_WAITING):
        background.finish()
    assert background.add("a", lambda: done.append("a")) and waited(background) and done == ["a"]
    background.end()


def test_a_full_queue_gets_a_thread() -> None:
    """Ctrl-C between queueing work and starting the thread may leave any amount of work."""
    background, done = _Background(), []
    for n in range(MOST_WAITING):
        background._put(str(n), lambda: done.append(0), 1.0)
    background.add("a", lambda: None)
    assert waited(background) and len(done) == MOST_WAITING
    background.end()


def busy(background: _Background) -> threading.Event:
    """The thread works until the event that this returns is set."""
    started, go = threading.Event(), threading.Event()

    def work() -> None:
        started.set()
        go.wait(60)

    background.add("long", work)
    assert started.wait(60)
    return go


def test_work_of_the_most_value_is_done_first() -> None:
    background = _Background()
    done: list[object] = []
    go = busy(background)
    for value in (2.0, 5.0, 1.0, 5.0):
        background.add(f"{value}", partial(done.append, value), value)
    background.add("walk", partial(done.append, "walk"))
    go.set()
    assert waited(background) and done == ["walk", 5.0, 5.0, 2.0, 1.0]
    background.end()


def test_work_of_the_least_value_is_dropped_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    background = _Background()
    done: list[int] = []
    dropped: list[int] = []
    go = busy(background)
    for value in range(MOST_WAITING):
        assert background.add("f", partial(done.append, value), value, partial(dropped.append, value))
    assert not background.add("f", lambda: None, 1e9)
    monkeypatch.setattr("tracecomp.eager_kernels.background.MOST_WAITING", 40)
    go.set()
    assert waited(background)
    assert done == [*range(63, 22, -1)] and sorted(dropped) == [*range(23)]
    background.end()


def test_the_thread_shows_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its bars came between the program's own lines."""
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(progress, "PATIENCE", 0.0)

    def compile_one() -> None:
        with progress.shown("compiling f"):
            progress.expect(1)
            progress.advance("kernel")

    background = _Background()
    background.add("f", compile_one)
    assert waited(background) and not background.refused
    background.end()
    assert terminal.getvalue() == ""
    compile_one()
    assert "compiling f" in terminal.getvalue()
