"""The inputs of a recording's graph: the outside value of each, which every call reads again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tracecomp.eager.tensor import Tensor, shared
from tracecomp.ir.graph import Graph, Value
from tracecomp.ir.types import DType, TensorType, float64, from_numpy_dtype
from tracecomp.record.binding import Array
from tracecomp.record.context import Bound
from tracecomp.record.guards.slots import StateSlot
from tracecomp.record.pytree import Leaves
from tracecomp.record.shared_memory import SharedMemory, views
from tracecomp.record.symbolic.sizes import Holder, Sizes
from tracecomp.record.symbolic.sym_int import SizedGraph
from tracecomp.record.symbolic.sym_scalar import SymScalar, dtype_of, followed
from tracecomp.record.traced_value import TracedValue
from tracecomp.record.value_table import ValueTable


class HostNumber(NamedTuple):
    """The number at ``key`` of ``owner``: its input, and its first value."""

    owner: Any
    key: str
    tensor: Tensor
    value: float


class Inputs:
    """Add inputs to ``graph`` with their sources; tensors are found by identity.

    ``recorder`` is notified of each, ``values`` are the graph values of tensors, ``sizes`` returns dynamic shapes. With
    ``follow``, numbers in places are inputs too.
    """

    def __init__(self, recorder: Bound, graph: Graph, values: ValueTable, sizes: Sizes, follow: bool) -> None:
        self._recorder = recorder
        self._graph = graph
        self._values = values
        self._sizes = sizes
        self._follow = follow
        self.names: dict[int, str] = {}  # of tensors that modules have, before they are met
        self.initial: dict[int, Value] = {}  # graph values of outside tensors when the program starts
        self.arguments: dict[int, Tensor] = {}
        self.argument_numbers: dict[int, Tensor] = {}  # by leaf, as the next
        self.arrays: dict[int, Tensor] = {}
        self.state: dict[int, Tensor] = {}
        self.memories: dict[int, SharedMemory] = {}
        self.places: dict[int, tuple[StateSlot, int]] = {}
        self.place_numbers: list[tuple[Tensor, StateSlot, int]] = []
        self.hosts: dict[tuple[int, str], HostNumber] = {}

    def forget(self) -> None:
        """Drop the references to tensors, and the facts keyed by their identities."""
        for met in (
            self.names, self.initial, self.arguments, self.argument_numbers, self.arrays, self.state, self.memories,
            self.places, self.hosts,
        ):  # fmt: skip
            met.clear()
        self.place_numbers.clear()

    def changes_with_call(self, t: Tensor) -> bool:
        """Whether ``t`` is an input in whose place another call has another tensor."""
        return id(t) in self.arguments or id(t) in self.places

    # ---- tensors

    def bind(self, t: Tensor, name: str, role: str, holder: Holder | None = None) -> TracedValue:
        """Add an input for ``t``, which ``holder`` has, in its state when the program starts."""
        value = self._graph.add_input(TensorType(from_numpy_dtype(t._data.dtype), t._data.shape), name, role)
        if holder is not None and isinstance(self._graph, SizedGraph):
            self._graph.set_shape(value, self._sizes.shape_for(holder, value.shape))
        self.initial[id(t)] = value
        cell = TracedValue(self._recorder, value)
        self._values.keep(t, cell)
        if role == "argument":
            self.arguments[id(t)] = t
        self._recorder.bound(t, value)
        return cell

    def capture(self, t: Tensor) -> TracedValue:
        """Make a tensor from outside an input, read again at every call."""
        self.state[id(t)] = t
        name = self.names.get(id(t), "")
        if not name or self._graph.has_input(name):
            name = f"s{len(self.state) - 1}"
        return self.bind(t, name, "state")

    def bind_array(self, leaf: int, array: Array, name: str) -> None:
        """Add an input for an array among the arguments: tensors that Python creates from it share its memory."""
        if all(t._data is not array for t in self.arrays.values()):
            self.arrays[leaf] = shared(array)
            self.bind(self.arrays[leaf], name, "argument", ("argument", leaf))

    def bind_memory(self, memory: SharedMemory, members: Sequence[Any], leaves: Leaves) -> None:
        """Add an input for memory that ``members`` share, tensors or arrays: they are views of it."""
        root = shared(memory.read(leaves))
        self.memories[id(root)] = memory
        self.bind(root, f"m{len(self.memories) - 1}", "state")
        for n, (binding, member) in enumerate(zip(memory.members, members, strict=True)):
            t = member
            if isinstance(member, np.ndarray):
                t = self.arrays[binding.ref] = shared(member)
            if binding.kind == "argument":
                self.arguments[id(t)] = t
            self._values.share(t, root, views(memory, n))

    def bind_place(self, place: StateSlot) -> None:
        """Add inputs for the tensors in a place, which every call reads."""
        leaves = place.leaves()
        for n, x in enumerate(leaves):
            name = f"{place.key}{n or ''}"
            if isinstance(x, Tensor) and id(x) not in self.initial:
                self.places[id(x)] = (place, n)
                self.bind(x, name, "state", ("place", place.id, n))
            elif self._follow and followed(x):
                leaves[n] = number = self._followed(x, name)
                self.place_numbers.append((number.tensor, place, n))
        if any(type(x) is SymScalar for x in leaves):
            place.fill(leaves)

    # ---- numbers

    def bind_argument_number(self, leaf: int, value: int | float, name: str) -> SymScalar:
        """The dynamic number for argument ``leaf``, which every call passes again."""
        number = self._followed(value, name)
        self.argument_numbers[leaf] = number.tensor
        return number

    def bind_host(self, owner: object, key: str, value: int | float) -> HostNumber:
        """The dynamic number for ``key`` of ``owner``, currently ``value``."""
        found = self.hosts.get((id(owner), key))
        if found is None:
            t = self._number(float(value), float64, f"{key}{len(self.hosts) or ''}")
            found = self.hosts[id(owner), key] = HostNumber(owner, key, t, value)
        return found

    def _followed(self, value: int | float, name: str) -> SymScalar:
        return SymScalar(self._recorder, self._number(value, dtype_of(value), name), value)

    def _number(self, value: int | float, dtype: DType, name: str) -> Tensor:
        t = Tensor._wrap(np.array(value))
        t._value = TracedValue(self._recorder, self._graph.add_input(TensorType(dtype, ()), name, "host"))
        return t
