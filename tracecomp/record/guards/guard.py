"""Guards on a call's arguments: the properties that must be unchanged for a recording to be reused.

``check`` returns the reason why a call does not fit, ``explain`` describes the guard's condition, and native code
checks the same with ``native_row``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MethodType
from typing import Any, Protocol

import numpy as np

from tracecomp.codegen.calls.call_tables import ARGUMENT
from tracecomp.eager.aliasing import history_if_allowed
from tracecomp.eager.meta import MetaArray
from tracecomp.eager.room import plain
from tracecomp.eager.tensor import Tensor
from tracecomp.ir.arrays import same_bits
from tracecomp.record.guards.read_steps import Rows as ReadRows
from tracecomp.record.guards.reads import FoundObjects, Read, Reads
from tracecomp.record.guards.snapshots import ById, short, whole
from tracecomp.record.pytree import Leaves, containers_of
from tracecomp.record.symbolic.sym_scalar import followed


class Rows(ReadRows, Protocol):
    """Collects the words that native code compares."""

    leaves: Sequence[Any]

    def pair(self, one: int, other: int, same: bool) -> None:
        """Whether two arguments are one object."""

    def tensor(
        self, kind: int, ref: object, requires_grad: int, dtype: np.dtype[np.generic], shape: tuple[int, ...]
    ) -> None:
        """A tensor's dtype, shape, and whether it requires grad."""

    def flag(self, tensor: Tensor) -> None:
        """Whether a leaf requires grad."""

    def apart(self, argument: int, kind: int, ref: object) -> None:
        """An argument shares no memory with another tensor."""

    def item(self, mapping: Mapping[str, object], key: str, snapshot: object) -> bool:
        """An entry of a mapping, with its snapshot."""

    def mode(self, name: str, value: object) -> None:
        """A mode of the thread."""

    def grad(self, tensor: Tensor, present: bool) -> None:
        """Whether a tensor has a ``.grad``."""


class Guard(Protocol):
    """One condition of a recording."""

    def check(self, leaves: Leaves) -> str | None:
        """Why a call with these argument leaves does not fit, or None when it does."""

    def explain(self) -> str:
        """Describe the condition."""

    def native_row(self, rows: Rows) -> bool:
        """Have native code ask the same; False when it cannot."""


@dataclass(slots=True)
class TensorGuard:
    """An argument is a tensor of some class, dtype and shape, that requires grad or not."""

    leaf: int
    kind: type
    dtype: Any
    shape: tuple[int, ...]
    requires_grad: bool
    path: str

    def check(self, leaves: Leaves) -> str | None:
        t = leaves[self.leaf]
        if not isinstance(t, Tensor):
            return f"argument {self.path} was a tensor and is {short(t)}"
        if type(t) is not self.kind:
            return f"argument {self.path} was a {self.kind.__name__} and is a {type(t).__name__}"
        array = plain(t._data)
        if t._linked:
            history_if_allowed(t)  # native code can tell again what the view asks for
        if (
            self.shape != array.shape
            or type(array) is MetaArray
            or (array.dtype is not self.dtype and array.dtype != self.dtype)
            or (t._requires_grad or t._grad_fn is not None or (t._linked and t.requires_grad)) is not self.requires_grad
        ):
            return tensor_miss(f"argument {self.path}", t, self.dtype, self.shape)
        return None

    def explain(self) -> str:
        grad = " that requires grad" if self.requires_grad else ""
        return f"argument {self.path} is a tensor {self.dtype}{list(self.shape)}{grad}"

    def native_row(self, rows: Rows) -> bool:
        rows.tensor(ARGUMENT, self.leaf, int(self.requires_grad), self.dtype, self.shape)
        return True


@dataclass(slots=True)
class ValueGuard:
    """An argument is a plain value, or one object."""

    leaf: int
    snapshot: Any
    path: str

    def check(self, leaves: Leaves) -> str | None:
        leaf, snapshot = leaves[self.leaf], self.snapshot
        if type(snapshot) is ById:
            if id(leaf) != snapshot.key:
                return f"argument {self.path} went from {short(snapshot.value)} to {short(leaf)}"
        elif type(leaf) is not snapshot[0] or (leaf is not snapshot[1] and whole(leaf) != snapshot):
            return f"argument {self.path} went from {short(snapshot[1])} to {short(leaf)}"
        return None

    def explain(self) -> str:
        return f"argument {self.path} is {short(self.snapshot)}"

    def native_row(self, rows: Rows) -> bool:
        return type(self.snapshot) is ById or self.snapshot[0] is not MethodType  # others are compared as objects


@dataclass(slots=True)
class NumberGuard:
    """An argument is a number of some type that recordings can follow."""

    leaf: int
    kind: type
    path: str

    def check(self, leaves: Leaves) -> str | None:
        if type(leaves[self.leaf]) is not self.kind or not followed(leaves[self.leaf]):
            return f"argument {self.path} was {_article(self.kind)} and is {short(leaves[self.leaf])}"
        return None

    def explain(self) -> str:
        return f"argument {self.path} is {_article(self.kind)}"

    def native_row(self, rows: Rows) -> bool:
        return False


