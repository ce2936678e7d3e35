"""Index relations between nodes and the values that they read, through views."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property

from tracecomp.ir.graph import Node, Value
from tracecomp.ir.immutable import immutable
from tracecomp.ir.index import Index, Var, index, linear, unravel
from tracecomp.ir.loops import Const, Expr, Read
from tracecomp.ir.op import Indexed, Pointwise, Reduced
from tracecomp.ir.types import Shape

TRANSPARENT_KINDS = frozenset({"view", "creation"})


def buffer_of(value: Value) -> Value:
    # A reshape of dense memory names the same bytes in the same order, so it needs no buffer. Other views reorder
    # elements: they change indices, not memory.
    """The value whose memory holds ``value``: reshapes of dense memory cost nothing."""
    while value.node is not None and value.node.op.name == "reshape":
        value = value.node.inputs[0]
    return value


def broadcast_index(position: Sequence[Index], shape: Shape) -> tuple[Index, ...]:
    """The operand position, in ``shape``, that an elementwise operator reads for a result position."""
    # Broadcasting aligns shapes at their last axes, and an axis of size 1
    # is read at 0 whatever the result's position is.
    offset = len(position) - len(shape)
    return tuple(Index() if size == 1 else position[offset + axis] for axis, size in enumerate(shape))


@immutable
class ReadAt:
    """``value`` is read at row-major offset ``offset``, a function of the reader's own flat position ``t``."""

    value: Value
    offset: Index


MaterializedViews = Set[Node]
"""Views that are stored: their readers load the stored copy instead of evaluating the view."""


def is_transparent(node: Node, materialized_views: MaterializedViews) -> bool:
    """Whether readers of ``node`` evaluate it in place."""
    return node.op.kind in TRANSPARENT_KINDS and node not in materialized_views


def producers(node: Node, through: Callable[[Node], bool]) -> list[Node]:
    """Nodes whose results ``node`` reads; those for which ``through`` holds are replaced by their producers."""
    found: dict[Node, None] = {}
    stack = list(node.inputs)
    # Views are skipped, so that fusion sees adjacent arithmetic. A dict keeps the order of discovery: groups are formed
    # in the same order in every process.
    while stack:
        producer = stack.pop().node
        if producer is None:
            continue
        if through(producer):
            stack.extend(producer.inputs)
        else:
            found[producer] = None
    return list(found)


class Space:
    """The flat iteration space of a node: one variable over its elements (of the operand, for a reduction)."""

    def __init__(self, node: Node, offsets: Offsets) -> None:
        self.node = node
        self._offsets = offsets
        is_reduction = isinstance(node.op.loop, Reduced)
        # A reduction runs over its operand's elements, and its result is indexed by that space without the reduced
        # axes.
        self.shape = node.inputs[0].shape if is_reduction else node.outputs[0].shape
        self.numel = (node.inputs[0] if is_reduction else node.outputs[0]).type.numel
        self.var = Var("t", self.numel)
        # A space of one element has no variable: every index in it is a constant, and normal forms stay comparable.
        self.flat = index(self.var) if self.numel != 1 else Index()

    @cached_property
    def reads(self) -> tuple[ReadAt, ...]:
        """The node's reads per element of its space, views followed to their sources."""
        loop, found = self.node.op.loop, dict[ReadAt, None]()
        if isinstance(loop, Pointwise):
            for operand in self.node.inputs:
                found.update(dict.fromkeys(self._offsets.of(operand, self, broadcast=True)))
        elif isinstance(loop, Reduced):
            found.update(dict.fromkeys(self._offsets.of(self.node.inputs[0], self, broadcast=False)))
        else:
            traced: list[ReadAt] = []
            _Tracer(self._offsets.materialized_views, traced).node(self.node, self.position)
            found.update(dict.fromkeys(traced))
        return tuple(found)

    @property
    def position(self) -> tuple[Index, ...]:
        """The position of the element."""
        return unravel(self.flat, self.shape)


