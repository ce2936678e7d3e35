"""The draft of a recording: what the call has left, and what the stages have made of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tracecomp.base.capture_guide import BreakReason
from tracecomp.eager.tensor import Tensor
from tracecomp.eager.tensor_base import Node
from tracecomp.ir.graph import Graph, Output, Value
from tracecomp.record.binding import Binding
from tracecomp.record.effects import Effect
from tracecomp.record.guards.guards import Guards
from tracecomp.record.guards.visibility import is_container
from tracecomp.record.observer import Observer
from tracecomp.record.pytree import Leaves, added_to, is_collection, is_record
from tracecomp.record.recorder import Recorder
from tracecomp.record.recording import Rebound, Repeated, SeenValue, Split
from tracecomp.record.results import Held, Result, Results


class Outputs:
    """The outputs of the graph, which stages add."""

    def __init__(self) -> None:
        self.all: list[Output] = []

    def add(self, value: Value, name: str, role: str) -> int:
        """The number of a new output."""
        self.all.append(Output(value, name, role))
        return len(self.all) - 1


class Sources:
    """The sources of inputs and of tensors from outside, for each call.

    ``of`` has the sources of inputs, ``numbers`` the leaves of tensors and arrays among the arguments, by identity.
    """

    def __init__(self, recorder: Recorder, arguments: Leaves) -> None:
        self.of: dict[Value, Binding] = {}
        self.numbers = {id(t): i for i, t in reversed(list(enumerate(arguments)))}
        self.numbers.update({id(t): i for i, t in recorder.inputs.arrays.items()})
        self._inputs = recorder.inputs
        self._holders: dict[int, Binding] = {}

    def holder(self, t: Tensor) -> Binding:
        """The binding of ``t`` in each call: one per tensor whose Python attributes matter."""
        if id(t) not in self._holders:
            given = id(t) in self._inputs.arguments
            self._holders[id(t)] = Binding("argument", self.numbers[id(t)]) if given else Binding("state", t)
        return self._holders[id(t)]

    def origin(self, t: Tensor) -> Binding:
        """The source of a tensor from outside, an input or not."""
        value = self._inputs.initial.get(id(t))
        if value in self.of:
            return self.of[value]
        return Binding("argument", self.numbers[id(t)]) if id(t) in self.numbers else Binding("state", t)


@dataclass
class Contents:
    """A Python value that the call leaves: ``leaves`` in ``structure``."""

    structure: Any
    leaves: list[Any]


@dataclass
class Derived:
    """The backward pass in the graph: gradients of the results, those of the inputs, and where these end.

    ``summed`` numbers the inputs in ``wanted`` whose gradient is a sum of several.
    """

    cotangents: list[Value]
    wanted: list[tuple[Binding, Value | None]]
    ends: list[tuple[Node, int]]
    summed: frozenset[int]


@dataclass
class Draft:
    """One recording in the making. Each stage reads what earlier ones have set, and sets its own part.

    The first fields are what the call has left: the recorder has its inputs, calls and changes, the observer its reads,
    ``guards`` its checks.
    """

    recorder: Recorder
    guards: Guards
    arguments: Leaves
    result: object
    observer: Observer
    derive: bool

    # inputs of the graph
    sources: Sources = field(init=False)
    inputs: list[Binding] = field(default_factory=list)

    # Python values that the call leaves
    value: Contents = field(default_factory=lambda: Contents(None, []))
    effects: list[tuple[Effect, Contents]] = field(default_factory=list)
    repeated: dict[int, object] = field(default_factory=dict)  # left in several places, by identity
    cyclic: set[int] = field(default_factory=set)  # objects of the call that hold themselves
    made: set[int] = field(default_factory=set)  # objects that the observer has seen the call make
    keys: list[object] = field(default_factory=list)  # of dictionaries of the call, other than plain ones
    hashing: list[object] = field(default_factory=list)  # elements of sets of the call whose class defines their hash
    left: list[Any] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    gradients: list[Tensor] = field(default_factory=list)

    # outputs
    outputs: Outputs = field(default_factory=Outputs)
    held: Results = field(init=False)
    results: list[Result] = field(default_factory=list)
    repeats: list[Repeated] = field(default_factory=list)
    rebound: list[Rebound] = field(default_factory=list)
    updates: list[tuple[Binding, int]] = field(default_factory=list)
    grads: list[tuple[Binding, Held | None]] = field(default_factory=list)
    predicates: list[SeenValue] = field(default_factory=list)

    # derivative
    rebased: list[Tensor] = field(default_factory=list)
    derived: Derived | None = None
    split: Split | None = None

    # graph and memory
    graph: Graph = field(init=False)
    mapping: dict[Value, Value] = field(default_factory=dict)  # from the values recorded to those of ``graph``
    shared: list[Binding] = field(default_factory=list)
    unsettled: BreakReason | None = None

    def __post_init__(self) -> None:
        self.sources = Sources(self.recorder, self.arguments)
        self.held = Results(self.recorder, self.sources.origin, partial(self.outputs.add, role="result"))

    def name_of(self, value: Value) -> str:
        """The name of an input of the recorded graph."""
        return self.recorder.graph.inputs[value.index].name

    def is_outside(self, value: object) -> bool:
        """Whether a container or record was there before the call: a later call means the one there then."""
        if id(value) not in self.observer.known:
            return False
        one = is_container(value) and not isinstance(value, tuple)
        return one or is_record(value) or is_collection(value) or bool(added_to(value))

    def is_new(self, value: object) -> bool:
        """Whether an object was made in the call."""
        return id(value) not in self.observer.known and id(value) not in self.sources.numbers

    def is_one_object(self, value: object) -> bool:
        """Whether ``value`` is one object wherever the call leaves it."""
        return self.is_outside(value) or id(value) in self.repeated or id(value) in self.cyclic

    def known(self) -> list[object]:
        """The objects from outside that the program has met."""
        return [read.value for read in self.observer.known.values()]
