"""Steps of long operations, and their bar on a terminal."""

from __future__ import annotations

import io
import sys

import pytest

from tracecomp.base import progress
from tracecomp.base.progress import Steps


def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """A terminal of 62 columns. Tests call this: pytest replaces standard error after fixtures."""
    made = io.StringIO()
    monkeypatch.setattr(made, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", made)
    monkeypatch.setenv("COLUMNS", "62")
    return made


def run(monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    """Run steps of a second each."""
    now = 0.0
    monkeypatch.setattr("time.perf_counter", lambda: now)
    with progress.shown("compiling f"):
        progress.expect(steps)
        for n in range(steps):
            now += 1.0
            progress.advance(f"kernels{n}")


def test_a_bar_appears_after_two_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = terminal(monkeypatch)
    run(monkeypatch, 4)
    first, *lines, last = screen.getvalue().split("\r\033[K")
    assert (first, last) == ("", "")
    assert lines == [
        "compiling f: [##########..........] 2/4 2 s, 2 s left kernels",
        "compiling f: [###############.....] 3/4 3 s, 1 s left kernels",
        "compiling f: [####################] 4/4 4 s, 0 s left kernels",
    ]


def test_short_operations_show_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = terminal(monkeypatch)
    run(monkeypatch, 1)
    assert screen.getvalue() == ""


def test_without_a_terminal_nothing_is_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(monkeypatch, 5)
    assert capsys.readouterr().err == ""


def test_an_enclosing_block_counts_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = terminal(monkeypatch)
    told: list[Steps] = []
    with progress.counted(told.append), progress.shown("inner"):
        progress.expect(2)
        progress.advance("a")
        progress.expect(1)
        progress.advance("b")
    assert told == [Steps(1, 2, "a"), Steps(2, 3, "b")]
    assert told[1].after(told[0]) == Steps(3, 5, "b")
    assert screen.getvalue() == ""
