"""Progress of long operations: counted steps, and a bar on a terminal after two seconds."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

PATIENCE = 2.0
"""Seconds before a bar appears."""
_AGAIN = 0.1
"""Seconds between two lines of a bar."""
_WIDTH = 20
"""Characters of a bar: each is five percent."""
_CLEAR = "\r\033[K"
"""Characters that clear the terminal's current line."""


@dataclass(frozen=True, slots=True)
class Steps:
    """How many steps of an operation are done, how many are expected so far, and the name of the last one."""

    done: int = 0
    total: int = 0
    what: str = ""

    def after(self, earlier: Steps) -> Steps:
        """The steps of two operations, one after the other."""
        return Steps(earlier.done + self.done, earlier.total + self.total, self.what)


class Bar:
    """A line of the terminal, which appears after ``PATIENCE`` and is cleared at the end."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._start = time.perf_counter()
        self._last = 0.0
        # The time left is estimated from steps since the total last changed: other steps take other times.
        self._base, self._since = Steps(), self._start

    def show(self, steps: Steps) -> None:
        """Show how far the operation is."""
        now = time.perf_counter()
        if steps.total != self._base.total:
            self._base, self._since = steps, now
        if now - self._start < PATIENCE or now - self._last < _AGAIN:
            return
        self._last = now
        line = f"{self._title}: {_drawn(steps)} {now - self._start:.0f} s{self._left(steps, now)} {steps.what}"
        sys.stderr.write(f"{_CLEAR}{line[: shutil.get_terminal_size().columns - 1]}")
        sys.stderr.flush()

    def close(self) -> None:
        if self._last:
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()

    def _left(self, steps: Steps, now: float) -> str:
        new = steps.done - self._base.done
        return f", {(now - self._since) * (steps.total - steps.done) / new:.0f} s left" if new > 0 else ""


def _drawn(steps: Steps) -> str:
    filled = _WIDTH * steps.done // max(steps.total, 1)
    return f"[{'#' * filled}{'.' * (_WIDTH - filled)}] {steps.done}/{steps.total}"


@dataclass(slots=True)
class _Running:
    """An operation whose steps ``seen`` receives."""

    seen: Callable[[Steps], object]
    done: int = 0
    total: int = 0


_running: ContextVar[_Running | None] = ContextVar("tracecomp_progress", default=None)


@contextmanager
def bar(title: str) -> Iterator[Bar | None]:
    """A bar for the block; None without a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    made = Bar(title)
    try:
        yield made
    finally:
        made.close()


@contextmanager
def counted(seen: Callable[[Steps], object]) -> Iterator[None]:
    """Tell ``seen`` of the steps in this block."""
    token = _running.set(_Running(seen))
    try:
        yield
    finally:
        _running.reset(token)


@contextmanager
def shown(title: str) -> Iterator[None]:
    """Show the steps in this block on a terminal, unless an enclosing block counts them."""
    if _running.get() is not None:
        yield
        return
    with bar(title) as line:
        if line is None:
            yield
            return
        with counted(line.show):
            yield


def expect(steps: int) -> None:
    """Add a number of expected steps."""
    running = _running.get()
    if running is not None:
        running.total += steps


def advance(what: str) -> None:
    """Complete a step."""
    running = _running.get()
    if running is not None:
        running.done += 1
        running.seen(Steps(running.done, running.total, what))
