"""Rematerialization: results that are computed again by the kernels that read them, instead of stored.

A kernel stores the values that others read. If those follow cheaply from fewer values, only these are stored: of ``0.5
* x * (1 + tanh(u(x)))`` and its gradient's operands, ``x`` and the tanh. Bits do not change, because every element is
computed by the same operations from the same operands.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tracecomp.ir.graph import Node, Value
from tracecomp.ir.op import Pointwise, Reduced
from tracecomp.passes.cost.scalar_cost import op_cost
from tracecomp.passes.fusion.access import is_interleaving
from tracecomp.passes.fusion.groups import Group
from tracecomp.passes.fusion.readers import Readers

NODE_COST = 4.0
"""Vector additions of a node that each reader computes again: about a load and a store (``MOVING_COST``)."""
CHAIN_COST = 12.0
"""The same for a chain of nodes from existing values: the loads of three readers and one store."""


@dataclass(frozen=True)
class _Recipe:
    """How a result is rematerialized: through ``inner`` results, from ``leaves`` in memory."""

    inner: set[Node]
    leaves: dict[Node, int]
    inputs: set[Value]


def rematerialized(groups: Iterable[Group], readers: Readers) -> set[Node]:
    """Choose the nodes whose readers compute them again; ``groups`` come after those they read."""
    search = _Search(readers)
    for group in groups:
        search.visit(group)
    return search.chosen


class _Search:
    """Chooses ``chosen``, the results that are computed again, kernel by kernel."""

    def __init__(self, readers: Readers) -> None:
        self.readers = readers
        self.chosen: set[Node] = set()

    def visit(self, group: Group) -> None:
        """Decide which values of ``group`` are stored."""
        # Imperative and control kernels store all their results.
        if group.kind not in ("loops", "bilinear"):
            return
        crossing = [n for n in group.nodes if self._crosses(n, group)]
        kept = set(crossing)
        recipes: dict[Node, _Recipe] = {}
        # Last first: a recipe names the leaves that have to be stored, and these come earlier.
        for node in sorted(crossing, key=self.readers.order.__getitem__, reverse=True):
            recipe = self._recipe(node, group, kept) if self._may_rematerialize(node, group) else None
            # Peak memory must not grow: time saved on one value must not be paid by longer lifetimes of others.
            if recipe is not None and self._added(node, recipe, group, kept) <= node.outputs[0].type.nbytes:
                recipes[node] = recipe
                kept.discard(node)
                kept.update(n for n in recipe.leaves if n in group.nodes)
        # Recipes are chosen one by one. Whether storing a common leaf pays depends on all of them.
        self._keep_what_gains(recipes, set(crossing))
        for node, recipe in recipes.items():
            self.chosen |= {node} | recipe.inner

    def _crosses(self, node: Node, group: Group) -> bool:
        return any(self.readers.leaves_group(v, group) for v in node.outputs)

    def _may_rematerialize(self, node: Node, group: Group) -> bool:
        """Whether every kernel that reads ``node`` from memory can compute it, element by element."""
        if not _is_cheap(node) or node.outputs[0] in self.readers.wanted:
            return False
        # Readers in the same kernel have the value in a register.
        readers = [r for r in self.readers.units_of(node.outputs[0]) if self.readers.group_of[r] is not group]
        return bool(readers) and all(self._may_recompute(node, r) for r in readers)

    def _may_recompute(self, node: Node, reader: Node) -> bool:
        if is_interleaving(reader):
            # An interleaving reads every element once and computes nothing.
            return True
        if not isinstance(reader.op.loop, Pointwise | Reduced) and reader.op.kind != "gather":
            return False
        # A reader that is larger than the value (one that broadcasts it) would compute each element several times.
        return self.readers.space(reader).numel <= node.outputs[0].type.numel

    def _recipe(self, node: Node, group: Group, kept: set[Node]) -> _Recipe | None:
        """Return ``node`` in terms of values that are, or would be, in memory; None if that costs too much."""
        recipe = _Recipe(set(), {}, set())
        cost = 0.0
        stack = [node]
        while stack:
            at = stack.pop()
            cost += op_cost(at)
            if cost > CHAIN_COST:
                return None
            for value in self._operands(at):
                producer = value.node
                if producer is None:
                    recipe.inputs.add(value)
                elif producer in recipe.inner or producer in recipe.leaves:
                    # A value that is stored in any case is a leaf; a cheap one in the same kernel is computed again.
                    continue
                elif producer in self.chosen or (producer not in kept and self._inside(producer, group)):
                    recipe.inner.add(producer)
                    stack.append(producer)
                else:
                    recipe.leaves[producer] = value.type.nbytes
        # Reading up to two operands instead of one result costs a reader about as much as the store that is saved.
        nbytes = sum(recipe.leaves.values()) + sum(v.type.nbytes for v in recipe.inputs)
        own = node.outputs[0]
        # The 64 bytes admit scalars and short rows. A mask takes at most a quarter of its operand's bytes and would
        # never qualify, and readers mostly load that operand anyway.
        return recipe if nbytes <= 2 * own.type.nbytes + 64 or own.dtype.kind == "bool" else None

    def _inside(self, node: Node, group: Group) -> bool:
        return _is_cheap(node) and self.readers.group_of.get(node) is group

    def _operands(self, node: Node) -> Iterator[Value]:
        """The values that ``node`` reads, through views."""
        for value in node.inputs:
            if value.node is not None and self.readers.is_transparent(value.node):
                yield from self._operands(value.node)
            else:
                yield value

    def _added(self, node: Node, recipe: _Recipe, group: Group, kept: set[Node]) -> int:
        """Bytes that are in memory longer, or additionally, because ``node`` is computed from ``recipe``.

        An input is in memory in any case, but one that is overwritten would have to be overwritten later.
        """
        until = self._last_read(node.outputs[0])
        overwritten = recipe.inputs & self.readers.overwritten
        added = sum(v.type.nbytes for v in overwritten if self._last_read(v) < until)
        for leaf, nbytes in recipe.leaves.items():
            stored = leaf in kept or leaf not in group.nodes
            # A leaf whose last use precedes the last reader of ``node`` now lives longer.
            if not stored or max(map(self._last_read, leaf.outputs)) < until:
                added += nbytes
        return added

    def _last_read(self, value: Value) -> int:
        if value in self.readers.wanted:
            # An output is kept until the end of the program.
            return len(self.readers.order)
        return max((self.readers.order[r] for r in self.readers.units_of(value)), default=-1)

    def _keep_what_gains(self, recipes: dict[Node, _Recipe], crossing: set[Node]) -> None:
        """Drop recipes whose additional stores cost as much as they save."""
        saved: dict[Node, int] = {}
        for node, recipe in recipes.items():
            for leaf in recipe.leaves:
                saved[leaf] = saved.get(leaf, 0) + node.outputs[0].type.nbytes
        for node, recipe in list(recipes.items()):
            new = [n for n in recipe.leaves if n not in crossing and n in self.readers.group_of]
            # A leaf newly stored for these recipes has to save more than it
            # takes, summed over all recipes that use it.
            if any(saved[leaf] <= recipe.leaves[leaf] and self._same_group(leaf, node) for leaf in new):
                del recipes[node]

    def _same_group(self, a: Node, b: Node) -> bool:
        return self.readers.group_of[a] is self.readers.group_of[b]


def _is_cheap(node: Node) -> bool:
    return isinstance(node.op.loop, Pointwise) and op_cost(node) <= NODE_COST
