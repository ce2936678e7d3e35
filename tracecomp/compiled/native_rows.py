"""Guards as rows of a native call's record: the words that native code compares."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import NoneType
from typing import Any, Protocol

import numpy as np

from tracecomp.codegen.calls.call_tables import ARGUMENT
from tracecomp.compiled.state_rows import StateRows
from tracecomp.eager.modes import Modes
from tracecomp.eager.tensor import Tensor
from tracecomp.eager.tensor_base import FIELDS, blank
from tracecomp.ir.types import DType
from tracecomp.record.guards.lifetimes import Lifetimes
from tracecomp.record.guards.snapshots import MISSING, ById, freeze
from tracecomp.record.pytree import Leaves
from tracecomp.runtime.call import Held, Place, Record
from tracecomp.runtime.object_layout import field_offsets

_UNCHANGING = (bool, int, float, complex, str, bytes, NoneType, DType, type(Ellipsis), slice, range, np.generic)


class Sources(Protocol):
    """The record that is written, for guards on tensors."""

    r: Record
    leaves: Leaves
    lifetimes: Lifetimes
    used: dict[tuple[int, int], int | None]

    def source(
        self,
        kind: int,
        ref: Any,
        requires_grad: int,
        dtype: np.dtype[np.generic],
        shape: tuple[int, ...],
        slot: int | None,
    ) -> int: ...

    def known_source(self, kind: int, ref: Any) -> int: ...


class NativeRows(StateRows):
    """Collects the words that native code compares, from the state of the fitting call."""

    def __init__(self, writer: Sources) -> None:
        super().__init__(writer.r, writer.lifetimes)
        self.writer = writer
        self.leaves = writer.leaves

    def item(self, mapping: Mapping[str, object], key: str, snapshot: object) -> bool:
        value = mapping.get(key, MISSING)
        if freeze(value) != snapshot or not (type(snapshot) is ById or self._holds(value)):
            return False
        if type(mapping) is dict:
            return self.entry(mapping, key, value)
        self.add("items", Held(mapping), Held(key), Held(value))
        return True

    def _holds(self, value: Any) -> bool:
        """Guard what a container holds by identity; False when that is not enough."""
        if _unchanging(value):
            return True
        parts = value.values() if type(value) is dict else value
        return type(value) in (list, dict, tuple) and self.contents(value) and all(map(self._holds, parts))

    def pair(self, one: int, other: int, same: bool) -> None:
        self.add("pairs", 8 * one, 8 * other, int(same))

    def tensor(
        self, kind: int, ref: Any, requires_grad: int, dtype: np.dtype[np.generic], shape: tuple[int, ...]
    ) -> None:
        slot = self.writer.used.get((kind, ref if kind == ARGUMENT else id(ref)))
        self.writer.source(kind, ref, requires_grad, dtype, shape, slot)

    def flag(self, tensor: Tensor) -> None:
        self.add("fields", Held(tensor), tensor_fields()["_requires_grad"], Held(tensor._requires_grad))

    def apart(self, argument: int, kind: int, ref: object) -> None:
        sides = [self.writer.known_source(*key) for key in ((ARGUMENT, argument), (kind, ref))]
        self.add("apart", *[Place("sources", n) for n in sides])

    def mode(self, name: str, value: object) -> None:
        self.add("modes", Held(name), Held(value), Held(getattr(Modes, name)))

    def grad(self, tensor: Tensor, present: bool) -> None:
        self.add("absent_grads", Held(tensor), int(not present))


def _unchanging(value: object) -> bool:
    """Whether ``value`` means the same for as long as it is the same object."""
    if type(value) is tuple:
        return all(map(_unchanging, value))
    return isinstance(value, _UNCHANGING) or callable(value) or isinstance(value, Tensor)


@cache
def tensor_fields() -> dict[str, int]:
    """Offsets of a tensor's slots."""
    return field_offsets(blank(Tensor), FIELDS)
