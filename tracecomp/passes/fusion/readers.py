"""Readers of values through views that are not stored, for fusion and rematerialization."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from tracecomp.ir.graph import Graph, Node, Value
from tracecomp.passes.fusion.access import Offsets, Space, buffer_of, is_transparent, producers
from tracecomp.passes.fusion.groups import Group


class Readers:
    """``units`` are the nodes in kernels; other nodes are evaluated by their readers.

    ``materialized_views`` are the views among them; readers follow other views to their sources. ``repeated`` are
    stored values that contain a single number. ``order`` numbers the live nodes. ``wanted`` are values stored in the
    memory of outputs, ``overwritten`` inputs whose memory outputs take.

    ``group_of`` maps a unit to its kernel; code that merges kernels keeps it up to date.
    """

    def __init__(self, graph: Graph, overwritten: Set[Value]) -> None:
        self.live = list(graph.live_nodes())
        self.order = {node: n for n, node in enumerate(self.live)}
        self.wanted = {buffer_of(o.value) for o in graph.outputs}
        self.overwritten = overwritten
        self.units: Set[Node] = frozenset()
        self.materialized_views: Set[Node] = frozenset()
        self.repeated: set[Node] = set()
        self.group_of: dict[Node, Group] = {}
        self._users: dict[Value, list[Node]] = {}
        self._spaces: dict[Node, Space] = {}
        self._offsets = Offsets(self.materialized_views)
        for node in self.live:
            # Once per value, even if a node has it as two operands (x * x): users are counted as readers.
            for value in dict.fromkeys(node.inputs):
                self._users.setdefault(value, []).append(node)

    def choose(self, units: Sequence[Node]) -> None:
        """Let ``units`` be the nodes that are in kernels."""
        self.units = frozenset(units)
        self.materialized_views = frozenset(n for n in units if n.op.kind == "view" or n in self.repeated)
        self._offsets = Offsets(self.materialized_views)

    def users(self, value: Value) -> Sequence[Node]:
        """The nodes that have ``value`` as an operand."""
        return self._users.get(value, ())

    def is_transparent(self, node: Node) -> bool:
        """Whether readers of ``node`` evaluate it in place."""
        return is_transparent(node, self.materialized_views)

    def producers(self, node: Node) -> list[Node]:
        """Units whose results ``node`` reads, through views."""
        return producers(node, self.is_transparent)

    def space(self, node: Node) -> Space:
        """The flat iteration space of a unit, made once."""
        if node not in self._spaces:
            self._spaces[node] = Space(node, self._offsets)
        return self._spaces[node]

    def units_of(self, value: Value) -> Iterator[Node]:
        """The units that read ``value``, through views."""
        for user in self.users(value):
            if self.is_transparent(user):
                yield from self.units_of(user.outputs[0])
            if user in self.units:
                yield user

    def leaves_group(self, value: Value, group: Group, rematerialized: Set[Node] = frozenset()) -> bool:
        """Whether a kernel other than ``group``, or ``rematerialized`` units that read it, load ``value`` from
        memory."""
        for user in self.users(value):
            # Not through the group itself: its members read the value in registers.
            if user in self.units and self.group_of[user] is not group:
                return True
            again = user in self.units and user in rematerialized
            # A reader that is itself rematerialized reads this value in further kernels.
            if again and self.leaves_group(user.outputs[0], group, rematerialized):
                return True
            if self.is_transparent(user) and self.leaves_group(user.outputs[0], group, rematerialized):
                return True
        return False
