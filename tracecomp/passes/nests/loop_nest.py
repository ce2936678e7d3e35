"""A group of elementwise nodes and reductions as an unscheduled loop nest.

A nest runs over outer variables. For each row (one value of these) it alternates row statements with reduction passes
over the reduced variables. A pass computes the reductions and stores the results whose operands are ready. A value that
a later pass needs is evaluated again, reloaded from its result, or kept if it is costly. Kept values are in the memory
of a result of the last pass, or else in scratch memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tracecomp.ir.graph import Node, Value
from tracecomp.ir.index import Index, Var, index, linear, unravel
from tracecomp.ir.loop_copy import Copier, Move
from tracecomp.ir.loops import Acc, Buffer, Const, Expr, IndexValue, Load, Read, Stmt, Store, Update, cast
from tracecomp.ir.op import Pointwise, Reduced
from tracecomp.ir.scalars import identity
from tracecomp.ir.types import compute_dtype
from tracecomp.passes.cost.scalar_cost import op_cost
from tracecomp.passes.fusion.access import is_transparent, producers
from tracecomp.passes.fusion.groups import Group
from tracecomp.passes.nests.scalar_exprs import Block, Evaluator, Params

KEEP_COST = 6.0
"""Vector additions above which a value that a later pass over a row needs is kept: two moves through memory."""
KEEP_BYTES = 128 * 1024
"""Most bytes of a row that are kept in a buffer: an eighth of a second cache of 1 MB, as the row's operands need it
too."""


@dataclass
class ReductionPass:
    """One reduction pass over a row: its accumulators, and its statements for one element."""

    accs: tuple[Acc, ...]
    body: list[Stmt]


@dataclass
class Nest:
    """Outer variables, reduced ones, and the items of a row in order. ``scratch`` buffers have one row each."""

    outer: list[Var]
    reduced: list[Var]
    items: list[list[Stmt] | ReductionPass]
    params: Params
    lanes: int
    scratch: list[Buffer] = field(default_factory=list)

    @property
    def stmts(self) -> list[Stmt]:
        """All statements in order, including those of passes."""
        return [s for item in self.items for s in (item.body if isinstance(item, ReductionPass) else item)]

    def mapped(self, mapping: dict[Var, Index], outer: list[Var], reduced: list[Var], move: Move | None = None) -> Nest:
        """The nest with variables substituted, and accesses redirected by ``move``."""
        copier = Copier(mapping, move=move)
        items: list[list[Stmt] | ReductionPass] = []
        for item in self.items:
            if isinstance(item, ReductionPass):
                items.append(ReductionPass(item.accs, list(copier.stmts(item.body))))
            else:
                # Scratch rows are indexed by inner variables alone, so a change of outer variables does not affect
                # them.
                items.append(list(copier.stmts(item)))
        return Nest(outer, reduced, items, self.params, self.lanes, self.scratch)


def build_nest(group: Group, stored: list[Value], params: Params) -> Nest:
    """Return the nest of a group; ``stored`` are the values that it writes to memory."""
    return _Builder(group, stored, params).build()


@dataclass(frozen=True)
class _Kept:
    """Memory from which a value is read in passes after number ``since``.

    ``offset`` is the position of the current element, if it differs from that in the value.
    """

    since: int
    buffer: Buffer
    offset: Index | None = None


class _Builder:
    def __init__(self, group: Group, stored: list[Value], params: Params) -> None:
        self.group = group
        self.stored = stored
        self.members = set(group.nodes)
        runs, self.vars = group.domain.runs, group.domain.vars()
        self.outer = [v for v, (_, summed) in zip(self.vars, runs, strict=True) if not summed]
        self.reduced = [v for v, (_, summed) in zip(self.vars, runs, strict=True) if summed]
        self.element, self.row = group.domain.offsets()
        self.lanes = group.domain.lanes
        self.params = params
        self.ready = self._levels()
        self.totals: dict[Node, Read] = {}
        # A total is known from the pass after its sum;
        self.kept: dict[Node, _Kept] = {}
        self.scratch: list[Buffer] = []
        self.number = 0
        self.evaluator = Evaluator(self.members, self.params, self._supplied)
        # Values that do not depend on inner variables go to the row's body: computed once per row instead of per
        # element.
        self.evaluator.inner_vars = frozenset(self.reduced)

    def _levels(self) -> dict[Node, int]:
        """The first pass in which each node's value can be read."""
        ready: dict[Node, int] = {}
        for node in self.group.nodes:
            before = max((ready[p] for p in self._members_read(node) if p in ready), default=0)
            # A reduction is ready one pass after its operand: it needs the whole row first. Softmax therefore takes
            # three passes.
            ready[node] = before + isinstance(node.op.loop, Reduced)
        return ready

    def _members_read(self, node: Node) -> list[Node]:
        """Member nodes whose values ``node`` reads, through views."""
        materialized_views = self.params.materialized_views
        found = producers(node, lambda p: p not in self.members and is_transparent(p, materialized_views))
        return [p for p in found if p in self.members]

    def build(self) -> Nest:
        last = max(self.ready.values())
        roots = self._roots(last)
        self._choose_kept(roots, last)
        items: list[list[Stmt] | ReductionPass] = []
        row_block: Block | None = None
        # Each pass has a block that can read those before it, so that names bound in an earlier pass of the same row
        # are known.
        for self.number in range(last + 1):
            row_block = self.evaluator.row_block = self.evaluator.block = Block(row_block)
            items.append(row_block.stmts)
            if self.reduced:
                made = self._build_pass(roots[self.number], row_block)
                # A pass may be empty: its only root was kept, or is a row result.
                if made.body:
                    items.append(made)
            else:
                self._store_full(roots[self.number], row_block)
            self.evaluator.block = row_block
            self._store_rows(row_block)
        return Nest(self.outer, self.reduced, items, self.params, self.lanes, self.scratch)

    def _is_row(self, node: Node) -> bool:
        return node in self.group.per_row or isinstance(node.op.loop, Reduced)

    def _roots(self, last: int) -> list[list[Node]]:
        """Per pass, the full results to store and the reductions to finish."""
        roots: list[list[Node]] = [[] for _ in range(last + 1)]
        stored = {v.node for v in self.stored}
        for node in self.group.nodes:
            # A reduction is summed in the pass before the first in which it can be read.
            if isinstance(node.op.loop, Reduced):
                roots[self.ready[node] - 1].append(node)
            elif node in stored and node not in self.group.per_row:
                roots[self.ready[node]].append(node)
        return roots

    def _choose_kept(self, roots: list[list[Node]], last: int) -> None:
        """From the last pass back, choose the values that are kept instead of evaluated again, and their memory."""
        stored = {v.node: v for v in self.stored}
        # Elements of one row.
        size = self.group.domain.numel // max(self.group.domain.row_count, 1)
        # Results of the last pass are written only then: until then, their memory may hold a row of another value.
        lent = [stored[n] for n in roots[last] if n in stored]
        # From the last pass back, because a value kept for a later pass becomes a root of an earlier one, which may
        # need more.
        for number in range(last, 0, -1):
            # ``seen`` has a node once although several roots need it.
            stack, seen = list(roots[number]), set(roots[number])
            while stack:
                node = stack.pop()
                # Values available before this pass: reloaded if in memory, kept if evaluating them again costs more.
                earlier = self.ready[node] < number and not self._is_row(node)
                if earlier and (node in stored or node in self.kept):
                    value = stored.get(node)
                    if value is not None:
                        # Reloading needs no storage: the value is in memory for others anyway.
                        self.kept.setdefault(node, _Kept(self.ready[node], self.params.of(value)))
                    continue
                # Two bounds: a row that is too long would evict its operands from the cache. Cheap values are faster to
                # compute again than to store and load.
                if earlier and size * node.outputs[0].dtype.itemsize <= KEEP_BYTES and self._chain(node) >= KEEP_COST:
                    self.kept[node] = self._keep(node, size, lent)
                    # A kept value has to be evaluated in the pass where it is ready first.
                    roots[self.ready[node]].append(node)
                    continue
                for producer in self._members_read(node):
                    # Row results stay in registers between passes.
                    if producer not in seen and not self._is_row(producer):
                        seen.add(producer)
                        stack.append(producer)

    def _keep(self, node: Node, size: int, lent: list[Value]) -> _Kept:
        """Choose memory for ``node``: a result in ``lent``, which is not read before the last pass, or scratch."""
        dtype = node.outputs[0].dtype
        for value in lent:
            assert value.node is not None
            # Same dtype: the result itself overwrites the lent row, element by element, in the last pass.
            if value.dtype is dtype:
                lent.remove(value)
                # At the lender's positions: no other row's memory is touched, so threads do not conflict.
                offset = linear(self._position(value.node), value.shape)
                return _Kept(self.ready[node], self.params.written(value), offset)
        # Scratch holds one row, whatever the number of rows: it is local to
        # the loop's body, so threads share none of it.
        self.scratch.append(Buffer(f"s{len(self.scratch)}", dtype, size))
        return _Kept(self.ready[node], self.scratch[-1], self._inner_offset())

    def _chain(self, node: Node) -> float:
        """Cost of evaluating ``node`` again from values in memory."""
        # A value with index arithmetic (a gather, a concatenation) counts as expensive at once.
        own = op_cost(node) if isinstance(node.op.loop, Pointwise) else KEEP_COST
        rest = (p for p in self._members_read(node) if not self._is_row(p) and p not in self.kept)
        # Stops as soon as one operation alone is expensive enough, which also bounds the walk.
        return own + sum(self._chain(p) for p in dict.fromkeys(rest)) if own < KEEP_COST else own

    def _supplied(self, node: Node, position: tuple[Index, ...]) -> Expr | None:
        if isinstance(node.op.loop, Reduced):
            return cast(self.totals[node], node.outputs[0].dtype)
        kept = self.kept.get(node)
        # Only in later passes: in its own pass, the value is in a register.
        if kept is not None and kept.since < self.number:
            at = linear(position, node.outputs[0].shape) if kept.offset is None else kept.offset
            key = ("kept", node, at)
            block = self.evaluator.block
            # Loaded once in a pass for any number of readers.
            found = block.find(key)
            if found is None:
                found = block.known[key] = self.evaluator._let(block, Load(kept.buffer, at))
            return found
        return None

    def _inner_offset(self) -> Index:
        total = Index()
        for var in self.reduced:
            total = total * var.extent + index(var)
        return total

    def _position(self, node: Node) -> tuple[Index, ...]:
        return unravel(self.row if node in self.group.per_row else self.element, node.outputs[0].shape)

    def _build_pass(self, roots: list[Node], row_block: Block) -> ReductionPass:
        block = self.evaluator.block = Block(row_block)
        accs = []
        finished: dict[Node, Read] = {}
        self._store_full([n for n in roots if not isinstance(n.op.loop, Reduced)], block)
        for node in roots:
            if isinstance(node.op.loop, Reduced):
                acc, total = self._accumulate(node, node.op.loop, block)
                accs.append(acc)
                finished[node] = total
        # After the loop: reductions of the same pass must not see each other's totals.
        self.totals.update(finished)
        return ReductionPass(tuple(accs), block.stmts)

    def _accumulate(self, node: Node, loop: Reduced, block: Block) -> tuple[Acc, Read]:
        operand = node.inputs[0]
        value = self.evaluator.read(operand, unravel(self.element, operand.shape))
        dtype = compute_dtype(node.outputs[0].dtype)
        if loop.element is not None:
            # An operator such as argmax combines the element and its position into the compared value.
            value = loop.element(value, IndexValue(self._inner_offset()), dtype)
        # Unique within the nest: by the number of totals, and the position of the update in the body.
        name = f"a{len(self.totals)}_{len(block.stmts)}"
        block.stmts.append(Update(name, (cast(value, dtype),), node))
        total = Read(name, dtype, frozenset(self.outer))
        # The graph determines the number of partial sums (``lanes_for``), not the machine.
        acc = Acc(name, loop.op, dtype, Const(identity(loop.op, dtype), dtype), self.lanes)
        return acc, total

    def _store_full(self, nodes: Sequence[Node], block: Block) -> None:
        """Store results. All are evaluated first: a result may overwrite an operand of another."""
        found = [self.evaluator.read(n.outputs[0], self._position(n)) for n in nodes]
        for node, expr in zip(nodes, found, strict=True):
            value, kept = node.outputs[0], self.kept.get(node)
            # Scratch or a lent row; a value that is only reloaded (no offset) is stored below.
            if kept is not None and kept.offset is not None:
                block.stmts.append(Store(kept.buffer, kept.offset, expr, origin=node))
            if value in self.stored:
                offset = linear(self._position(node), value.shape)
                block.stmts.append(self.params.store(value, offset, expr))

    def _store_rows(self, block: Block) -> None:
        """Store row results, in the row statements of the first pass in which they are ready.

        All are evaluated first: a result may overwrite an operand of another.
        """
        ready = [v for v in self.stored if v.node and self._is_row(v.node) and self.ready[v.node] == self.number]
        places = [unravel(self.row, value.shape) for value in ready]
        found = [cast(self.evaluator.read(value, at), value.dtype) for value, at in zip(ready, places, strict=True)]
        for value, at, expr in zip(ready, places, found, strict=True):
            block.stmts.append(self.params.store(value, linear(at, value.shape), expr))
