"""Which numbers among the arguments of a compiled function are other ones from call to call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tracecomp.record.guards.guards import Guards
from tracecomp.record.pytree import direct, flatten_call
from tracecomp.record.symbolic.sym_scalar import followed


class VaryingNumbers:
    """What the calls of one function have shown, by the structure of their arguments.

    A number in which alone a call differs from a recorded one is followed in the next recording. If Python asks there
    for its value, each value takes a recording, and it is a constant of these again: they are faster so. Where the
    program calls ``type``, which what is followed cannot answer, all are constants.
    """

    def __init__(self) -> None:
        self._follow: dict[tuple[Any, int], bool] = {}

    def of_call(self, guards: Iterable[Guards], args: tuple[object, ...], kwargs: Mapping[str, object]) -> set[int]:
        """The leaves to follow in a recording of this call, which none of ``guards`` fits."""
        guards = list(guards)
        if any(g.reads.asks_types for g in guards):
            return set()
        structure, leaves = flatten_call(args, kwargs)
        for g in guards:
            for i in g.moved_numbers(structure, leaves) & direct(args, kwargs).keys():
                self._follow.setdefault((structure, i), True)
        wanted = [i for (known, i), follow in self._follow.items() if follow and known == structure]
        return {i for i in wanted if followed(leaves[i])}

    def asked(self, guards: Guards) -> bool:
        """Whether the recording asked for the values of followed arguments, which makes it useless."""
        self._follow |= {(guards.structure, i): False for i in guards.asked}
        return bool(guards.asked)
