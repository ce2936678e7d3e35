"""Guards of calls that need Python, compared in native code as far as possible, with the dynamic sizes of the call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tracecomp.codegen.calls.call_tables import ALIGNED, ANY, ARGUMENT, C_CONTIGUOUS, OBJECT, ROOM
from tracecomp.compiled.native_rows import NativeRows
from tracecomp.eager.tensor import Tensor
from tracecomp.record.guards.guard import Guard, SameTensors, TensorGuard, ValueGuard
from tracecomp.record.guards.guards import Guards
from tracecomp.record.guards.memory import MemoryGuard
from tracecomp.record.guards.sizes import AnySize, SizesGuard
from tracecomp.record.guards.state_guards import (
    CapturedTensor,
    CapturedView,
    GradGuard,
    ModesGuard,
    ModulesGuard,
    NotCaptured,
)
from tracecomp.record.pytree import Leaves
from tracecomp.record.size_range import Conditions
from tracecomp.runtime.call import Code, Held, Place, Record

MOST_TENSORS = 16
"""Tensor arguments of which native code compares each pair."""
MANY = 32
"""Calls that fit in native code, after which a call that does not is an exception: rows are not made again at once."""


class _Rows(NamedTuple):
    """A comparison that fitted a call: native code, the ``conditions`` on the sizes that it reads, and other guards.

    ``sizes`` reads the sizes if native code does not.
    """

    fits: Callable[..., tuple[int, ...] | None]
    conditions: Conditions | None
    left: Sequence[Guard]
    sizes: SizesGuard | None


class CallCheck:
    """Compares calls with a recording's guards, most of them in native code, and reads their sizes.

    Without conditions on sizes, the sizes are ``()``.

    Native code compares identities, which is stricter than a guard may be. Python then compares, and the rows are made
    again from the call that fitted, less and less often. They refer to objects that may end: without one of them, the
    rows are let go of.
    """

    def __init__(self, guards: Guards, code: Code) -> None:
        self._guards = guards
        self._code = code
        self._lifetimes = guards.reads.lifetimes
        self._rows: _Rows | None = None
        self._compared: dict[int, int] = {}  # values among the arguments at the last update: leaves to identities
        self._inconstant: set[int] = set()
        self._hits = self._misses = 0
        self.is_due = False
        """Whether to make the rows again, if the call that they did not fit turns out to fit."""
        self._lifetimes.watch(self.release)

    def release(self) -> None:
        """Compare in Python until the next ``update``."""
        self._rows = None

    def __call__(self, structure: object, leaves: Leaves) -> tuple[int, ...] | None:
        """The sizes of a call that fits; None if Python has to compare all of it."""
        if structure != self._guards.structure:
            return None
        sizes = self._fitting(leaves)
        if sizes is None:
            self._misses = 1 if self._hits >= MANY else self._misses + 1
            self._hits = 0
            self.is_due = self._misses & (self._misses - 1) == 0
        else:
            self._hits += 1
            self.is_due = False
        return sizes

    def _fitting(self, leaves: Leaves) -> tuple[int, ...] | None:
        rows = self._rows
        if rows is None:
            return None
        sizes = rows.fits(*leaves)
        if sizes is None or (rows.conditions is not None and not rows.conditions.holds(sizes)):
            return None
        if any(guard.check(leaves) is not None for guard in rows.left):
            return None
        return sizes if rows.sizes is None else rows.sizes.sizes(leaves)

    def update(self, leaves: Leaves) -> None:
        """Make the rows from a call that has just fitted."""
        self.is_due = False
        compared = {n: id(leaves[n]) for n in self._values()}
        self._inconstant |= {n for n, key in self._compared.items() if compared[n] != key}
        self._compared = compared
        ends = self._lifetimes.ends
        self._rows = _Writer(self._guards, leaves, self._code, self._inconstant).rows()
        if ends != self._lifetimes.ends:
            self.release()

    def _values(self) -> Iterator[int]:
        return (g.leaf for g in self._guards.arguments if isinstance(g, ValueGuard))


_NATIVE = (TensorGuard, SameTensors, ModesGuard, CapturedTensor, CapturedView, NotCaptured, GradGuard, ModulesGuard)
"""Guards whose rows the comparison reads. ``Reads`` have a comparison that treats inconstant values one by one."""


class _Writer:
    """Writes the rows of a call that fits. Values among the arguments that are ``inconstant`` are left to Python."""

    def __init__(self, guards: Guards, leaves: Leaves, code: Code, inconstant: set[int]) -> None:
        self.guards = guards
        self.leaves = leaves
        self.lifetimes = guards.reads.lifetimes
        self.used: dict[tuple[int, int], int | None] = {}
        self.r = Record(code, 0, 0, self.lifetimes.has)
        self._code = code
        self._inconstant = inconstant
        self._sources: dict[tuple[int, int], int] = {}
        self._dense = all(g.plain for g in guards.list if isinstance(g, MemoryGuard))
        self._open = any(isinstance(g, TensorGuard) and isinstance(g.shape, AnySize) for g in guards.arguments)

    def rows(self) -> _Rows:
        """The comparison, and the guards that are left to Python."""
        native = NativeRows(self)  # which refers to this writer: a cycle would keep the arguments of the call alive
        for guard in self.guards.arguments:
            self.r.add("arguments", *self._argument(guard, native))
        left = [g for g in self.guards.list if not self._row(g, native)]
        asked = next((g for g in self.guards.list if isinstance(g, SizesGuard)), None)
        sizes = None if asked in left else asked
        flags = ROOM | (C_CONTIGUOUS | ALIGNED if self._dense else 0)
        numbers = 0 if sizes is None else len(sizes.sources)
        record = self.r.finish(count=len(self.leaves), numbers=numbers, layout=flags)
        conditions = None if sizes is None else sizes.conditions
        return _Rows(self._code.fits(record), conditions, left, asked if sizes is None else None)

    def _argument(self, guard: Any, native: NativeRows) -> tuple[Held | int, Held | int]:
        """The row for an argument: its type, or the object that it is."""
        leaf = self.leaves[guard.leaf]
        if isinstance(guard, ValueGuard) and self._is_one_object(guard, native):
            return 0, Held(leaf)
        return Held(type(leaf)), 0

    def _is_one_object(self, guard: ValueGuard, native: NativeRows) -> bool:
        return guard.leaf not in self._inconstant and guard.native_row(native)

    def _row(self, guard: Guard, native: NativeRows) -> bool:
        """Have native code compare a guard; False if Python has to."""
        if isinstance(guard, ValueGuard):
            return self._is_one_object(guard, native)
        if isinstance(guard, SizesGuard):
            return self._size_rows(guard)
        if isinstance(guard, SameTensors) and len(guard.numbers) > MOST_TENSORS:
            return False
        if isinstance(guard, NotCaptured) and (self._open or not self._dense):
            return False  # its rows are for the shapes of this call, and for dense memory
        if isinstance(guard, MemoryGuard):
            return self._dense and not guard.writes and self._reads_all(guard)
        return isinstance(guard, _NATIVE) and guard.native_row(native)

    def _reads_all(self, guard: MemoryGuard) -> bool:
        """Whether other guards have made sources of all tensors: a source has row-major memory."""
        if any(b.kind != "argument" for b, *_ in guard.given):
            return False
        given = [(ARGUMENT, b.ref) for b, *_ in guard.given]
        lasting = [(OBJECT, id(b.ref)) for b, *_ in guard.lasting]
        return {*given, *lasting} <= self._sources.keys()

    def _size_rows(self, guard: SizesGuard) -> bool:
        if any(source.holder[0] == "place" for same in guard.sources for source in same):
            return False
        for number, same in enumerate(guard.sources):
            cell = self.r.cell(None)
            for n, ((kind, leaf), axis) in enumerate(same):
                item = -1 if n else 8 * number
                if kind == "number":
                    self.r.add("numbers", 8 * leaf, cell, item)
                else:
                    self.r.add("sizes", Place("sources", self._sources[ARGUMENT, leaf]), 8 * axis, cell, item)
        return True

    # ---- what native rows need

    def source(
        self, kind: int, ref: Any, requires_grad: int, dtype: np.dtype[np.generic], shape: tuple[int, ...],
        slot: int | None,
    ) -> int:  # fmt: skip
        """The number of a tensor; one of dynamic sizes may have any along these axes."""
        key = (kind, ref if kind == ARGUMENT else id(ref))
        if key not in self._sources:
            if isinstance(shape, AnySize):
                shape = tuple(ANY if axis in shape.axes else n for axis, n in enumerate(shape))
            reference = 8 * ref if kind == ARGUMENT else Held(ref)
            row = (kind, reference, requires_grad, self.r.layout(dtype, shape), self.r.slot(None), 0, 0, 0)
            self._sources[key] = self.r.add("sources", *row)
        return self._sources[key]

    def known_source(self, kind: int, ref: Any) -> int:
        """The number of a tensor that guards compare with others."""
        t: Tensor = self.leaves[ref] if kind == ARGUMENT else ref
        return self.source(kind, ref, 2, t._data.dtype, t._data.shape, None)
