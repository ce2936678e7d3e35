"""The guard on facts about tensors from outside other than values, dtype, shape and gradients.

These are identity, number of writes, memory address, and Python attributes. The graph does not contain them, so a later
call fits only if they are unchanged.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tracecomp.eager.tensor import Tensor
from tracecomp.record.binding import Binding, tensor_of
from tracecomp.record.guards.guard import Rows
from tracecomp.record.guards.lookup import attributes_of
from tracecomp.record.guards.snapshots import MISSING, ById, short
from tracecomp.record.pytree import Leaves
from tracecomp.record.same_values import PLAIN, plain


class _Object:
    """The identity of a tensor, without keeping it alive."""

    def __init__(self, t: Tensor) -> None:
        self._ref = weakref.ref(t)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Object) and self._ref() is not None and self._ref() is other._ref()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"tensor {id(self._ref()):#x}"


def _base(t: Tensor, _: object) -> object:
    return None if t._base is None else _Object(t._base)


def _history(t: Tensor, _: object) -> object:
    return None if t.grad_fn is None else t.grad_fn.name()


def _storage(t: Tensor, _: object) -> object:
    storage = t.untyped_storage()
    return (storage.data_ptr(), storage.nbytes())


def _attribute(t: Tensor, name: str) -> object:
    value = attributes_of(t).get(name, MISSING)
    return plain(value) if isinstance(value, PLAIN) else ById(value)


FACTS: dict[str, Callable[[Tensor, Any], object]] = {
    "is": lambda t, other: _Object(t) if other is None else t is other,
    "is_leaf": lambda t, _: t.is_leaf,
    "retains_grad": lambda t, _: t.retains_grad,
    "grad_fn": _history,
    "_version": lambda t, _: t._version,
    "_base": _base,
    "_is_view": lambda t, _: t._is_view(),
    "is_inference": lambda t, _: t.is_inference(),
    "storage_offset": lambda t, factor: t.storage_offset() % factor if factor else t.storage_offset(),
    "data_ptr": lambda t, _: t.data_ptr(),
    "is_shared": lambda t, _: t.is_shared(),
    "storage": _storage,
    "untyped_storage": _storage,
    "attribute": _attribute,
}
"""The facts and their queries; some take another operand: a tensor, a name."""

OF_MEMORY = frozenset({"_version", "_base", "storage_offset", "data_ptr", "is_shared", "storage", "untyped_storage"})
"""Facts of a view created by the call that follow from its base."""

WRITTEN = frozenset({"_version", "is_leaf", "grad_fn"})
"""Those that a write changes."""


@dataclass(frozen=True)
class FactGuard:
    """A tensor from outside gives the answer that it gave."""

    holder: Binding
    what: str
    more: Any
    seen: object
    line: int
    name: str

    def check(self, leaves: Leaves) -> str | None:
        now = FACTS[self.what](tensor_of(self.holder, leaves), self.more)
        return None if now == self.seen else f"{self._asked()} went from {self.seen!r} to {now!r}"

    def explain(self) -> str:
        return f"{self._asked()} is {self.seen!r}"

    def native_row(self, rows: Rows) -> bool:
        return False

    def _asked(self) -> str:
        more = "" if self.more is None else f" {short(self.more)}"
        return f"{self.what}{more} of {self.name}"
