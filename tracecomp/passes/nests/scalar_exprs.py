"""Scalar expressions from loop meanings: the element of a value at a position, as loop IR."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

from tracecomp.ir.graph import Node, Value
from tracecomp.ir.index import Computed, FloorDiv, Index, Mod, Var, computed, linear
from tracecomp.ir.loops import (
    Buffer,
    Call,
    Check,
    Const,
    Expr,
    IndexValue,
    Let,
    Load,
    Read,
    Stmt,
    Store,
    both,
    cast,
    in_range,
)
from tracecomp.ir.op import Indexed, Pointwise
from tracecomp.ir.types import bool_, compute_dtype, int64
from tracecomp.passes.fusion.access import MaterializedViews, broadcast_index, is_transparent
from tracecomp.passes.fusion.groups import BufferSlice


class Params:
    """The buffers of a kernel, named in order of first use, so that equal kernels have equal text.

    ``same`` maps a value to the input whose memory it overwrites: both are one buffer. ``materialized_views`` are
    loaded from memory. ``large`` are values too large for a cache that no kernel reads. ``frozen`` are values that are
    the same in many calls; ``cold`` are those of them that no cache holds until the next call. ``slices`` are values
    stored within others.
    """

    def __init__(
        self,
        materialized_views: MaterializedViews,
        same: Mapping[Value, Value] | None = None,
        large: Set[Value] = frozenset(),
        frozen: Set[Value] = frozenset(),
        slices: Mapping[Value, BufferSlice] | None = None,
        cold: Set[Value] = frozenset(),
    ) -> None:
        self.materialized_views = materialized_views
        self.slices = slices or {}
        self.same = same or {}
        self.large = large
        self.frozen = frozen
        self.cold = cold
        self.buffers: dict[Value, Buffer] = {}
        self.writes: set[str] = set()

    def of(self, value: Value) -> Buffer:
        # A value that overwrites an input shares its buffer, so that the kernel's text shows the alias.
        value = self.same.get(value, value)
        if value not in self.buffers:
            # Names by order of first use: equal kernels have equal text and are compiled once.
            self.buffers[value] = Buffer(f"p{len(self.buffers)}", value.dtype, value.type.numel)
        return self.buffers[value]

    def written(self, value: Value) -> Buffer:
        buffer = self.of(value)
        # Written buffers are declared so: all other parameters are read-only, and loads of them may move out of loops.
        self.writes.add(buffer.name)
        return buffer

    def store(self, value: Value, offset: Index, expr: Expr) -> Store:
        """The statement that stores the element of ``value`` at ``offset``."""
        place = self.slices.get(value)
        if place is None:
            return Store(self.written(value), offset, expr, origin=value.node)
        return Store(self.written(place.whole), place.offset(offset), expr, origin=value.node)

    def buffers_of(self, values: Set[Value]) -> set[Buffer]:
        """The buffers of ``values``, such as ``frozen``."""
        # By value, not by name: the same buffer may hold a value that is frozen in one program and not in another.
        return {b for v, b in self.buffers.items() if v in values}

    def drop(self, value: Value) -> None:
        """Remove the buffer of a value that has no separate memory."""
        self.writes.discard(self.buffers.pop(value).name)


def _from(node: Node, expr: Expr, given: Sequence[Expr] = ()) -> Expr:
    """Attribute the operations of ``expr`` to ``node``, except operands in ``given`` and operations of other nodes."""
    return _marked(expr, node, {id(x): x for x in given})


def _marked(x: Expr, node: Node, known: dict[int, Expr]) -> Expr:
    """``known`` is by identity: its keys are parts of one expression, which stays referenced."""
    if not isinstance(x, Call) or x.origin is not None:
        return x
    if id(x) not in known:
        known[id(x)] = Call(x.op, tuple(_marked(a, node, known) for a in x.args), x.dtype, node)
    return known[id(x)]


DIVISIONS = ("floor_divide", "remainder", "fmod")
"""Operators that raise on integer division by zero."""


class Block:
    """Statements of one body, with the values already bound in it."""

    def __init__(self, outer: Block | None = None) -> None:
        self.outer = outer
        self.stmts: list[Stmt] = []
        self.known: dict[Any, Expr] = {}

    def find(self, key: object) -> Expr | None:
        # An outer body dominates the inner ones, so inner bodies may read its names; the reverse is not true.
        block: Block | None = self
        while block is not None:
            if key in block.known:
                return block.known[key]
            block = block.outer
        return None


class Evaluator:
    """Evaluate nodes of one kernel at symbolic positions, binding each result once.

    ``supplied`` returns the expression of a member node that is available, and None for all others. Available are
    finished reductions, a contraction's accumulator and values kept in scratch memory.
    """

    def __init__(
        self, members: set[Node], params: Params, supplied: Callable[[Node, tuple[Index, ...]], Expr | None]
    ) -> None:
        self.members = members
        self.params = params
        self.supplied = supplied
        self.block = Block()
        self.row_block: Block | None = None
        self.inner_vars: frozenset[Var] = frozenset()
        self.bound = 0

    def read(self, value: Value, position: Sequence[Index], where: Expr | None = None) -> Expr:
        """Return the element of ``value`` at ``position``: evaluated if this kernel computes it, else loaded.

        If ``where`` is false nothing is loaded, and the reader ignores the value. An evaluated value does not need the
        condition: its loads stay within their buffers.
        """
        node, position = value.node, tuple(position)
        # Members first: a value that is computed here is never loaded, even if it is also stored.
        if node is not None and node in self.members:
            given = self.supplied(node, position)
            if given is not None:
                return given
            # Keyed by position: the same node at another position (a shifted read) is another scalar.
            return self._once((node, position), position, lambda: self.evaluate(node, position))
        if node is not None and is_transparent(node, self.params.materialized_views):
            # Views are not bound: the values that they read are, under their own positions.
            return self.evaluate(node, position)
        return self.load(value, position, where)

    def load(self, value: Value, position: tuple[Index, ...], where: Expr | None = None) -> Expr:
        # Masks of positions, not of data: an element outside the buffer is never loaded.
        where = both(where, *(in_range(i, size) for i, size in zip(position, value.shape, strict=True)))
        offset = linear(position, value.shape)
        # The mask is bound first, so that loads with the same condition share it.
        where = where and self.bind(where)
        key = ("load", value, offset, where)
        return self._once(key, position, lambda: Load(self.params.of(value), offset, where))

    def evaluate(self, node: Node, position: tuple[Index, ...]) -> Expr:
        """One element of a node by its loop meaning, not bound to a name."""
        out = node.outputs[0].type
        loop = node.op.loop
        if isinstance(loop, Pointwise):
            # Each operand is read where broadcasting puts it.
            operands = [self.read(v, broadcast_index(position, v.shape)) for v in node.inputs]
            # Half precision: widened here, computed in float32, rounded by the cast below
            # after every operator. The same bits as eagerly, fused or not.
            wide = [cast(x, compute_dtype(x.dtype)) for x in operands]
            # Integer division by zero traps; PyTorch raises. Floats give infinity or NaN.
            if node.op.name in DIVISIONS and not out.dtype.is_floating_point:
                wide[1] = self._divisor(wide[1], position, out.shape)
            return _from(node, cast(loop.fn(*wide, **node.attrs), out.dtype), wide)
        assert isinstance(loop, Indexed), node
        # The record's own function on symbolic positions: the meaning is written once, in ``ops``.
        reads = [self._reader(v) for v in node.inputs]
        return _from(node, self.bind(loop.fn(position, out, reads, [v.type for v in node.inputs], **node.attrs)))

    def _divisor(self, divisor: Expr, position: Sequence[Index], shape: Sequence[int]) -> Expr:
        """Return an integer ``divisor``, checked to be non-zero. Outside ``shape`` the quotient is unused."""
        if isinstance(divisor, Const) and divisor.value:
            return divisor
        divisor = self._name(divisor)
        fine: Expr = Call("ne", (divisor, Const(0, divisor.dtype)), bool_)
        # Masked lanes and padding compute quotients of arbitrary values; only elements inside the result may raise.
        inside = both(*(in_range(i, n) for i, n in zip(position, shape, strict=True)))
        if inside is not None:
            fine = Call("or", (fine, Call("not", (self.bind(inside),), bool_)), bool_)
        block = self._block_for(fine)
        # One check per divisor, for any number of quotients.
        if block.find(("check", fine)) is None:
            block.known["check", fine] = divisor
            block.stmts.append(Check(fine, "division"))
        return divisor

    def _reader(self, value: Value) -> Callable[..., Expr]:
        def read(position: Sequence[Index], where: Expr | None = None) -> Expr:
            return self.read(value, self._checked(position), where and self._name(self.bind(where)))

        return read

    def bind(self, expr: Expr) -> Expr:
        """``expr`` with the markers for checked indices replaced by a check and a safe index."""
        if isinstance(expr, Call):
            # Operators mark positions that are data (``gather``). They are checked once, and invalid ones are replaced
            # by 0, so that the load stays inside the buffer until the call raises.
            if expr.op == "checked_index":
                return self._check(expr)
            return Call(expr.op, tuple(self.bind(a) for a in expr.args), expr.dtype, expr.origin)
        if isinstance(expr, IndexValue):
            return IndexValue(self._checked((expr.index,))[0])
        return expr

    def _checked(self, position: Sequence[Index]) -> tuple[Index, ...]:
        return tuple(self._bind_index(i) for i in position)

    def _bind_index(self, i: Index) -> Index:
        # An index is a sum of factors times atoms; only atoms that are data need a name, and they may occur inside
        # divisions.
        result = Index((), i.const)
        for atom, c in i.terms:
            if isinstance(atom, Computed):
                result += computed(self.bind(atom.expr), atom.bounds) * c
            elif isinstance(atom, FloorDiv):
                result += (self._bind_index(atom.index) // atom.divisor) * c
            elif isinstance(atom, Mod):
                result += (self._bind_index(atom.index) % atom.divisor) * c
            else:
                result += Index(((atom, c),))
        return result

    def _check(self, marker: Call) -> Expr:
        raw, size = marker.args
        value = self._name(self.bind(raw))
        zero = Const(0, int64)
        # The operator resolved negative positions; any other invalid index is the caller's error.
        fits = Call("and", (Call("ge", (value, zero), bool_), Call("lt", (value, size), bool_)), bool_)
        block = self._block_for(value)
        key = ("check", value, size)
        if block.find(key) is None:
            block.stmts.append(Check(fits))
            block.known[key] = self._name(Call("select", (fits, value, zero), int64))
        found = block.find(key)
        assert found is not None
        return found

    def _name(self, expr: Expr) -> Expr:
        """``expr`` bound to a name."""
        # Names and constants need no name.
        if isinstance(expr, Read | Const):
            return expr
        block = self._block_for(expr)
        key = ("expr", expr)
        found = block.find(key)
        if found is None:
            found = block.known[key] = self._let(block, expr)
        return found

    def _once(self, key: object, position: tuple[Index, ...], make: Callable[[], Expr]) -> Expr:
        """The expression for ``key``, built and bound at its first use in a body that dominates this one."""
        # A key is known in the body where it was bound and in those inside: a value bound in a loop is not visible
        # after it.
        found = self.block.find(key)
        if found is not None:
            return found
        expr = make()
        block = self._block_for(expr)
        if not isinstance(expr, Read | Const):
            expr = self._let(block, expr)
        block.known[key] = expr
        return expr

    def _block_for(self, expr: Expr) -> Block:
        """Values that are constant along the row go to row-level bodies."""
        # Values without inner variables would otherwise be computed for every element of the row.
        if self.row_block is None or any(v in self.inner_vars for v in expr.vars()):
            return self.block
        return self.row_block

    def _let(self, block: Block, expr: Expr) -> Expr:
        name = f"v{self.bound}"
        self.bound += 1
        block.stmts.append(Let(name, expr))
        return Read(name, expr.dtype, frozenset(expr.vars()))
