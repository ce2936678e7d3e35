"""Records about a tensor, a gradient, and a value that determined Python's control flow."""

from __future__ import annotations

from typing import NamedTuple

from tracecomp.base.errors import Source
from tracecomp.eager.tensor import Tensor
from tracecomp.eager.tensor_base import View
from tracecomp.ir.graph import Value


class Look(NamedTuple):
    """The base of a tensor created in the call: ``step`` from ``of`` (None: its alias), ``chain`` from ``root``.

    ``root`` is the tensor with the cell of the memory: one with new memory, an argument, or the base of a tensor from
    outside. ``numbers`` are values that the steps took from tensors: while the memory is unchanged the graph follows
    them, and dependent values hold for these values alone. ``former`` is the tensor before an in-place change of its
    shape or memory, if it may have other views: it had a separate cell then.
    """

    of: Tensor
    step: View | None
    root: Tensor
    chain: tuple[View, ...]
    numbers: tuple[Predicate, ...] = ()
    former: Tensor | None = None


class TracedValue:
    """The value of a tensor in one recording. ``version``: writes to its root (for a view, those it has applied)."""

    __slots__ = ("recorder", "value", "version")

    def __init__(self, recorder: object, value: Value, version: int = 0) -> None:
        self.recorder = recorder
        self.value = value
        self.version = version


class GradSlot:
    """The ``.grad`` of a tensor from outside. ``read`` is whether the program read it before writing it."""

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
