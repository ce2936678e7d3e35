"""Traced execution: a recording whose every node is compared with the eager result during recording."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tracecomp.base.code_origin import is_user_file
from tracecomp.base.errors import Source, user_source
from tracecomp.compiled.eager_vs_compiled import Call, gradients
from tracecomp.compiled.program_state import ProgramState, SavedState
from tracecomp.eager.grad_fn import AccumulateGrad
from tracecomp.eager.modes import modes
from tracecomp.eager.tensor import Tensor
from tracecomp.eager.tensor_base import Edge, Node, node_count
from tracecomp.inspect.graph_runs import rounds_alike
from tracecomp.ir.arrays import same_bits
from tracecomp.ir.graph import Graph, Value, attrs_key
from tracecomp.ir.op import Attrs, Op
from tracecomp.record.capture import bind_arguments
from tracecomp.record.pytree import flatten, paths
from tracecomp.record.recorder import Recorder

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Event:
    """A recorded event: an operator with its attributes, or a value that Python read."""

    kind: str
    what: Any
    source: Source | None
    scope: tuple[str, ...] = ()


@dataclass(frozen=True)
class Application:
    """An operator that ran: its operands (arrays or numbers) and results, and the number of earlier nodes."""

    number: int
    op: Op
    attrs: dict[str, Any]
    operands: tuple[Any, ...]
    results: tuple[Array, ...]
    source: Source | None
    scope: tuple[str, ...]


@dataclass(frozen=True)
class BackwardStep:
    """A node of a backward pass, the gradients that it received and returned.

    ``expected`` is the sum of the gradients sent to it, if known.
    """

    node: Node
    grads: list[Array | None]
    found: list[Array | None]
    expected: list[Array | None] | None


@dataclass(frozen=True)
class FunctionRun:
    """A user's Function that ran, and its arguments."""

    node: Node
    args: tuple[object, ...]
    source: Source | None
    scope: tuple[str, ...]


@dataclass(frozen=True)
class Misrecorded:
    """A node or value of the recording that differs from the eager one."""

    what: str
    source: Source | None
    scope: tuple[str, ...] = ()


@dataclass
class Observed:
    """Events of one call; ``results`` are the lines that computed the result's tensors.

    ``refused`` is the reason of an early end of the recording, ``raised`` the line of the program's own error.
    """

    graph: Graph
    events: list[Event] = field(default_factory=list)
    applications: list[Application] = field(default_factory=list)
    backward: list[BackwardStep] = field(default_factory=list)
    functions: list[FunctionRun] = field(default_factory=list)
    wrong: list[Misrecorded] = field(default_factory=list)
    results: dict[str, Source | None] = field(default_factory=dict)
    refused: str | None = None
    raised: Source | None = None


