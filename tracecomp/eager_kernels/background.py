"""The second thread, which compiles machine code for operators that eager programs call often.

The program continues without that code in the meantime. The thread starts with the first work and ends with the
process; a forked child begins without one.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeAlias

from tracecomp.base import progress
from tracecomp.base.forks import in_child
from tracecomp.base.gc_pause import never_pause_here
from tracecomp.base.user_warnings import from_here
from tracecomp.runtime.library import keep_loaded

Work: TypeAlias = Callable[[], None]

MOST_WAITING = 64
"""Most queued pieces of work, each with a copy of its operands; further ones are refused."""
REST = 0.5
"""Factor of rest to work time of the second thread, because it slows down the program. Less rest does not cost the
program more in total, and serves it earlier."""


class _Background:
    """The thread and its queue of named work."""

    def __init__(self) -> None:
        self.waiting: SimpleQueue[tuple[str, Work] | None] = SimpleQueue()
        self.refused: list[tuple[str, str]] = []
        self._thread: threading.Thread | None = None
        self._ending = False
        self._awaited = False
        self._working = False

    def add(self, name: str, work: Work) -> bool:
        """Queue ``work``; False if too much is queued already."""
        if self._ending:
            return False
        if not self._is_alive():  # also when the queue is full: an interrupted start leaves work without a thread
            self._start()
        if self.waiting.qsize() >= MOST_WAITING:
            return False
        self.waiting.put((name, from_here(work)))
        return True

    def _is_alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._work, name="tracecomp background", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # no thread available, or interpreter shutdown
            self._thread = None

    def finish(self) -> None:
        """Wait until the queue is empty; the thread does not rest in the meantime.

        A mark at the end of the queue shows this, not a count: Ctrl-C within ``add`` would leave a count too large
        forever.
        """
        self._awaited = True
        try:
            while self._reaches_a_mark() and not self.waiting.empty():  # work may have added more after the mark
                pass
        finally:
            self._awaited = False

    def _reaches_a_mark(self) -> bool:
        """Whether the thread reached a mark after all work; False without a thread, which nothing takes marks from."""
        reached = threading.Event()
        if self._is_alive():
            self.waiting.put(("", reached.set))
        while self._is_alive():
            if reached.wait(0.05):
                return True
        return False

    def is_idle(self) -> bool:
        """Whether there is no work."""
        return not self._working and self.waiting.empty()

    def end(self) -> None:
        """Finish the current compilation: ending a thread inside LLVM ends the process."""
        self._ending = True
        self.waiting.put(None)
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        never_pause_here()
        with progress.counted(lambda steps: None):  # no bar: the program does not wait for it
            while (given := self.waiting.get()) is not None and not self._ending:
                began = time.perf_counter()
                self._do(*given)
                del given
                self._rest(REST * (time.perf_counter() - began))

    def _do(self, name: str, work: Work) -> None:
        self._working = True
        try:
            work()
        except Exception as error:  # the function's own error, on copies: the program raises it itself
            self.refused.append((name, f"{type(error).__name__}: {error}"))
        finally:
            self._working = False

    def _rest(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not (self._ending or self._awaited) and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, 0.02))


_background = _Background()


def begin(name: str, work: Work) -> bool:
    """Queue ``work``; an exception is the reason why ``name`` stays unchanged. False: try again later."""
    return _background.add(name, work)


def finish() -> None:
    """Wait until all work is done; for tests and measurements."""
    _background.finish()


def is_idle() -> bool:
    """Whether there is no work."""
    return _background.is_idle()


def refused() -> list[tuple[str, str]]:
    """Return the names that stay unchanged, with reasons."""
    return list(_background.refused)


@in_child
def _after_fork() -> None:
    global _background
    _background = _Background()


@atexit.register
def _end() -> None:
    _background.end()
    keep_loaded()  # loaded after the first call
