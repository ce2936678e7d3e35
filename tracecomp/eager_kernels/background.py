"""The second thread, on which machine code is made for what eager programs call often.

The program goes on meanwhile, without it. A thread of its own starts with the first work and ends with the process; a
forked child begins without one.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeAlias

from tracecomp.base.user_warnings import from_here
from tracecomp.runtime.library import keep_loaded

Work: TypeAlias = Callable[[], None]

MOST_WAITING = 64
"""Pieces of work that wait, each with a copy of what it is for; more are not added."""
REST = 2.0
"""The second thread rests so much longer than it has worked, because it slows down the program."""


class _Background:
    """The thread and what waits for it, with names."""

    def __init__(self) -> None:
        self.waiting: SimpleQueue[tuple[str, Work] | None] = SimpleQueue()
        self.refused: list[tuple[str, str]] = []
        self._thread: threading.Thread | None = None
        self._ending = False
        self._awaited = False

    def add(self, name: str, work: Work) -> bool:
        """Have ``work`` done; False when too much waits already."""
        if self.waiting.qsize() >= MOST_WAITING or self._ending:
            return False
        self.waiting.put((name, from_here(work)))
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._work, name="tracecomp background", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # the system gives none, or the interpreter is ending
                self._thread = None
        return True

    def finish(self) -> None:
        """Wait until nothing waits; meanwhile the thread does not rest.

        A mark behind all work says so, not a count of it: Ctrl-C within ``add`` would leave a count too large for ever.
        """
        self._awaited = True
        try:
            while self._reaches_a_mark() and not self.waiting.empty():  # work may have added more behind the mark
                pass
        finally:
            self._awaited = False

    def _reaches_a_mark(self) -> bool:
        """Whether the thread came to what is put behind all work; False without a thread."""
        reached = threading.Event()
        self.waiting.put(("", reached.set))
        while self._thread is not None and self._thread.is_alive():
            if reached.wait(0.05):
                return True
        return False

    def end(self) -> None:
        """Finish what is being made: a thread that is ended inside of LLVM takes the process with it."""
        self._ending = True
        self.waiting.put(None)
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        while (given := self.waiting.get()) is not None and not self._ending:
            began = time.perf_counter()
            name, work = given
            try:
                work()
            except Exception as error:  # the function's own, on copies: the program meets it itself
                self.refused.append((name, f"{type(error).__name__}: {error}"))
            finally:
                del given, work
            self._rest(REST * (time.perf_counter() - began))

    def _rest(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not (self._ending or self._awaited) and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, 0.02))


_background = _Background()


def begin(name: str, work: Work) -> bool:
    """Have ``work`` done some time; what it raises is a reason why ``name`` stays as it is. False: ask again later."""
    return _background.add(name, work)


def finish() -> None:
    """Wait until all work is done; for tests and measurements."""
    _background.finish()


def refused() -> list[tuple[str, str]]:
    """What stays as it is, by name, with reasons."""
    return list(_background.refused)


def _after_fork() -> None:
    global _background
    _background = _Background()


@atexit.register
def _end() -> None:
    _background.end()
    keep_loaded()  # what was loaded after this was called for the first time


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
