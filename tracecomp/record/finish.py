"""What a recorder holds at the end of a call, made into a recording."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import FunctionType
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from tracecomp.autograd.engine import run_backward
from tracecomp.eager.aliasing import history_if_allowed
from tracecomp.eager.tensor import Tensor
from tracecomp.eager.tensor_base import Node
from tracecomp.ir.graph import Graph, Input, Output, Value
from tracecomp.ir.graph import Node as GraphNode
from tracecomp.record.backward.extract import extract, needed_nodes
from tracecomp.record.backward.min_cut import choose_saved
from tracecomp.record.backward.reach import edges, new_state, was_spent
from tracecomp.record.backward.template import Template
from tracecomp.record.binding import Binding, tensor_of
from tracecomp.record.effects import Effect
from tracecomp.record.guards.guards import Guards
from tracecomp.record.guards.memory import MemoryGuard, overlap, shows_elements_twice
from tracecomp.record.guards.reads import attributes_of
from tracecomp.record.guards.snapshots import PLAIN
from tracecomp.record.observer import Observer
from tracecomp.record.pytree import Leaves, flatten, unflatten
from tracecomp.record.recorder import Recorder
from tracecomp.record.recording import Rebased, Rebound, Recording, Repeated, SeenValue, Sizes, Split
from tracecomp.record.results import Followed, Found, Held, Passed, Plain, Result, Results
from tracecomp.record.symbolic.sym_int import SizedGraph, SymInt
from tracecomp.record.symbolic.sym_scalar import SymScalar

KINDS = ("argument", "state", "memory", "place", "grad", "host", "size", "number")


def plain(result: object) -> Any:
    """``result`` with plain numbers in place of followed ones."""
    leaves: list[Any] = []
    structure = flatten(result, leaves)
    if not any(type(x) in (SymScalar, SymInt) for x in leaves):
        return result
    return unflatten(structure, [x.value if type(x) in (SymScalar, SymInt) else x for x in leaves])


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
        self.sources = self._sources()

    def recording(self, derive: bool) -> Recording:
        values: list[Any] = []
        structure = flatten(self.result, values, self._is_outside)
        # Effects are repeated after a call, so what they hold has to be made by the graph as well.
        effects = [self._left_by(e) for e in self.recorder.effects]
        left = [*values, *[x for *_, kept in effects for x in kept]]
        held = [t for h in self.guards.places for t in h.place.tensors()]
        tensors = dict.fromkeys([*[v for v in left if isinstance(v, Tensor)], *held])
        derive = derive and self._history_outside() is None
        gradients = [g for slot in self.recorder.grads.values() if (g := slot.tensor._grad) is not None]
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
        updated = {b for b, _ in updates}
        grads = self._grads()
        predicates: list[SeenValue] = []
        for p in self.recorder.predicates:
            number = self._add(p.value, f"p{len(predicates)}", "predicate")
            predicates.append(SeenValue(number, p.seen, p.source, p.line))
        # The graph is differentiated when all its own outputs are in it, and before it is cut.
        split_at = self._derive(roots) if roots else None
        kept_tensors = [*tensors, *[n.tensor for n in self.recorder.numbers]]
        kept_tensors += gradients
        self.sources.update(self._size_sources())
        split = None if split_at is None else self._split(*split_at, updated, edges(roots))
        mapping: dict[Value, Value] = {}
        # From here on nothing may be added: the graph is rebuilt without dead nodes, and ``mapping`` leads to it.
        graph, inputs = self._graph(mapping)
        self._close_guards(inputs, updates)
        shared = self._shared_memory(updates)
        asked = {p.value for p in self.recorder.predicates}
        self.guards.asked = {i for i, t in self.recorder.inputs.argument_numbers.items() if t._value.value in asked}
        return Recording(
            graph=graph, guards=self.guards, inputs=inputs, structure=structure, results=results, updates=updates,
            writes=self._writes(updates), grads=grads, requires_grad=self._flags(), predicates=predicates, split=split,
            rebased=[Rebased(self._origin(t), self.found.place(t)) for t in rebased],
            rebound=rebound, effects=repeated, sizes=self._sizes(mapping), shared=shared,
            unsettled=self.recorder.kept or self._changed_values() or self._made_objects(left) or self.found.moved
            or self._told(shared) or self._history_outside() or new_state(self.recorder, kept_tensors),
        )  # fmt: skip

    # ---- inputs

    def _sources(self) -> dict[Value, Binding]:
        """Where each input is read from."""
        recorder, met = self.recorder, self.recorder.inputs
        sources: dict[Value, Binding] = {}
        grads = {id(s.initial): s.tensor for s in recorder.grads.values() if s.initial is not None}
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
        """Where the sizes are read from that the graph has as inputs: results may have asked for more."""
        tensors = self.recorder.sizes.tensors
        return {t._value.value: Binding("size", self._size_reader(n)) for n, t in tensors.items()}

    def _size_reader(self, number: int) -> tuple[Binding, int]:
        """What has a size, and along which axis."""
        (kind, *which), axis = self.recorder.sizes.sources[number][0]
        if kind == "argument":
            return Binding("argument", which[0]), axis
        (place,) = [h.place for h in self.guards.places if h.place.id == which[0]]
        return Binding("place", (place, which[1])), axis

    def _holder(self, t: Tensor) -> Binding:
        """Where each call finds what ``t`` stands for: one binding per tensor whose Python attributes matter."""
        if id(t) not in self.holders:
            given = id(t) in self.recorder.inputs.arguments
            self.holders[id(t)] = Binding("argument", self.numbers[id(t)]) if given else Binding("state", t)
        return self.holders[id(t)]

    def _sizes(self, mapping: Mapping[Value, Value]) -> Sizes | None:
        """How the graph whose values ``mapping`` gives depends on sizes."""
        recorder, graph = self.recorder, self.recorder.graph
        if not isinstance(graph, SizedGraph) or graph.unclear:
            return None
        shapes = {mapping[v]: shape for v, shape in graph.shapes.items() if v in mapping}
        attrs = {n: graph.attrs[old] for old in graph.attrs if (n := _mapped(old, mapping)) is not None}
        return Sizes(recorder.sizes.conditions, recorder.sizes.sources, shapes, attrs)

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
        grads = [(self._holder(s.tensor), s) for s in self.recorder.grads.values()]
        met = self.recorder.inputs
        arrays = {i for i, t in met.arrays.items() if met.initial.get(id(t)) in (None, *live)}
        memory = MemoryGuard(self._memory(), [b for b, _ in updates], self.leaves)
        self.guards.close(self.recorder, used, arrays, grads, memory)

    def _memory(self) -> list[tuple[Binding, str]]:
        """The tensors and arrays from outside that a call finds, with names."""
        inputs = self.recorder.graph.inputs
        return [
            (b, f"argument {inputs[v.index].name}" if b.kind == "argument" else inputs[v.index].name)
            for v, b in self.sources.items() if b.kind in ("argument", "memory", "state", "place", "grad")
        ]  # fmt: skip

    # ---- outputs

    def _add(self, value: Value, name: str, role: str) -> int:
        """The number of a new output."""
        self.outputs.append(Output(value, name, role))
        return len(self.outputs) - 1

    def _left_by(self, effect: Effect) -> tuple[Effect, Any, list[Any]]:
        """An effect with the structure and leaves of what it is made with."""
        kept: list[Any] = []
        return effect, flatten(effect.args, kept, self._is_outside), kept

    def _made_objects(self, leaves: Leaves) -> str | None:
        """Says so when the call leaves an object behind that every call would have to make anew."""
        for x in leaves:
            if isinstance(x, (Tensor, *PLAIN, type, FunctionType, tuple, np.ndarray, SymScalar, SymInt)):
                continue
            if self._is_outside(x) or id(x) in self.observer.known or id(x) in self.numbers:
                continue
            if type(x).__hash__ is None or attributes_of(x) or isinstance(x, Iterator):
                return f"returns an object of class {type(x).__name__} that is made in the call."
        return None

    def _is_outside(self, value: object) -> bool:
        """Whether a list or dict was there before the call: a later call means the one that is there then."""
        return isinstance(value, list | dict) and id(value) in self.observer.known

    def _rebased_arguments(self) -> list[Tensor]:
        """Arguments that the call wrote to with gradient history."""
        recorder = self.recorder
        return [
            t for key, t in recorder.inputs.arguments.items()
            if not t._linked and t.grad_fn is not None and t.grad_fn.number >= recorder.started
            and recorder.value(t) is not recorder.inputs.initial.get(key)
        ]  # fmt: skip

    def _result(self, v: Any) -> Result:
        if type(v) in (SymScalar, SymInt):
            return Followed(self._add(self.recorder.value(v.tensor), f"n{len(self.outputs)}", "result"))
        if isinstance(v, np.ndarray):
            return Passed(self.numbers[id(v)]) if id(v) in self.numbers else Plain(v.copy())
        if self._is_outside(v):
            return Found(self.observer.known[id(v)])
        return self.found.of(v) if isinstance(v, Tensor) else Plain(v)

    def _rebound(self) -> list[Rebound]:
        """What the places hold at the end, where that is something else than before."""
        found = []
        for held in self.guards.places:
            now = held.place.value()
            leaves: list[Any] = []
            structure = flatten(now, leaves)
            if any(plain(a) is not b for a, b in zip(leaves, held.leaves, strict=False)):
                found.append(Rebound(held.place, structure, list(map(self._result, leaves)), now is held.value))
        return found

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
        held = [(self._origin(t), n) for t, n in self.recorder.writes.values()]
        written = [m for b, _ in updates for m in (b.ref.members if b.kind == "memory" else (b,))]
        counted = {id(t._storage) for t, _ in self.recorder.writes.values()}
        quiet = [(b, 0) for b in written if id(getattr(tensor_of(b, self.leaves), "_storage", None)) not in counted]
        return [(b, n) for b, n in held + quiet if isinstance(tensor_of(b, self.leaves), Tensor)]

    def _grads(self) -> list[tuple[Binding, Held | None]]:
        """What each written ``.grad`` is at the end."""
        found: list[tuple[Binding, Held | None]] = []
        for slot in self.recorder.grads.values():
            now = slot.tensor._grad
            if slot.written and now is not slot.initial:
                found.append((self._holder(slot.tensor), None if now is None else self.found.of(now)))
        return found

    def _flags(self) -> list[tuple[Binding, bool]]:
        """Leaves from outside whose ``requires_grad`` is another at the end."""
        return [
            (self._holder(t), t._requires_grad) for t, before in self.recorder.flags.values()
            if t._grad_fn is None and t._requires_grad is not before
        ]  # fmt: skip

    def _changed_values(self) -> str | None:
        """Says so when the call changed Python values that it also read: a graph cannot repeat that."""
        change = self.observer.unrepeated() or self.guards.modules.change()
        change = change or next((c for held in self.guards.places if (c := held.change()) is not None), None)
        for owner, key, _, before in self.recorder.inputs.hosts.values():
            if id(getattr(owner, "group", owner)) in self.recorder.stepped:
                continue
            now = owner[key] if isinstance(owner, Mapping) else getattr(owner, key)
            if now != before:
                change = f"{key} changed from {before} to {now}"
        if change is None:
            return None
        return f"changes Python values that it reads ({change}), which a graph cannot repeat. Do that outside of it."

    def _shared_memory(self, updates: Sequence[tuple[Binding, int]]) -> list[Binding]:
        """The inputs that share memory with another one, or show it twice, where some of it is written."""
        recorder = self.recorder
        written = {id(b) for b, _ in updates}
        found: list[Binding] = []
        spans: list[tuple[int, int, int, Any, Binding]] = []
        for key, v in recorder.inputs.initial.items():
            array, source = recorder.values.outside[key]._data, self.sources.get(v)
            if array.size and source is not None:
                spans.append((*byte_bounds(array), len(spans), array, source))
        spans.sort(key=lambda s: s[:3])
        for n, (_, end, _, array, source) in enumerate(spans):
            if id(source) in written and shows_elements_twice(array):
                found.append(source)
            for start, _, _, other, other_source in spans[n + 1 :]:
                if start >= end:
                    break
                if {id(source), id(other_source)} & written and overlap(array, other):
                    found += [source, other_source]
        return found

    def _told(self, shared: Sequence[Binding]) -> str | None:
        """Says so when the call writes memory that inputs share."""
        names = {b: self.recorder.graph.inputs[v.index].name for v, b in self.sources.items()}
        where = " and that of ".join(dict.fromkeys(names[b] for b in shared[:2]))
        return f"writes memory that is both that of {where}. Pass a clone." if shared else None

    def _history_outside(self) -> str | None:
        """Says so when gradient history crosses the border of the call, which a recording cannot repeat."""
        recorder, met = self.recorder, self.recorder.inputs
        if recorder.foreign is not None:
            where = recorder.foreign
            return f"runs backward, at {where}, through operations made before the call. Detach their results."
        for key, initial in met.initial.items():
            t = recorder.values.outside[key]
            if t._data.shape != initial.shape:
                name = recorder.graph.inputs[initial.index].name
                return f"changes the shape of {name} from {initial.shape} to {tuple(t._data.shape)}."
            fn = history_if_allowed(t)
            if key in met.arguments and not t._linked:
                continue
            if fn is not None and fn.number >= recorder.started and recorder.value(t) is not initial:
                name = recorder.graph.inputs[initial.index].name
                return f"leaves gradient history in {name}, a tensor from outside. Detach what is written into it."
        for t in recorder.values.shared():
            if history_if_allowed(t) is not None:
                return "leaves gradient history in memory that several inputs share. Detach what is written into it."
        for key, t in recorder.values.outside.items():  # views and aliases of what is an input
            fn = None if key in met.initial else history_if_allowed(t)
            if fn is not None and fn.number >= recorder.started:
                return "leaves gradient history in a view of a tensor from outside. Detach what is written into it."
        return None

    # ---- derivative

    def _derive(
        self, roots: Sequence[Tensor]
    ) -> tuple[list[Value], list[tuple[Binding, Value | None]], list[tuple[Node, int]]]:
        """Run the recorded part backwards from ``roots``, recording: gradients of the inputs that require them."""
        recorder, met = self.recorder, self.recorder.inputs
        seeds, cotangents = [], []
        for k, root in enumerate(roots):
            seed = Tensor._wrap(np.ones(root._data.shape, root._data.dtype))
            met.bind(seed, f"cotangent{k}", "argument")
            cotangents.append(met.initial[id(seed)])
            if isinstance(recorder.graph, SizedGraph):
                recorder.graph.set_shape(cotangents[-1], recorder.sizes.shape_of(root))
            seeds.append(seed)
        inputs = [(end, edge) for key, edge in recorder.values.edges.items() if (end := self._end(key)) is not None]
        ends = [edge for _, edge in inputs]
        found = run_backward(
            edges(roots), seeds, keep_graph=True, create_graph=False, targets=ends, accumulate=False, inside=True
        )
        for key, t in met.state.items():  # hooks may have met more
            self.sources.setdefault(met.initial[key], Binding("state", t))
        wanted: list[tuple[Binding, Value | None]] = []
        for end, edge in inputs:
            grad = found.get(edge)
            wanted.append((end, None if grad is None else recorder.value(grad)))
        return cotangents, wanted, ends

    def _end(self, key: int) -> Binding | None:
        """What a gradient is for that ends at a tensor from outside: an input, or what looks at the memory of one."""
        value = self.recorder.inputs.initial.get(key)
        return self._holder(self.recorder.values.outside[key]) if value is None else self.sources.get(value)

    def _history(
        self, roots: Sequence[tuple[Node, int]], ends: Sequence[tuple[Node, int]], saved: dict[Value, Binding | int]
    ) -> tuple[Template, list[Binding | int]]:
        """The history of ``roots`` as a template, and what its inputs are read from: saved values if it can be."""
        recorder = self.recorder
        sources = saved | {v: b for v, b in self.sources.items() if v not in saved}
        inputs = [Input(v, f"in{k}", "argument") for k, v in enumerate(sources)]
        template = Template(recorder.graph, inputs, roots, ends, recorder)
        return template, [sources[v] for v in template.reads]

    def _split(
        self,
        cotangents: list[Value],
        wanted: list[tuple[Binding, Value | None]],
        ends: list[tuple[Node, int]],
        updated: set[Binding],
        roots: Sequence[tuple[Node, int]],
    ) -> Split:
        """Cut the joint graph: forward keeps what backward reads of it."""
        graph = self.recorder.graph
        forward = needed_nodes([o.value for o in self.outputs], set())
        targets = [v for _, v in wanted if v is not None]
        behind = needed_nodes(targets, {v for n in forward for v in n.outputs})
        reads = dict.fromkeys([v for n in graph.nodes if n in behind for v in n.inputs] + targets)
        constants = {i.value for i in graph.inputs if i.role == "constant"}
        given = {v for v, b in self.sources.items() if b not in updated}
        needed = [v for v in reads if v.node not in behind and v not in cotangents and v not in constants]
        kept = choose_saved(graph, forward, needed, lambda v: 0 if v in given or v in constants else v.type.nbytes)
        kept = [v for v in kept if v not in constants]
        saved: list[Binding | int] = []
        inputs = []
        for k, v in enumerate(kept):
            binding = self.sources.get(v)
            if binding is not None and binding not in updated:
                saved.append(binding)
            else:
                saved.append(self._add(v, f"saved{k}", "result"))
            inputs.append(Input(v, f"saved{k}", "argument"))
        inputs += [Input(v, f"cotangent{k}", "argument") for k, v in enumerate(cotangents)]
        outs = [Output(v, f"grad{k}", "result") for k, v in enumerate(targets)]
        numbers = iter(range(len(targets)))
        history, read = self._history(roots, ends, dict(zip(kept, saved, strict=True)))
        mapping: dict[Value, Value] = {}
        return Split(
            extract(f"{graph.name}_backward", graph, inputs, outs, mapping), saved,
            [(s, None if v is None else next(numbers)) for s, v in wanted],
            history, [(b, b in updated) for b in read], len(roots), self._sizes(mapping),
        )  # fmt: skip


def _mapped(node: GraphNode, mapping: Mapping[Value, Value]) -> GraphNode | None:
    new = mapping.get(node.outputs[0])
    return None if new is None else new.node