class ObservingRecorder(Recorder):
    """Record, keep the eager value of everything recorded, and compare."""

    repeats_nodes = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.seen = Observed(self.graph)
        self.eager: dict[Value, Array] = {}
        self.written: dict[int, Source | None] = {}
        self.sent: dict[tuple[int, int], Array] = {}
        self.accumulated: dict[int, Array | None] = {}
        self.alive: list[Any] = []

    def node(self, op: Op, operands: tuple[object, ...], attrs: Attrs, outs: list[Tensor]) -> None:
        """Store the eager operands and results of a recorded node."""
        arrays = tuple(x._data.copy() if isinstance(x, Tensor) else x for x in operands)
        for x in operands:
            if isinstance(x, Tensor):
                self._operand(x)
        super().node(op, operands, attrs, outs)
        here = self.graph.here
        results = tuple(t._data.copy() for t in outs)
        seen = self.seen
        plain = {k: v for k, v in attrs.items() if not isinstance(v, Graph)}
        numbers = tuple(repr(x) for x in operands if not isinstance(x, Tensor))
        given = (x for x in arrays if isinstance(x, np.ndarray))
        shapes = tuple((r.dtype.str, r.shape) for r in (*given, *results))
        seen.events.append(Event("node", (op.name, attrs_key(plain), numbers, shapes), here.source, here.scope))
        seen.applications.append(Application(node_count(), op, dict(attrs), arrays, results, here.source, here.scope))
        for t, array in zip(outs, results, strict=True):
            cell = self.values.cell(t)
            if cell is None:
                self._wrong(f"{op.name} was not recorded", here.source, here.scope)
                continue
            known = self.eager.setdefault(cell.value, array)
            if not same_bits(known, array) and known.shape == array.shape:
                self._wrong(f"one node represents two applications of {op.name}", here.source, here.scope)
            self._check_node(cell.value, op, arrays, attrs)

    def _operand(self, t: Tensor) -> None:
        """Whether a tensor's value in the graph equals its contents."""
        known = self._known(self.value(t))
        if known is None:
            self.eager[self.value(t)] = t._data.copy()
        elif not same_bits(known, t._data, any_nan=True):
            source = None if self._is_root_right(t) else self.written.get(id(t._shared_storage().memory))
            source = source or user_source()
            self._wrong("a tensor's values differ from those in the recording", source)

    def _is_root_right(self, t: Tensor) -> bool:
        """Whether the memory of the view ``t`` is recorded correctly: then reading it is wrong; no write is lost."""
        root, chain = self.values.root(t)
        cell = self.values.cell(root)
        known = None if cell is None or not chain else self._known(cell.value)
        return known is not None and same_bits(known, root._data, any_nan=True)

    def _known(self, value: Value) -> Array | None:
        """The eager elements of a value; those of a view, a write or a constant follow from others without rounding."""
        node = value.node
        if value in self.eager or node is None or not (node.op.kind == "scatter" or rounds_alike(node)):
            return self.eager.get(value)
        inputs = [self._known(v) for v in node.inputs]
        if any(x is None for x in inputs):
            return None
        self.eager.update(zip(node.outputs, _results(node.op, inputs, node.attrs), strict=True))
        return self.eager[value]

    def _check_node(self, value: Value, op: Op, operands: tuple[Any, ...], attrs: Attrs) -> None:
        """Whether the recorded node has the operands and attributes of the operator that ran.

        If they seem to differ, numpy computes both, and their bits must be equal.
        """
        node = value.node
        if node is None:
            return
        inputs = [x for v in node.inputs if (x := self._known(v)) is not None]
        if len(inputs) < len(node.inputs):
            return
        alike = node.op is op and len(inputs) == len(operands) and node.key == attrs_key(attrs)
        if alike and all(map(_is_operand, operands, inputs)):
            return
        given = [x if isinstance(x, np.ndarray) else np.asarray(x, _type_of(operands)) for x in operands]
        number = node.outputs.index(value)
        wanted, found = _results(op, given, attrs)[number], _results(node.op, inputs, node.attrs)[number]
        if not same_bits(found, wanted, any_nan=True):
            origin = self.graph.origin[node]
            self._wrong(f"{node.op.name} was recorded with wrong operands", origin.source, origin.scope)

    def bound(self, t: Tensor, value: Value) -> None:
        """Keep the values that an input has."""
        self.eager[value] = t._data.copy()

    def write(self, target: Tensor, value: Tensor) -> None:
        """Keep the line of each write."""
        super().write(target, value)
        source = user_source()
        self.seen.events.append(Event("write", tuple(target._data.shape), source))
        self.written[id(target._shared_storage().memory)] = source
        self.alive.append(target._shared_storage().memory)

    def observe(self, t: Tensor, seen: object) -> None:
        """Keep what Python saw."""
        super().observe(t, seen)
        self.seen.events.append(Event("value", repr(seen), user_source()))

    def place_results(self, result: object) -> None:
        """Store the lines that computed the tensors of the result."""
        made = {id(ref()): source for ref, source, _ in self.values.made}
        found = ProgramState({"result": result}).tensors
        self.seen.results.update({place: made.get(id(t)) for place, t in found.items()})

    def _wrong(self, what: str, source: Source | None, scope: tuple[str, ...] = ()) -> None:
        self.seen.wrong.append(Misrecorded(what, source, scope))

    # ---- backward passes

    def backward_from(self, roots: Sequence[tuple[Node, int]], grads: Sequence[Tensor]) -> None:
        """Store the gradients of the roots."""
        self.sent.clear()
        for (node, number), grad in zip(roots, grads, strict=True):
            self._send(node, number, grad._data)

    def _send(self, node: Node, number: int, array: Array) -> None:
        have = self.sent.get((id(node), number))
        wide = array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
        self.sent[id(node), number] = wide if have is None else have + wide
        self.alive.append(node)

    def get_grad(self, t: Tensor) -> Tensor | None:
        """Store the existing gradient, to which another may be added."""
        found = super().get_grad(t)
        self.accumulated[id(t)] = None if found is None else found._data.copy()
        self.alive.append(t)
        return found

    def backward_done(
        self, node: Node, grads: Sequence[Tensor | None], found: Sequence[Tensor | None], edges: Sequence[Edge]
    ) -> None:
        """Store a step of the backward pass, and pass its gradients on."""
        arrived = [None if g is None else g._data.copy() for g in grads]
        expected = [self.sent.pop((id(node), k), None) for k in range(len(arrived))]
        if node.pre_hooks or node.tensor_hooks or (isinstance(node, AccumulateGrad) and node.variable._hooks):
            expected = [None] * len(arrived)
        given = [None if g is None else g._data.copy() for g in found]
        if isinstance(node, AccumulateGrad):
            given = [self._accumulation_error(node, arrived[0])]
        for k, edge in enumerate(edges[: len(given)]):
            array = given[k]
            if edge is not None and array is not None:
                self._send(edge[0], edge[1], array)
        self.seen.backward.append(BackwardStep(node, arrived, given, expected))

    def _accumulation_error(self, node: AccumulateGrad, arrived: Array | None) -> Array | None:
        """Difference of a leaf's gradient from the old one plus ``arrived``."""
        t = node.variable
        before, now = self.accumulated.get(id(t)), t._grad
        if arrived is None or now is None:
            return None
        wanted = arrived if before is None else before + arrived
        error: Array = now._data.astype(np.float64) - wanted
        return error

    def function_ran(self, node: Node, args: tuple[object, ...]) -> None:
        """Note a user's Function."""
        kept = tuple(Tensor._wrap(x._data.copy()) if isinstance(x, Tensor) else x for x in args)
        self.seen.functions.append(FunctionRun(node, kept, user_source(), ()))


