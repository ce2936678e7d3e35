"""Contractions and convolutions as an unscheduled nest: output variables, summed variables, operands, epilogue.

Elementwise nodes after the sum are its epilogue, and part of the nest (epilogue fusion). A convolution reads one
operand through windows: im2col, without a matrix of windows in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import prod

from tracecomp.ir.graph import Node, Value
from tracecomp.ir.index import Index, Var, index, linear, unravel
from tracecomp.ir.loop_copy import Copier, Move, indices_of
from tracecomp.ir.loops import (
    Acc,
    Buffer,
    Call,
    Const,
    Expr,
    IndexValue,
    Let,
    Load,
    Read,
    Stmt,
    Store,
    Update,
    cast,
    expressions,
)
from tracecomp.ir.op import Bilinear
from tracecomp.ir.scalars import identity
from tracecomp.ir.types import compute_dtype
from tracecomp.passes.cost.scalar_cost import MOVING_COST, stmts_cost
from tracecomp.passes.fusion.groups import Group
from tracecomp.passes.nests.loop_vars import merge_vars, merged, replaced, split, wanted_split
from tracecomp.passes.nests.scalar_exprs import Block, Evaluator, Params

ACCUMULATOR = "c"
MULTIPLY_ADDS = 1.5
"""Time of one multiply-add in units of ``passes/cost/scalar_cost.py``, inverted: multiply-adds per unit."""

LOADED = 2.0
"""Time, in vectors of multiply-adds, of loading a vector from the second cache: 32 bytes per cycle."""


@dataclass
class Operand:
    """Load of an operand's element: statements, then the expression.

    ``inside``: it is computed in the same kernel, by blocks of rows (``passes/row_fusion/row_tiles.py``).
    """

    stmts: list[Stmt]
    expr: Expr
    inside: bool = False

    @property
    def load(self) -> Load | None:
        """The memory access, when there is just one."""
        loads = [s.value for s in self.stmts if isinstance(s, Let) and isinstance(s.value, Load)]
        # More than one load (a sum of values) or none has no single stride, so it is neither packed nor prefetched.
        return loads[0] if len(loads) == 1 else None

    @property
    def computed(self) -> bool:
        """Whether the load needs a conversion: half precision, which is computed in float32."""
        return self.load is not None and not isinstance(self.expr, Read)

    @property
    def conditions(self) -> list[Expr]:
        """Comparisons of positions that must all hold; otherwise the operand is zero (padding)."""
        # Padding is a select between the load and zero, with a cast around it for half precision. Only a zero makes
        # leaving a term out the same as adding it.
        lets = {s.name: s.value for s in self.stmts if isinstance(s, Let)}
        value = _resolved(self.expr, lets)
        while isinstance(value, Call) and value.op == "cast":
            value = _resolved(value.args[0], lets)
        if not isinstance(value, Call) or value.op != "select":
            return []
        condition, _, otherwise = value.args
        zero = isinstance(otherwise, Const) and otherwise.value == 0
        # Conditions on data cannot be decided when loops are built, so only comparisons of positions count.
        return [c for c in _conjuncts(condition, lets) if _compares_position(c)] if zero else []

    def stride(self, var: Var) -> int | None:
        """Elements between neighbours along ``var``; None when not constant."""
        load = self.load
        # An operand that is not one load may still ignore a variable: then its stride is 0 for any expression.
        return load.offset.coefficient(var) if load else (None if self.depends(var) else 0)

    def depends(self, var: Var) -> bool:
        return any(var in i.vars() for i in indices_of(self.stmts))


def _resolved(expr: Expr, lets: Mapping[str, Expr]) -> Expr:
    """The expression that a name is bound to."""
    while isinstance(expr, Read) and expr.name in lets:
        expr = lets[expr.name]
    return expr


def _conjuncts(expr: Expr, lets: Mapping[str, Expr]) -> list[Expr]:
    expr = _resolved(expr, lets)
    if isinstance(expr, Call) and expr.op == "and":
        return [c for a in expr.args for c in _conjuncts(a, lets)]
    return [expr]


def _compares_position(expr: Expr) -> bool:
    # ``ge`` and ``lt`` with a constant are the only forms that ``in_range`` and pads produce; a bare value counts as a
    # position.
    position, *others = expr.args if isinstance(expr, Call) and expr.op in ("ge", "lt") else [expr]
    known = isinstance(position, IndexValue) and not position.index.is_computed
    return known and all(isinstance(x, Const) for x in others)


@dataclass
class BilinearNest:
    """``out`` and ``reduce`` variables, outermost first; the operands; the statements after the sum, its epilogue.

    ``plain`` is the nest with only a store after the sum: it decides the order of summation. ``outside`` are variables
    of loops around the nest; ``start`` is the sum's initial value, if it is not zero.
    """

    out: list[Var]
    reduce: list[Var]
    lhs: Operand
    rhs: Operand
    epilogue: list[Stmt]
    params: Params
    acc: Read
    plain: BilinearNest | None = None
    outside: tuple[Var, ...] = ()
    start: Expr | None = None

    def store_stride(self, var: Var) -> int | None:
        # All stores of an epilogue use the same positions, so the first represents them.
        stores = [s for s in self.epilogue if isinstance(s, Store)]
        return stores[0].offset.coefficient(var)

    @property
    def padded(self) -> bool:
        """Whether operands are zero at some positions, which need not be added."""
        return bool(self.lhs.conditions or self.rhs.conditions)

    @property
    def work(self) -> float:
        """Running time in multiply-adds, including the epilogue."""
        # An epilogue at least moves its result. Its cost is in vector additions, so it is converted to multiply-adds.
        after = max(stmts_cost(self.epilogue), MOVING_COST) * MULTIPLY_ADDS
        # A product of few rows waits for the vectors that it loads, as each serves a row or two.
        reuse = min(product_of(v for v in self.out if not o.depends(v)) for o in (self.lhs, self.rhs))
        terms = product_of(self.reduce) * max(1.0, LOADED / max(reuse, 1))
        return product_of(self.out) * (terms + after)

    def one_sided(self, var: Var) -> bool:
        """Whether only one operand varies along ``var``."""
        return not (self.lhs.depends(var) and self.rhs.depends(var))

    def is_frozen(self, operand: Operand) -> bool:
        """Whether an operand is the same in many calls."""
        # Everything that the operand reads has to be frozen: one changing factor changes the product.
        buffers = _read_by(operand)
        return bool(buffers) and buffers <= self.params.buffers_of(self.params.frozen)

    def is_cold(self, operand: Operand) -> bool:
        """Whether no cache holds an operand until the next call, for which it is the same."""
        buffers = _read_by(operand)
        return bool(buffers) and buffers <= self.params.buffers_of(self.params.cold)

    def a_operand(self, vector: Var) -> Operand:
        """The A operand: constant along the lanes of ``vector``, and broadcast to them."""
        return self.lhs if self.b_operand(vector) is self.rhs else self.rhs

    def b_operand(self, vector: Var) -> Operand:
        """The B operand: it varies along the lanes of ``vector``, which are loaded or packed."""
        # If both vary, the right one: a result's last axis is the right operand's, so its lanes are contiguous.
        return self.rhs if self.rhs.depends(vector) else self.lhs

    def update(self) -> Update:
        return Update(ACCUMULATOR, (self.lhs.expr, self.rhs.expr))

    def accumulator(self, lanes: int = 1) -> Acc:
        dtype = self.acc.dtype
        # One FMA per term from 0.0, in this order, is the meaning of a
        # contraction (docs/numerics.md, Order of sums, 4).
        return Acc(ACCUMULATOR, "fma", dtype, self.start or Const(identity("fma", dtype), dtype), lanes)

    def mapped(
        self, mapping: dict[Var, Index], out: list[Var], reduce: list[Var], move: Move | None = None
    ) -> BilinearNest:
        """The nest with variables substituted, and accesses redirected by ``move``."""
        copier = Copier(mapping, move=move)

        def operand(o: Operand) -> Operand:
            return Operand(list(copier.stmts(o.stmts)), copier.expr(o.expr), o.inside)

        epilogue = list(copier.stmts(self.epilogue))
        # The accumulator represents a result, so it depends on the new output variables in any case.
        acc = Read(self.acc.name, self.acc.dtype, frozenset(out))
        start = self.start and copier.expr(self.start)
        lhs, rhs = operand(self.lhs), operand(self.rhs)
        return replace(self, out=out, reduce=reduce, lhs=lhs, rhs=rhs, epilogue=epilogue, acc=acc, start=start)


def _read_by(operand: Operand) -> set[Buffer]:
    return {x.buffer for x in expressions(operand.stmts) if isinstance(x, Load)}


def product_of(names: Iterable[Var]) -> int:
    """The product of the extents of variables."""
    return prod(v.extent for v in names)


def labelled_bilinear(group: Group, stored: list[Value], params: Params) -> BilinearNest:
    """The nest of a contraction or convolution and the elementwise nodes that follow it.

    Its variables are the labels of the graph's contraction; ``plain`` is tidied.
    """
    # A group has one contraction at most (fusion refuses a second), so the first match is the only one.
    root = next(n for n in group.nodes if isinstance(n.op.loop, Bilinear))
    assert isinstance(root.op.loop, Bilinear)
    form = root.op.loop.fn([v.type for v in root.inputs], root.outputs[0].type, **root.attrs)
    names = {name: Var(f"{name}", extent) for name, extent in form.extents.items()}
    dtype = compute_dtype(root.outputs[0].dtype)
    # Extents come from the shapes, so ones are variables too; ``tidied`` drops them.
    out, reduce = [names[n] for n in form.out], [names[n] for n in form.reduce]
    acc = Read(ACCUMULATOR, dtype, frozenset(out))
    members = set(group.nodes)

    def supplied(node: Node, position: tuple[Index, ...]) -> Expr | None:
        # The sum itself is in the accumulator; everything else of the group is evaluated on it.
        return cast(acc, node.outputs[0].dtype) if node is root else None

    # One evaluator for all three bodies, with a new ``Block`` each: names bound in one must not be read in another.
    evaluator = Evaluator(members, params, supplied)

    def operand(value: Value, axes: tuple[dict[str, int], ...]) -> Operand:
        block = evaluator.block = Block()
        # Each axis is a sum of variables times constants: for a convolution, output times stride plus kernel position
        # times dilation.
        at = tuple(sum((index(names[n]) * c for n, c in axis.items()), Index()) for axis in axes)
        return Operand(block.stmts, cast(evaluator.read(value, at), dtype))

    lhs = operand(root.inputs[0], form.lhs)
    rhs = operand(root.inputs[1], form.rhs)
    # Results are stored by the root's flat position, which stored values of other shapes unravel themselves.
    flat = linear([index(v) for v in out], [v.extent for v in out])
    block = evaluator.block = Block()
    places = [unravel(flat, v.shape) for v in stored]
    # before any store: see passes/nests/loop_nest.py
    found = [evaluator.read(v, at) for v, at in zip(stored, places, strict=True)]
    for value, at, expr in zip(stored, places, found, strict=True):
        block.stmts.append(params.store(value, linear(at, value.shape), expr))
    # The order of summation must not depend on the epilogue, so it is chosen on the nest with a bare store.
    alone: list[Stmt] = [Store(Buffer("result", dtype, root.outputs[0].type.numel), flat, acc)]
    plain = tidied(BilinearNest(out, reduce, lhs, rhs, alone, params, acc))
    return BilinearNest(out, reduce, lhs, rhs, block.stmts, params, acc, plain)


def without_ones(nest: BilinearNest) -> BilinearNest:
    """Drop variables of extent 1."""
    # A variable of extent 1 would be a useless candidate for lanes and loops.
    ones = {v: Index() for v in (*nest.out, *nest.reduce) if v.extent == 1}
    return nest.mapped(ones, [v for v in nest.out if v not in ones], [v for v in nest.reduce if v not in ones])


def tidied(nest: BilinearNest) -> BilinearNest:
    """Split variables where indices divide them, then join those that step as one; drop extents of 1."""
    # Extents of 1 first: they separate variables that could be joined.
    nest = without_ones(nest)
    # Each split removes a division from some index; the limit exceeds any spec's needs, and guarantees termination.
    for _ in range(24):
        found = wanted_split(_all_stmts(nest), (*nest.out, *nest.reduce))
        if found is None:
            break
        outer, inner, mapping = split(*found)
        out, reduce = (replaced(names, found[0], outer, inner) for names in (nest.out, nest.reduce))
        nest = nest.mapped(mapping, out, reduce)
    # Kept and summed variables are joined among themselves: a variable is either kept or summed.
    mapping = merge_vars(nest.out, _all_stmts(nest)) | merge_vars(nest.reduce, _all_stmts(nest))
    return nest.mapped(mapping, merged(nest.out, mapping), merged(nest.reduce, mapping))


def _all_stmts(nest: BilinearNest) -> list[Stmt]:
    return [*nest.lhs.stmts, *nest.rhs.stmts, *nest.epilogue]
