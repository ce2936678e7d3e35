"""The guard on memory: inputs overlap as in the recorded call, and nothing else shares written memory."""

from __future__ import annotations

import weakref
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.exceptions import TooHardError
from numpy.lib.array_utils import byte_bounds

from tracecomp.codegen.calls.call_tables import ARGUMENT, OBJECT
from tracecomp.eager.room import RoomArray, plain, settle
from tracecomp.eager.tensor import Tensor
from tracecomp.record.binding import Binding, read
from tracecomp.record.guards.guard import Rows
from tracecomp.record.pytree import Leaves

Array = np.ndarray[Any, Any]
Strides = tuple[int, ...] | None
_MAX_WORK = 10_000
"""Steps after which numpy's search for a shared byte gives up, and the arrays count as sharing."""


class MemoryGuard:
    """The condition on the memory of tensors from outside.

    ``inputs`` are these tensors, with names, as the recorded call found them; ``leaves`` are its arguments. Those in
    ``written`` must be writeable, and must not share memory with others. Strides matter if elements are not dense in
    row-major order: views of them, and the layout of results, follow from strides.
    """

    def __init__(self, inputs: Sequence[tuple[Binding, str]], written: Iterable[Binding], leaves: Leaves) -> None:
        ids = {id(b) for b in written}
        known = [(b, name, _strides(read(b, leaves)), id(b) in ids) for b, name in inputs]
        self.given = [x for x in known if x[0].kind != "state"]
        self.lasting = [x for x in known if x[0].kind == "state"]
        self.writes = bool(ids)
        self._among = [b.ref for b, *_ in self.given if b.kind == "memory"]
        self.plain = all(strides is None for _, _, strides, _ in known)
        self._tensors: list[Tensor] = [b.ref for b, *_ in self.lasting]
        self._known: list[weakref.ref[Array]] = []  # old memory is let go of
        self._written: list[Array] = []
        self._spans: tuple[_Spans, _Spans] = (_Spans(()), _Spans(()))

    def check(self, leaves: Leaves) -> str | None:
        """Why this call does not fit, or None when it does."""
        arrays = [t._data for t in self._tensors]
        if len(self._known) != len(arrays) or any(a is not b() for a, b in zip(arrays, self._known, strict=True)):
            miss = self._look_at(arrays)
            if miss is not None:
                return miss
        for array in self._written:
            if not array.flags.writeable:
                return "a captured tensor that the program writes is read-only"
        for memory in self._among:
            shared: str | None = memory.miss(leaves)
            if shared is not None:
                return shared
        given = [_written(b, leaves) if is_written else read(b, leaves) for b, _, _, is_written in self.given]
        for array, (_, name, strides, is_written) in zip(given, self.given, strict=True):
            if _strides(array) != strides:
                return f"strides of {name} went from {_told(strides)} to {_told(array.strides)}"
            if is_written and not array.flags.writeable:
                return f"{name} is read-only"
        return self._shared(given) if self.writes else None

    def explain(self) -> str:
        """Describe the condition."""
        names = [name for _, name, _, is_written in (*self.given, *self.lasting) if is_written]
        return f"same strides{'; no other tensor shares memory with ' + ', '.join(names) if names else ''}"

    def native_row(self, rows: Rows) -> bool:
        if not self.plain:
            return False
        kinds = {"argument": ARGUMENT, "state": OBJECT}
        written = [b for b, _, _, is_written in (*self.given, *self.lasting) if is_written and b.kind in kinds]
        for b, *_ in self.given:
            for other in written if b.kind == "argument" else ():
                if other is not b:
                    rows.apart(b.ref, kinds[other.kind], other.ref)
        return True

    def _look_at(self, arrays: Sequence[Array]) -> str | None:
        """Take over where captured tensors are now; why they do not fit."""
        self._known = []
        for array, (_, name, strides, _) in zip(arrays, self.lasting, strict=True):
            if _strides(array) != strides:
                return f"strides of captured tensor {name} went from {_told(strides)} to {_told(array.strides)}"
        if self.writes:
            every = _Spans(arrays)
            for n, (_, name, _, is_written) in enumerate(self.lasting):
                if is_written and every.meets(n, every):
                    return f"captured tensor {name}, which the program writes, shares memory with another tensor"
            self._written = [a for a, x in zip(arrays, self.lasting, strict=True) if x[3]]
            self._spans = (every, every.part([n for n, x in enumerate(self.lasting) if x[3]]))
        self._known = list(map(weakref.ref, arrays))
        return None

    def _shared(self, given: Sequence[Array]) -> str | None:
        every, written = self._spans
        among = _Spans(given)
        for n, (_, name, _, is_written) in enumerate(self.given):
            if (every if is_written else written).meets(n, among):
                return f"{name} shares memory with a captured tensor{'' if is_written else ' that the program writes'}"
            if is_written and among.meets(n, among):
                return f"{name}, which the program writes, shares memory with another argument or attribute"
        return None


class _Spans:
    """The memory of ``arrays``, for overlap queries."""

    def __init__(self, arrays: Iterable[Array]) -> None:
        self._by_number = {n: (*byte_bounds(a), n, a) for n, a in enumerate(map(plain, arrays)) if a.size}
        self._sort()

    def part(self, numbers: Iterable[int]) -> _Spans:
        """The memory of the arrays with these numbers."""
        found = _Spans(())
        found._by_number = {n: self._by_number[n] for n in numbers if n in self._by_number}
        found._sort()
        return found

    def meets(self, number: int, of: _Spans) -> bool:
        """Whether one of the arrays, other than array ``number`` of ``of`` itself, shares memory with that array."""
        if number not in of._by_number:
            return False
        start, end, itself, array = of._by_number[number]
        k = bisect_right(self._starts, end - 1)
        while k and self._starts[k - 1] > start - self._reach:
            k -= 1
            _, stop, other, memory = self._found[k]
            if stop > start and (other != itself or of is not self) and overlap(array, memory):
                return True
        return False

    def _sort(self) -> None:
        self._found = sorted(self._by_number.values(), key=itemgetter(0, 1, 2))
        self._starts = [start for start, *_ in self._found]
        self._reach = max([end - start for start, end, *_ in self._found], default=0)


def overlap(a: Array, b: Array) -> bool:
    """Whether two arrays have a byte in common; where that takes long to find out, whether their bounds meet."""
    if not np.may_share_memory(a, b):
        return False
    try:
        return np.shares_memory(a, b, max_work=_MAX_WORK)  # type: ignore[arg-type]
    except TooHardError:
        return True


def shows_elements_twice(array: Array) -> bool:
    """Whether several places of ``array`` are one element of memory."""
    start, end = byte_bounds(array)
    repeated = any(s == 0 and n > 1 for s, n in zip(array.strides, array.shape, strict=True))
    return bool(array.size) and (repeated or end - start < array.nbytes)


def _written(b: Binding, leaves: Leaves) -> Array:
    """The array of a tensor that the call writes, without room behind its elements."""
    settle(read(b, leaves))
    return read(b, leaves)


def _strides(array: Array) -> Strides:
    return None if array.flags.c_contiguous or type(array) is RoomArray else array.strides


def _told(strides: Strides) -> str:
    return "row-major order" if strides is None else f"{strides} bytes"
