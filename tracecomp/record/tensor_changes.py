"""A call's changes of tensors from outside: counts of writes, gradients, ``requires_grad`` of leaves.

Tensors are found by identity. The call's own tensors are not in this table: they end with the call, or are results.
"""

from __future__ import annotations

import weakref
from typing import NamedTuple

from tracecomp.base.capture_guide import BreakReason, Section
from tracecomp.base.errors import Source, user_source
from tracecomp.eager.tensor import Tensor
from tracecomp.record.inputs import Inputs
from tracecomp.record.refusals import Refusals
from tracecomp.record.traced_value import GradSlot, TracedValue
from tracecomp.record.value_table import ValueTable

_REPLACED = BreakReason("replaces memory of a tensor from outside that has views", Section.MEMORY, "Use copy_()")


class Replaced(NamedTuple):
    """A tensor from outside whose entry is ``target`` got the memory of ``holder``, whose entry is ``source``."""

    holder: weakref.ref[Tensor]
    target: TracedValue
    source: TracedValue
    target_version: int
    source_version: int

    def is_seen(self) -> bool:
        """Whether the two must be one memory: the other one is alive, or either was written since."""
        versions = self.target.version, self.source.version
        return self.holder() is not None or versions != (self.target_version, self.source_version)


class TensorChanges:
    """The changes of one recording. Existing gradients become ``inputs``; ``values`` has known tensors."""

    def __init__(self, values: ValueTable, inputs: Inputs, refusals: Refusals) -> None:
        self._values = values
        self._inputs = inputs
        self._refusals = refusals
        self.writes: dict[int, tuple[Tensor, int]] = {}
        self.grads: dict[int, GradSlot] = {}
        self.flags: dict[int, tuple[Tensor, bool]] = {}  # ``requires_grad`` before the call
        self.replaced: dict[int, Replaced] = {}
        self.refused: BreakReason | None = None  # why no recording can repeat a change to a tensor from outside
        self.retained: list[tuple[weakref.ref[Tensor], Source | None]] = []

    def forget(self) -> None:
        """Let go of the tensors met."""
        self.writes.clear()
        self.grads.clear()
        self.flags.clear()

    def wrote(self, t: Tensor) -> None:
        """Count a write to the memory of ``t``."""
        self.writes[id(t)] = (t, self.writes.get(id(t), (t, 0))[1] + 1)

    def replace(self, t: Tensor, value: Tensor) -> None:
        """Record that ``t``, from outside, gets the memory of ``value``: later calls write its own memory instead.

        That is equivalent if it is the memory of ``t`` (``t.data -= x``), or as long as neither memory has another
        view.
        """
        root, chain = self._values.root(value)
        if root is t and not chain:
            return
        if self._values.looked_at(t) or not self._values.is_made(root):
            self.refused = _REPLACED
        cells = self._values.root_cell(t), self._values.root_cell(value)
        # The write of ``t`` that follows counts, too.
        self.replaced[id(t)] = Replaced(weakref.ref(root), *cells, cells[0].version + 1, cells[1].version)

    def unrepeated(self) -> BreakReason | None:
        """Why a recording cannot repeat what the call did to tensors from outside, if it cannot."""
        return self.refused or (_REPLACED if any(r.is_seen() for r in self.replaced.values()) else None)

    def retain(self, t: Tensor) -> None:
        """Note that ``t``, which may be the call's own, keeps its gradient from now on."""
        self.retained.append((weakref.ref(t), user_source()))

    def reads_grad(self, t: Tensor) -> None:
        """Note that the program reads ``t.grad``."""
        slot = self._slot(t)
        if not slot.written:
            slot.read = True
        self._check_whole(t._grad)

    def writes_grad(self, t: Tensor, grad: Tensor | None) -> None:
        """Note that the program sets ``t.grad``."""
        self._slot(t).written = True
        self._check_whole(grad)
        if grad is not None:
            self._values.value(grad)

    def set_requires_grad(self, t: Tensor, before: bool) -> None:
        """Note that leaf ``t``, which comes from outside, had ``before`` as its ``requires_grad``."""
        self.flags.setdefault(id(t), (t, before))
        if id(t) in self._values.outside:
            self._values.note_edge(t)

    def _check_whole(self, grad: Tensor | None) -> None:
        """Refuse a gradient that consists of other tensors: a slot holds one array."""
        if grad is not None and hasattr(type(grad), "__tensor_flatten__"):
            self._refusals.refuse_here("reads or sets a sparse gradient", Section.EXCLUDE)

    def _slot(self, t: Tensor) -> GradSlot:
        slot = self.grads.get(id(t))
        if slot is None:
            slot = self.grads[id(t)] = GradSlot(t)
            if slot.initial is not None and self._values.cell(slot.initial) is None:
                self._inputs.bind(slot.initial, f"g{len(self.grads) - 1}", "state")
        return slot
