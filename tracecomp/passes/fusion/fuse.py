"""Which nodes share a kernel: groups over a common iteration space, with the reason where nodes stay apart.

Every node that is not a view starts as a separate group. Groups merge along producer -> consumer edges, then with
siblings that read the same large value. A merge needs three conditions:

* their spaces agree;
* every read between them is aligned, element to the same element or row result to the same row;
* the merged group is in no dependence cycle.

Merging never changes an order of summation, which the graph alone decides. Elementwise nodes that join the
contraction before them are epilogue fusion.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from heapq import heappop, heappush
from itertools import pairwise

from tracecomp.ir.graph import Graph, Node, Value
from tracecomp.ir.index import Index, Var
from tracecomp.ir.op import Bilinear, Indexed, Pointwise, Reduced
from tracecomp.passes.fusion.access import TRANSPARENT_KINDS, buffer_of, is_interleaving
from tracecomp.passes.fusion.groups import Decision, Domain, Group, Partition
from tracecomp.passes.fusion.readers import Readers
from tracecomp.passes.fusion.rematerialize import rematerialized

MAX_NODES = 96
"""Nodes of a kernel at most: the search for what may share one, and LLVM's work, grow faster than their number."""
SIBLING_BYTES = 4096
"""Bytes of a value above which its readers merge for that reason alone: smaller ones come from the first cache."""
MIN_TRANSPOSED = 2048
"""Least elements of a transposed value for a separate kernel that transposes blocks in registers."""
MIN_TRANSPOSED_REDUCED = 16384
"""The same if only a reduction reads it: below this, strided reads from the first cache take no longer."""


