"""Settings of the process that programs change by PyTorch's functions, such as ``set_printoptions``.

They live in dictionaries that are registered here. A recording guards all of them, so a program may read them, and
replays the changes of a call. Settings of one thread are in ``eager/modes.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

Table = dict[str, Any]
tables: list[tuple[Table, Table]] = []
"""The registered dictionaries, each with its initial values."""


def register(table: Table) -> Table:
    """Add a dictionary of plain values to those that recordings guard; returns it."""
    tables.append((table, dict(table)))
    return table


class Snapshot:
    """A snapshot of all registered dictionaries."""

    def __init__(self) -> None:
        self._seen = [dict(table) for table, _ in tables]

    def changed(self) -> list[tuple[str, Any, Any]]:
        """The changed settings: name, old value, new value."""
        return [
            (key, seen.get(key), table.get(key))
            for table, seen in self._pairs()
            if table != seen
            for key in sorted(table.keys() | seen.keys())
            if table.get(key) != seen.get(key)
        ]

    def is_current(self) -> bool:
        """Whether all settings are unchanged."""
        return all(table == seen for table, seen in self._pairs())

    def left(self) -> list[Callable[[], None]]:
        """Functions that repeat the changes since the snapshot."""
        return [partial(table.update, dict(table)) for table, seen in self._pairs() if table != seen]

    def _pairs(self) -> list[tuple[Table, Table]]:
        # A module imported later may have registered more: those had their initial values before.
        later = [initial for _, initial in tables[len(self._seen) :]]
        return [(table, seen) for (table, _), seen in zip(tables, [*self._seen, *later], strict=True)]