class Offsets:
    """Offsets at which operands are read through chains of views, computed once for equal chains."""

    def __init__(self, materialized_views: MaterializedViews) -> None:
        self.materialized_views = materialized_views
        self._known: dict[object, tuple[Index, ...]] = {}

    def of(self, operand: Value, space: Space, broadcast: bool) -> list[ReadAt]:
        """The reads of ``operand`` by a node with this space; ``broadcast``: the operand may have fewer axes."""
        views: list[object] = []
        source: Value | None = operand
        while source is not None and (node := source.node) and is_transparent(node, self.materialized_views):
            if len(node.inputs) > 1:
                return self._traced(operand, space, broadcast)
            views.append((node.op.name, node.key, source.shape))
            source = node.inputs[0] if node.inputs else None
        if source is None:
            return []  # positions and constants read nothing
        key = (space.shape, broadcast, source.shape, tuple(views))
        offsets = self._known.get(key)
        if offsets is None:
            offsets = self._known[key] = tuple([r.offset for r in self._traced(operand, space, broadcast)])
        return [ReadAt(source, offset) for offset in offsets]

    def _traced(self, operand: Value, space: Space, broadcast: bool) -> list[ReadAt]:
        found: list[ReadAt] = []
        position = broadcast_index(space.position, operand.shape) if broadcast else space.position
        _Tracer(self.materialized_views, found).value(operand, position)
        return found


def reads_of(value: Value, inside: Set[Node], materialized_views: MaterializedViews) -> list[ReadAt]:
    """Return the reads on which an element of ``value`` depends.

    Nodes ``inside`` are evaluated wherever their results are read, and views are followed.
    """
    flat = index(Var("t", value.type.numel)) if value.type.numel != 1 else Index()
    found: list[ReadAt] = []
    _Tracer(materialized_views, found, inside).value(value, unravel(flat, value.shape))
    return found


def is_aligned(value: Value, target: Value, reads: Sequence[ReadAt]) -> bool:
    """Whether each element of ``value`` reads at most the same element of ``target``. ``reads`` are its reads."""
    flat = index(Var("t", value.type.numel)) if value.type.numel != 1 else Index()
    # Offsets are normal forms, so equal offsets address the same element at every position. Unequal ones may still be
    # equal, and the answer is then no, which only loses a fusion.
    offsets = [r.offset for r in reads if r.value is target]
    # Equal offsets alone would let a smaller target be read from a part of the larger value's positions.
    return all(offset == flat for offset in offsets) and (not offsets or value.type.numel == target.type.numel)


@dataclass
class _Tracer:
    """Follow reads through views, and through nodes ``inside`` a kernel, to loads."""

    materialized_views: MaterializedViews
    found: list[ReadAt]
    inside: Set[Node] = frozenset()
    seen: set[tuple[Value, tuple[Index, ...]]] = field(default_factory=set)

    def node(self, node: Node, position: tuple[Index, ...]) -> None:
        """Add what ``node`` reads at its position."""
        loop = node.op.loop
        if isinstance(loop, Pointwise):
            for operand in node.inputs:
                self.value(operand, broadcast_index(position, operand.shape))
        elif isinstance(loop, Reduced):
            self.value(node.inputs[0], position)
        elif isinstance(loop, Indexed):
            reads = [self._reader(operand) for operand in node.inputs]
            loop.fn(position, node.outputs[0].type, reads, [v.type for v in node.inputs], **node.attrs)
        else:
            raise AssertionError(f"{node.op.name} has no index form")

    def value(self, value: Value, position: tuple[Index, ...]) -> None:
        """Add what reading ``value`` at ``position`` reads."""
        node = value.node
        if node is None or not (node in self.inside or is_transparent(node, self.materialized_views)):
            self.found.append(ReadAt(value, linear(position, value.shape)))
        # A value may be reachable on many paths through diamonds of views. Without this each diamond would double the
        # number of visits.
        elif (value, position) not in self.seen:
            self.seen.add((value, position))
            if isinstance(node.op.loop, Pointwise | Indexed):
                self.node(node, position)
            else:
                # A reduction inside reads whole rows. Fresh variables represent "any element", so no read of it is ever
                # aligned.
                for operand in node.inputs:
                    self.value(operand, tuple(index(Var("any", size)) for size in operand.shape))

    def _reader(self, operand: Value) -> Callable[..., Expr]:
        def read(position: Sequence[Index], where: Expr | None = None) -> Expr:
            self.value(operand, tuple(position))
            # A scalar constant is passed as a constant: the rule of an operator may use its value.
            if operand.type.numel == 1 and operand.node and operand.node.op.name == "full":
                return Const(operand.node.attrs["value"], operand.dtype)
            over = frozenset(v for i in position for v in i.vars())
            # By identity, as reads of several nodes are compared: the graph keeps its values alive. The name occurs in
            # no program.
            return Read(f"operand{id(operand)}", operand.dtype, over)

        return read


def is_interleaving(node: Node) -> bool:
    """Whether a node interleaves its operands, one element of each in turn."""
    return (
        node.op.name == "concat"
        # Along the last axis, one element each: results then alternate in memory, like real and imaginary parts.
        and node.attrs["axis"] == node.outputs[0].ndim - 1
        and all(v.shape[-1] == 1 for v in node.inputs)
    )
