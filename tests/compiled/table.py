"""Tables of programs: what a table test runs, collected by a decorator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Maker = Callable[[], Any]


class Table:
    """``@table(recordings=n)`` adds a function that makes ``(step, calls, state)``.

    The step, the arguments of each call, tensors to compare after it; ``n`` is how many recordings are expected.
    """

    def __init__(self) -> None:
        self.rows: list[tuple[Maker, int]] = []

    def __call__(self, recordings: int = 1) -> Callable[[Maker], Maker]:
        def add(make: Maker) -> Maker:
            self.rows.append((make, recordings))
            return make

        return add
