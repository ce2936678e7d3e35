"""The derivative of a recorded call: the joint graph of forward and backward, split in two.

The forward graph keeps what the backward graph reads of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from functools import partial

import numpy as np

from tracecomp.autograd.engine import run_backward
from tracecomp.eager.modes import modes
from tracecomp.eager.tensor import Tensor
from tracecomp.eager.tensor_base import Edge, Node
from tracecomp.ir.graph import Input, Output, Value
from tracecomp.record.backward.extract import extract, needed_nodes
from tracecomp.record.backward.min_cut import choose_saved
from tracecomp.record.backward.reach import edges, edges_from, was_spent
from tracecomp.record.backward.template import Template, mapped
from tracecomp.record.binding import Binding
from tracecomp.record.finish.draft import Derived, Draft
from tracecomp.record.finish.settled import history_outside
from tracecomp.record.recorder import Recorder
from tracecomp.record.recording import Sizes, Split
from tracecomp.record.symbolic.sym_int import SizedGraph

Wanted = list[tuple[Binding, Value | None]]
Ends = list[tuple[Node, int]]


def choose_roots(draft: Draft) -> None:
    """Choose the results to differentiate; arguments that the call wrote to with history are among them.

    There are none if history crosses the border of the call: its recording serves no later call.
    """
    if not draft.derive or history_outside(draft) is not None:
        return
    draft.rebased = _rebased_arguments(draft)
    draft.held.differentiate(draft.tensors, was_spent)
    for t in draft.rebased:
        if not was_spent(t):
            draft.held.add_root(t)


def run_backward_pass(draft: Draft) -> None:
    """Run the recorded part backwards from the roots, recording: gradients of the inputs that require them."""
    roots, recorder = draft.held.roots, draft.recorder
    if not roots:
        return
    seeds, cotangents = _seeds(recorder, roots)
    sent: dict[Edge, list[Tensor]] = {}
    recorder.backward.contributions = sent
    inputs = [(end, edge) for key, edge in recorder.values.edges.items() if (end := _end(draft, key)) is not None]
    ends = [edge for _, edge in inputs]
    # Other processes need not record this call: a collective of its backward pass is recorded, and not run.
    told, modes.untold = modes.untold, True
    try:
        found = draft.observer.derive(
            partial(
                run_backward, edges(roots), seeds, keep_graph=True, create_graph=False, targets=ends,
                accumulate=False, inside=True,
            )
        )  # fmt: skip
    finally:
        modes.untold = told
    met = recorder.inputs
    for key, t in met.state.items():  # hooks may have met more
        draft.sources.of.setdefault(met.initial[key], Binding("state", t))
    recorder.backward.contributions = None
    wanted: Wanted = []
    for end, edge in inputs:
        # An eager call's stand-in hands on every contribution: each is added to what else there is, one by one.
        grads = sent.get(edge, [None]) if modes.trial_run else [found.get(edge)]
        wanted += [(end, None if g is None else recorder.value(g)) for g in grads]
    summed = () if modes.trial_run else [k for k, edge in enumerate(ends) if len(sent.get(edge, ())) > 1]
    draft.derived = Derived(cotangents, wanted, ends, frozenset(summed))


def split_graph(draft: Draft) -> None:
    """Cut the joint graph: forward keeps the values that backward reads."""
    if draft.derived is None:
        return
    graph, sources, derived = draft.recorder.graph, draft.sources.of, draft.derived
    roots, updated = edges(draft.held.roots), {b for b, _ in draft.updates}
    kept, views = _choose_kept(draft, derived, updated)
    saved: list[Binding | int] = []
    inputs = []
    for k, v in enumerate(kept):
        binding = sources.get(v)
        if binding is not None and binding not in updated:
            saved.append(binding)
        else:
            saved.append(draft.outputs.add(v, f"saved{k}", "result"))
        inputs.append(Input(v, f"saved{k}", "argument"))
    inputs += [Input(v, f"cotangent{k}", "argument") for k, v in enumerate(derived.cotangents)]
    targets = [v for _, v in derived.wanted if v is not None]
    outs = [Output(v, f"grad{k}", "result") for k, v in enumerate(targets)]
    numbers = iter(range(len(targets)))
    history, read = _history(draft, roots, derived.ends, dict(zip(kept, saved, strict=True)))
    mapping: dict[Value, Value] = {}
    draft.split = Split(
        extract(f"{graph.name}_backward", graph, inputs, outs, mapping), saved,
        [(s, None if v is None else next(numbers)) for s, v in derived.wanted],
        _leading(derived.wanted, derived.ends, roots), history, [(b, b in updated) for b in read], len(roots),
        sizes_of(draft.recorder, mapping), views, derived.summed,
    )  # fmt: skip


def _rebased_arguments(draft: Draft) -> list[Tensor]:
    """Arguments that the call wrote to with gradient history."""
    recorder = draft.recorder
    return [
        t for key, t in recorder.inputs.arguments.items()
        if not t._linked and t.grad_fn is not None and t.grad_fn.number >= recorder.values.started
        and recorder.value(t) is not recorder.inputs.initial.get(key)
    ]  # fmt: skip


def _seeds(recorder: Recorder, roots: Sequence[Tensor]) -> tuple[list[Tensor], list[Value]]:
    """Gradients of the roots, which are inputs of the backward graph."""
    seeds, cotangents = [], []
    for k, root in enumerate(roots):
        seed = Tensor._wrap(np.ones(root._data.shape, root._data.dtype))
        recorder.inputs.bind(seed, f"cotangent{k}", "argument")
        cotangents.append(recorder.inputs.initial[id(seed)])
        if isinstance(recorder.graph, SizedGraph):
            recorder.graph.set_shape(cotangents[-1], recorder.sizes.shape_of(root))
        seeds.append(seed)
    return seeds, cotangents


def _end(draft: Draft, key: int) -> Binding | None:
    """The binding of a gradient that ends at a tensor from outside: an input, or a view of its memory."""
    value = draft.recorder.inputs.initial.get(key)
    if value is None:
        return draft.sources.holder(draft.recorder.values.outside[key])
    return draft.sources.of.get(value)


def _choose_kept(draft: Draft, derived: Derived, updated: Set[Binding]) -> tuple[list[Value], frozenset[int]]:
    """The values that forward keeps for backward, and the numbers of those kept only for views of them."""
    graph = draft.recorder.graph
    forward = needed_nodes([o.value for o in draft.outputs.all], set())
    targets = [v for _, v in derived.wanted if v is not None]
    behind = needed_nodes(targets, {v for n in forward for v in n.outputs})
    reads = dict.fromkeys([v for n in graph.nodes if n in behind for v in n.inputs] + targets)
    constants = {i.value for i in graph.inputs if i.role == "constant"}
    given = {v for v, b in draft.sources.of.items() if b not in updated}
    needed = [v for v in reads if v.node not in behind and v not in derived.cotangents and v not in constants]
    if modes.trial_run:  # an eager call's stand-in keeps what eager nodes keep: nothing is computed again
        kept = list(dict.fromkeys(map(_looked_at, needed)))
    else:
        kept = choose_saved(graph, forward, needed, lambda v: 0 if v in given or v in constants else v.type.nbytes)
    kept = [v for v in kept if v not in constants]
    return kept, frozenset(k for k, v in enumerate(kept) if v not in needed)


def _history(
    draft: Draft, roots: Sequence[tuple[Node, int]], ends: Ends, saved: dict[Value, Binding | int]
) -> tuple[Template, list[Binding | int]]:
    """The history of ``roots`` as a template, and what its inputs are read from: saved values if it can be."""
    recorder = draft.recorder
    sources = saved | {v: b for v, b in draft.sources.of.items() if v not in saved}
    inputs = [Input(v, f"in{k}", "argument") for k, v in enumerate(sources)]
    template = Template(recorder.graph, inputs, roots, ends, recorder)
    return template, [sources[v] for v in template.reads]


def _leading(wanted: Wanted, ends: Ends, roots: Sequence[tuple[Node, int]]) -> list[frozenset[int]]:
    """The numbers of the roots from which a gradient reaches each wanted input. An end may have several gradients."""
    stop = set(ends)
    passed = [edges_from(root, stop) for root in roots]
    of_end = {end: frozenset(k for k, met in enumerate(passed) if end in met) for end in ends}
    by_binding = dict(zip(dict.fromkeys(id(b) for b, _ in wanted), ends, strict=True))
    return [of_end[by_binding[id(b)]] for b, _ in wanted]


def sizes_of(recorder: Recorder, mapping: Mapping[Value, Value]) -> Sizes | None:
    """How the graph whose values ``mapping`` gives depends on sizes."""
    graph = recorder.graph
    if not isinstance(graph, SizedGraph) or graph.unclear:
        return None
    shapes = {mapping[v]: shape for v, shape in graph.shapes.items() if v in mapping}
    attrs = {n: graph.attrs[old] for old in graph.attrs if (n := mapped(old, mapping)) is not None}
    return Sizes(recorder.sizes.conditions, recorder.sizes.sources, shapes, attrs)


def _looked_at(value: Value) -> Value:
    """The base of the view ``value``, in whose memory an eager node finds it; copies by ``reshape`` are not views."""
    node, base = value.node, value
    while node is not None and node.op.kind == "view":
        base, inner = node.inputs[0], node.inputs[0].node
        if node.op.name == "reshape" and inner is not None and inner.op.kind == "view" and inner.op.name != "reshape":
            return value
        node = inner
    return base
