"""Pauses of Python's trace function in code of this package.

While a program is recorded, CPython calls the recorder's trace function for each frame that begins. Frames of this
package are not observed, but they are dozens for each operator: without a pause they take a third of the time.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

Result = TypeVar("Result")
Trace = Callable[[FrameType, Any, Any], Any]
Ended = tuple[Trace | None, Trace | None]
"""A thread's trace function, and the one that was paused."""


class _Here(threading.local):
    trace: Trace | None = None  # the function that is paused


_here = _Here()


def without_trace(trace: Trace, run: Callable[..., Result], args: tuple[object, ...]) -> Result:
    """Call ``run(*args)`` without ``trace``, if that is this thread's trace function now."""
    if sys.gettrace() is not trace:
        return run(*args)
    try:
        sys.settrace(None)
        _here.trace = trace
        return run(*args)
    finally:
        sys.settrace(trace)  # before anything that Ctrl-C could interrupt
        _here.trace = None


def with_trace(run: Callable[[], Result]) -> Result:
    """Call ``run()``, which Python's library or the program may take part in, with the paused trace function."""
    trace = _here.trace
    if trace is None:
        return run()
    try:
        _here.trace = None
        sys.settrace(trace)
        return run()
    finally:
        sys.settrace(None)
        _here.trace = trace


def end_trace() -> Ended:
    """End tracing on this thread, paused or not; return what ``resume_trace`` needs."""
    before = sys.gettrace(), _here.trace
    sys.settrace(None)
    _here.trace = None
    return before


def resume_trace(before: Ended) -> None:
    """Continue as before ``end_trace``."""
    _here.trace = before[1]
    sys.settrace(before[0])


def paused_trace() -> Trace | None:
    """The trace function that is paused on this thread, or None."""
    return _here.trace
