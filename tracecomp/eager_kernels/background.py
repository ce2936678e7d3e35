"""Where work is handed to that a second thread may do; what has one says so (``compiled/hot_calls.py``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Work: TypeAlias = Callable[[], None]


def _never(name: str, work: Work) -> None:
    """Without a second thread nothing is made."""


_begin: Callable[[str, Work], None] = _never


def begin(name: str, work: Work) -> None:
    """Have ``work`` done some time; what it raises is a reason why ``name`` stays as it is."""
    _begin(name, work)


def set_background(fn: Callable[[str, Work], None]) -> None:
    """Have work done by ``fn``."""
    global _begin
    _begin = fn
