"""A call's queries about tensors from outside other than values, dtype, shape and gradients."""

from __future__ import annotations

from typing import Any, NamedTuple

from tracecomp.eager.tensor import Tensor
from tracecomp.record.guards.facts import FACTS, OF_MEMORY, WRITTEN
from tracecomp.record.inputs import Inputs
from tracecomp.record.refusals import Refusals
from tracecomp.record.tensor_changes import TensorChanges
from tracecomp.record.value_table import ValueTable


class Asked(NamedTuple):
    """A query ``what`` (of ``more``) about ``t`` at a line of the compiled function, and its result ``seen``."""

    t: Tensor
    what: str
    more: Any
    seen: object
    line: int


class TensorFacts:
    """The questions of one recording, which later calls have to answer equally."""

    def __init__(self, values: ValueTable, inputs: Inputs, changes: TensorChanges, refusals: Refusals) -> None:
        self._values = values
        self._inputs = inputs
        self._changes = changes
        self._refusals = refusals
        self.asked: dict[tuple[int, str, int | str | None], Asked] = {}

    def ask(self, t: Tensor, what: str, more: object = None) -> None:
        """Note that the answer to ``what`` matters, one of ``FACTS``."""
        while self._values.is_made(t):
            look = self._values.look(t)
            if look is None or what not in OF_MEMORY:
                return
            t = look.of
        if what in WRITTEN and id(t) in self._changes.writes:
            self._refusals.refuse_here(f"reads {what} of a tensor that it has written")
            return
        key = (id(t), what, more if isinstance(more, int | str) else id(more))
        if key not in self.asked:
            self.asked[key] = Asked(t, what, more, FACTS[what](t, more), self._refusals.line())

    def ask_which(self, t: Tensor) -> None:
        """Note that it matters which object ``t`` is."""
        if self._inputs.changes_with_call(t):
            self.ask(t, "is")

    def compare(self, a: Tensor, b: Tensor) -> None:
        """Note that it matters whether two tensors are one. Arguments and places are compared among each other."""
        changing = [t for t in (a, b) if self._inputs.changes_with_call(t)]
        if len(changing) == 1 and not (self._values.is_made(a) or self._values.is_made(b)):
            (t,) = changing
            self.ask(t, "is", b if t is a else a)
