"""Which materialised or computed values a node reads, and where: index relations seen through views."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tracecomp.ir.graph import Node, Value
from tracecomp.ir.index import Index, Var, index, linear, unravel
from tracecomp.ir.loops import Const, Expr, Read
from tracecomp.ir.op import Indexed, Pointwise, Reduced
from tracecomp.ir.types import Shape

TRANSPARENT_KINDS = frozenset({"view", "creation"})


def storage(value: Value) -> Value:
    """The value whose memory holds ``value``: reshapes of dense memory cost nothing."""
    while value.node is not None and value.node.op.name == "reshape":
        value = value.node.inputs[0]
    return value


def broadcast_index(position: Sequence[Index], shape: Shape) -> tuple[Index, ...]:
    """The operand position, in ``shape``, that an elementwise operator reads for a result position."""
    offset = len(position) - len(shape)
    return tuple(Index() if size == 1 else position[offset + axis] for axis, size in enumerate(shape))


@dataclass(frozen=True)
class ReadAt:
    """``value`` is read at row-major offset ``offset``, a function of the reader's own flat position ``t``."""

    value: Value
    offset: Index


class Space:
    """The flat iteration space of a node: one variable over its elements (of the operand, for a reduction)."""

    def __init__(self, node: Node) -> None:
        self.node = node
        is_reduction = isinstance(node.op.loop, Reduced)
        self.shape = node.inputs[0].shape if is_reduction else node.outputs[0].shape
        self.numel = (node.inputs[0] if is_reduction else node.outputs[0]).type.numel
        self.var = Var("t", self.numel)
        self.flat = index(self.var) if self.numel != 1 else Index()

    @cached_property
    def reads(self) -> tuple[ReadAt, ...]:
        """What the node reads per element of its space, views followed to what they look at."""
        found: list[ReadAt] = []
        _trace_node(self.node, unravel(self.flat, self.shape), found)
        return tuple(dict.fromkeys(found))


def _trace_node(node: Node, position: tuple[Index, ...], found: list[ReadAt]) -> None:
    loop = node.op.loop
    if isinstance(loop, Pointwise):
        for operand in node.inputs:
            trace_value(operand, broadcast_index(position, operand.shape), found)
    elif isinstance(loop, Reduced):
        trace_value(node.inputs[0], position, found)
    elif isinstance(loop, Indexed):
        reads = [_reader(operand, found) for operand in node.inputs]
        types = [v.type for v in node.inputs]
        loop.fn(position, node.outputs[0].type, reads, types, **node.attrs)
    else:
        raise AssertionError(f"{node.op.name} has no index form")


def trace_value(value: Value, position: tuple[Index, ...], found: list[ReadAt]) -> None:
    """Add what reading ``value`` at ``position`` reads, views followed."""
    node = value.node
    if node is not None and node.op.kind in TRANSPARENT_KINDS:
        _trace_node(node, position, found)
    else:
        found.append(ReadAt(value, linear(position, value.shape)))


def _reader(operand: Value, found: list[ReadAt]) -> Any:
    def read(position: Sequence[Index], where: Expr | None = None) -> Expr:
        trace_value(operand, tuple(position), found)
        if operand.type.numel == 1 and operand.node and operand.node.op.name == "full":
            return Const(operand.node.attrs["value"], operand.dtype)
        over = frozenset(v for i in position for v in i.vars())
        return Read(f"operand{id(operand)}", operand.dtype, over)

    return read
