"""Ignore the modes and classes that override operators."""

from __future__ import annotations


class Unheard(list[None]):
    """Replaces ``use.begun`` where earlier tests have defined classes that override operators, for good."""

    def __init__(self) -> None:
        super().__init__([None] * 10_000)  # arrays without memory that tests before have left may go meanwhile

    def __bool__(self) -> bool:
        return False
