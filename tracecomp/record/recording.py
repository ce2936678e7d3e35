"""Recordings: a graph with the sources of its inputs and the destinations of its outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tracecomp.base.capture_guide import BreakReason
from tracecomp.base.errors import Source
from tracecomp.ir.graph import Graph, Value
from tracecomp.ir.graph import Node as GraphNode
from tracecomp.record.backward.template import Template
from tracecomp.record.binding import Binding
from tracecomp.record.guards.guards import Guards
from tracecomp.record.guards.reads import Read
from tracecomp.record.guards.slots import StateSlot
from tracecomp.record.results import Held, Result
from tracecomp.record.same_values import same_number
from tracecomp.record.size_range import Conditions
from tracecomp.record.symbolic.sizes import SizeSource
from tracecomp.record.symbolic.sym_scalar import followed


@dataclass(frozen=True, slots=True)
class Repeated:
    """An effect on Python objects, with its arguments: ``results`` in ``structure``."""

    apply: Callable[..., Any]
    owner: Read | None
    structure: Any
    results: list[Result]


class SeenValue(NamedTuple):
    """A value that steered Python: output ``number`` of the graph must be ``seen``, which ``source`` asked for.

    ``line`` is the line of the compiled function that ran.
    """

    number: int
    seen: Any
    source: Source | None
    line: int


class Rebased(NamedTuple):
    """A tensor from outside that the call writes with history: differentiable result ``root``, or one used up."""

    source: Binding
    root: int | None


@dataclass(frozen=True, slots=True)
class Rebound:
    """The contents of a place at the end; with ``same_object``, the list or dict there got new contents."""

    place: StateSlot
    structure: Any
    results: list[Result]
    same_object: bool


@dataclass
class Recording:
    """One path of a program for one kind of call. ``effects`` are steps in Python that follow each run of the graph.

    ``updates`` are inputs with the outputs that they become; ``writes`` are tensors from outside whose memory is
    written, with how often autograd has counted that. ``unsettled`` says why it serves no later call; ``shared`` are
    inputs that share memory of which some is written. ``catches``: the program has handlers of errors, and a call may
    raise one.
    """

    graph: Graph
    guards: Guards
    inputs: list[Binding]
    structure: Any
    results: list[Result]
    updates: list[tuple[Binding, int]]
    writes: list[tuple[Binding, int]]
    grads: list[tuple[Binding, Held | None]]
    requires_grad: list[tuple[Binding, bool]]
    predicates: list[SeenValue]
    split: Split | None
    rebased: list[Rebased]
    rebound: list[Rebound]
    effects: list[Repeated]
    sizes: Sizes | None
    unsettled: BreakReason | None = None
    blamed: Set[int] = frozenset()
    shared: Sequence[Binding] = ()
    catches: bool = False
    calls: int = 0
    seconds: float = 0.0

    @property
    def may_be_left(self) -> bool:
        """Whether a call may turn out to need another recording while it runs: nothing is written before its end."""
        return bool(self.predicates) or self.catches

    def observed_at(self) -> set[Source | None]:
        """The lines whose numbers the recording depends on."""
        return {p.source for p in self.predicates if followed(p.seen)}

    def reads_floats(self) -> bool:
        return any(type(p.seen) is float for p in self.predicates)

    def allows(self, known: dict[int, object]) -> bool:
        """Whether this can be the path of a call whose first predicates are ``known``."""
        return all(n < len(self.predicates) and same_value(self.predicates[n][1], seen) for n, seen in known.items())


@dataclass
class Sizes:
    """How a recording depends on sizes that calls may change: what must hold of them, and which axes have each.

    ``shapes`` and ``attrs`` hold SymInts in place of numbers.
    """

    conditions: Conditions
    sources: list[list[SizeSource]]
    shapes: dict[Value, tuple[int, ...]]
    attrs: dict[GraphNode, dict[str, Any]]


@dataclass
class Split:
    """The derivative of a recording: the graph from saved values and result gradients to input gradients.

    ``saved`` has the sources of the backward graph's first inputs: a forward input, or a numbered forward output. The
    other inputs are gradients of the differentiable results. ``wanted`` pairs inputs with outputs of the backward
    graph; ``leading`` numbers the results whose gradients reach each of them. ``history`` is for further derivatives;
    for each of its inputs it says whether the call overwrites the source. ``roots`` is the number of differentiable
    results. ``views`` numbers values that are saved only for views of them. ``summed`` numbers the inputs in ``wanted``
    whose gradient is a sum of several within the call. ``form`` represents all of this, without keeping it in memory.
    """

    backward: Graph
    saved: list[Binding | int]
    wanted: list[tuple[Binding, int | None]]
    leading: list[frozenset[int]]
    history: Template
    history_inputs: list[tuple[Binding | int, bool]]
    roots: int
    sizes: Sizes | None = None
    views: frozenset[int] = frozenset()
    summed: frozenset[int] = frozenset()
    form: object = field(default_factory=object)


def same_value(now: Any, seen: Any) -> bool:
    """Whether a predicate has the value that was seen."""
    if isinstance(seen, list):
        return all(same_value(a, b) for a, b in zip(now, seen, strict=True))
    return same_number(now, seen) if isinstance(seen, float | complex) else bool(now == seen)