class Fuser:
    """Builds a ``Partition`` of a graph's live nodes; results are stored over the inputs ``overwritten``."""

    def __init__(self, graph: Graph, enabled: bool = True, overwritten: Set[Value] = frozenset()) -> None:
        self.enabled = enabled
        self.readers = Readers(graph, overwritten)
        self.group_of = self.readers.group_of
        self.groups: dict[int, Group] = {}
        self._read_by: dict[Node, list[Node]] = {}
        self.decisions: list[Decision] = []
        self._met: dict[tuple[Index, Domain, bool], tuple[bool, bool]] = {}

    def run(self) -> Partition:
        readers = self.readers
        units = [n for n in readers.live if self._is_unit(n)]
        readers.choose(units)
        for node in units:
            self._add(node)
        # Siblings last: merging producers with consumers saves a store and a load, sharing a read saves one load, so
        # merges along edges come first.
        if self.enabled:
            self._merge_siblings(units)
        groups = self._ordered()
        again = rematerialized(groups, readers) if self.enabled else set()
        stored = {g: self._stored(g, again) for g in groups}
        # A group whose results are all rematerialized elsewhere has no readers.
        groups = [g for g in groups if stored[g]]
        return Partition(groups, stored, again, self.decisions, readers.order, readers.materialized_views)

    def _is_unit(self, node: Node) -> bool:
        """Nodes that start as separate kernels; views only if their memory is needed."""
        if node.op.kind not in TRANSPARENT_KINDS:
            return True
        value = node.outputs[0]
        # A stored reshape is the buffer of its operand.
        if buffer_of(value) is not value:
            return False
        # Four reasons to store a view: it is an output, an opaque kernel takes its address, reading through it would be
        # strided, or strides determine the roles of a convolution's axes.
        if node.op.name in ("expand", "full") and self._meets_windows(value):
            self.readers.repeated.add(node)
            return True
        return value in self.readers.wanted or self._needs_memory(value) or self._crosses(node)

    def _meets_windows(self, value: Value) -> bool:
        """Whether a contraction of windows reads ``value``: its form, and so its bits, must not depend on repeats."""
        return any(
            any(map(_of_windows, user.inputs)) if user.op.name == "contract" else self._meets_windows(user.outputs[0])
            for user in self.readers.users(value)
            if user.op.name == "contract" or user.op.kind in TRANSPARENT_KINDS
        )

    def _crosses(self, node: Node) -> bool:
        """Whether a transpose would make reads of the other operands strided, or is reduced along its strided rows."""
        value = node.outputs[0]
        return _is_transpose(node) and (
            any(
                isinstance(user.op.loop, Pointwise)
                # Reading x.T and y element by element makes one of both a read per line. A kernel that transposes
                # blocks in registers stores it once, and all later reads are dense. If every operand is transposed
                # alike, no read is strided.
                and any(v.type.numel == value.type.numel and not _permuted(v) for v in user.inputs)
                for user in self.readers.users(value)
            )
            or (value.type.numel >= MIN_TRANSPOSED_REDUCED and self._is_reduced_along(value))
        )

    def _is_reduced_along(self, value: Value) -> bool:
        """Whether a reduction runs along the last axis of ``value``, or of an elementwise result of it."""
        seen, stack = {value}, [value]
        while stack:
            value = stack.pop()
            for user in self.readers.users(value):
                result = user.outputs[0]
                if isinstance(user.op.loop, Reduced) and value.ndim - 1 in user.attrs["axes"]:
                    return True
                alike = isinstance(user.op.loop, Pointwise) or user.op.name == "reshape"
                if alike and result.type.numel == value.type.numel and result not in seen:
                    seen.add(result)
                    stack.append(result)
        return False

    def _needs_memory(self, value: Value) -> bool:
        for user in self.readers.users(value):
            if user.op.name == "reshape" and self._needs_memory(user.outputs[0]):
                return True
            # A reshape shares the buffer, so requirements on it apply to the value.
            if user.op.name == "reshape" and user.outputs[0] in self.readers.wanted:
                return True
            # Kernels with opaque loops (sorting, solving, host calls) take pointers to dense memory.
            if not isinstance(user.op.loop, Pointwise | Indexed | Reduced | Bilinear):
                return True
        return False

    def _add(self, node: Node) -> None:
        """Make a group of ``node`` and merge it with the groups it reads, the largest transfer first."""
        group = Group(len(self.group_of), _kind(node), [node], self._domain(node))
        self.groups[group.id] = group
        self.group_of[node] = group
        # Ancestors are transitive: the union of the producers' closures.
        producers = self.readers.producers(node)
        for producer in producers:
            group.ancestors |= self._closure(self.group_of[producer])
            self._read_by.setdefault(producer, []).append(node)
        if not self.enabled:
            return
        # The largest transfer first: a merge may exclude a later one, and each saves the bytes it transfers.
        for producer in sorted(producers, key=lambda n: -n.outputs[0].type.nbytes):
            first, second = self.group_of[producer], self.group_of[node]
            if first is not second:
                reason = self._try_merge(first, second)
                self.decisions.append(Decision(producer, node, not reason, reason or "same space, aligned"))

    def _domain(self, node: Node) -> Domain:
        if isinstance(node.op.loop, Reduced):
            return Domain.of(node.inputs[0].shape, tuple(node.attrs["axes"]))
        return Domain.of(node.outputs[0].shape)

    def _closure(self, group: Group) -> int:
        return group.ancestors | (1 << group.id)

    def _try_merge(self, first: Group, second: Group) -> str:
        """Merge ``second`` (the reader) into ``first``; "" when done, else the reason why not."""
        if len(first.nodes) + len(second.nodes) > MAX_NODES:
            return f"kernel would have more than {MAX_NODES} nodes"
        fit = self._fit(first, second)
        if isinstance(fit, str):
            return fit
        # Last of the checks, as it iterates over the other groups' sets.
        if self._would_cycle(first, second):
            return "another kernel must run between them"
        domain, rows = fit
        self._merge(first, second, domain, rows)
        return ""

    def _fit(self, first: Group, second: Group) -> tuple[Domain, set[Node]] | str:
        """Return the common space and its row nodes, or the reason why there is none."""
        # These have no elementwise meaning that another loop could evaluate.
        if "imperative" in (first.kind, second.kind) or "control" in (first.kind, second.kind):
            return "one of them is not elementwise"
        # Transposed blocks in registers need a special loop order, which other reads of the kernel would have to
        # follow.
        if any(n in self.readers.materialized_views and _is_transpose(n) for n in (*first.nodes, *second.nodes)):
            return "a transpose runs in separate blocks"
        # Contractions are checked before spaces are compared: their space is that of their results.
        if "bilinear" in (first.kind, second.kind):
            reason = self._unfit_for_contraction(first, second)
            if reason:
                return reason
        reason = "iteration spaces differ"
        for domain, rows in _common_domains(first, second):
            bad = self._misaligned(first, second, domain, rows)
            if bad is None:
                return domain, rows
            reason = bad
        return reason

    def _unfit_for_contraction(self, first: Group, second: Group) -> str:
        """Why two groups, one of them at least a contraction, cannot be one kernel; "" when it is possible."""
        if first.kind == second.kind:
            return "each is a contraction"
        # A reduction in the same kernel would need a whole row, of which a register tile has a part.
        if first.has_reduction or second.has_reduction or first.domain.numel != second.domain.numel:
            return "only elementwise results of the same shape join a contraction"
        members = set(first.nodes)
        contractions = (n for n in second.nodes if isinstance(n.op.loop, Bilinear))
        # An epilogue comes after the sum. A prologue would be computed once for each read.
        if any(p in members for n in contractions for p in self.readers.producers(n)):
            return "operands of a contraction are read many times"
        return ""

    def _misaligned(self, first: Group, second: Group, domain: Domain, rows: set[Node]) -> str | None:
        members = set(first.nodes)
        for node in second.nodes:
            # Operands of a contraction are not part of its space; _unfit_for_contraction has handled them.
            if isinstance(node.op.loop, Bilinear):
                continue
            space = self.readers.space(node)
            for read in space.reads:
                producer = read.value.node
                if producer not in members:
                    continue
                # A reduction's result exists once per row, also where its node is not (yet) in ``rows``.
                is_row = producer in rows or isinstance(producer.op.loop, Reduced)
                if not self._meets(read.offset, space.var, domain, node in rows)[is_row]:
                    return f"{node.op.name} reads {producer.op.name} at a different position"
        return None

    def _meets(self, offset: Index, var: Var, domain: Domain, per_row: bool) -> tuple[bool, bool]:
        """Whether a read by a node of a space is of the same element, and whether it is of the same row's result."""
        key = (offset, domain, per_row)
        met = self._met.get(key)
        if met is None:
            element, row = domain.offsets()
            # In a space with reductions a node has one value either per element or per row; its offset is spelled
            # accordingly.
            at = offset.substitute({var: row if per_row else element})
            # Indices are normal forms: equal terms are the same element at every position. Unequal ones may also be;
            # that only loses a fusion.
            met = self._met[key] = (at == element, at == row)
        return met

    def _would_cycle(self, first: Group, second: Group) -> bool:
        """Whether a third group depends on ``first`` and is needed by ``second``."""
        for node in second.nodes:
            for producer in self.readers.producers(node):
                group = self.group_of[producer]
                # Direct producers suffice: if one of them depends on ``first``,
                # through any number of others, its ancestors say so.
                if group is not first and group is not second and group.ancestors >> first.id & 1:
                    return True
        return False

    def _merge(self, first: Group, second: Group, domain: Domain, rows: set[Node]) -> None:
        # ``ancestors`` is the transitive closure of dependences, one bit per group id, so that _would_cycle is one
        # shift. The merged group keeps the id of ``first``; every set that has either id gets the closure of both.
        # Graph order keeps producers before consumers, which building the nest relies on.
        brought = second.ancestors & ~first.ancestors & ~(1 << first.id)
        # If the merge brings ``first`` no new ancestors, sets change only where ``second`` was read.
        changed = [*first.nodes, *second.nodes] if brought else second.nodes
        first.nodes = sorted(first.nodes + second.nodes, key=self.readers.order.__getitem__)
        first.domain, first.per_row = domain, rows
        first.kind = "bilinear" if "bilinear" in (first.kind, second.kind) else first.kind
        for node in second.nodes:
            self.group_of[node] = first
        del self.groups[second.id]
        gone = 1 << second.id
        first.ancestors = (first.ancestors | brought) & ~gone
        for group in self._dependents(first, changed):
            # A group that depended on either now depends on both, and on everything that both needed.
            group.ancestors = group.ancestors & ~gone | self._closure(first)

    def _dependents(self, merged: Group, nodes: list[Node]) -> set[Group]:
        """The other groups that depend on ``nodes`` of ``merged``, found along reads: most merges have few."""
        found: set[Group] = {merged}
        stack = [*nodes]
        while stack:
            for reader in self._read_by.get(stack.pop(), ()):
                group = self.group_of[reader]
                if group not in found:
                    found.add(group)
                    stack.extend(group.nodes)
        return found - {merged}

    def _merge_siblings(self, units: list[Node]) -> None:
        """Merge kernels that read the same large value in the same order, and those whose stores interleave."""
        readers: dict[Value, list[Node]] = {}
        for node in units:
            if isinstance(node.op.loop, Pointwise | Reduced):
                for read in self.readers.space(node).reads:
                    # Aligned with the reader's own flat position: only then do both kernels read the value in the same
                    # order, and one pass serves both.
                    if read.value.type.nbytes >= SIBLING_BYTES and read.offset == self.readers.space(node).flat:
                        readers.setdefault(read.value, []).append(node)
        interleaved = (self.readers.producers(node) for node in units if is_interleaving(node))
        for nodes in (*readers.values(), *interleaved):
            # Neighbours suffice: once two are merged, the next meets their group.
            for a, b in pairwise(nodes):
                first, second = self.group_of[a], self.group_of[b]
                # A contraction reads operands many times and in its own order; sharing a read with it saves nothing.
                if first is second or "bilinear" in (first.kind, second.kind):
                    continue
                if first.ancestors >> second.id & 1:
                    first, second = second, first  # _try_merge takes the producer first
                if not self._indirect(first, second):
                    self._try_merge(first, second)

    def _indirect(self, first: Group, second: Group) -> bool:
        # _would_cycle checks producers of ``second``. Siblings need not be neighbours, so a path of two or more steps
        # between them has to be excluded here.
        direct = {self.group_of[p].id for n in second.nodes for p in self.readers.producers(n)}
        return bool(second.ancestors >> first.id & 1) and first.id not in direct

    def _stored(self, group: Group, rematerialized: set[Node]) -> list[Value]:
        stored = []
        for node in group.nodes:
            for value in node.outputs:
                # Imperative kernels write all their results: they cannot leave one out.
                needed = node not in rematerialized and self.readers.leaves_group(value, group, rematerialized)
                if value in self.readers.wanted or needed or group.kind in ("imperative", "control"):
                    stored.append(value)
        return stored

    def _ordered(self) -> list[Group]:
        """Groups after those they read; among ready ones, by the position of their last node in the graph."""
        # By the last node: a group made long by merges comes where it is complete, near its readers.
        ready: list[tuple[int, Group]] = []
        waiting: dict[int, list[Group]] = {}  # by the number of a group that has to run before
        done, ordered = 0, list[Group]()

        def admit(group: Group) -> None:
            # A merge with a dependent may put a group in its own set; that bit is ignored.
            missing = group.ancestors & ~done & ~(1 << group.id)
            if missing:
                # One of them suffices. The latest, because most others are then done, too.
                waiting.setdefault(missing.bit_length() - 1, []).append(group)
            else:
                heappush(ready, (self.readers.order[group.nodes[-1]], group))

        for group in self.groups.values():
            admit(group)
        while ready:
            _, group = heappop(ready)
            ordered.append(group)
            done |= 1 << group.id
            for reader in waiting.pop(group.id, ()):
                admit(reader)
        if waiting:
            raise AssertionError("kernel groups depend on each other in a cycle")
        return ordered


