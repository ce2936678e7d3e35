"""Guards on sizes that calls may change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from tracecomp.eager.tensor import Tensor
from tracecomp.record.guards.read_steps import Rows
from tracecomp.record.guards.slots import StateSlot
from tracecomp.record.pytree import Leaves
from tracecomp.record.size_range import Conditions
from tracecomp.record.symbolic.sizes import SizeSource


class AnySize(tuple[int, ...]):
    """A shape that is equal to those that differ from it along ``axes`` only; ``SizesGuard`` asks for the rest."""

    axes: Set[int]

    def __new__(cls, shape: Sequence[int], axes: Set[int]) -> AnySize:
        found = super().__new__(cls, shape)
        found.axes = axes
        return found

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, tuple) or len(other) != len(self):
            return False
        return all(a == b or k in self.axes for k, (a, b) in enumerate(zip(self, other, strict=True)))

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = tuple.__hash__


@dataclass(slots=True)
class SizesGuard:
    """Conditions on sizes: ``sources`` are the axes with each of them; ``places`` are found by their ids."""

    conditions: Conditions
    sources: Sequence[Sequence[SizeSource]]
    places: Mapping[Any, StateSlot]

    def read(self, source: SizeSource, leaves: Leaves) -> int:
        """The size along an axis."""
        kind, *which = source.holder
        x: Any = self.places[which[0]].leaves()[which[1]] if kind == "place" else leaves[which[0]]
        if kind == "number":
            return int(x)
        return int((x._data if isinstance(x, Tensor) else x).shape[source.axis])

    def sizes(self, leaves: Leaves) -> tuple[int, ...]:
        """The sizes of a call."""
        return tuple(self.read(same[0], leaves) for same in self.sources)

    def check(self, leaves: Leaves) -> str | None:
        sizes = self.sizes(leaves)
        for size, same in zip(sizes, self.sources, strict=True):
            for source in same[1:]:
                if self.read(source, leaves) != size:
                    return f"sizes that were equal differ: {size} and {self.read(source, leaves)}"
        return None if self.conditions.holds(sizes) else f"the recording does not hold for the sizes {sizes}"

    def explain(self) -> str:
        return "sizes: " + ", ".join(r.says() for r in self.conditions.ranges)

    def native_row(self, rows: Rows) -> bool:
        return False
