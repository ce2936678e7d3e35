"""Guards on places, whose tensors and numbers may be others in each call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from copy import copy

from tracecomp.eager.aliasing import history_if_allowed
from tracecomp.eager.room import plain
from tracecomp.eager.tensor import Tensor
from tracecomp.record.guards.guard import Rows, sharing
from tracecomp.record.guards.sizes import AnySize
from tracecomp.record.guards.slots import StateSlot, containers_within, leaves_of, tensors_in
from tracecomp.record.guards.snapshots import MISSING, alike, freeze, short
from tracecomp.record.pytree import Leaves
from tracecomp.record.symbolic.sizes import Holder
from tracecomp.record.symbolic.sym_scalar import followed


class SlotGuard:
    """The contents of a place when the recording began. Numbers may differ later if the recording can ``follow``
    them."""

    def __init__(self, place: StateSlot, follow: bool) -> None:
        self.place = place
        self.follow = follow
        self.value = place.value()
        self.leaves = leaves_of(self.value)
        self.inner = containers_within(self.value)
        self.snapshot = freeze(self.value)
        self.tensors = tensors_in(self.leaves)
        self.types = [(t._data.dtype, t._data.shape, t.requires_grad) for t in self.tensors]

    def check(self, leaves: Leaves) -> str | None:
        now = freeze(self.place.value(MISSING))
        if not alike(self.snapshot, now) or not (self.follow or self._same_numbers()):
            return f"{self.place.where} changed from {short(self.snapshot)} to {short(now)}"
        for t, before in zip(self.place.tensors(), self.types, strict=True):
            if t._linked:
                history_if_allowed(t)
            array = plain(t._data)
            kind = (array.dtype, array.shape, t.requires_grad)
            if before != kind:
                return f"{self.place.where} changed from {_kind(before)} to {_kind(kind)}"
        return None

    def shapes(self) -> dict[Holder, tuple[int, ...]]:
        """The shapes of its tensors."""
        kinds = iter(self.types)
        return {("place", self.place.id, n): next(kinds)[1] for n, x in enumerate(self.leaves) if isinstance(x, Tensor)}

    def for_sizes(self, axes: Mapping[Holder, Set[int]]) -> SlotGuard:
        """A guard that lets sizes along ``axes`` be others."""
        found = copy(self)
        shapes = [AnySize(shape, axes.get(holder, frozenset())) for holder, shape in self.shapes().items()]
        kinds = zip(self.types, shapes, strict=True)
        found.types = [(dtype, shape, requires_grad) for (dtype, _, requires_grad), shape in kinds]
        return found

    def change(self) -> str | None:
        """Says so when it holds something else than other tensors and numbers."""
        now = self.place.value(MISSING)
        if alike(self.snapshot, freeze(now)):
            inner = containers_within(now)
            if now is self.value:
                moved = any(a is not b for a, b in zip(self.inner, inner, strict=True))
            else:  # is made again from its parts
                moved = any(a is b for a in self.inner for b in inner)
            return f"{self.place.where} holds its lists elsewhere" if moved else None
        return f"{self.place.where} is not {short(self.value)}"

    def _same_numbers(self) -> bool:
        return all(freeze(a) == freeze(b) for a, b in zip(self.leaves, self.place.leaves(), strict=True) if followed(a))

    def explain(self) -> str:
        return f"{self.place.where} holds tensors and numbers of the same kind"

    def native_row(self, rows: Rows) -> bool:
        return False


def _kind(kind: tuple[object, tuple[int, ...], bool]) -> str:
    dtype, shape, requires_grad = kind
    return f"a tensor {dtype}{list(shape)}{' that requires grad' if requires_grad else ''}"


class SlotsApart:
    """Which tensors in places and among the arguments are the same."""

    def __init__(self, places: Sequence[SlotGuard], leaves: Leaves) -> None:
        self.places = places
        self.same = sharing([*leaves, *[t for held in places for t in held.tensors]])
        self.pinned: list[tuple[StateSlot, list[Tensor]]] = []

    def check(self, leaves: Leaves) -> str | None:
        for place, pinned in self.pinned:
            if any(a is not b for a, b in zip(place.tensors(), pinned, strict=True)):
                return f"{place.where}, whose .grad, requires_grad or views the program uses, became another tensor"
        tensors = [t for held in self.places for t in held.place.tensors()]
        if sharing([*leaves, *tensors]) != self.same:
            return "different arguments and attributes are the same tensor"
        return None

    def explain(self) -> str:
        return "the same arguments and attributes refer to one tensor"

    def native_row(self, rows: Rows) -> bool:
        return False
