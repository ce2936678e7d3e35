"""The sizes of a recording that calls may change, and where shapes hold them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from tracecomp.base.capture_guide import BreakReason, Section
from tracecomp.base.errors import CaptureError
from tracecomp.eager.tensor import Tensor
from tracecomp.eager.vjp_program import ArrayType
from tracecomp.ir.graph import Graph
from tracecomp.ir.op import Attrs
from tracecomp.ir.types import TensorType, int64
from tracecomp.record.context import RecordingContext
from tracecomp.record.pytree import Leaves
from tracecomp.record.size_forms import Form
from tracecomp.record.size_range import Conditions, SizeRange
from tracecomp.record.symbolic.sym_int import SizedGraph, SymInt, without
from tracecomp.record.traced_value import TracedValue

Holder = tuple[Any, ...]
"""The holder of a shape: ``("argument", leaf)`` or ``("place", id of the place, index of the tensor)``.

``("number", leaf)`` is an argument that is a dynamic number treated as a size: its one axis has that size.
"""

LEAST = 2
"""The smallest size that is followed: at 0 and 1 programs, and broadcasting, take other ways."""


class SizeSource(NamedTuple):
    """One axis of an argument, or of a tensor in a place."""

    holder: Holder
    axis: int

    def sizes_in(self, shapes: Mapping[Holder, Sequence[int]]) -> Sequence[int]:
        """The size in ``shapes``; none if these have no such tensor, or one of fewer axes."""
        return shapes.get(self.holder, ())[self.axis : self.axis + 1]


@dataclass(slots=True)
class Marks:
    """The marks of ``mark_dynamic`` and ``mark_static`` on a tensor's axes.

    ``follow`` has limits of sizes; ``strict`` are axes whose size no program may need to know.
    """

    follow: dict[int, tuple[int | None, int | None]] = field(default_factory=dict)
    strict: set[int] = field(default_factory=set)
    fixed: set[int] = field(default_factory=set)


def marks_of(t: Tensor) -> Marks:
    """The marks of ``t``, which the tensor keeps."""
    return t.__dict__.setdefault("_size_marks", Marks())  # type: ignore[no-any-return]


class Named(NamedTuple):
    """A size with a user's name: ``factor * name + offset``."""

    name: str
    factor: int = 1
    offset: int = 0


class Varying:
    """The dynamic axes: those listed for a holder, or ``every`` one.

    ``bounds`` are limits, ``strict`` axes whose size no program may need to know. Axes that are ``named`` share a size
    if their names do. Others share one if their sizes are equal, and were in the ``earlier`` recordings of such calls.
    """

    def __init__(self, every: bool = False) -> None:
        self.every = every
        self.axes: dict[Holder, set[int]] = {}
        self.fixed: dict[Holder, set[int]] = {}
        self.bounds: dict[SizeSource, tuple[int | None, int | None]] = {}
        self.strict: set[SizeSource] = set()
        self.named: dict[SizeSource, Named] = {}
        self.earlier: list[Mapping[Holder, Sequence[int]]] = []

    def numbers(self, leaves: Set[int]) -> None:
        """Follow these numbers among the arguments as sizes, and no others."""
        for holder in [h for h in self.axes if h[0] == "number"]:
            del self.axes[holder]
        self.axes.update({("number", i): {0} for i in leaves})

    def once_apart(self, a: SizeSource, b: SizeSource) -> bool:
        """Whether an earlier recording has seen two sizes differ."""
        return any(len({*a.sizes_in(shapes), *b.sizes_in(shapes)}) == 2 for shapes in self.earlier)

    def varies(self, holder: Holder, axis: int) -> bool:
        """Whether the size of ``axis`` is followed."""
        if axis in self.fixed.get(holder, ()):
            return False
        return self.every or axis in self.axes.get(holder, ())

    def learn(self, holder: Holder, before: Sequence[int], now: Sequence[int]) -> None:
        """Note the axes in which two shapes differ."""
        if len(before) == len(now):
            differ = {axis for axis, (a, b) in enumerate(zip(before, now, strict=True)) if a != b}
            if differ:
                self.axes.setdefault(holder, set()).update(differ)

    def follow(self, source: SizeSource, bounds: tuple[int | None, int | None]) -> None:
        """Follow the size at ``source``, which stays within ``bounds``."""
        self.axes.setdefault(source.holder, set()).add(source.axis)
        self.bounds[source] = bounds

    def read_marks(self, leaves: Leaves) -> None:
        """Take over the marks of arguments. ValueError for a size beyond its own limits."""
        for i, x in enumerate(leaves):
            marks = x.__dict__.get("_size_marks") if isinstance(x, Tensor) else None
            if marks is None or not isinstance(x, Tensor):
                continue
            holder = ("argument", i)
            self.fixed[holder] = marks.fixed
            self.axes.setdefault(holder, set()).update(marks.follow)
            for axis, (low, high) in marks.follow.items():
                n = x._data.shape[axis]
                if n < (low or 0) or (high is not None and n > high):
                    raise ValueError(f"mark_dynamic: size {n} of dimension {axis} is not between {low} and {high}")
                self.bounds[SizeSource(holder, axis)] = (low, high)
            self.strict |= {SizeSource(holder, axis) for axis in marks.strict}

    def check(self, sources: Sequence[Sequence[SizeSource]], conditions: Conditions) -> None:
        """CaptureError if a recording needs to know a size that was marked as dynamic."""
        for same, held in zip(sources, conditions.ranges, strict=True):
            strict = [source for source in same if source in self.strict]
            if strict and held.fixed:
                cause = (
                    f"mark_dynamic: dimension {strict[0].axis} of argument {strict[0].holder[1]} was marked as "
                    f"dynamic, but the program needs its size, {held.value}, at {held.fixed_at}"
                )
                remedy = "Use maybe_mark_dynamic if a recording for each size is intended"
                raise CaptureError(str(BreakReason(cause, Section.SIZES, remedy)))


