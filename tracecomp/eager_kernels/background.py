"""The second thread, which compiles machine code for operators that eager programs call often.

The program continues without that code in the meantime. The thread starts with the first work and ends with the
process; a forked child begins without one.
"""

from __future__ import annotations

import atexit
import heapq
import itertools
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import TypeAlias

from tracecomp.base import progress
from tracecomp.base.forks import in_child
from tracecomp.base.gc_pause import never_pause_here
from tracecomp.base.user_warnings import from_here
from tracecomp.runtime.library import keep_loaded

Work: TypeAlias = Callable[[], None]

MOST_WAITING = 64
"""Most queued pieces of work, each with a copy of its operands; those that save the least are dropped."""
FIRST = math.inf
"""The value of work that many calls wait for."""
REST = 0.5
"""Factor of rest to work time of the second thread, because it slows down the program. Less rest does not cost the
program more in total, and serves it earlier."""


def _nothing() -> None:
    """Do nothing."""


@dataclass(order=True, frozen=True, slots=True)
class _Piece:
    """A piece of work. The first in order is done first: that of the most ``value``, then the oldest."""

    loss: float
    number: int
    name: str = field(compare=False)
    work: Work = field(compare=False)
    dropped: Work = field(compare=False)


class _Background:
    """The thread and its named pieces of work. ``waiting`` are those that it has not sorted into its heap yet."""

    def __init__(self) -> None:
        self.waiting: SimpleQueue[_Piece | None] = SimpleQueue()
        self.refused: list[tuple[str, str]] = []
        self._sorted: list[_Piece] = []
        self._count = itertools.count()
        self._thread: threading.Thread | None = None
        self._ending = False
        self._awaited = False
        self._working = False

    def add(self, name: str, work: Work, value: float = FIRST, dropped: Work = _nothing) -> bool:
        """Queue ``work``; False if too much is queued already."""
        if self._ending:
            return False
        if not self._is_alive():  # also when the queue is full: an interrupted start leaves work without a thread
            self._start()
        if self.waiting.qsize() + (len(self._sorted) if value == FIRST else 0) >= MOST_WAITING:
            return False
        self._put(name, work, value, dropped)
        return True

    def _put(self, name: str, work: Work, value: float, dropped: Work = _nothing) -> None:
        self.waiting.put(_Piece(-value, next(self._count), name, from_here(work), dropped))

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
            while self._reaches_a_mark() and not self._is_empty():  # work may have added more after the mark
                pass
        finally:
            self._awaited = False

    def _reaches_a_mark(self) -> bool:
        """Whether the thread reached a mark after all work; False without a thread, which nothing takes marks from."""
        reached = threading.Event()
        if self._is_alive():
            self._put("", reached.set, -math.inf)
        while self._is_alive():
            if reached.wait(0.05):
                return True
        return False

    def is_idle(self) -> bool:
        """Whether there is no work."""
        return not self._working and self._is_empty()

    def _is_empty(self) -> bool:
        return not self._sorted and self.waiting.empty()

    def end(self) -> None:
        """Finish the current compilation: ending a thread inside LLVM ends the process."""
        self._ending = True
        self.waiting.put(None)
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        never_pause_here()
        with progress.counted(lambda steps: None):  # no bar: the program does not wait for it
            while (piece := self._next()) is not None:
                began = time.perf_counter()
                self._do(piece.name, piece.work)
                del piece
                self._rest(REST * (time.perf_counter() - began))

    def _next(self) -> _Piece | None:
        """Wait for work, and take the piece of the most value; None at the end of the process."""
        while not self._sorted or not self.waiting.empty():
            piece = self.waiting.get()
            if piece is None or self._ending:
                return None
            heapq.heappush(self._sorted, piece)
        piece = heapq.heappop(self._sorted)
        if len(self._sorted) > MOST_WAITING:
            marks, work = [p for p in self._sorted if not p.name], sorted(p for p in self._sorted if p.name)
            self._sorted = [*work[:MOST_WAITING], *marks]  # sorted, so a heap
            for least in work[MOST_WAITING:]:
                least.dropped()
        return piece

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


def begin(name: str, work: Work, value: float = FIRST, dropped: Work = _nothing) -> bool:
    """Queue ``work``; an exception is the reason why ``name`` stays unchanged. False: try again later.

    Work of more ``value`` is done first. ``dropped`` is called if too much work of more value has come meanwhile.
    """
    return _background.add(name, work, value, dropped)


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