@dataclass(slots=True)
class ArrayGuard:
    """An argument is an array of some dtype and shape; with ``contents``, just that array's."""

    leaf: int
    dtype: Any
    shape: tuple[int, ...]
    contents: np.ndarray[Any, Any] | None
    path: str

    def check(self, leaves: Leaves) -> str | None:
        a = leaves[self.leaf]
        if not isinstance(a, np.ndarray) or a.dtype != self.dtype or self.shape != a.shape:
            return f"argument {self.path} went from an array {self.dtype}{list(self.shape)} to {short(a)}"
        if self.contents is not None and not _same_contents(a, self.contents):
            return f"the contents of the array {self.path} changed"
        return None

    def explain(self) -> str:
        what = "an array" if self.contents is None else "the array"
        return f"argument {self.path} is {what} {self.dtype}{list(self.shape)}"

    def native_row(self, rows: Rows) -> bool:
        return False


def _same_contents(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    """Whether nothing tells the elements of two arrays apart, which are objects or numbers."""
    return whole(a.tolist()) == whole(b.tolist()) if a.dtype.hasobject else same_bits(a, b, any_nan=True)


class SameTensors:
    """Which tensor arguments are one object."""

    def __init__(self, leaves: Leaves) -> None:
        self.same = sharing(leaves)
        self.numbers = [i for i, t in enumerate(leaves) if isinstance(t, Tensor | np.ndarray)]
        self.distinct = len(set(self.same)) == len(self.same)

    def check(self, leaves: Leaves) -> str | None:
        return None if self._alike(leaves) else "other arguments are the same tensor"

    def _alike(self, leaves: Leaves) -> bool:
        if not self.distinct:
            return sharing(leaves) == self.same
        numbers = self.numbers
        if len(numbers) < 2:
            return True
        if len(numbers) == 2:
            return leaves[numbers[0]] is not leaves[numbers[1]]
        return len({id(leaves[i]) for i in numbers}) == len(numbers)

    def explain(self) -> str:
        return "the tensor arguments are distinct" if self.distinct else "the same arguments are one tensor"

    def native_row(self, rows: Rows) -> bool:
        for n, i in enumerate(self.numbers):
            for j, other in zip(self.numbers[:n], self.same, strict=False):
                rows.pair(i, j, self.same[n] == other)
        return True


class GivenContainers:
    """Which containers and dataclasses among the arguments are one object, or one that a read in ``others`` finds."""

    def __init__(self, leaves: Leaves, others: Sequence[Read], reads: Reads) -> None:
        kinds = set(map(type, containers_of(leaves)))
        wanted = [read for read in others if type(read.value) in kinds]
        self.same = self._pattern(leaves, [id(read.value) for read in wanted])
        self._apart = self.same == tuple([(n,) for n in range(len(self.same))])
        self._others = FoundObjects(reads, wanted)

    def _pattern(self, leaves: Leaves, others: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """For each container the first that it is, and the numbers of ``others`` that it is."""
        first: dict[int, int] = {}
        ids = [id(x) for x in containers_of(leaves)]
        same = [(first.setdefault(key, n),) for n, key in enumerate(ids)]
        if first.keys().isdisjoint(others):
            return tuple(same)
        found = [tuple([n for n, other in enumerate(others) if other == key]) for key in ids]
        return tuple([(*one, *numbers) for one, numbers in zip(same, found, strict=True)])

    def check(self, leaves: Leaves) -> str | None:
        # The guard on reads comes before this one, so each leads to an object.
        others = self._others()
        if self._apart:
            ids = {id(x) for x in containers_of(leaves)}
            if len(ids) == len(containers_of(leaves)) == len(self.same) and ids.isdisjoint(others):
                return None
        elif self._pattern(leaves, others) == self.same:
            return None
        return "other lists, dicts or dataclasses among the arguments are one object, or one that is found elsewhere"

    def explain(self) -> str:
        return "the same lists, dicts and dataclasses among the arguments are one object"

    def native_row(self, rows: Rows) -> bool:
        return False


def tensor_miss(what: str, t: Tensor, dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> str:
    """The difference of a tensor from ``dtype`` and ``shape``."""
    if type(t._data) is MetaArray:
        return f"{what} no longer has memory"
    if t._data.shape != shape:
        return f"shape of {what} went from {shape} to {tuple(t._data.shape)}"
    if t._data.dtype != dtype:
        return f"dtype of {what} went from {dtype} to {t._data.dtype}"
    return f"requires_grad of {what} became {t.requires_grad}"


def sharing(leaves: Leaves) -> tuple[int, ...]:
    """Which tensors and arrays among ``leaves`` are the same object."""
    first: dict[int, int] = {}
    return tuple([first.setdefault(id(t), i) for i, t in enumerate(leaves) if isinstance(t, Tensor | np.ndarray)])


def _article(kind: type) -> str:
    return "an int" if kind is int else f"a {kind.__name__}"