class Sizes:
    """The sizes that calls may change: those of ``varying`` axes; axes of one size share it.

    ``context`` is the recorder; ``traced`` gives what a tensor is worth in its ``graph``.
    """

    def __init__(
        self, graph: Graph, context: RecordingContext, traced: Callable[[Tensor], TracedValue | None], varying: Varying
    ) -> None:
        self.graph = graph
        self._context = context
        self._traced = traced
        self._varying = varying
        self.conditions = Conditions()
        self.sources: list[list[SizeSource]] = []
        self.named: dict[str, int] = {}
        self.tensors: dict[int, Tensor] = {}
        self.sized_nodes: dict[Any, tuple[dict[str, Any], list[ArrayType], list[ArrayType]]] = {}

    def shape_for(self, holder: Holder, shape: Sequence[int]) -> tuple[int, ...]:
        """``shape``, of something from outside, with SymInts for the sizes that are followed."""
        found: list[Any] = []
        for axis, n in enumerate(shape):
            source = SizeSource(holder, axis)
            follow = source in self._varying.named or (n >= LEAST and self._varying.varies(holder, axis))
            found.append(self._size(source, n) if follow else n)
        return tuple(found)

    def _size(self, source: SizeSource, size: int) -> Any:
        ranges = self.conditions.ranges
        told = self._varying.named.get(source)
        if told is None:
            number = next((k for k, r in enumerate(ranges) if r.value == size and self._share(source, k)), len(ranges))
            factor, offset = 1, 0
        else:
            number = self.named.setdefault(told.name, len(ranges))
            _, factor, offset = told
        if number == len(ranges):
            ranges.append(SizeRange((size - offset) // factor))
            self.sources.append([])
        self.sources[number].append(source)
        ranges[number].bound(*self._varying.bounds.get(source, (None, None)))
        return SymInt(self._context, Form((((number,), factor),)).plus(Form.constant(offset)))

    def _share(self, source: SizeSource, number: int) -> bool:
        return not any(self._varying.once_apart(source, other) for other in self.sources[number])

    def shape_of(self, t: Tensor) -> tuple[int, ...]:
        """The shape of ``t``, with SymInts where calls may change it."""
        shape: tuple[int, ...] = t._data.shape
        cell = self._traced(t) if self._context.open and isinstance(self.graph, SizedGraph) else None
        if cell is None or cell.value.shape != shape or not isinstance(self.graph, SizedGraph):
            return shape
        return self.graph.shape(cell.value)

    def size_tensor(self, number: int) -> Tensor:
        """A size as an input of the graph."""
        if number not in self.tensors:
            t = Tensor._wrap(np.array(self.conditions.ranges[number].value))
            name = f"size{len(self.tensors) or ''}"
            t._value = TracedValue(self._context, self.graph.add_input(TensorType(int64, ()), name, "host"))
            self.tensors[number] = t
        return self.tensors[number]

    def sized_operands(self, operands: tuple[object, ...]) -> tuple[Any, ...]:
        """``operands`` with tensors in place of sizes."""
        if not any(type(x) is SymInt for x in operands):
            return operands
        dtype = next((x.dtype for x in reversed(operands) if isinstance(x, Tensor)), int64)
        return tuple(x.tensor.to(dtype) if type(x) is SymInt and x.live else x for x in operands)

    @staticmethod
    def without_sizes(attrs: Attrs) -> dict[str, Any]:
        """``attrs`` with plain numbers in place of sizes."""
        return {k: without(v) for k, v in attrs.items()}

    def note_node(self, node: Any, attrs: Attrs, operands: Sequence[object], outs: Sequence[Tensor]) -> None:
        """Note how what a derivative rule of ``node``, which is an operator's, sees depends on sizes."""
        shapes = [self.shape_of(x) if isinstance(x, Tensor) else () for x in operands]
        types = [(dtype, shape) for (dtype, _), shape in zip(node.types, shapes, strict=True)]
        self.sized_nodes[node] = (attrs, types, self._types(outs))

    def note_results(self, node: object, outs: Sequence[object]) -> None:
        """Note how the results of ``node``, which does not belong to an operator, depend on sizes."""
        self.sized_nodes[node] = ({}, [], self._types(outs))

    def _types(self, values: Sequence[object]) -> list[Any]:
        return [(t._data.dtype, self.shape_of(t)) if isinstance(t, Tensor) else None for t in values]