def observe(fn: Callable[..., object], call: Call, roots: Mapping[str, object]) -> Observed:
    """Run ``fn`` eagerly under an observing recorder, its derivative too; the state is restored."""
    before = SavedState(roots)
    recorder = ObservingRecorder(getattr(fn, "__name__", type(fn).__name__), strict=False)
    leaves: list[Any] = []
    flatten(call, leaves)
    recorder.leaves = leaves
    modes.recorder = recorder
    try:
        bind_arguments(recorder, recorder.leaves, [p[3:] for p in paths(call)])
        result = fn(*call[0], **call[1])
        recorder.place_results(result)
        gradients(result, roots)
    except Exception as error:  # the program's own error: earlier events are compared
        recorder.seen.refused = f"{type(error).__name__}: {error}"
        recorder.seen.raised = _raised_at(error)
    finally:
        modes.recorder = None
        if recorder.refusals.reason is not None and not recorder.seen.refused:
            recorder.seen.refused = str(recorder.refusals.reason)
        recorder.forget()
        before.restore()
    return recorder.seen


def _results(op: Op, operands: Sequence[Any], attrs: Attrs) -> list[Array]:
    """The operator's results by numpy; operands have one memory order, on which numpy's order of sums depends."""
    with np.errstate(all="ignore"):
        found = op.impl(*[np.asarray(x, order="C") for x in operands], **attrs)
    return [*map(np.asarray, found)] if isinstance(found, tuple) else [np.asarray(found)]


def _is_operand(x: object, recorded: Array) -> bool:
    """Whether an operand, or a number in the dtype of the recorded one, is the recorded one."""
    array = x if isinstance(x, np.ndarray) else np.asarray(x).astype(recorded.dtype)
    return same_bits(array, recorded, any_nan=True)


def _type_of(operands: Sequence[object]) -> np.dtype[Any] | None:
    """The type of numbers among the operands: that of the last array."""
    return next((x.dtype for x in reversed(operands) if isinstance(x, np.ndarray)), None)


def _raised_at(error: Exception) -> Source | None:
    """The program's innermost line on the way to an error."""
    found = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        code = frame.f_code
        if is_user_file(code.co_filename) and str(frame.f_globals.get("__name__")).partition(".")[0] != "numpy":
            found = Source(code.co_filename, line, code.co_name)
    return found


__all__ = ["Application", "BackwardStep", "Event", "FunctionRun", "Misrecorded", "Observed", "observe"]
