"""Storage of a graph's outputs: written in place by a kernel, or copied at the end.

An output in the memory of an input is an in-place update (buffer donation).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field

from tracecomp.ir.graph import Graph, Node, Value
from tracecomp.ir.op import Imperative, Reduced
from tracecomp.passes.cost.machine import Machine
from tracecomp.passes.fusion.access import ReadAt, buffer_of, is_aligned, is_transparent, reads_of
from tracecomp.passes.fusion.groups import Group, Partition
from tracecomp.passes.fusion.members import values_read, with_rematerialized
from tracecomp.passes.nests.scalar_exprs import DIVISIONS


@dataclass(frozen=True)
class Copy:
    """Memory copied at the end; ``large``: past the caches."""

    source: Value
    target: Value
    large: bool = False


@dataclass(frozen=True)
class OutputBuffers:
    """``home`` maps a value to the output position whose memory it occupies; ``same`` to the value it overwrites.

    That is an input, or another kernel's result. ``large`` are values in separate memory that no kernel reads, and that
    are too large for a cache. ``copies`` write the other outputs.
    """

    home: Mapping[Value, int] = field(default_factory=dict)
    same: Mapping[Value, Value] = field(default_factory=dict)
    large: frozenset[Value] = frozenset()
    copies: tuple[Copy, ...] = ()


def output_buffers(
    graph: Graph, partition: Partition, aliases: Mapping[int, int], machine: Machine, within: bool
) -> OutputBuffers:
    """Choose the memory of results.

    ``aliases[o] = i`` says that output ``o`` is the memory of input ``i``.

    ``within`` says that the graph is a body, whose results others read.
    """
    search = _Search(graph, partition, aliases, machine, within)
    large = search.large()
    copies = tuple(search.copies())
    return OutputBuffers(search.home, search.same, large, copies)


class _Search:
    """Choose output by output, in their order, then for kernels that change parts of an operand."""

    def __init__(
        self, graph: Graph, partition: Partition, aliases: Mapping[int, int], machine: Machine, within: bool
    ) -> None:
        self.graph = graph
        self.partition = partition
        self.aliases = aliases
        self.machine = machine
        self.within = within
        self.home: dict[Value, int] = {}
        self.same: dict[Value, Value] = {}
        self.pending: list[tuple[Value, int]] = []
        self.dependences: dict[Value, list[ReadAt]] = {}
        self.reads = {g: values_read(g, partition) | _operands(g) for g in partition.groups}
        self.place = {g: n for n, g in enumerate(partition.groups)}
        self.last_read = {v: n for n, g in enumerate(partition.groups) for v in self.reads[g]}
        self.constants = {i.value for i in graph.inputs if i.role == "constant"}
        # The last kernel group that an interrupt can end (``codegen.threads.pauses``): no state is written until then.
        self.interruptible = max((n for g, n in self.place.items() if _is_unbounded(g)), default=-1)
        self.fallible = self._last_check()
        self.lasting = {i.value for i in graph.inputs if i.role != "room"}
        self.shown = {buffer_of(o.value) for o in graph.outputs}
        self.producer = {partition.memory(v): g for g in partition.groups for v in partition.stored[g]}
        for position, output in enumerate(graph.outputs):
            # In the outputs' order; the first that claims a value gets its memory, others are copies.
            self._settle(buffer_of(output.value), position)
        # Second: kernels that update part of a large operand (an index write) may do it in place, inside the program
        # too.
        for group in partition.groups:
            if group.kind == "imperative":
                self._take_over(group)

    def _settle(self, value: Value, position: int) -> None:
        group = self.producer.get(value)
        # An unchanged input, or a value that is an output already: one memory cannot be two outputs.
        if group is None or value in self.home:
            self.pending.append((value, position))
        elif position not in self.aliases:
            self.home[value] = position
        elif self._may_overwrite(value, group, self._target(position)):
            self.home[value] = position
            self.same[value] = self._target(position)
        else:
            self.pending.append((value, position))

    def _take_over(self, group: Group) -> None:
        """Let a kernel that changes parts of its first operand update it in place, if the operand has no other
        reader."""
        node = group.nodes[0]
        result, operand = node.outputs[0], buffer_of(node.inputs[0]) if node.inputs else None
        if operand is None or operand not in self.producer or result in self.same or operand in self.home:
            return
        # Control bodies have separate memory for their inputs, which renaming would not reach.
        if self._met_by_control(result) or self._met_by_control(operand):
            return
        if _changes_in_place(node, operand) and self._may_overwrite(result, group, operand):
            # A chain of updates shares the memory of the first.
            root = self.same[result] = self.same.get(operand, operand)
            if result in self.home:
                self.home[root] = self.home[result]

    def _met_by_control(self, value: Value) -> bool:
        groups = self.partition.groups
        return any(g.kind == "control" and (value in self.reads[g] or self.producer.get(value) is g) for g in groups)

    def _target(self, position: int) -> Value:
        return self.graph.inputs[self.aliases[position]].value

    def _may_overwrite(self, value: Value, group: Group, target: Value) -> bool:
        """Whether ``group`` may store ``value`` over ``target``: ``target`` has no later or other reader."""
        place = self.place[group]
        if not self.within and target in self.lasting and (place <= self.interruptible or place < self.fallible):
            return False
        # Three conditions. The old contents are not read after this kernel, and no output is the old contents. Within
        # the kernel each element is read before, and only for, its replacement. First: later kernels.
        if self.last_read.get(target, -1) > self.place[group]:
            return False
        # Second: no output is the old contents, which the caller would read.
        if target in self.shown:
            return False
        inside = set(with_rematerialized(group, self.partition).nodes)
        if any(map(self._may_fail, inside)):
            return False  # a call that raises leaves external memory unchanged
        if target not in self.reads[group]:
            return True
        if group.kind == "imperative":
            return _changes_in_place(group.nodes[0], target)
        if group.has_reduction and not self._replaces_in_one_pass(value, group, target):
            return False
        return all(is_aligned(v, target, self._reads_of(v, inside)) for v in self.partition.stored[group])

    def _reads_of(self, value: Value, inside: Set[Node]) -> list[ReadAt]:
        """The reads of a result of the kernel with the nodes ``inside``, found once for all its operands."""
        reads = self.dependences.get(value)
        if reads is None:
            reads = self.dependences[value] = reads_of(value, inside, self.partition.materialized_views)
        return reads

    def _replaces_in_one_pass(self, value: Value, group: Group, target: Value) -> bool:
        """Whether a kernel with reductions reads ``target`` only in the pass that stores ``value``.

        All results of a pass are evaluated before the first is stored (``nests/loop_nest.py``). An optimizer's step on
        a summed gradient is such a kernel.
        """
        whole = with_rematerialized(group, self.partition)
        members, level = set(whole.nodes), dict[Node, int]()
        read: set[Node] = set()  # nodes that depend on ``target``, without a sum in between
        for node in whole.nodes:
            operands = [p for v in node.inputs for p in self._sources(v, members)]
            inner = [p for p in operands if isinstance(p, Node)]
            reads = target in operands or not read.isdisjoint(inner)
            is_sum = isinstance(node.op.loop, Reduced)
            if reads and is_sum:
                return False
            if reads:
                read.add(node)
            level[node] = max((level[p] for p in inner), default=0) + is_sum
        assert value.node is not None
        rows = whole.per_row | {n for n in members if isinstance(n.op.loop, Reduced)}
        readers = read & {v.node for v in self.partition.stored[group]}
        # Later passes may keep rows of other values in the memory of full results.
        in_place = value.node in rows or level[value.node] == 0
        return in_place and all((n in rows, level[n]) == (value.node in rows, level[value.node]) for n in readers)

    def _sources(self, value: Value, members: Set[Node]) -> list[Node | Value]:
        """The members of a kernel, and the values in memory, that reading ``value`` reads, through views."""
        found: list[Node | Value] = []
        stack = [value]
        while stack:
            at = stack.pop()
            node = at.node
            if node is not None and node in members:
                found.append(node)
            elif node is not None and is_transparent(node, self.partition.materialized_views):
                stack.extend(node.inputs)
            else:
                found.append(at)
        return found

    def _last_check(self) -> int:
        """The place of the last kernel group that may be the first to raise.

        Until then no state is written: a call that raises leaves it unchanged, and eager mode repeats the call. An
        index that an earlier group has checked, as a gradient's is by the forward pass, does not count.
        """
        checked: set[object] = set()
        last = -1
        for group, place in self.place.items():
            new = {c for node in group.nodes for c in self._checks(node)} - checked
            if new:
                checked |= new
                last = place
        return last

    def _checks(self, node: Node) -> Iterator[object]:
        """Yield the checks of ``node``: an index and its limit, a divisor, or a matrix."""
        if node.op.kind == "control":
            bodies = [a for a in node.attrs.values() if isinstance(a, Graph)]
            yield from ((node, c) for body in bodies for n in body.live_nodes() for c in self._checks(n))
        elif self._may_fail(node):
            yield buffer_of(node.inputs[1]), "divisor" if "axis" not in node.attrs else _limit(node)
        elif node.op.name in ("put", "scatter") and node.inputs[1] not in self.constants:
            yield buffer_of(node.inputs[1]), _limit(node)
        elif node.op.name in ("lu_factor", "cholesky"):
            yield node

    def _may_fail(self, node: Node) -> bool:
        """Whether arguments of the call can make ``node`` raise."""
        divides = node.op.name in DIVISIONS and not node.outputs[0].dtype.is_floating_point
        # Constants raise in every call or in none; arguments may raise in some.
        return (divides or node.op.name in ("take", "gather")) and node.inputs[1] not in self.constants

    def large(self) -> frozenset[Value]:
        # The copy reads outputs that are copied.
        read = {v for values in self.reads.values() for v in values} | {v for v, _ in self.pending}
        # Measured by the bytes that the kernel reads for each: operands compete for the cache.
        written = {v: self.reads[self.producer[v]] if v in self.producer else {v} for v in self.home}
        return frozenset(
            v for v, operands in written.items()
            if self._is_large(v, operands) and v not in self.same and v not in read
        )  # fmt: skip

    def _is_large(self, value: Value, operands: Set[Value]) -> bool:
        # The previous call's result is in the cache, too; a part of a larger operand is likely to be read.
        nbytes = value.type.nbytes
        # Twice the result, as the previous call's is still cached, and at most one result's size per operand.
        held = 2 * nbytes + sum(min(v.type.nbytes, nbytes) for v in operands)
        return not self.within and held > self.machine.l3_bytes

    def copies(self) -> list[Copy]:
        """Copies for outputs that no kernel writes, those over inputs last and from staged sources."""
        # Inputs first to plain outputs: a copy over an input must not come before something that reads it.
        plain = [(v, p) for v, p in self.pending if p not in self.aliases]
        over = [(v, p) for v, p in self.pending if p in self.aliases and v is not self._target(p)]
        found = [self._copied(v, self._output_value(v, p), self._is_large(v, {v})) for v, p in plain]
        last: list[Copy] = []
        for value, position in over:
            # An input that moves to another input's memory (a swap): staged, as the move may go both ways.
            if value.node is None:
                stage = Value(None, -1, value.type)
                found.append(self._copied(value, stage))
                value = stage
            last.append(self._copied(value, self._output_value(value, position)))
        return [*found, *last]

    def _copied(self, source: Value, target: Value, large: bool = False) -> Copy:
        return Copy(self.same.get(source, source), target, large)

    def _output_value(self, like: Value, position: int) -> Value:
        target = Value(None, -1, like.type)
        self.home[target] = position
        return target


def _operands(group: Group) -> set[Value]:
    """Values that a group of statements or control reads from memory, including those that others would
    rematerialize."""
    if group.kind not in ("imperative", "control"):
        return set()
    return {buffer_of(v) for v in group.nodes[0].inputs}


def _limit(node: Node) -> int:
    """The size of the axis that ``node`` indexes."""
    axis: int = node.attrs["axis"]
    return node.inputs[0].shape[axis]


def _is_unbounded(group: Group) -> bool:
    """Whether the group contains a loop of unknown length."""
    return group.kind == "control" and any(_has_while(node) for node in group.nodes)


def _has_while(node: Node) -> bool:
    bodies = [a for a in node.attrs.values() if isinstance(a, Graph)]
    return node.op.name == "while_loop" or any(_has_while(n) for body in bodies for n in body.live_nodes())


def _changes_in_place(node: Node, target: Value) -> bool:
    """Whether the statements of ``node`` may write its result over its first operand, which is ``target``."""
    assert isinstance(node.op.loop, Imperative), node
    first, *others = node.inputs
    alone = all(buffer_of(v) is not target for v in others)
    return node.op.loop.overwrites and buffer_of(first) is target and alone
