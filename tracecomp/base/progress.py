"""Progress of long operations on a terminal: a bar of tqdm, if installed, after two seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

PATIENCE = 2.0
"""Seconds before a bar appears."""


class _Progress:
    def __init__(self, title: str) -> None:
        self.title = title
        self.start = time.perf_counter()
        self.done = self.total = 0
        self.bar: Any = None

    def advance(self, what: str) -> None:
        self.done += 1
        if self.bar is None and time.perf_counter() - self.start > PATIENCE:
            with suppress(ImportError):
                from tqdm import tqdm

                self.bar = tqdm(desc=self.title, total=self.total, initial=self.done, leave=False, file=sys.stderr)
        elif self.bar is not None:
            self.bar.total = self.total
            self.bar.set_postfix_str(what, refresh=False)
            self.bar.update()


_running: ContextVar[_Progress | None] = ContextVar("tracecomp_progress", default=None)


@contextmanager
def shown(title: str) -> Iterator[None]:
    """Show the calls of ``advance`` in this block, for one piece of work, on a terminal."""
    if not sys.stderr.isatty() or _running.get() is not None:
        yield
        return
    progress = _Progress(title)
    token = _running.set(progress)
    try:
        yield
    finally:
        _running.reset(token)
        if progress.bar is not None:
            progress.bar.close()


def expect(steps: int) -> None:
    """Add a number of expected steps."""
    progress = _running.get()
    if progress is not None:
        progress.total += steps


def advance(what: str) -> None:
    """Complete a step."""
    progress = _running.get()
    if progress is not None:
        progress.advance(what)
