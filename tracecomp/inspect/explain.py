"""``explain``: the captured graphs, the decisions of each pass, the kernels, their bottlenecks and costs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from tracecomp.base import config
from tracecomp.compiled.backends import Backend, Hosted, Native
from tracecomp.compiled.background import Later
from tracecomp.compiled.checked import Checked
from tracecomp.compiled.dynamic_shapes import SizedBackend
from tracecomp.compiled.entry import Entry
from tracecomp.compiled.function import Compiled
from tracecomp.compiled.replay import Plan
from tracecomp.inspect import kernel_facts, memory_facts
from tracecomp.inspect.explanation import Explanation
from tracecomp.inspect.facts import Costs, GraphFacts, RecordingFacts, StageFacts
from tracecomp.inspect.kept_state import kept_state
from tracecomp.passes.explain import describe_partition, frame_size, graph_size
from tracecomp.passes.steps import Stage
from tracecomp.record.pytree import Leaves, flatten_call
from tracecomp.record.recording import Recording
from tracecomp.runtime.threads import wanted

CALLS = 10
"""Calls whose kernels are timed."""
EAGER_CALLS = 3
"""Eager calls that are timed; the fastest counts."""
SETTLING = 4
"""Most calls that are made first: a recordable function is then recorded and planned."""

_INPUTS = {
    "argument": "arguments",
    "state": "state, read again at every call",
    "host": "Python numbers, read again at every call",
    "constant": "constants",
}
_OUTPUTS = {"result": "results", "state": "state written"}


def explain(fn: Callable[..., object], *args: Any, **kwargs: Any) -> Explanation:
    """Explain what happens to ``fn(*args, **kwargs)`` when it is compiled, with each kernel's time and bottleneck.

    If ``fn`` is not compiled, it is compiled and called until a recording fits.
    """
    inner = getattr(fn, "_compiled", fn)
    return explained(inner if isinstance(inner, Compiled) else Compiled(fn), args, kwargs)


def explained(compiled: Compiled, args: tuple[object, ...], kwargs: Mapping[str, object]) -> Explanation:
    """Return the facts about a compiled function. With arguments, the recording for them is measured on copies of all
    state.

    A call that is not compiled yet is made first, as often as its recording needs.
    """
    leaves, chosen = None, None
    if args or kwargs or compiled.entries:
        structure, leaves = flatten_call(args, kwargs)
        chosen = _fitting(compiled, structure, leaves)
        for _ in range(SETTLING if args or kwargs else 0):
            if chosen is not None or compiled.parts is not None or compiled.eager_because is not None:
                break
            with config.override(wait=True):
                compiled(*args, **kwargs)
            chosen = _fitting(compiled, structure, leaves)
    # Costs are measured for the recording of these arguments; the others are only named.
    recordings = tuple(_recording(compiled, e, leaves if e is chosen else None) for e in compiled.entries)
    parts = [] if compiled.parts is None else compiled.parts.used()
    parts += [e.plan.again for e in compiled.entries if e.plan is not None and e.plan.again is not None]
    return Explanation(
        name=compiled._name,
        made=compiled.recordings,
        derived=sum(e.plan is not None and isinstance(e.plan.forward, SizedBackend) for e in compiled.entries),
        again=tuple(compiled.misses),
        eager_because=compiled.eager_because or "",
        broken_because=compiled.parts.reason if compiled.parts is not None else "",
        recordings=recordings,
        parts=tuple(explained(part, (), {}) for part in parts),
        costs=_costs(compiled, chosen, leaves or [], args, kwargs, recordings) if chosen else None,
    )


def _fitting(compiled: Compiled, structure: object, leaves: Leaves) -> Entry | None:
    return next((e for e in compiled.entries if e.recording.guards.miss(structure, leaves) is None), None)


def _recording(compiled: Compiled, entry: Entry, leaves: Leaves | None) -> RecordingFacts:
    recording, plan = entry.recording, entry.plan
    if leaves is not None:
        plan = compiled._plan(entry)
    entry.calls()
    graph = recording.graph
    return RecordingFacts(
        name=graph.name,
        calls=recording.calls,
        inputs={t: tuple(f"{i.name}: {i.value.type}" for i in graph.inputs if i.role == r) for r, t in _INPUTS.items()},
        outputs={
            t: tuple(f"{o.name}: {o.value.type}" for o in graph.outputs if o.role == r) for r, t in _OUTPUTS.items()
        },
        predicates=tuple(f"{p.seen} at {p.source or 'an unknown line'}" for p in recording.predicates),
        guards=tuple(guard.explain() for guard in recording.guards.list),
        operators=dict(Counter(n.op.name for n in graph.live_nodes()).most_common()),
        graphs=tuple(_graphs(recording, plan, leaves)) if plan is not None else (),
        says="; ".join(text for text in (plan.says if plan is not None else "", entry.says) if text),
        seconds=recording.seconds,
    )


def _graphs(recording: Recording, plan: Plan, leaves: Leaves | None) -> Iterator[GraphFacts]:
    for n, backend in enumerate(plan.backends):
        phase = "backward" if n else "forward"
        if isinstance(backend, SizedBackend):
            for made in backend.made:
                yield graph_facts(made.inner, phase, None, f"not measured; compiled {made.says()}")
            continue
        yield graph_facts(backend, phase, (plan, leaves) if leaves is not None and not n else None)
        for part in backend.compiled if isinstance(backend, Hosted) else ():
            yield graph_facts(part, phase, None)


def graph_facts(
    backend: Backend | Later, phase: str, call: tuple[Plan, Sequence[Any]] | None, not_measured: str = ""
) -> GraphFacts:
    """Return the facts about a graph; ``call`` is a plan and arguments to measure it with."""
    nodes = len(list(backend.graph.live_nodes()))
    checked = backend.says if isinstance(backend, Checked) else ""
    backend = _unchecked(backend)
    if not isinstance(backend, Native):
        return GraphFacts(
            backend.graph.name, phase, nodes, (), (), (), "", memory_facts.nothing(), 1, None, backend.says
        )
    built, frame = backend.built, backend.built.lowered.frame
    profile, measured = None, None
    if call is not None:
        plan, leaves = call
        profile = plan.profile(leaves, CALLS)
        measured = memory_facts.measured_peak(lambda: plan.run_once(leaves), backend.executable)
    kernels = kernel_facts.of_program(backend, profile)
    steps = [*(_stage(s, graph_size(s.state)) for s in built.stages)]
    steps += [_stage(s, frame_size(s.state)) for s in built.lowered.stages[1:]]
    return GraphFacts(
        name=built.graph.name,
        phase=phase,
        nodes=nodes,
        stages=tuple(steps),
        kernels=kernels,
        apart=tuple(kernel_facts.apart(frame, built.program)),
        together=describe_partition(frame.partition),
        memory=memory_facts.of_frame(frame, backend, measured),
        threads=profile.threads if profile else wanted(backend.threads),
        wall=profile.wall if profile else None,
        not_measured=not_measured,
        checked=checked,
        backend=backend,
        profile=profile,
        operands=None if call is None else partial(call[0].operands, call[1]),
    )


def _unchecked(backend: object) -> Any:
    """The backend that runs the graph, without its checks."""
    return backend.native if isinstance(backend, Checked) else backend


def _stage(stage: Stage[Any], size: str) -> StageFacts:
    choices = tuple((c.subject, c.chosen, c.reason, str(c.origin.source or "")) for c in stage.log.choices)
    rules = {r: n for r, n in stage.log.hits.most_common() if n}
    return StageFacts(stage.name, stage.seconds, size, rules, choices, dict(stage.log.seconds))


def _costs(
    compiled: Compiled, entry: Entry, leaves: Leaves, args: Any, kwargs: Any, found: Sequence[RecordingFacts]
) -> Costs | None:
    """The cost of compilation, and the time saved per call; the state of eager calls is restored."""
    plan = entry.plan
    if plan is None or isinstance(plan.forward, SizedBackend):
        return None
    forward = _unchecked(plan.forward)
    if not isinstance(forward, Native):
        return None
    taken, loaded = plan.seconds, forward.loaded
    wall = next((g.wall for r in found for g in r.graphs if g.wall), None)
    if wall is None:
        return Costs(taken, loaded)
    if entry.recording.effects or entry.recording.rebound:
        return Costs(taken, loaded, call=wall, why_not="eager calls are not timed: they change Python objects")
    times = []
    for _ in range(EAGER_CALLS):
        with kept_state(entry.recording, leaves):
            start = time.perf_counter()
            compiled.fn(*args, **kwargs)
            times.append(time.perf_counter() - start)
    return Costs(taken, loaded, min(times), wall)
