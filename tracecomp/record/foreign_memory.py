"""Memory that tensors share with arrays and buffers of the program, which Python code reads and changes unrecorded.

Later calls run the graph, then the effects. They do not repeat reads of the memory between two operators, so such a
call cannot be recorded. Arrays among the arguments are inputs with a separate check (``finish/closing.py``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.array_utils import byte_bounds

from tracecomp.base.capture_guide import BreakReason, Section
from tracecomp.base.user_warnings import silenced
from tracecomp.eager.tensor import Tensor
from tracecomp.record.guards.memory import overlap
from tracecomp.record.refusals import Refusals
from tracecomp.record.tensor_changes import TensorChanges
from tracecomp.record.value_table import ValueTable

Array = np.ndarray[Any, Any]
_WITHOUT = (str, bytes, list, tuple, dict, set, frozenset, deque)
"""Classes without memory that a tensor could share."""


class _Use(NamedTuple):
    """Use of the memory from ``start`` to ``end`` at a line of the compiled function."""

    start: int
    end: int
    line: int
    changes: bool


class ForeignMemory:
    """The shared memory that one recording meets: of arrays made in the call, and of objects from outside.

    ``values`` has the tensors met, ``changes`` those from outside that are written.
    """

    def __init__(self, values: ValueTable, changes: TensorChanges, refusals: Refusals) -> None:
        self._values = values
        self._changes = changes
        self._refusals = refusals
        self.brought: dict[int, tuple[Tensor, Array]] = {}  # tensors over arrays of the call, and what those were
        self._left: list[Array] = []
        self._uses: set[_Use] = set()

    def forget(self) -> None:
        """Drop the references to tensors."""
        self.brought.clear()
        self._left.clear()

    # ---- arrays made in the call

    def bring(self, t: Tensor) -> None:
        """Note that ``t`` was made of data that is a constant of the recording."""
        if _is_shared(t):
            self.brought[id(t)] = t, t._data.copy()

    def read(self, t: Tensor) -> None:
        """Refuse to read ``t`` if its array has been changed: the constant has the elements from before."""
        root, _ = self._values.root(t)
        self._compare(root)

    def wrote(self, root: Tensor) -> None:
        """Refuse a write to the memory of ``root`` if an array shares it: the program may read that."""
        if id(root) in self.brought:
            what = "writes a tensor that shares the memory of an array made in the call"
            self._refusals.refuse_here(what, Section.MEMORY, "Copy the array: torch.tensor(array)")

    def leave_tensors(self, tensors: Iterable[Tensor], known: Iterable[object]) -> None:
        """Refuse to leave behind tensors over arrays of the call that ``known`` objects or each other share."""
        roots = {id(root): root for t in tensors for root in (self._values.root(t)[0],) if id(root) in self.brought}
        arrays = [x for x in known if isinstance(x, np.ndarray)] if roots else []
        for root in roots.values():
            self._check_alone(root._data, arrays)
            arrays.append(root._data)

    def leave(self, array: Array, known: Iterable[object]) -> None:
        """Refuse to leave behind an array made in the call that ``known`` objects, tensors or others left share."""
        brought = [t._data for t, _ in self.brought.values()]
        self._check_alone(array, [*self._left, *brought, *[x for x in known if isinstance(x, np.ndarray)]])
        self._left.append(array)

    def _check_alone(self, array: Array, others: Iterable[Array]) -> None:
        if any(overlap(array, x) for x in others):
            cause = "a result shares memory with an array or with another result"
            self._refusals.refuse(BreakReason(cause, Section.MEMORY, "Copy the array"))

    def _compare(self, t: Tensor) -> None:
        _, before = self.brought.get(id(t), (t, None))
        if before is not None and t._data.tobytes() != before.tobytes():
            cause = "numpy changes an array after a tensor was made from it"
            self._refusals.refuse(
                BreakReason(cause, Section.MEMORY, "Change the array before the tensor is made, or change the tensor")
            )

    # ---- objects from outside

    def note(self, value: object, changes: bool = False) -> None:
        """Note that Python code reads elements of ``value``, if that has memory, or ``changes`` them."""
        bounds = _bounds(value)
        if bounds is not None:
            self._uses.add(_Use(*bounds, self._refusals.line(), changes))

    def check(self) -> None:
        """Refuse if Python code changed memory of a tensor of the call, or read memory that the call writes.

        Only bounds are compared: a buffer cannot be kept for a closer look, since its owner could not be resized.
        """
        for t, _ in list(self.brought.values()):
            self._compare(t)
        if not self._uses:
            return
        met = [byte_bounds(t._data) for t in self._values.outside.values()]
        written = [byte_bounds(t._data) for t, _ in self._changes.writes.values()]
        both = [
            use.line
            for use in self._uses
            if any(use.start < end and start < use.end for start, end in (met if use.changes else written))
        ]
        for line in both:
            self._refusals.blame(line)
        if both:
            cause = "Python code and tensors use the same memory, which the call changes"
            self._refusals.refuse(BreakReason(cause, Section.MEMORY, "Read and change it through tensors alone"))


def _is_shared(t: Tensor) -> bool:
    return t._shared_storage().memory.writes is None


def _bounds(value: object) -> tuple[int, int] | None:
    """The addresses of the memory of an array or buffer; None if ``value`` has none."""
    if isinstance(value, _WITHOUT):
        return None
    if not isinstance(value, np.ndarray):
        try:
            with silenced(RuntimeWarning), memoryview(value) as view:  # type: ignore[arg-type]
                return byte_bounds(np.asarray(view)) if view.nbytes else None
        except (TypeError, ValueError, BufferError):  # not a buffer, a format without a dtype, a released view
            return None
    return byte_bounds(value) if value.size else None
