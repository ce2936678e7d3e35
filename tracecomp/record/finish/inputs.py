"""The inputs of the recorded graph: their sources, and the graph of those that are used."""

from __future__ import annotations

from tracecomp.eager.tensor import Tensor
from tracecomp.ir.graph import Value
from tracecomp.record.backward.extract import extract, needed_nodes
from tracecomp.record.binding import Binding
from tracecomp.record.finish.draft import Draft

KINDS = ("argument", "state", "memory", "place", "grad", "host", "size", "number")
"""The order of inputs, by the kind of their source."""


def bind_inputs(draft: Draft) -> None:
    """Find the source of each input."""
    recorder, met, sources = draft.recorder, draft.recorder.inputs, draft.sources
    grads = {id(s.initial): s.tensor for s in recorder.changes.grads.values() if s.initial is not None}
    for key, value in met.initial.items():
        if key in met.memories:
            sources.of[value] = Binding("memory", met.memories[key])
        elif key in met.arguments:
            sources.of[value] = Binding("argument", sources.numbers[key])
        elif key in met.places:
            sources.of[value] = Binding("place", met.places[key])
        elif key in grads and key not in met.state:
            sources.of[value] = Binding("grad", sources.holder(grads[key]))
        else:
            sources.of[value] = Binding("state", recorder.values.outside[key])
    for t, place, n in met.place_numbers:
        sources.of[_value(t)] = Binding("place", (place, n))
    for leaf, t in met.argument_numbers.items():
        sources.of[_value(t)] = Binding("number", leaf)
    for host in met.hosts.values():
        sources.of[_value(host.tensor)] = Binding("host", (host.owner, host.key))


def bind_sizes(draft: Draft) -> None:
    """Find the sources of the sizes that are inputs of the graph."""
    tensors = draft.recorder.sizes.tensors
    draft.sources.of.update({_value(t): Binding("size", _size_reader(draft, n)) for n, t in tensors.items()})


def extract_graph(draft: Draft) -> None:
    """Rebuild the graph without dead nodes and unused inputs."""
    sources, recorded = draft.sources.of, draft.recorder.graph
    values = [o.value for o in draft.outputs.all]
    needed = needed_nodes(values, set())
    used = {v for n in needed for v in n.inputs if v.node is None} | set(values)
    chosen = [i for i in recorded.inputs if i.value in used and i.value in sources]
    chosen.sort(key=lambda i: KINDS.index(sources[i.value].kind))
    draft.graph = extract(recorded.name, recorded, chosen, draft.outputs.all, draft.mapping, needed)
    draft.inputs = [sources[i.value] for i in chosen]


def _size_reader(draft: Draft, number: int) -> tuple[Binding, int]:
    """The holder of a size, and its axis."""
    (kind, *which), axis = draft.recorder.sizes.sources[number][0]
    if kind in ("argument", "number"):
        return Binding(kind, which[0]), axis
    (place,) = [h.place for h in draft.guards.places if h.place.id == which[0]]
    return Binding("place", (place, which[1])), axis


def _value(t: Tensor) -> Value:
    value: Value = t._value.value
    return value
