"""Contractions and convolutions as an unscheduled nest: output variables, summed variables, operands, what follows.

What follows the sum elementwise is its epilogue; that it is part of the nest is epilogue fusion. A convolution reads
one operand through windows: im2col, without a matrix of windows in memory.
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
"""In the time of one unit of ``passes/cost/scalar_cost.py``."""


@dataclass
class Operand:
    """How one operand's element is loaded: statements, then the expression.

    ``inside``: it is made in the same kernel, by blocks of rows (``passes/row_fusion/row_tiles.py``).
    """

    stmts: list[Stmt]
    expr: Expr
    inside: bool = False

    @property
    def load(self) -> Load | None:
        """The memory access, when there is just one."""
        loads = [s.value for s in self.stmts if isinstance(s, Let) and isinstance(s.value, Load)]
        return loads[0] if len(loads) == 1 else None

    @property
    def computed(self) -> bool:
        """Whether what is loaded is not the operand yet: half precision, which is computed in float32."""
        return self.load is not None and not isinstance(self.expr, Read)

    @property
    def conditions(self) -> list[Expr]:
        """Comparisons of positions without any of which the operand is zero: it is padding there."""
        lets = {s.name: s.value for s in self.stmts if isinstance(s, Let)}
        value = _resolved(self.expr, lets)
        while isinstance(value, Call) and value.op == "cast":
            value = _resolved(value.args[0], lets)
        if not isinstance(value, Call) or value.op != "select":
            return []
        condition, _, otherwise = value.args
        zero = isinstance(otherwise, Const) and otherwise.value == 0
        return [c for c in _conjuncts(condition, lets) if _compares_position(c)] if zero else []

    def stride(self, var: Var) -> int | None:
        """Elements between neighbours along ``var``; None when not constant."""
        load = self.load
        return load.offset.coefficient(var) if load else (None if self.depends(var) else 0)

    def depends(self, var: Var) -> bool:
        return any(var in i.vars() for i in indices_of(self.stmts))


def _resolved(expr: Expr, lets: Mapping[str, Expr]) -> Expr:
    """The expression that a name stands for."""
    while isinstance(expr, Read) and expr.name in lets:
        expr = lets[expr.name]
    return expr


def _conjuncts(expr: Expr, lets: Mapping[str, Expr]) -> list[Expr]:
    expr = _resolved(expr, lets)
    if isinstance(expr, Call) and expr.op == "and":
        return [c for a in expr.args for c in _conjuncts(a, lets)]
    return [expr]


def _compares_position(expr: Expr) -> bool:
    position, *others = expr.args if isinstance(expr, Call) and expr.op in ("ge", "lt") else [expr]
    known = isinstance(position, IndexValue) and not position.index.is_computed
    return known and all(isinstance(x, Const) for x in others)


@dataclass
class BilinearNest:
    """``out`` and ``reduce`` variables, outermost first; the operands; the statements after the sum.

    ``plain`` is the nest with nothing after the sum but its own store: what decides the order of summation.
    ``outside`` are variables of loops around the nest; ``start`` is what the sum starts from, if not from zero.
    """

    out: list[Var]
    reduce: list[Var]
    lhs: Operand
    rhs: Operand
    after: list[Stmt]
    params: Params
    acc: Read
    plain: BilinearNest | None = None
    outside: tuple[Var, ...] = ()
    start: Expr | None = None

    def store_stride(self, var: Var) -> int | None:
        stores = [s for s in self.after if isinstance(s, Store)]
        return stores[0].offset.coefficient(var)

    @property
    def padded(self) -> bool:
        """Whether operands are zero at some positions, which need not be added."""
        return bool(self.lhs.conditions or self.rhs.conditions)

    @property
    def work(self) -> float:
        """Running time in multiply-adds, with what follows the sums."""
        after = max(stmts_cost(self.after), MOVING_COST) * MULTIPLY_ADDS
        return product_of(self.out) * (product_of(self.reduce) + after)

    def one_sided(self, var: Var) -> bool:
        """Whether only one operand moves with ``var``."""
        return not (self.lhs.depends(var) and self.rhs.depends(var))

    def is_steady(self, operand: Operand) -> bool:
        """Whether an operand is the same in many calls."""
        loads = [x for x in expressions(operand.stmts) if isinstance(x, Load)]
        return bool(loads) and {x.buffer for x in loads} <= self.params.steady_buffers()

    def moving(self, vector: Var) -> Operand:
        """The operand that moves with the lanes of ``vector``."""
        return self.rhs if self.rhs.depends(vector) else self.lhs

    def update(self) -> Update:
        return Update(ACCUMULATOR, (self.lhs.expr, self.rhs.expr))

    def accumulator(self, lanes: int = 1) -> Acc:
        dtype = self.acc.dtype
        return Acc(ACCUMULATOR, "fma", dtype, self.start or Const(identity("fma", dtype), dtype), lanes)

    def mapped(
        self, mapping: dict[Var, Index], out: list[Var], reduce: list[Var], move: Move | None = None
    ) -> BilinearNest:
        """The nest with variables substituted, and accesses redirected by ``move``."""
        copier = Copier(mapping, move=move)

        def operand(o: Operand) -> Operand:
            return Operand(list(copier.stmts(o.stmts)), copier.expr(o.expr), o.inside)

        after = list(copier.stmts(self.after))
        acc = Read(self.acc.name, self.acc.dtype, frozenset(out))
        start = self.start and copier.expr(self.start)
        lhs, rhs = operand(self.lhs), operand(self.rhs)
        return replace(self, out=out, reduce=reduce, lhs=lhs, rhs=rhs, after=after, acc=acc, start=start)


def product_of(names: Iterable[Var]) -> int:
    """How many values variables have together."""
    return prod(v.extent for v in names)


def labelled_bilinear(group: Group, stored: list[Value], params: Params) -> BilinearNest:
    """The nest of a contraction or convolution and the elementwise nodes that follow it.

    Its variables are those of the contraction as the graph spells it; ``plain`` is tidied.
    """
    root = next(n for n in group.nodes if isinstance(n.op.loop, Bilinear))
    assert isinstance(root.op.loop, Bilinear)
    form = root.op.loop.fn([v.type for v in root.inputs], root.outputs[0].type, **root.attrs)
    names = {name: Var(f"{name}", extent) for name, extent in form.extents.items()}
    dtype = compute_dtype(root.outputs[0].dtype)
    out, reduce = [names[n] for n in form.out], [names[n] for n in form.reduce]
    acc = Read(ACCUMULATOR, dtype, frozenset(out))
    members = set(group.nodes)

    def supplied(node: Node, position: tuple[Index, ...]) -> Expr | None:
        return cast(acc, node.outputs[0].dtype) if node is root else None

    evaluator = Evaluator(members, params, supplied)

    def operand(value: Value, axes: tuple[dict[str, int], ...]) -> Operand:
        block = evaluator.block = Block()
        at = tuple(sum((index(names[n]) * c for n, c in axis.items()), Index()) for axis in axes)
        return Operand(block.stmts, cast(evaluator.read(value, at), dtype))

    lhs = operand(root.inputs[0], form.lhs)
    rhs = operand(root.inputs[1], form.rhs)
    flat = linear([index(v) for v in out], [v.extent for v in out])
    block = evaluator.block = Block()
    places = [unravel(flat, v.shape) for v in stored]
    # before any store: see passes/nests/loop_nest.py
    found = [evaluator.read(v, at) for v, at in zip(stored, places, strict=True)]
    for value, at, expr in zip(stored, places, found, strict=True):
        block.stmts.append(params.store(value, linear(at, value.shape), expr))
    alone: list[Stmt] = [Store(Buffer("result", dtype, root.outputs[0].type.numel), flat, acc)]
    plain = tidied(BilinearNest(out, reduce, lhs, rhs, alone, params, acc))
    return BilinearNest(out, reduce, lhs, rhs, block.stmts, params, acc, plain)


def without_ones(nest: BilinearNest) -> BilinearNest:
    """The nest without variables that have one value."""
    ones = {v: Index() for v in (*nest.out, *nest.reduce) if v.extent == 1}
    return nest.mapped(ones, [v for v in nest.out if v not in ones], [v for v in nest.reduce if v not in ones])


def tidied(nest: BilinearNest) -> BilinearNest:
    """Variables split where indices divide them, then joined where they step as one; ones dropped."""
    nest = without_ones(nest)
    # Each split takes a division out of some index; 24 are more than any spec has, and end what would not converge.
    for _ in range(24):
        found = wanted_split(_all_stmts(nest), (*nest.out, *nest.reduce))
        if found is None:
            break
        outer, inner, mapping = split(*found)
        out, reduce = (replaced(names, found[0], outer, inner) for names in (nest.out, nest.reduce))
        nest = nest.mapped(mapping, out, reduce)
    mapping = merge_vars(nest.out, _all_stmts(nest)) | merge_vars(nest.reduce, _all_stmts(nest))
    return nest.mapped(mapping, merged(nest.out, mapping), merged(nest.reduce, mapping))


def _all_stmts(nest: BilinearNest) -> list[Stmt]:
    return [*nest.lhs.stmts, *nest.rhs.stmts, *nest.after]
