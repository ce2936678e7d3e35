"""The recorder: while a program runs eagerly, every primitive also becomes a node of a graph.

What a tensor is worth in the graph follows the one aliasing model of ``eager/tensor.py``: memory has a root, whose cell
holds the current value and counts writes; a view re-derives its value from the root when its version is behind. Turning
writes in place into new values is called functionalization.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import FrameType
from typing import Any, cast

import numpy as np

from tracecomp.base.errors import CaptureError, Source, user_source
from tracecomp.eager.modes import modes, no_grad, unrecorded
from tracecomp.eager.tensor import Size, Tensor, gradient_edge, shared
from tracecomp.eager.tensor_base import Edge, Node, View, above, node_count
from tracecomp.eager.views import look, write
from tracecomp.ir.graph import Graph, Origin, Value
from tracecomp.ir.op import Op
from tracecomp.ir.types import TensorType, float64, from_numpy_dtype
from tracecomp.ops.autodiff import Sym, scalar_of
from tracecomp.record.binding import Array
from tracecomp.record.context import OptimizerLike
from tracecomp.record.effects import Effect
from tracecomp.record.guards.reads import Entry
from tracecomp.record.guards.slots import StateSlot
from tracecomp.record.pytree import Leaves
from tracecomp.record.shared_memory import SharedMemory, views
from tracecomp.record.size_range import Conditions
from tracecomp.record.symbolic.sizes import Holder, Sizes, Varying
from tracecomp.record.symbolic.sym_int import SizedGraph
from tracecomp.record.symbolic.sym_scalar import SymScalar, dtype_of, followed
from tracecomp.record.traced_value import GradSlot, Look, Predicate, TracedValue


class Recorder:
    """One recording in progress; ``modes.recorder`` of the thread that runs it."""

    def __init__(self, name: str, strict: bool = True, follow: bool = False, varying: Varying | None = None) -> None:
        self.graph = Graph(name) if varying is None else SizedGraph(name)
        self.open = True
        self.sizes = Sizes(self.graph, self, self._cell, varying or Varying())
        self.strict = strict
        self.follow = follow
        self.sized = varying is not None
        self.numbers: list[SymScalar] = []
        self.cells: dict[int, TracedValue] = {}
        self.outside: dict[int, Tensor] = {}
        self.initial: dict[int, Value] = {}
        self.state: dict[int, Tensor] = {}
        self.arguments: dict[int, Tensor] = {}
        self.places: dict[int, tuple[StateSlot, int]] = {}
        self.followed: list[tuple[Tensor, StateSlot, int]] = []
        self.argument_numbers: dict[int, Tensor] = {}
        self.arrays: dict[int, Tensor] = {}
        self.memories: dict[int, SharedMemory] = {}
        self._merged: dict[int, tuple[Tensor, tuple[View, ...], Tensor]] = {}
        self.grads: dict[int, GradSlot] = {}
        self.hosts: dict[tuple[int, str], tuple[Any, str, Tensor]] = {}
        self.host_values: dict[tuple[int, str], float] = {}
        self.effects: list[Effect] = []
        self.leaves: Leaves = ()
        self.running: FrameType | None = None  # of the function that is compiled
        self.blamed: set[int] = set()  # its lines that cannot be recorded
        self.quiet = False  # what asks for values now does so only to print them, which every call repeats
        self.stepped: set[int] = set()
        self.set_by_call: set[tuple[int, Any]] = set()  # what the call has written itself: objects and steps
        self.watched: dict[tuple[int, str], tuple[Any, str]] = {}
        self.predicates: list[Predicate] = []
        self.modules: dict[int, Any] = {}
        self.optimizers: dict[int, OptimizerLike] = {}
        self.names: dict[int, str] = {}
        self.on_module: Callable[[Any], None] = lambda module: None
        self.made: list[tuple[weakref.ref[Tensor], Source | None, int]] = []
        self.writes: dict[int, tuple[Tensor, int]] = {}
        self.requires_grad: dict[int, bool] = {}
        self.flags: dict[int, tuple[Tensor, bool]] = {}
        self.edges: dict[int, tuple[Node, int]] = {}
        self.stopped: str | None = None
        self.kept: str | None = None  # what a library has kept that every call would have to make anew
        self.started = node_count()
        self.foreign: str | None = None
        self.backward_of: Origin | None = None

    # ---- called by the tensor layer

    def node(self, op: Op, operands: tuple[Any, ...], attrs: dict[str, object], outs: list[Tensor]) -> None:
        """Note that ``op`` made ``outs`` from ``operands``."""
        here = self.graph.here = self.backward_of or Origin(user_source(), modes.scopes)
        dtype = next((x.dtype for x in reversed(operands) if isinstance(x, Tensor)), None)
        values = [
            self.value(x) if isinstance(x, Tensor) else self.graph.scalar(scalar_of(x, dtype), dtype)  # type: ignore[arg-type]
            for x in operands
        ]
        plain = {k: tuple(v) if isinstance(v, Size) else v for k, v in attrs.items()}
        types = [TensorType(from_numpy_dtype(t._data.dtype), t._data.shape) for t in outs]
        for t, v in zip(outs, self.graph.add(op, values, plain, types), strict=True):
            self._made(t, v, None if t._base is None else self._look(operands[0], (op, attrs)), here.source)

    def write(self, target: Tensor, value: Tensor) -> None:
        """Note that ``target``'s elements became ``value``."""
        self.graph.here = self.backward_of or Origin(user_source(), modes.scopes)
        self._set(target, self.value(value))
        holder = target
        while (seen := self.look(holder)) is not None and seen.of._storage is holder._storage:
            holder = seen.of
        if not self.is_made(holder):
            self.writes[id(holder)] = (holder, self.writes.get(id(holder), (holder, 0))[1] + 1)

    def alias(self, t: Tensor, base: Tensor) -> None:
        """Note that ``t`` is ``base`` without history; while recording, what owns its memory lives as long as it."""
        self._made(t, self.value(base), self._look(base, None), user_source())

    def look_at(self, t: Tensor, of: Tensor, step: View, found: Tensor, places: Sequence[tuple[Tensor, int]]) -> None:
        """Note that ``t`` looks at ``of`` where 0-d tensors say; ``found`` are its elements, computed from those."""
        source, line = user_source(), self.line()
        numbers = tuple(Predicate(self.value(index), at, source, line) for index, at in places)
        self._made(t, self.value(found), self._look(of, step)._replace(numbers=numbers), source)

    def follows(self, t: Tensor) -> bool:
        """Whether 0-d tensors say where ``t`` looks."""
        while (seen := self.look(t)) is not None:
            if seen.numbers:
                return True
            t = seen.of
        return False

    def settle(self, t: Tensor) -> None:
        """Hold the recording to the places that ``t`` looks at: it is read or written as part of other memory."""
        while (seen := self.look(t)) is not None:
            self.predicates += seen.numbers
            t._look, t = seen._replace(numbers=()), seen.of

    def replace(self, target: Tensor, value: Tensor) -> None:
        """Note ``target.data = value``."""
        self._set(target, self.value(value))

    def constant(self, t: Tensor) -> None:
        """Note data that Python brought in."""
        array = t._data
        argument = next((x for x in self.arrays.values() if _same_elements(x._data, array)), None)
        if argument is not None:
            self._made(t, self.value(argument), self._look(argument, None), user_source())
            return
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
        self.predicates.append(Predicate(self.value(t), seen, user_source(), self.line()))

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
        return type(value)(map(self.plain, value)) if type(value) in (tuple, list) else value

    def leave(self, t: Tensor, how: str) -> None:
        """Refuse that a recorded value leaves the graph."""
        self.refuse(
            f"{how} at {user_source()}: inside a compiled function a tensor's values cannot leave for numpy, because "
            "later calls would not see it. Return the tensor, use tensor operations, or compile with fullgraph=False."
        )

    def shown(self) -> None:
        """Refuse that the text of a tensor is made: later calls would go on with this call's."""
        if not self.quiet:
            self.refuse_here("makes the text of a tensor")

    def refuse(self, message: str) -> None:
        """CaptureError; or, when not ``strict``, the rest of the call runs without being recorded."""
        self.stopped = message
        self.blame(self.line())
        if self.strict:
            raise CaptureError(message)
        modes.recorder = None

    def line(self) -> int:
        """The line of the compiled function that runs, or 0."""
        return 0 if self.running is None else self.running.f_lineno or 0

    def blame(self, line: int) -> None:
        """Note a line because of which there is no recording."""
        self.blamed |= {line} - {0}

    def refuse_here(self, what: str) -> None:
        """Refuse something that the program does at the line that runs."""
        self.refuse(f"{what}, at {user_source()}: a recording cannot stand for that")

    def backward_step(self, node: Node) -> None:
        """Note that the backward pass runs ``node``: what it records belongs to the line that made ``node``."""
        made = node.origin
        self.backward_of = None if made is None else Origin(made.source, (*made.scope, "backward"))
        if node.number < self.started and self.foreign is None:
            self.foreign = str(user_source() or "a line of the library")
            self.blame(self.line())

    def backward_from(self, roots: Sequence[tuple[Node, int]], grads: Sequence[Tensor]) -> None:
        """Called when a backward pass begins."""

    def backward_done(
        self, node: Node, grads: Sequence[Tensor | None], found: Sequence[Tensor | None], edges: Sequence[Edge]
    ) -> None:
        """Called when the backward pass has run ``node``, which ``grads`` reached; ``found`` go to ``edges``."""

    def function_ran(self, node: Node, args: tuple[object, ...]) -> None:
        """Called when a user's Function has run on ``args``."""

    def get_grad(self, t: Tensor) -> Tensor | None:
        if self.is_made(t):
            return t._grad
        slot = self._slot(t)
        if not slot.written:
            slot.read = True
        self._check_whole(t._grad)
        return t._grad

    def _check_whole(self, grad: Tensor | None) -> None:
        """Refuse a gradient that consists of other tensors: a slot holds one array."""
        if grad is not None and hasattr(type(grad), "__tensor_flatten__"):
            self.refuse_here("reads or sets a sparse gradient")

    def set_grad(self, t: Tensor, grad: Tensor | None) -> None:
        if self.is_made(t):
            return
        self._slot(t).written = True
        self._check_whole(grad)
        if grad is not None:
            self.value(grad)

    def set_requires_grad(self, t: Tensor, before: bool) -> None:
        """Note that leaf ``t``, which comes from outside, had ``before`` as its ``requires_grad``."""
        self.flags.setdefault(id(t), (t, before))
        if id(t) in self.outside:
            self._note_edge(t)

    def _note_edge(self, t: Tensor) -> None:
        """Note where the gradient of ``t``, which comes from outside, goes."""
        edge = gradient_edge(t)
        if edge is not None and (t._grad_fn is None or t._grad_fn.number < self.started):
            self.edges[id(t)] = edge

    def note_number(self, number: SymScalar) -> None:
        """Note a number that is followed."""
        self.numbers.append(number)

    @property
    def conditions(self) -> Conditions:
        """The sizes for which the recording holds."""
        return self.sizes.conditions

    def size_tensor(self, number: int) -> Tensor:
        """A size as an input of the graph."""
        return self.sizes.size_tensor(number)

    def host(self, owner: object, key: str, value: object) -> Any:
        """A number that every call reads again from ``owner``, as a 0-d float64 tensor; other values are guarded."""
        if id(getattr(owner, "group", owner)) in self.stepped:
            self.refuse(
                f"reads {key}, at {user_source()}, after a schedule's step in the same call. Step the schedule last."
            )
        if (id(getattr(owner, "group", owner)), Entry(key).same()) in self.set_by_call:
            return value  # what the call has set itself: what that was made of is guarded
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.watch(owner, key)
            return value
        found = self.hosts.get((id(owner), key))
        if found is None:
            t = Tensor._wrap(np.array(float(value)))
            name = f"{key}{len(self.hosts) or ''}"
            t._value = TracedValue(self, self.graph.add_input(TensorType(float64, ()), name, "host"))
            found = self.hosts[id(owner), key] = (owner, key, t)
            self.host_values[id(owner), key] = value
        return found[2]

    def watch(self, owner: object, key: str) -> None:
        """Guard ``owner[key]``, or the attribute ``key`` of ``owner``."""
        self.watched.setdefault((id(owner), key), (owner, key))

    def effect(
        self,
        step: Callable[..., object],
        owner: object,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
        groups: Sequence[object],
    ) -> Any:
        """Run ``step`` aside; later calls run it again after the graph. It may change the numbers in ``groups``."""
        if any(type(x) not in (int, float, type(None)) for x in (*args, *kwargs.values())):
            self.refuse(
                f"{type(owner).__name__}.step at {user_source()} depends on a value of the compiled call. Return the "
                "value and make this step outside."
            )
        self.effects.append(Effect(partial(step, owner, *args, **kwargs), None, ()))
        self.stepped.update(map(id, (owner, *groups)))
        watch = sys.gettrace()
        sys.settrace(None)
        try:
            with unrecorded():
                return step(owner, *args, **kwargs)
        finally:
            sys.settrace(watch)

    def module_ran(self, module: Any) -> None:
        """Note a module whose attributes the program may have read."""
        if id(module) not in self.modules:
            self.modules[id(module)] = module
            for name, t in (*module.named_parameters(), *module.named_buffers()):
                self.names.setdefault(id(t), name)
            self.on_module(module)

    def optimizer_ran(self, optimizer: OptimizerLike) -> None:
        """Note an optimizer whose state the program has used."""
        self.optimizers[id(optimizer)] = optimizer

    # ---- values

    def value(self, t: Tensor) -> Value:
        """The graph value of ``t`` now."""
        cell = self._cell(t)
        root, chain = self.root(t)
        if cell is not None and cell.value.shape != t._data.shape:
            self.refuse(
                f"the size of a tensor was changed in place before {user_source()}, from {cell.value.shape} to "
                f"{tuple(t._data.shape)}: a graph cannot hold that. Make a new tensor of that size instead."
            )
            return self.graph.add_input(TensorType(t.dtype, t._data.shape), "resized", "argument")
        if root is t:
            return self.capture(t).value if cell is None else cell.value
        if cell is not None and cell.version == self._version_of(root):
            return cell.value
        self.settle(t)
        found: Value = look(Sym(self.graph, self.value(root)), chain).value
        self._keep(t, TracedValue(self, found, self._version_of(root)))
        return found

    def capture(self, t: Tensor) -> TracedValue:
        """Make a tensor from outside an input, read again at every call."""
        self.state[id(t)] = t
        name = self.names.get(id(t), "")
        if not name or any(i.name == name for i in self.graph.inputs):
            name = f"s{len(self.state) - 1}"
        return self.bind(t, name, "state")

    def bind(self, t: Tensor, name: str, role: str, holder: Holder | None = None) -> TracedValue:
        """Add an input that stands for ``t``, which ``holder`` has, as it is when the program starts."""
        value = self.graph.add_input(TensorType(from_numpy_dtype(t._data.dtype), t._data.shape), name, role)
        if holder is not None and isinstance(self.graph, SizedGraph):
            self.graph.set_shape(value, self.sizes.shape_for(holder, value.shape))
        self.initial[id(t)] = value
        cell = TracedValue(self, value)
        self._keep(t, cell)
        if role == "argument":
            self.arguments[id(t)] = t
        return cell

    def bind_array(self, leaf: int, array: Array, name: str) -> None:
        """Add an input for an array among the arguments: what Python makes into a tensor of it looks at its memory."""
        if all(t._data is not array for t in self.arrays.values()):
            self.arrays[leaf] = shared(array)
            self.bind(self.arrays[leaf], name, "argument", ("argument", leaf))

    def bind_memory(self, memory: SharedMemory, members: Sequence[Any], leaves: Leaves) -> None:
        """Add an input for what ``members`` share, tensors or arrays: they are views of it."""
        root = shared(memory.read(leaves))
        self.memories[id(root)] = memory
        self.bind(root, f"m{len(self.memories) - 1}", "state")
        for n, (binding, member) in enumerate(zip(memory.members, members, strict=True)):
            t = member
            if isinstance(member, np.ndarray):
                t = self.arrays[binding.ref] = shared(member)
            if binding.kind == "argument":
                self.arguments[id(t)] = t
            self._merged[id(t)] = (root, views(memory, n), t)

    def merged(self) -> list[Tensor]:
        """The tensors from outside that are views of memory they share."""
        return [t for *_, t in self._merged.values()]

    def bind_place(self, place: StateSlot) -> None:
        """Add inputs that stand for the tensors a place holds, read from there at every call."""
        leaves = place.leaves()
        for n, x in enumerate(leaves):
            name = f"{place.key}{n or ''}"
            if isinstance(x, Tensor) and id(x) not in self.initial:
                self.places[id(x)] = (place, n)
                self.bind(x, name, "state", ("place", place.id, n))
            elif self.follow and followed(x):
                leaves[n] = number = self._bind_number(x, name)
                self.followed.append((number.tensor, place, n))
        if any(type(x) is SymScalar for x in leaves):
            place.fill(leaves)

    def bind_argument(self, leaf: int, value: int | float, name: str) -> SymScalar:
        """What stands for argument ``leaf``, a number that every call gives anew."""
        number = self._bind_number(value, name)
        self.argument_numbers[leaf] = number.tensor
        return number

    def _bind_number(self, value: int | float, name: str) -> SymScalar:
        t = Tensor._wrap(np.array(value))
        t._value = TracedValue(self, self.graph.add_input(TensorType(dtype_of(value), ()), name, "host"))
        return SymScalar(self, t, value)

    def forget(self) -> None:
        """Let go of the tensors met; what was made no longer points here."""
        self.open = False
        self.cells.clear()
        self.outside.clear()
        self.sizes.sized_nodes.clear()
        for ref, *_ in self.made:
            t = ref()
            if t is not None:
                t._value = t._look = None

    def _cell(self, t: Tensor) -> TracedValue | None:
        cell: TracedValue | None = t._value
        if cell is not None and cell.recorder is self:
            return cell
        return self.cells.get(id(t))

    def is_made(self, t: Tensor) -> bool:
        """Whether ``t`` came into being in this recording."""
        return t._value is not None and t._value.recorder is self

    def of_the_call(self, t: Tensor) -> bool:
        """Whether another call would have another tensor in place of ``t``."""
        return self.is_made(t) or id(t) in self.arguments or id(t) in self.places

    def _keep(self, t: Tensor, cell: TracedValue) -> None:
        if self.is_made(t):
            t._value = cell
        else:
            self.cells[id(t)] = cell
            if id(t) not in self.outside:
                self.outside[id(t)] = t
                self.requires_grad[id(t)] = t.requires_grad
                self._note_edge(t)

    def look(self, t: Tensor) -> Look | None:
        """What ``t`` looks at, if it was made in this recording as a view or an alias."""
        return t._look if self.is_made(t) else None

    def above(self, t: Tensor) -> Tensor | None:
        """The tensor that ``t``, which comes from outside, is a view or an alias of."""
        base = None if id(t) in self.arguments or id(t) in self.places else cast("Tensor | None", above(t))
        if base is None or t.is_meta or not t._data.size or np.may_share_memory(t._data, base._data):
            return base
        return None  # the base has got other memory since (``.data = other``); its views keep the old one

    def root(self, t: Tensor) -> tuple[Tensor, tuple[View, ...]]:
        """The tensor whose cell the memory of ``t`` has, and the views that lead from there to ``t``."""
        if self.is_made(t):
            found = self.look(t)
            return (t, ()) if found is None else (found.root, found.chain)
        chain: tuple[View, ...] = ()
        while id(t) not in self._merged:
            base = self.above(t)
            if base is None:
                return t, chain
            t, chain = base, (*t._chain, *chain)
        root, steps, _ = self._merged[id(t)]
        return root, (*steps, *chain)

    def _look(self, of: Tensor, step: View | None) -> Look:
        """What a new view or alias of ``of`` looks at."""
        root, chain = self.root(of)
        return Look(of, step, root, chain if step is None else (*chain, step))

    def _made(self, t: Tensor, value: Value, look: Look | None, source: Source | None) -> None:
        """Note what ``t`` is worth, which was made at ``source``, and what it looks at."""
        t._value, t._look = TracedValue(self, value, 0 if look is None else self._version_of(look.root)), look
        self.made.append((weakref.ref(t), source, self.line()))

    def _version_of(self, root: Tensor) -> int:
        cell = self._cell(root)
        return 0 if cell is None else cell.version

    def _set(self, t: Tensor, new: Value) -> None:
        """Write to the memory behind all views and aliases at once: elements that an expanded one shows are one."""
        self.settle(t)
        root, chain = self.root(t)
        cell = self._cell(root) or self.capture(root)
        cell.value = write(Sym(self.graph, self.value(root)), chain, Sym(self.graph, new)).value if chain else new
        cell.version += 1
        if root is not t:
            self._keep(t, TracedValue(self, new, cell.version))

    def _slot(self, t: Tensor) -> GradSlot:
        slot = self.grads.get(id(t))
        if slot is None:
            slot = self.grads[id(t)] = GradSlot(t)
            if slot.initial is not None and self._cell(slot.initial) is None:
                self.bind(slot.initial, f"g{len(self.grads) - 1}", "state")
        return slot


def _same_elements(a: Array, b: Array) -> bool:
    """Whether two arrays show the same memory alike."""
    if a is b:
        return True
    same = a.size and a.dtype == b.dtype and a.shape == b.shape and a.strides == b.strides
    return bool(same and a.__array_interface__["data"] == b.__array_interface__["data"])
