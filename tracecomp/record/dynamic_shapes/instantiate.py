"""Instantiate a graph with symbolic shapes for a box of sizes.

If the box has a single size, shapes are plain numbers. If it has several, the graph computes with padding
(``padding.py``) for the largest, and the valid sizes are inputs. Inputs and outputs have the memory layout of the valid
sizes: the graph spreads the inputs' elements over padded axes, and gathers those of the outputs. Those that grow have
room behind their elements instead, which is the padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tracecomp.ir.graph import Graph, Node, Value
from tracecomp.ir.types import TensorType, int64
from tracecomp.ops.autodiff import Sym
from tracecomp.ops.prim import prim
from tracecomp.record.dynamic_shapes.padding import Extent, Meant, NotSized, Padding
from tracecomp.record.dynamic_shapes.rules import apply
from tracecomp.record.recording import Sizes
from tracecomp.record.size_forms import Box, Form
from tracecomp.record.symbolic.sym_int import SymInt

LEAST_BYTES = 1 << 15
"""The least memory of an input that grows: to move less takes less time than to find its room."""


@dataclass(frozen=True, slots=True)
class Growth:
    """An output that is an input with more elements at the end of ``axis``, in its memory.

    ``input`` is the number among the source's inputs that are not constants.
    """

    input: int
    output: int
    axis: int


class Instantiated:
    """``source``, whose sizes are ``sizes``, for the sizes in ``box``. Its first inputs are the sizes; its last are the
    ``blocks`` of long sums, by their elements and target.

    Inputs and outputs with padding are flat, apart from the last axes of plain extents. Those of ``growing`` have the
    padding of the output in memory; ``grown`` are those of them that vary in the box.
    """

    def __init__(self, source: Graph, sizes: Sizes, box: Box, growing: Sequence[Growth] = ()) -> None:
        self.box = box
        self.graph = Graph(source.name)
        self._sizes = sizes
        self._made: dict[Value, Sym] = {}
        opened = [i for i in source.inputs if i.role != "constant"]
        self._scalars = [
            Sym(self.graph, self.graph.add_input(TensorType(int64, ()), f"n{k}", "host")) for k in range(len(box))
        ]
        self.padding = Padding(self.graph, self._scalars, box)
        self.grown = [g for g in growing if self._has_room(source.outputs[g.output].value, g.axis)]
        longer = {opened[g.input].value: (source.outputs[g.output].value, g.axis) for g in self.grown}
        self._rooms: dict[Value, tuple[Sym, int]] = {}
        for i in opened:
            if i.value in longer:
                self._made[i.value] = self._with_room(i.value, *longer[i.value], i.name)
            else:
                self._made[i.value] = self._input(i.value, i.name, i.role)
        for i in source.inputs:
            if i.role == "constant":
                self._made[i.value] = Sym(self.graph, self.graph.add_input(i.value.type, i.name, i.role, i.data))
        for node in source.nodes:
            self.graph.here = source.origin[node]
            self._node(node)
        for o in source.outputs:
            found = self._made[o.value]
            meant = self._meant(o.value)
            if o.value not in self._rooms and any(isinstance(e, Form) for e in meant):
                found = self.padding.regrouped(found, self._flat(meant))
            self.graph.add_output(found.value, o.name, o.role)
        self.blocks = list(self.padding.blocks)

    def _meant(self, v: Value) -> Meant:
        return tuple(map(self._extent, self._sizes.shapes.get(v, v.shape)))

    def _extent(self, n: Any) -> Extent:
        return self.padding.extent(n.form) if type(n) is SymInt else n

    def _attr(self, x: object) -> Any:
        if type(x) is SymInt:
            return self.padding.extent(x.form)
        return tuple(map(self._attr, x)) if isinstance(x, tuple) else x

    def _flat(self, meant: Meant) -> Meant:
        """As many elements along one axis, and the last axes of plain extents."""
        last = max(k for k, e in enumerate(meant) if isinstance(e, Form)) + 1
        total = Form.constant(1)
        for extent in meant[:last]:
            product = total.times(extent if isinstance(extent, Form) else Form.constant(extent))
            if product is None:
                raise NotSized("a product of too many sizes")
            total = product
        return (total, *meant[last:])

    def _input(self, v: Value, name: str, role: str) -> Sym:
        meant = self._meant(v)
        varies = any(isinstance(e, Form) for e in meant)
        flat = self._flat(meant) if varies else meant
        given = Sym(self.graph, self.graph.add_input(TensorType(v.dtype, self.padding.lengths(flat)), name, role))
        return self.padding.regrouped(self.padding.note(given, flat), meant, always=True) if varies else given

    def _has_room(self, v: Value, axis: int) -> bool:
        meant = self._meant(v)
        return isinstance(meant[axis], Form) and TensorType(v.dtype, self.padding.lengths(meant)).nbytes >= LEAST_BYTES

    def _with_room(self, v: Value, longer: Value, axis: int, name: str) -> Sym:
        """The input ``v``, in memory that has room for ``longer``."""
        meant = self._meant(v)
        lengths = self.padding.lengths(self._meant(longer))
        room = Sym(self.graph, self.graph.add_input(TensorType(v.dtype, lengths), name, "room"))
        self._rooms[longer] = room, axis
        ones, zeros = (1,) * len(meant), (0,) * len(meant)
        found = prim.slice(room, starts=zeros, stops=self.padding.lengths(meant), steps=ones)
        return self.padding.zeros(self.padding.note(found, meant), axis)

    def _append(self, node: Node) -> Sym:
        """The room of an input with the elements that follow it."""
        room, axis = self._rooms[node.outputs[0]]
        old, new = node.inputs
        places = self.padding.places(new.shape[axis])
        at = prim.add(places, self.padding.count(self._meant(old)[axis]))
        found = prim.put(room, at, self._made[new], axis=axis, mode="set")
        return self.padding.zeros(self.padding.note(found, self._meant(node.outputs[0])), axis)

    def _node(self, node: Node) -> None:
        if node.outputs[0] in self._rooms:
            self._made[node.outputs[0]] = self._append(node)
            return
        attrs = {name: self._attr(x) for name, x in self._sizes.attrs.get(node, node.attrs).items()}
        meant = [self._meant(v) for v in node.outputs]
        found = apply(self.padding, node.op, [self._made[v] for v in node.inputs], attrs, meant[0])
        for v, own, made in zip(node.outputs, meant, found, strict=True):
            if made.type != TensorType(v.dtype, self.padding.lengths(own)):
                raise NotSized(f"{node.op.name} gives {made.type}, not {own}")
            self._made[v] = self.padding.note(made, own)
