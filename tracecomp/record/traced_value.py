"""What a recorder notes of a tensor, of a gradient, and of a value that steered Python."""

from __future__ import annotations

from typing import NamedTuple

from tracecomp.base.errors import Source
from tracecomp.eager.tensor import Tensor
from tracecomp.eager.tensor_base import View
from tracecomp.ir.graph import Value


class Look(NamedTuple):
    """What a tensor made in the call looks at: ``step`` from ``of`` (None: its alias), ``chain`` from ``root``.

    ``root`` is the tensor whose cell the memory has: one made with memory of its own, an argument, or what a tensor
    from outside is a view of. ``numbers`` are values that the steps took from tensors: while the memory is as it was
    the graph follows those, and what depends on the steps holds for these values alone. ``former`` is what the tensor
    was before its shape or memory was changed in place, if others may look at that: it had a cell of its own then.
    """

    of: Tensor
    step: View | None
    root: Tensor
    chain: tuple[View, ...]
    numbers: tuple[Predicate, ...] = ()
    former: Tensor | None = None


class TracedValue:
    """What a tensor is worth in one recording. ``version``: writes to its root (or, for a view, those it has seen)."""

    __slots__ = ("recorder", "value", "version")

    def __init__(self, recorder: object, value: Value, version: int = 0) -> None:
        self.recorder = recorder
        self.value = value
        self.version = version


class GradSlot:
    """The ``.grad`` of a tensor from outside. ``read`` is whether the program looked at it before writing it."""

    __slots__ = ("initial", "read", "tensor", "written")

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self.initial = tensor._grad
        self.read = False
        self.written = False


class Predicate:
    """A value that steered Python: ``bool(t)``, ``t.item()``."""

    __slots__ = ("line", "seen", "source", "value")

    def __init__(self, value: Value, seen: object, source: Source | None, line: int) -> None:
        self.value = value
        self.seen = seen
        self.source = source
        self.line = line
