"""The recorder: while a program runs eagerly, every primitive also becomes a node of a graph.

The tensor layer reports every operation to it. Its state is in its parts. ``value_table.py`` has the graph values of
tensors, ``inputs.py`` the sources of the graph's inputs, ``symbolic/sizes.py`` the dynamic sizes. ``tensor_changes.py``
has the call's changes of tensors, ``python_state.py`` those of Python objects, ``backward_passes.py`` its backward
passes, and ``refusals.py`` the reasons why there is no recording.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Sized
from functools import lru_cache
from typing import Any, cast

import numpy as np

from tracecomp.base.capture_guide import BreakReason, Section
from tracecomp.base.errors import Source, user_source
from tracecomp.base.patches import patches
from tracecomp.base.trace_pause import Trace, without_trace
from tracecomp.eager.device import use
from tracecomp.eager.modes import modes, no_grad
from tracecomp.eager.tensor import Size, Tensor
from tracecomp.eager.tensor_base import Edge, Node, View, above
from tracecomp.functional.publish import PLAIN_TENSORS
from tracecomp.ir.graph import Graph, Origin, Value
from tracecomp.ir.op import Op
from tracecomp.ir.types import TensorType, from_numpy_dtype
from tracecomp.ops.autodiff import scalar_of
from tracecomp.ops.collective import with_others
from tracecomp.record.backward_passes import BackwardPasses
from tracecomp.record.binding import Array
from tracecomp.record.foreign_memory import ForeignMemory
from tracecomp.record.inputs import Inputs
from tracecomp.record.node_tape import NodeTape
from tracecomp.record.python_state import PythonState
from tracecomp.record.pytree import Leaves
from tracecomp.record.refusals import Refusals
from tracecomp.record.size_range import Conditions
from tracecomp.record.symbolic.sizes import Sizes, Varying
from tracecomp.record.symbolic.sym_int import SizedGraph
from tracecomp.record.symbolic.sym_scalar import SymScalar, dtype_of, followed
from tracecomp.record.tensor_changes import TensorChanges
from tracecomp.record.tensor_facts import TensorFacts
from tracecomp.record.traced_value import Look, Predicate, TracedValue
from tracecomp.record.value_table import ValueTable


class Recorder:
    """One recording in progress; ``modes.recorder`` of the thread that runs it."""

    maps_functions = False  # whether ``map_function`` runs the ``forward`` of users' Functions
    holds_opaque = True  # whether custom operators are nodes, or are recorded through
    repeats_nodes = True  # whether nodes of a repeated update may be copies, which ``node`` is not called for

    def __init__(self, name: str, strict: bool = True, follow: bool = False, varying: Varying | None = None) -> None:
        self.graph = Graph(name) if varying is None else SizedGraph(name)
        self.open = True
        self.follow = follow
        self.sized = varying is not None
        self.values = ValueTable(self, self.graph)
        self.sizes = Sizes(self.graph, self, self.values.cell, varying or Varying())
        self.inputs = Inputs(self, self.graph, self.values, self.sizes, follow)
        self.refusals = Refusals(strict)
        self.numbers: list[SymScalar] = []
        self.sized_ints: list[Any] = []
        self.predicates: list[Predicate] = []
        self.catches = False  # a function of the program has an ``except`` clause
        self.told: list[Value] = []  # a result of each operator that other processes took part in
        self.leaves: Leaves = ()
        self.quiet = False  # current reads of values are for printing only, which every call repeats
        self.changes = TensorChanges(self.values, self.inputs, self.refusals)
        self.memory = ForeignMemory(self.values, self.changes, self.refusals)
        self.facts = TensorFacts(self.values, self.inputs, self.changes, self.refusals)
        self.python = PythonState(self, self.inputs, self.refusals)
        self.backward = BackwardPasses(self.values.started, self.refusals)
        self.trace: Trace | None = None  # the function that observes the frames of the call
        self.tape: NodeTape | None = None  # notes the nodes of an update that the call repeats

    # ---- called by the tensor layer

    def node(self, op: Op, operands: tuple[Any, ...], attrs: dict[str, object], outs: list[Tensor]) -> None:
        """Note that ``op`` made ``outs`` from ``operands``."""
        here = self.graph.here = self.backward.origin or Origin(user_source(), modes.scopes)
        values = [self.value(x) if isinstance(x, Tensor) else self._scalar(x, operands) for x in operands]
        plain = {k: tuple(v) if isinstance(v, Size) else v for k, v in attrs.items()}
        types = [TensorType(from_numpy_dtype(t._data.dtype), t._data.shape) for t in outs]
        made = self.graph.add(op, values, plain, types)
        if with_others(op, attrs) and not modes.untold:
            self.told.append(made[0])
            self._once()
        if self.tape is not None:
            self.tape.applied(op, operands, values, plain, types, outs, made)
        line = self.refusals.line()
        for t, v in zip(outs, made, strict=True):
            look = None if t._base is None else self.values.look_of(operands[0], (op, attrs))
            self.values.add(t, v, look, here.source, line)

    def _scalar(self, number: Any, operands: tuple[object, ...]) -> Value:
        """A number among ``operands``: a constant of the dtype of the last tensor."""
        dtype = next((x.dtype for x in reversed(operands) if isinstance(x, Tensor)), None)
        return self.graph.scalar(scalar_of(number, dtype), dtype)  # type: ignore[arg-type]

    def write(self, target: Tensor, value: Tensor) -> None:
        """Note that ``target``'s elements became ``value``."""
        self.graph.here = self.backward.origin or Origin(user_source(), modes.scopes)
        new = self.value(value)
        if self.tape is not None:
            self.tape.wrote(target, value, new)
        self.set_value(target, new)

    def set_value(self, target: Tensor, new: Value) -> None:
        """Make ``new`` the graph value of ``target``, whose elements were written."""
        self.values.set(target, new)
        holder = target
        root, _ = self.values.root(target)
        self.memory.wrote(root)
        if root._storage is target._storage:
            holder = root
        while (seen := self.values.look(holder)) is not None and seen.of._storage is holder._storage:
            holder = seen.of
        if not self.is_made(holder):
            self.changes.wrote(holder)

    def alias(self, t: Tensor, base: Tensor) -> None:
        """Note that ``t`` is ``base`` without history; while recording, what owns its memory lives as long as it."""
        self._made(t, self.value(base), self.values.look_of(base, None), user_source())

    def look_at(self, t: Tensor, of: Tensor, step: View, found: Tensor, places: Sequence[tuple[Tensor, int]]) -> None:
        """Make ``t`` a view of ``of`` at positions in 0-d tensors; ``found`` are its elements, computed from those."""
        source, line = user_source(), self.refusals.line()
        numbers = tuple(Predicate(self.value(index), at, source, line) for index, at in places)
        self._made(t, self.value(found), self.values.look_of(of, step)._replace(numbers=numbers), source)

    def reshape(self, target: Tensor, former: Tensor) -> None:
        """Note that the shape of ``target``, which was ``former``, was changed in place."""
        if not self.is_made(former):
            self.changes.refused = BreakReason("changes the shape of a tensor from outside", Section.MEMORY)
        self.values.become(target, target._look, former, user_source(), self.refusals.line())

    def replace(self, target: Tensor, value: Tensor, former: Tensor) -> None:
        """Note ``target.data = value``; ``former`` is what ``target`` was."""
        if not self.is_made(target):
            self.changes.replace(target, value)
            self.values.set(target, self.value(value))
            return
        version = self.values.root_cell(value).version
        target._value = TracedValue(self, self.value(value), version)
        self.values.settle(value)
        # Not through ``value``, which may be a view of ``target`` itself: of its old contents.
        root, chain = self.values.root(value)
        root = former if root is target else root
        self.values.become(target, Look(root, None, root, chain), former, user_source(), self.refusals.line())

    def resize(self, target: Tensor) -> None:
        """Refuse that ``target`` gets more memory than it has."""
        self.refuse_here("resizes a tensor in place beyond its memory", Section.MEMORY)

    def constant(self, t: Tensor) -> None:
        """Note data that Python brought in."""
        array = t._data
        argument = next((x for x in self.inputs.arrays.values() if _same_elements(x._data, array)), None)
        if argument is not None:
            self._made(t, self.value(argument), self.values.look_of(argument, None), user_source())
            return
        self.memory.bring(t)
        if array.ndim == 0:
            value = self.graph.scalar(array.item(), t.dtype)
        else:
            kind = TensorType(t.dtype, array.shape)
            value = self.graph.add_input(kind, f"c{len(self.graph.inputs)}", "constant", array.copy())
        self._made(t, value, None, user_source())

    def observe(self, t: Tensor, seen: object) -> None:
        """Note that Python saw the value of ``t``: nested lists, or its one element."""
        if t._data.ndim and not isinstance(seen, list):
            t = t.detach().reshape(())
        self.depend([Predicate(self.value(t), seen, user_source(), self.refusals.line())])

    def depend(self, predicates: Sequence[Predicate]) -> None:
        """Hold the recording to values that were seen."""
        self.predicates += predicates
        self._once()

    def _once(self) -> None:
        """Refuse a collective together with predicates: if one fails, the call would repeat it on one rank."""
        if self.told and self.predicates:
            self.refuse_here("calls a collective on a path that depends on a tensor's value", Section.SELECT)

    def item(self, t: Tensor, value: Any) -> Any:
        """``value``, which Python gets of ``t``: followed in the graph, or else observed."""
        if not (self.follow and followed(value)):
            self.observe(t, value)
            return value
        with no_grad():
            return SymScalar(self, t.detach().reshape(()).to(dtype_of(value)), value)

    def plain(self, value: Any) -> Any:
        """``value`` with plain numbers in place of followed ones, also in tuples and lists."""
        if type(value) is SymScalar:
            return value.seen()
        if type(value) not in (tuple, list):
            return value
        # Almost all have none: they are not made again.
        return type(value)(map(self.plain, value)) if any(type(x) in _WITH_NUMBERS for x in value) else value

    def ask(self, t: Tensor, what: str, more: object = None) -> None:
        """Note that the answer to a question about ``t`` matters."""
        self.facts.ask(t, what, more)

    def leave(self, t: Tensor, how: str) -> None:
        """Refuse that a recorded value leaves the graph."""
        self.refuse_here(f"calls {how}, which a graph cannot repeat", Section.NUMBERS)

    def shown(self) -> None:
        """Refuse to format a tensor: later calls would use this call's text."""
        if not self.quiet:
            self.refuse_here("formats a tensor as text", Section.NUMBERS)

    def refuse_here(self, what: str, section: Section, remedy: str = "") -> None:
        """Refuse something that the program does at the line that runs; CaptureError if recording is strict."""
        self.refusals.refuse_here(what, section, remedy)

    def backward_from(self, roots: Sequence[tuple[Node, int]], grads: Sequence[Tensor]) -> None:
        """Called when a backward pass begins."""

    def backward_done(
        self, node: Node, grads: Sequence[Tensor | None], found: Sequence[Tensor | None], edges: Sequence[Edge]
    ) -> None:
        """Called when the backward pass has run ``node``, which ``grads`` reached; ``found`` go to ``edges``."""
        self.backward.contribute(found, edges)

    def function_ran(self, node: Node, args: tuple[object, ...]) -> None:
        """Called when a user's Function has run on ``args``."""

    def get_grad(self, t: Tensor) -> Tensor | None:
        """``t.grad``, which the program reads."""
        if not self.is_made(t):
            self.changes.reads_grad(t)
        return t._grad

    def set_grad(self, t: Tensor, grad: Tensor | None) -> None:
        """Note ``t.grad = grad``."""
        if not self.is_made(t):
            self.changes.writes_grad(t, grad)

    def note_number(self, number: SymScalar) -> None:
        """Note a number that is followed."""
        self.numbers.append(number)

    def fix_numbers(self) -> None:
        """Hold the recording to the numbers and sizes of this call."""
        for number in list(self.numbers):
            number.seen()
        for size in self.conditions.ranges:
            size.fix()

    @property
    def conditions(self) -> Conditions:
        """The sizes for which the recording holds."""
        return self.sizes.conditions

    def size_tensor(self, number: int) -> Tensor:
        """A size as an input of the graph."""
        return self.sizes.size_tensor(number)

    def host(self, owner: object, key: str, value: object) -> Any:
        """``value``, which every call reads again at ``key`` of ``owner``."""
        return self.python.host(owner, key, value)

    def module_ran(self, module: Any) -> None:
        """Note a module whose attributes the program may have read."""
        self.python.module_ran(module)

    # ---- for its parts, and for readers of the recording

    def unobserved(self, run: Callable[..., object], *args: object) -> Any:
        """Call ``run(*args)``, code of this package that calls none of the program's, without observing its frames.

        In operators, it runs only through modes, saved-tensor hooks, classes of tensors, and replaced functions.
        """
        if self.trace is None or use.begun or modes.save_hooks or patches["count"] or not _are_own(len(PLAIN_TENSORS)):
            return run(*args)
        return without_trace(self.trace, run, args)

    def taped(self, run: Callable[[], object], given: Sequence[Tensor]) -> NodeTape:
        """Run an update; return the nodes and writes of it. ``given`` are tensors of the call that it reads."""
        before, made = _noted(self), len(self.values.made)
        tape = self.tape = NodeTape(self, given)
        try:
            run()
        finally:
            self.tape = None
        # Other notes than nodes, inputs and writes are about these tensors alone.
        tape.valid = tape.valid and _noted(self) == before and len(self.values.made) - made == tape.results
        return tape

    def value(self, t: Tensor) -> Value:
        """The graph value of ``t`` now."""
        if self.memory.brought:
            self.memory.read(t)
        return self.values.value(t)

    def is_made(self, t: Tensor) -> bool:
        """Whether ``t`` came into being in this recording."""
        return self.values.is_made(t)

    def of_the_call(self, t: Tensor) -> bool:
        """Whether another call would have another tensor in place of ``t``."""
        return self.is_made(t) or self.inputs.changes_with_call(t)

    def capture(self, t: Tensor) -> TracedValue:
        """Make a tensor from outside an input, read again at every call."""
        return self.inputs.capture(t)

    def bound(self, t: Tensor, value: Value) -> None:
        """Called when ``value``, an input, represents ``t``."""

    def above(self, t: Tensor) -> Tensor | None:
        """The tensor that ``t``, which comes from outside, is a view or an alias of."""
        base = None if self.inputs.changes_with_call(t) else cast("Tensor | None", above(t))
        if base is None or t.is_meta or not t._data.size or np.may_share_memory(t._data, base._data):
            return base
        return None  # the base has got other memory since (``.data = other``); its views keep the old one

    def resized(self, t: Tensor, before: tuple[int, ...]) -> Value:
        """Refuse ``t``, whose shape differs from that of its graph value; return an input in place of the value."""
        after = tuple(t._data.shape)
        self.refuse_here(f"uses a tensor that was resized in place from {before} to {after}", Section.MEMORY)
        return self.graph.add_input(TensorType(t.dtype, t._data.shape), "resized", "argument")

    def forget(self) -> None:
        """Drop the references to tensors; those of the call no longer refer to the recorder."""
        self.open = False
        self.leaves = ()  # symbolic sizes keep the recorder
        self.inputs.forget()
        self.memory.forget()
        self.changes.forget()
        self.facts.asked.clear()
        self.python.on_module = _pass_by  # it holds the observer
        self.backward = BackwardPasses(self.values.started, self.refusals)
        self.sizes.sized_nodes.clear()
        self.values.forget()

    def _made(self, t: Tensor, value: Value, look: Look | None, source: Source | None) -> None:
        self.values.add(t, value, look, source, self.refusals.line())


def _noted(recorder: Recorder) -> tuple[int, ...]:
    """How many facts of each kind a recording has, other than nodes, inputs and writes."""
    changes, python = recorder.changes, recorder.python
    met: tuple[Sized, ...] = (
        recorder.predicates, recorder.told, recorder.refusals.lines, recorder.facts.asked, recorder.memory.brought,
        recorder.inputs.hosts, changes.grads, changes.flags, changes.replaced, changes.retained, python.effects,
        python.watched,
    )  # fmt: skip
    return (*map(len, met), changes.refused is not None)


@lru_cache(1)
def _are_own(count: int) -> bool:
    """Whether the ``count`` classes of tensors that functions have met are this package's."""
    return all(kind.__module__.partition(".")[0] == __name__.partition(".")[0] for kind in PLAIN_TENSORS)


_WITH_NUMBERS = (SymScalar, tuple, list)


def _pass_by(module: object) -> None:
    """Note nothing of a module."""


def _same_elements(a: Array, b: Array) -> bool:
    """Whether two arrays are equal views of the same memory."""
    if a is b:
        return True
    same = a.size and a.dtype == b.dtype and a.shape == b.shape and a.strides == b.strides
    return bool(same and a.__array_interface__["data"] == b.__array_interface__["data"])
