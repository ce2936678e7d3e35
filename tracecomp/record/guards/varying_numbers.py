"""The numbers among the arguments of a compiled function that differ from call to call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Any

from tracecomp.record.guards.guards import Guards
from tracecomp.record.pytree import direct, flatten_call, leaf_places
from tracecomp.record.symbolic.sym_scalar import followed

DATA, SIZE, CONSTANT = "data", "size", "constant"


class VaryingNumbers:
    """History of the calls of one function, by the structure of their arguments.

    If a call differs from a recorded one in numbers and sizes alone, a changed number is dynamic in the next recording.
    An integer that has changed by as much as a size of a tensor is followed as a size: a cache that counts its rows
    compares the count with its window. Other numbers are followed as data. If Python needs their values, later
    recordings treat them as constants again, or, for an integer, as a dynamic size. A recording that needs the value
    even then is for this value. If the program passes ``type`` itself as an argument (``map(type, ...)``), which
    dynamic numbers cannot support, all are constants.
    """

    def __init__(self, sizes: bool) -> None:
        self._sizes = sizes
        self._follow: dict[tuple[Any, int], str] = {}

    def of_call(self, guards: Iterable[Guards], args: tuple[object, ...], kwargs: Mapping[str, object]) -> Set[int]:
        """The leaves to follow as data in a recording of this call, which none of ``guards`` fits."""
        guards = list(guards)
        if any(g.reads.asks_types for g in guards):
            self._follow = dict.fromkeys(self._follow, CONSTANT)
            return set()
        structure, leaves = flatten_call(args, kwargs)
        for g in guards:
            for i in g.moved_numbers(structure, leaves) & _followable(args, kwargs):
                counts = self._sizes and i in g.moved_as_sizes(leaves)
                self._follow.setdefault((structure, i), SIZE if counts else DATA)
        return {i for i in self._how(structure, DATA) if followed(leaves[i])}

    def as_sizes(self, structure: object) -> Set[int]:
        """The leaves to follow as sizes."""
        return self._how(structure, SIZE)

    def asked(self, guards: Guards) -> bool:
        """Whether the recording asked for the values of followed arguments, which makes it useless."""
        for i in guards.asked:
            whole = self._sizes and guards.is_whole(i)
            self._follow[guards.structure, i] = SIZE if whole else CONSTANT
        return bool(guards.asked)

    def _how(self, structure: object, how: str) -> Set[int]:
        return {i for (known, i), follow in self._follow.items() if follow == how and known == structure}


def _followable(args: tuple[object, ...], kwargs: Mapping[str, object]) -> Set[int]:
    """The leaves that are arguments themselves, or attributes of records."""
    held = {n for n, place in enumerate(leaf_places((args, kwargs))) if place.record is not None}
    return held | direct(args, kwargs).keys()