def _is_transpose(node: Node) -> bool:
    """Whether a node moves another axis of a large value to the end."""
    value = node.outputs[0]
    # Smaller ones stay in the first cache, where a strided read costs little.
    return node.op.name == "permute" and value.type.numel >= MIN_TRANSPOSED and node.attrs["dims"][-1] != value.ndim - 1


def _of_windows(value: Value) -> bool:
    node = value.node
    while node is not None and node.op.kind == "view" and node.op.name != "windows":
        node = node.inputs[0].node
    return node is not None and node.op.name == "windows"


def _permuted(value: Value) -> bool:
    return value.node is not None and value.node.op.name == "permute"


def _kind(node: Node) -> str:
    loop = node.op.loop
    if isinstance(loop, Pointwise | Indexed | Reduced):
        return "loops"
    return "bilinear" if isinstance(loop, Bilinear) else "control" if node.op.kind == "control" else "imperative"


def _common_domains(first: Group, second: Group) -> Iterator[tuple[Domain, set[Node]]]:
    """Spaces in which both groups could run, with the nodes that then have one value per row."""
    a, b = first.domain, second.domain
    if a.has_reduction and b.has_reduction:
        # Both reduce: only over the same runs, as the passes over a row are shared.
        if a == b:
            yield a, first.per_row | second.per_row
    elif a.has_reduction:
        yield from _with_map(a, first.per_row, second)
    elif b.has_reduction:
        yield from _with_map(b, second.per_row, first)
    elif a.numel == b.numel:
        yield a, set()


def _with_map(domain: Domain, rows: set[Node], other: Group) -> Iterator[tuple[Domain, set[Node]]]:
    if other.domain.numel == domain.numel:
        yield domain, rows
    # Its nodes have one value per row: they run between the passes. Tried second, so that elementwise fusion wins when
    # rows have one element each.
    if other.domain.numel == domain.row_count:
        yield domain, rows | set(other.nodes)
