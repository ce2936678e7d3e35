"""Build a recording from the recorder's state at the end of a call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from types import FunctionType
from typing import Any

import numpy as np

from tracecomp.base.capture_guide import BreakReason, Section
from tracecomp.eager.aliasing import history_if_allowed
from tracecomp.eager.tensor import Tensor
from tracecomp.ir.graph import Graph, Output, Value
from tracecomp.record.backward.extract import extract, needed_nodes
from tracecomp.record.backward.reach import edges, new_state, was_spent
from tracecomp.record.binding import Binding, tensor_of
from tracecomp.record.caught_errors import may_raise, node_may_raise
from tracecomp.record.derivation import Derivation, sizes_of
from tracecomp.record.effects import Effect
from tracecomp.record.guards.facts import FactGuard
from tracecomp.record.guards.guard import ArrayGuard, GivenContainers
from tracecomp.record.guards.guards import Guards
from tracecomp.record.guards.lookup import attributes_of
from tracecomp.record.guards.memory import MemoryGuard
from tracecomp.record.guards.slots import StateSlot
from tracecomp.record.guards.varying_objects import rebuilds
from tracecomp.record.observer import Observer
from tracecomp.record.pytree import Leaves, added_to, containers_of, flatten, opened, parts_of, parts_within
from tracecomp.record.recorder import Recorder
from tracecomp.record.recording import Rebased, Rebound, Recording, Repeated, SeenValue
from tracecomp.record.results import Common, Followed, Found, Held, Passed, Plain, Result, Results
from tracecomp.record.same_values import PLAIN
from tracecomp.record.shared_memory import inputs_that_share
from tracecomp.record.symbolic.sym_int import SymInt
from tracecomp.record.symbolic.sym_scalar import SymScalar, followed
from tracecomp.record.tensor_facts import Asked

KINDS = ("argument", "state", "memory", "place", "grad", "host", "size", "number")


def _is_there(place: StateSlot, n: int) -> bool:
    """Whether a place still has the same number of tensors and numbers: a shortened list is not a settled state."""
    return n < len(place.leaves())


def _leaves_history(where: str) -> BreakReason:
    return BreakReason(f"leaves gradient history in {where}", Section.STEP, "Detach the written values")


class Finish:
    """Turns what a recorder holds at the end of a call into a Recording."""

    def __init__(self, recorder: Recorder, guards: Guards, leaves: Leaves, result: object, observer: Observer) -> None:
        self.recorder = recorder
        self.guards = guards
        self.leaves = leaves
        self.result = result
        self.observer = observer
        self.outputs: list[Output] = []
        self.found = Results(recorder, self._origin, lambda value, name: self._add(value, name, "result"))
        self.numbers = {id(t): i for i, t in reversed(list(enumerate(leaves)))}
        self.numbers.update({id(t): i for i, t in recorder.inputs.arrays.items()})
        self.holders: dict[int, Binding] = {}
        self.repeated: dict[int, object] = {}  # left in several places, by identity
        self.cyclic: set[int] = set()  # objects of the call that hold themselves
        self.containers: dict[int, Common] = {}
        self.sources = self._sources()
        self.derivation = Derivation(recorder, observer, self.outputs, self.sources, self._holder, self._add)

    def recording(self, derive: bool) -> Recording:
        self.recorder.memory.check()
        values: list[Any] = []
        self.observer.changes.repeat_unseen()
        self._find_repeated()
        structure = flatten(self.result, values, self._is_one_object, every=True)
        # Effects are repeated after a call, so what they hold has to be made by the graph as well.
        self.recorder.python.effects += [Effect(left, None, ()) for left in self.guards.modes.left()]
        effects = [self._left_by(e) for e in self.recorder.python.effects]
        built = [self._built(v) for v in self.repeated.values()]
        left = [*values, *[x for *_, kept in effects for x in kept], *[x for _, kept in built for x in kept]]
        held = [t for h in self.guards.places for t in h.place.tensors()]
        tensors = dict.fromkeys([*[v for v in left if isinstance(v, Tensor)], *held])
        self.recorder.memory.leave_tensors(tensors, self._known())
        derive = derive and self._history_outside() is None
        gradients = [g for slot in self.recorder.changes.grads.values() if (g := slot.tensor._grad) is not None]
        # Tensors are noted before anything is differentiated: noting gives each its place among the results.
        self.found.note([*tensors, *[t._grad for t in tensors if t._grad is not None], *gradients])
        rebased = self._rebased_arguments() if derive else []
        if derive:
            self.found.differentiate(list(tensors), was_spent)
            for t in rebased:
                if not was_spent(t):
                    self.found.add_root(t)
        roots = self.found.roots
        results = [self._result(v) for v in values]
        repeated = [Repeated(e.apply, e.owner, shape, list(map(self._result, kept))) for e, shape, kept in effects]
        rebound = self._rebound()
        updates = self._updates()
        grads = self._grads()
        predicates = self._predicates()
        # The graph is differentiated when all its own outputs are in it, and before it is cut.
        split_at = self.derivation.derive(roots) if roots else None
        kept_tensors = [*tensors, *[n.tensor for n in self.recorder.numbers], *gradients]
        self.sources.update(self._size_sources())
        split = None if split_at is None else self.derivation.split(*split_at, {b for b, _ in updates}, edges(roots))
        mapping: dict[Value, Value] = {}
        # From here on nothing may be added: the graph is rebuilt without dead nodes, and ``mapping`` leads to it.
        graph, inputs = self._graph(mapping)
        self._close_guards(inputs, updates)
        shared = self._shared_memory(updates)
        self.guards.asked = self._asked_numbers()
        return Recording(
            graph=graph, guards=self.guards, inputs=inputs, structure=structure, results=results, updates=updates,
            writes=self._writes(updates), grads=grads, requires_grad=self._flags(), predicates=predicates, split=split,
            rebased=[Rebased(self._origin(t), self.found.place(t)) for t in rebased],
            rebound=rebound, effects=repeated, sizes=sizes_of(self.recorder, mapping), shared=shared,
            catches=self.recorder.catches and may_raise(graph),
            unsettled=self._unsettled(left, shared) or new_state(self.recorder, kept_tensors),
        )  # fmt: skip

    def _predicates(self) -> list[SeenValue]:
        """Tensor values that Python read, each an output of the graph; outputs that only other processes need."""
        self._keep_told()
        return [
            SeenValue(self._add(p.value, f"p{number}", "predicate"), p.seen, p.source, p.line)
            for number, p in enumerate(self.recorder.predicates)
        ]

    def _asked_numbers(self) -> set[int]:
        """The arguments followed as data of which Python needed a number that follows from them and constants alone.

        Not as the place of a view, which counts from the end where it is negative: a size would serve that no better.
        """
        leaves = {t._value.value: i for i, t in self.recorder.inputs.argument_numbers.items()}
        constants = {i.value for i in self.recorder.graph.inputs if i.role == "constant"}
        found = set()
        for p in self.recorder.predicates if leaves else ():
            nodes = needed_nodes([p.value], set())
            given = {v for v in (p.value, *(v for n in nodes for v in n.inputs)) if v.node is None}
            placed = any(n.op.name == "where" for n in nodes)
            if followed(p.seen) and not placed and given <= leaves.keys() | constants:
                found |= {leaves[v] for v in given & leaves.keys()}
        return found

    def _keep_told(self) -> None:
        """Outputs for communications whose results nothing here needs: other processes wait for this one."""
        needed = needed_nodes([o.value for o in self.outputs], set())
        kept = list(self.recorder.told)
        if self.recorder.catches:  # and for errors that the program catches: whether there is one decides its way
            kept += [n.outputs[0] for n in self.recorder.graph.nodes if node_may_raise(n)]
        for number, value in enumerate(kept):
            if value.node not in needed:
                self._add(value, f"told{number}", "result")

    def _unsettled(self, left: Sequence[Any], shared: Sequence[Binding]) -> BreakReason | None:
        """Return why the recording cannot serve later calls, or None. ``left``: objects that outlive the call."""
        return (
            self.recorder.python.kept or self._changed_values() or self._made_objects(left) or self.found.moved
            or self._told(shared) or self.recorder.changes.unrepeated() or self._history_outside()
        )  # fmt: skip

    # ---- inputs

    def _sources(self) -> dict[Value, Binding]:
        """The source of each input."""
        recorder, met = self.recorder, self.recorder.inputs
        sources: dict[Value, Binding] = {}
        grads = {id(s.initial): s.tensor for s in recorder.changes.grads.values() if s.initial is not None}
        for key, value in met.initial.items():
            if key in met.memories:
                sources[value] = Binding("memory", met.memories[key])
            elif key in met.arguments:
                sources[value] = Binding("argument", self.numbers[key])
            elif key in met.places:
                sources[value] = Binding("place", met.places[key])
            elif key in grads and key not in met.state:
                sources[value] = Binding("grad", self._holder(grads[key]))
            else:
                sources[value] = Binding("state", recorder.values.outside[key])
        for t, place, n in met.place_numbers:
            sources[t._value.value] = Binding("place", (place, n))
        for leaf, t in met.argument_numbers.items():
            sources[t._value.value] = Binding("number", leaf)
        for host in met.hosts.values():
            sources[host.tensor._value.value] = Binding("host", (host.owner, host.key))
        return sources

    def _size_sources(self) -> dict[Value, Binding]:
        """The sources of the sizes that are inputs of the graph: results may have added some."""
        tensors = self.recorder.sizes.tensors
        return {t._value.value: Binding("size", self._size_reader(n)) for n, t in tensors.items()}

    def _size_reader(self, number: int) -> tuple[Binding, int]:
        """The holder of a size, and its axis."""
        (kind, *which), axis = self.recorder.sizes.sources[number][0]
        if kind in ("argument", "number"):
            return Binding(kind, which[0]), axis
        (place,) = [h.place for h in self.guards.places if h.place.id == which[0]]
        return Binding("place", (place, which[1])), axis

    def _holder(self, t: Tensor) -> Binding:
        """The binding of ``t`` in each call: one per tensor whose Python attributes matter."""
        if id(t) not in self.holders:
            given = id(t) in self.recorder.inputs.arguments
            self.holders[id(t)] = Binding("argument", self.numbers[id(t)]) if given else Binding("state", t)
        return self.holders[id(t)]

    def _graph(self, mapping: dict[Value, Value]) -> tuple[Graph, list[Binding]]:
        used = self._used([o.value for o in self.outputs], set())
        chosen = [i for i in self.recorder.graph.inputs if i.value in used and i.value in self.sources]
        chosen.sort(key=lambda i: KINDS.index(self.sources[i.value].kind))
        graph = extract(self.recorder.graph.name, self.recorder.graph, chosen, self.outputs, mapping)
        return graph, [self.sources[i.value] for i in chosen]

    def _used(self, values: Sequence[Value], cut: set[Value]) -> set[Value]:
        nodes = needed_nodes(values, cut)
        return {v for n in nodes for v in n.inputs if v.node is None or v in cut} | set(values)

    def _close_guards(self, inputs: Sequence[Binding], updates: Sequence[tuple[Binding, int]]) -> None:
        chosen = set(inputs)
        live = {v for v, s in self.sources.items() if s in chosen}
        names = {i.value: i.name for i in self.recorder.graph.inputs}
        used = {key: names[v] for key, v in self.recorder.inputs.initial.items() if v in live}
        grads = [(self._holder(s.tensor), s) for s in self.recorder.changes.grads.values()]
        met = self.recorder.inputs
        arrays = {i for i, t in met.arrays.items() if met.initial.get(id(t)) in (None, *live)}
        updated = {b.ref for b, _ in updates if b.kind == "argument"}
        arrays = {g.leaf for g in self.guards.arrays() if self._is_input(g, g.leaf in arrays, updated)}
        others = self.observer.identities()
        self.observer.forget()  # nothing of the program runs from here on
        memory = MemoryGuard(self._memory(), [b for b, _ in updates], self.leaves)
        self.guards.close(
            self.recorder, used, arrays, grads, memory, list(map(self._fact, self.recorder.facts.asked.values())),
            None if others is None or not containers_of(self.leaves) else GivenContainers(self.leaves, others),
        )  # fmt: skip

    def _is_input(self, guard: ArrayGuard, in_graph: bool, updated: Set[int]) -> bool:
        """Whether the graph alone reads an array among the arguments; what numpy reads is guarded instead.

        Raises CaptureError if numpy and the graph would have to take turns, or no effect repeats a change by numpy.
        Later calls run the graph, then the effects.
        """
        array = self.leaves[guard.leaf]
        written = guard.leaf in updated or any(
            np.may_share_memory(t._data, array) for t, _ in self.recorder.changes.writes.values()
        )
        seen, by_effect = id(array) in self.guards.reads.seen_arrays, id(array) in self.observer.changed
        changed = written or guard.check(self.leaves) is not None
        if (changed and seen) or (by_effect and in_graph) or (changed and not written and not by_effect):
            self.recorder.refusals.lines |= self.guards.reads.array_lines
            cause = f"numpy and a tensor both use the array {guard.path}, which the call changes"
            self.recorder.refusals.refuse(BreakReason(cause, Section.NUMBERS, "Change the array outside"))
        return in_graph and not seen

    def _fact(self, asked: Asked) -> FactGuard:
        t = asked.t
        inputs = self.recorder.inputs
        given = id(t) in self.numbers
        held = Binding("place", inputs.places[id(t)]) if id(t) in inputs.places else Binding("state", t)
        holder = Binding("argument", self.numbers[id(t)]) if given else held
        name = f"argument {self.guards.paths[holder.ref]}" if given else inputs.names.get(id(t), "a captured tensor")
        return FactGuard(holder, asked.what, asked.more, asked.seen, asked.line, name)

    def _memory(self) -> list[tuple[Binding, str]]:
        """The tensors and arrays from outside that a call finds, with names."""
        inputs = self.recorder.graph.inputs
        return [
            (b, f"argument {inputs[v.index].name}" if b.kind == "argument" else inputs[v.index].name)
            for v, b in self.sources.items()
            if b.kind in ("argument", "memory", "state", "grad") or (b.kind == "place" and _is_there(*b.ref))
        ]  # fmt: skip

    # ---- outputs

    def _add(self, value: Value, name: str, role: str) -> int:
        """The number of a new output."""
        self.outputs.append(Output(value, name, role))
        return len(self.outputs) - 1

    def _left_by(self, effect: Effect) -> tuple[Effect, Any, list[Any]]:
        """An effect with the structure and leaves of its arguments."""
        kept: list[Any] = []
        return effect, flatten(effect.args, kept, self._is_one_object, every=True), kept

    def _made_objects(self, leaves: Leaves) -> BreakReason | None:
        """Return a reason if an object made in the call outlives it, so that every call would have to make one."""
        for x in leaves:
            if id(x) in self.cyclic:
                return BreakReason(f"returns a {type(x).__name__} made in the call that holds itself", Section.STATE)
            if isinstance(x, (Tensor, *PLAIN, type, FunctionType, tuple, np.ndarray, SymScalar, SymInt)):
                continue
            if self._is_one_object(x) or id(x) in self.observer.known or id(x) in self.numbers:
                continue
            if type(x).__hash__ is None or attributes_of(x) or isinstance(x, Iterator):
                return BreakReason(
                    f"returns an object of class {type(x).__name__} that is made in the call", Section.STATE,
                    "Return tensors, lists, dicts, tuples or dataclasses",
                )  # fmt: skip
        return None

    def _find_repeated(self) -> None:
        """Find the containers and objects made in the call that it leaves behind in several places, as one object.

        Their classes are taken apart from now on: every call makes such objects of their attributes.
        """
        met: set[int] = set()
        above: set[int] = set()

        def walk(value: object) -> None:
            kind = type(value)
            if self._is_outside(value) or not (opened(kind) or (self._is_new(value) and rebuilds(kind))):
                return
            if id(value) in above:
                self.cyclic.add(id(value))
                return
            if not isinstance(value, tuple):
                if id(value) in met:
                    self.repeated[id(value)] = value
                    return
                met.add(id(value))
            above.add(id(value))
            for part in parts_within(value):
                walk(part)
            above.discard(id(value))

        for value in (self.result, *[e.args for e in self.recorder.python.effects]):
            walk(value)

    def _is_new(self, value: object) -> bool:
        """Whether an object was made in the call."""
        return id(value) not in self.observer.known and id(value) not in self.numbers

    def _built(self, value: object) -> tuple[Any, list[Any]]:
        """Structure and leaves of a repeated container or object."""
        kept: list[Any] = []
        return flatten(value, kept, lambda x: x is not value and self._is_one_object(x), every=True), kept

    def _is_one_object(self, value: object) -> bool:
        return self._is_outside(value) or id(value) in self.repeated or id(value) in self.cyclic

    def _is_outside(self, value: object) -> bool:
        """Whether a list, dict or dataclass was there before the call: a later call means the one there then."""
        changeable = isinstance(value, list | dict) or bool(parts_of(value)) or bool(added_to(value))
        return changeable and id(value) in self.observer.known

    def _known(self) -> list[object]:
        """The objects from outside that the program has met."""
        return [read.value for read in self.observer.known.values()]

    def _rebased_arguments(self) -> list[Tensor]:
        """Arguments that the call wrote to with gradient history."""
        recorder = self.recorder
        return [
            t for key, t in recorder.inputs.arguments.items()
            if not t._linked and t.grad_fn is not None and t.grad_fn.number >= recorder.values.started
            and recorder.value(t) is not recorder.inputs.initial.get(key)
        ]  # fmt: skip

    def _result(self, v: Any) -> Result:
        if type(v) in (SymScalar, SymInt):
            return Followed(self._add(self.recorder.value(v.tensor), f"n{len(self.outputs)}", "result"))
        if isinstance(v, np.ndarray) and id(v) in self.numbers:
            return Passed(self.numbers[id(v)])
        if isinstance(v, np.ndarray) and id(v) not in self.observer.known:
            self.recorder.memory.leave(v, self._known())
            return Plain(v.copy())
        if isinstance(v, np.ndarray) or self._is_outside(v):
            return Found(self.observer.known[id(v)])
        if id(v) in self.repeated:
            if id(v) not in self.containers:
                shape, kept = self._built(v)
                self.containers[id(v)] = Common(shape, list(map(self._result, kept)))
            return self.containers[id(v)]
        return self.found.of(v) if isinstance(v, Tensor) else Plain(v)

    def _rebound(self) -> list[Rebound]:
        """The contents of places at the end, if they differ from before."""
        found = []
        followed_there = {(place.id, n): t for t, place, n in self.recorder.inputs.place_numbers}
        for held in self.guards.places:
            now = held.place.value()
            leaves: list[Any] = []
            structure = flatten(now, leaves)
            before = [followed_there.get((held.place.id, n), x) for n, x in enumerate(held.leaves)]
            if any(not self._stays(a, b) for a, b in zip(leaves, before, strict=False)):
                found.append(Rebound(held.place, structure, list(map(self._result, leaves)), now is held.value))
        return found

    def _stays(self, now: object, before: object) -> bool:
        """Whether a place has the same contents, by identity and not by current value, which differs in another call.

        ``before`` is the tensor of a dynamic number there.
        """
        if type(now) is SymScalar and isinstance(before, Tensor):
            return self.recorder.value(now.tensor) is self.recorder.value(before)
        return now is before

    def _origin(self, t: Tensor) -> Binding:
        value = self.recorder.inputs.initial.get(id(t))
        if value in self.sources:
            return self.sources[value]
        return Binding("argument", self.numbers[id(t)]) if id(t) in self.numbers else Binding("state", t)

    def _updates(self) -> list[tuple[Binding, int]]:
        """Tensors from outside whose value is another at the end."""
        found = []
        for key, initial in list(self.recorder.inputs.initial.items()):
            final = self.recorder.value(self.recorder.values.outside[key])
            if final is not initial:
                name = self.recorder.graph.inputs[initial.index].name
                found.append((self.sources[initial], self._add(final, name, "state")))
        return found

    def _writes(self, updates: Sequence[tuple[Binding, int]]) -> list[tuple[Binding, int]]:
        """The tensors whose storages count writes, and those that are written without a count (as by ``x.data``)."""
        held = [(self._origin(t), n) for t, n in self.recorder.changes.writes.values()]
        written = [m for b, _ in updates for m in (b.ref.members if b.kind == "memory" else (b,))]
        counted = {id(t._storage) for t, _ in self.recorder.changes.writes.values()}
        quiet = [(b, 0) for b in written if id(getattr(tensor_of(b, self.leaves), "_storage", None)) not in counted]
        return [(b, n) for b, n in held + quiet if isinstance(tensor_of(b, self.leaves), Tensor)]

    def _grads(self) -> list[tuple[Binding, Held | None]]:
        """The value of each written ``.grad`` at the end."""
        found: list[tuple[Binding, Held | None]] = []
        for slot in self.recorder.changes.grads.values():
            now = slot.tensor._grad
            if slot.written and now is not slot.initial:
                found.append((self._holder(slot.tensor), None if now is None else self.found.of(now)))
        return found

    def _flags(self) -> list[tuple[Binding, bool]]:
        """Leaves from outside whose ``requires_grad`` is another at the end."""
        return [
            (self._holder(t), t._requires_grad) for t, before in self.recorder.changes.flags.values()
            if t._grad_fn is None and t._requires_grad is not before
        ]  # fmt: skip

    def _changed_values(self) -> BreakReason | None:
        """Says so when the call changed Python values that it also read: a graph cannot repeat that."""
        change = self.observer.changes.unrepeated() or self.guards.modules.change()
        change = change or next((c for held in self.guards.places if (c := held.change()) is not None), None)
        for owner, key, _, before in self.recorder.inputs.hosts.values():
            if id(getattr(owner, "group", owner)) in self.recorder.python.stepped:
                continue
            now = owner[key] if isinstance(owner, Mapping) else getattr(owner, key)
            if now != before:
                change = f"{key} changed from {before} to {now}"
        if change is None:
            return None
        return BreakReason(f"changes Python values that it reads ({change})", Section.STATE, "Change them outside")

    def _shared_memory(self, updates: Sequence[tuple[Binding, int]]) -> list[Binding]:
        initial, outside = self.recorder.inputs.initial.items(), self.recorder.values.outside
        arrays = [(outside[key]._data, self.sources[v]) for key, v in initial if v in self.sources]
        return inputs_that_share(arrays, [b for b, _ in updates])

    def _told(self, shared: Sequence[Binding]) -> BreakReason | None:
        """Says so when the call writes memory that inputs share."""
        names = {b: self.recorder.graph.inputs[v.index].name for v, b in self.sources.items()}
        where = " and that of ".join(dict.fromkeys(names[b] for b in shared[:2]))
        cause = f"writes memory that is both that of {where}"
        return BreakReason(cause, Section.MEMORY, "Pass a clone") if shared else None

    def _history_outside(self) -> BreakReason | None:
        """Says so when gradient history crosses the border of the call, which a recording cannot repeat."""
        recorder, met = self.recorder, self.recorder.inputs
        if recorder.backward.foreign is not None:
            where = recorder.backward.foreign
            cause = f"runs backward, at {where}, through operations made before the call"
            return BreakReason(cause, Section.STEP, "Detach their results")
        for key, initial in met.initial.items():
            t = recorder.values.outside[key]
            if t._data.shape != initial.shape:
                name = recorder.graph.inputs[initial.index].name
                cause = f"changes the shape of {name} from {initial.shape} to {tuple(t._data.shape)}"
                return BreakReason(cause, Section.MEMORY)
            fn = history_if_allowed(t)
            if key in met.arguments and not t._linked:
                continue
            if fn is not None and fn.number >= recorder.values.started and recorder.value(t) is not initial:
                name = recorder.graph.inputs[initial.index].name
                return _leaves_history(f"{name}, a tensor from outside")
        for t in recorder.values.shared():
            if history_if_allowed(t) is not None:
                return _leaves_history("memory that several inputs share")
        for key, t in recorder.values.outside.items():  # views and aliases of inputs
            fn = None if key in met.initial else history_if_allowed(t)
            if fn is not None and fn.number >= recorder.values.started:
                return _leaves_history("a view of a tensor from outside")
        for ref, source in recorder.changes.retained:  # no line to cut at: parts would see less of its gradient
            made = ref()
            if made is not None and not was_spent(made):
                cause = f"retains the gradient of a tensor, at {source}, for a backward pass outside of the call"
                return BreakReason(cause, Section.STEP)
        return None
