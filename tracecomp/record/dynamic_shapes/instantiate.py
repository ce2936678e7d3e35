"""One graph for every size, from one that knows how its shapes depend on the size of an argument.

The graph is made for some number of rows and computes with padding (``padding.py``), so its shapes are plain numbers;
how many rows are meant is an input.
"""

from __future__ import annotations

import math
from typing import Any

from tracecomp.ir.graph import Graph, Node, Value, attrs_key
from tracecomp.ir.types import TensorType, int64
from tracecomp.ops.autodiff import Sym
from tracecomp.ops.prim import prim
from tracecomp.record.dynamic_shapes.padding import NotSized, Padding, Rows
from tracecomp.record.recording import Sizes
from tracecomp.record.symbolic.sym_int import SymInt, evaluated

_MAY_GROW = frozenset({"shape", "stops"})


def check_same(a: Graph, b: Graph, sizes: Sizes, leaf: int, size: int) -> None:
    """That ``b``, of which ``sizes`` tells, is ``a`` when the size in ``leaf`` is ``size``; NotSized when it is not."""
    if len(a.nodes) != len(b.nodes) or len(a.inputs) != len(b.inputs):
        raise NotSized("the size changes which operations there are")
    # Values of the one graph for those of the other: equal programs meet in the same order, so one walk decides.
    other: dict[Value, Value] = {}
    for i, j in zip(a.inputs, b.inputs, strict=True):
        if (i.name, i.role) != (j.name, j.role) or not _same_data(i.data, j.data):
            raise NotSized("the size changes what the program reads")
        _check_type(i.value, j.value, sizes, leaf, size)
        other[i.value] = j.value
    for m, n in zip(a.nodes, b.nodes, strict=True):
        if m.op is not n.op or [other.get(v) for v in m.inputs] != list(n.inputs):
            raise NotSized("the size changes which operations there are")
        # Attributes that follow from the size are computed for this one, and then have to agree exactly.
        attrs = {k: evaluated(v, leaf, size) for k, v in sizes.attrs.get(n, n.attrs).items()}
        for name in attrs:
            if attrs_key({name: m.attrs[name]}) != attrs_key({name: attrs[name]}):
                raise NotSized(
                    f"{name} of {m.op.name}, at {b.origin[n].source}, is {m.attrs[name]} at one size and "
                    f"{n.attrs[name]} at another, which is not said to follow from the size"
                )
        for v, w in zip(m.outputs, n.outputs, strict=True):
            _check_type(v, w, sizes, leaf, size)
            other[v] = w
    if [other.get(o.value) for o in a.outputs] != [o.value for o in b.outputs]:
        raise NotSized("the size changes what is computed")


def _same_data(a: Any, b: Any) -> bool:
    if a is None or b is None:
        return a is b
    return bool(a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes())


def _check_type(a: Value, b: Value, sizes: Sizes, leaf: int, size: int) -> None:
    if a.dtype is not b.dtype or a.shape != evaluated(sizes.shapes.get(b, b.shape), leaf, size):
        raise NotSized(f"a value is {a.type} at one size and {b.type} at another")


class Instantiated:
    """``source``, of which ``sizes`` tells, for ``rows`` as the size in ``leaf``.

    The size that is meant is its last open input. ``rows_in`` and ``rows_out`` belong to its inputs, without constants
    and the size, and to its outputs.
    """

    def __init__(self, source: Graph, sizes: Sizes, leaf: int, rows: int) -> None:
        self.rows = rows
        self.graph = Graph(source.name)
        self._sizes = sizes
        self._leaf = leaf
        self._made: dict[Value, Sym] = {}
        opened = [i for i in source.inputs if i.role != "constant"]
        made = [self.graph.add_input(self._type(i.value), i.name, i.role) for i in opened]
        self.padding = Padding(self.graph, Sym(self.graph, self.graph.add_input(TensorType(int64, ()), "rows", "host")))
        for i, value in zip(opened, made, strict=True):
            self._bind(i.value, value)
        for i in source.inputs:
            if i.role == "constant":
                self._bind(i.value, self.graph.add_input(i.value.type, i.name, i.role, i.data))
        for node in source.nodes:
            self.graph.here = source.origin[node]
            self._node(node)
        for o in source.outputs:
            self.graph.add_output(self._made[o.value].value, o.name, o.role)
        self.rows_in = [self._rows(i.value) for i in opened]
        self.rows_out = [self._rows(o.value) for o in source.outputs]

    def _shape(self, v: Value) -> tuple[int, ...]:
        return self._sizes.shapes.get(v, v.shape)

    def _type(self, v: Value) -> TensorType:
        return TensorType(v.dtype, evaluated(self._shape(v), self._leaf, self.rows))

    def _rows(self, v: Value) -> Rows | None:
        """Which axis grows."""
        found = [(k, n) for k, n in enumerate(self._shape(v)) if type(n) is SymInt and n.leaf == self._leaf]
        if len(found) > 1:
            raise NotSized(f"a value of shape {v.shape} grows along more than one axis")
        return Rows(found[0][0], found[0][1].factor, found[0][1].offset) if found else None

    def _bind(self, v: Value, value: Value) -> None:
        self._made[v] = made = Sym(self.graph, value)
        rows = self._rows(v)
        if rows is not None:
            self.padding.known[made] = rows

    def _node(self, node: Node) -> None:
        known = self._sizes.attrs.get(node, node.attrs)
        attrs = {name: evaluated(x, self._leaf, self.rows) for name, x in known.items()}
        for name, x in known.items():
            if name not in _MAY_GROW and evaluated(x, self._leaf, self.rows + 1) != attrs[name]:
                raise NotSized(f"{name} of {node.op.name} depends on the size")
        rows = self._rows(node.outputs[0])
        if node.op.kind == "random" and rows is not None:
            found = self._random(self._made[node.inputs[0]], attrs["shape"], rows)
        else:
            given = self.padding.operands(node.op, [self._made[v] for v in node.inputs], attrs, rows)
            found = self.graph.add(node.op, [x.value for x in given], attrs)
        for v, value in zip(node.outputs, found, strict=True):
            if value.type != self._type(v):
                raise NotSized(f"{node.op.name} gives {value.type}, not {self._type(v)}")
            self._bind(v, value)

    def _random(self, state: Sym, shape: tuple[int, ...], rows: Rows) -> tuple[Value, ...]:
        """The bits of as many elements as are meant: in which block an element stands depends on their number."""
        count = math.prod(shape)
        each = count // shape[rows.axis]
        if rows.axis or rows.factor * each % 4 or rows.offset * each % 4:
            raise NotSized("the size changes how many random numbers are drawn, and not by fours")
        most = count // 4
        flat = prim.random_bits(state, shape=(4 * most,))
        blocks = prim.add(prim.mul(self.padding.size, rows.factor * each // 4), rows.offset * each // 4)
        at = prim.iota(like=state, shape=(count,), axis=0, dtype=int64)
        word = prim.floor_divide(at, blocks)
        place = prim.add(prim.mul(word, most), prim.sub(at, prim.mul(word, blocks)))
        taken = prim.take(flat, prim.minimum(place, 4 * most - 1), axis=0)
        return (prim.reshape(taken, shape=shape).value,)
