"""Warnings that name the user's line: no other module calls Python's ``warnings.warn``.

Python's filters decide whether a warning is shown, and by default show each text once for each line. The line is the
innermost one of the program on this thread. A thread that the package starts has none, so it is started with
``from_here``: its warnings name the line that began its work.
"""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import Any, NamedTuple, TypeVar

from tracecomp.base.errors import outside_frame, user_frame
from tracecomp.base.trace_pause import with_trace

T = TypeVar("T")


class WarningPlace(NamedTuple):
    """A line, and where Python notes which warnings about it were shown."""

    file: str
    line: int
    module: str | None
    registry: dict[Any, Any]

    def show(self, message: str, category: type[Warning]) -> None:
        """Warn about this line."""
        with_trace(lambda: warnings.warn_explicit(message, category, *self))


_begun: ContextVar[WarningPlace | None] = ContextVar("tracecomp_begun", default=None)


class _Text(str):
    """A text that equals others about the same thing, so Python shows one of them for each line.

    Python compares texts to find those already shown. Texts with measured values would all differ.
    """

    about: Hashable

    def __new__(cls, text: str, about: Hashable) -> _Text:
        made = super().__new__(cls, text)
        made.about = about
        return made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Text) and self.about == other.about

    def __hash__(self) -> int:
        return hash(self.about)


def warn_user(
    cause: str, cost: str, remedy: str, category: type[Warning] = UserWarning, *, about: Hashable = None,
    fn: object = None,
) -> None:  # fmt: skip
    """Warn about the user's line: the cause, its cost, and one remedy, each a sentence without its full stop.

    A line shows one warning ``about`` a thing; without ``about``, one of each text. ``fn`` is the user's function that
    the warning concerns. Its definition is named when no line of the program runs, as in ``Thread(target=compiled)``.
    """
    end = "" if "#" in remedy.rsplit(maxsplit=1)[-1] else "."  # a full stop would become part of a link
    text = f"{cause}. {cost}. {remedy}{end}"
    _user_place(fn).show(text if about is None else _Text(text, about), category)


def warn_as_pytorch(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn about the user's line with a text of PyTorch, which programs filter by."""
    _user_place(None).show(message, category)


@contextmanager
def silenced(category: type[Warning] = Warning) -> Iterator[None]:
    """Ignore warnings in a block.

    Unlike ``warnings.catch_warnings``, this does not make Python forget which warnings each line has shown.
    """
    ignored: Any = ("ignore", None, category, None, 0)
    filters: Any = warnings.filters
    filters.insert(0, ignored)
    try:
        yield
    finally:
        if ignored in filters:
            filters.remove(ignored)


def place_of(frame: FrameType) -> WarningPlace:
    """Return the line that ``frame`` runs."""
    return _place(frame.f_code.co_filename, frame.f_lineno, frame.f_globals)


def from_here(work: Callable[[], T]) -> Callable[[], T]:
    """Return ``work`` for another thread; its warnings name the user's line that runs now."""
    place = _user_place(None)

    def run() -> T:
        token = _begun.set(place)
        try:
            return work()
        finally:
            _begun.reset(token)

    return run


def _user_place(fn: object) -> WarningPlace:
    frame = user_frame()
    if frame is not None:
        return place_of(frame)
    return _begun.get() or _defined_at(fn) or _outermost()


def _place(file: str, line: int, space: dict[str, Any]) -> WarningPlace:
    return WarningPlace(file, line, space.get("__name__"), space.setdefault("__warningregistry__", {}))


def _defined_at(fn: object) -> WarningPlace | None:
    """Return the first line of a function, or of a module's ``forward``."""
    function: Any = inspect.unwrap(getattr(fn, "forward", fn))  # type: ignore[arg-type]
    function = getattr(function, "__func__", function)
    code = getattr(function, "__code__", None)
    return None if code is None else _place(code.co_filename, code.co_firstlineno, function.__globals__)


def _outermost() -> WarningPlace:
    """Return the line of Python's library that called the package, or else the program's first line."""
    frame = outside_frame()
    if frame is not None:
        return place_of(frame)
    space = vars(sys.modules["__main__"])
    # Python deletes ``__main__.__file__`` before it calls the functions of ``atexit``.
    return _place(getattr(space.get("__loader__"), "path", "<stdin>"), 1, space)
