"""Dynamic sizes of a program: numbers that follow from them, and the sizes for which a path is valid.

In a file a number that follows from dynamic sizes is a list of terms: ``[[sizes, factor], ...]`` is the sum of products
of sizes (their numbers) with a factor. A size may be replaced by ``[terms, divisor]``, a quotient that is rounded down.
Numbers that do not depend on sizes are plain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Number = Any
"""An int, or terms."""


def number(told: Number, sizes: Sequence[int]) -> int:
    """The value of a number for ``sizes``."""
    if isinstance(told, int):
        return told
    total = 0
    for atoms, factor in told:
        part = factor
        for atom in atoms:
            part *= sizes[atom] if isinstance(atom, int) else number(atom[0], sizes) // atom[1]
        total += part
    return total


def numbers(told: Any, sizes: Sequence[int]) -> Any:
    """The values of a sequence of numbers."""
    return tuple([n if isinstance(n, int) else number(n, sizes) for n in told])


def block_length(extent: int, target: int) -> int:
    """The largest divisor of ``extent`` up to ``target`` if it is not much smaller, else ``target``.

    One that makes an even number of blocks is taken first: of three, one of two threads would have two.
    """
    for count in (2, 1):
        divisor = next((b for b in range(min(target, extent), 0, -1) if extent % (count * b) == 0), 1)
        # A divisor much smaller than wanted would make many short blocks.
        if divisor * 4 >= target:
            return divisor
    return target


class OpenSizes:
    """The dynamic sizes of a path: their names, the axes of arguments that have them, and the conditions on them."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        self.names: Sequence[str] = told["names"]
        self._sources: Sequence[Sequence[tuple[int, int]]] = told["sources"]
        self._ranges: Sequence[tuple[int, int, Sequence[int]]] = told["ranges"]
        self._zero, self._other, self._positive = told["zero"], told["other"], told["positive"]

    def of(self, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
        """The sizes of a call with arguments of these ``shapes``; None where the path does not serve it."""
        found = tuple([shapes[k][axis] for ((k, axis), *_) in self._sources])
        if any(shapes[k][axis] != n for n, same in zip(found, self._sources, strict=True) for k, axis in same):
            return None
        held = all(low <= n <= high and n not in rest for n, (low, high, rest) in zip(found, self._ranges, strict=True))
        return found if held and self._related(found) else None

    def _related(self, sizes: Sequence[int]) -> bool:
        return (
            all(number(n, sizes) == 0 for n in self._zero)
            and all(number(n, sizes) != 0 for n in self._other)
            and all(number(n, sizes) >= 0 for n in self._positive)
        )

    def __str__(self) -> str:
        told = [f"{name} from {low} to {high}" for name, (low, high, _) in zip(self.names, self._ranges, strict=True)]
        return ", ".join(told)
