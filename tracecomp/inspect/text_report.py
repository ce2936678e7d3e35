"""Text about a compiled function: the answer first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath

from tracecomp.inspect.facts import Apart, Costs, FunctionFacts, GraphFacts, KernelFacts, MemoryFacts, RecordingFacts
from tracecomp.passes.kernel_title import common_title

SHOWN = 8
"""Kernels, refusals and reasons that the short text shows."""


def short(facts: FunctionFacts) -> Iterator[str]:
    """Yield the answer, the distribution of time, recompiles and unfused kernels: some twenty lines."""
    yield f"{facts.name}: {recordings_in_use(facts)}"
    yield from _why_not_one_graph(facts)
    yield from _again(facts.again)
    for recording in facts.recordings:
        for graph in recording.graphs:
            yield from _short_graph(recording, graph)
        if not recording.graphs:
            yield f"{recording.name}: recorded, not compiled yet"
    if facts.costs:
        yield from _costs(facts.costs)
    for part in facts.parts:
        yield from (f"  {line}" for line in short(part))


def everything_of(facts: FunctionFacts) -> Iterator[str]:
    """Every guard, pass, kernel, refusal and schedule."""
    yield f"{facts.name}: {recordings_in_use(facts)}"
    yield from _why_not_one_graph(facts)
    yield from (f"recorded again: {reason}" for reason in facts.again)
    if facts.costs:
        yield from _costs(facts.costs)
    for recording in facts.recordings:
        yield from _border(recording)
        for graph in recording.graphs:
            yield from _whole_graph(recording, graph)
    for part in facts.parts:
        yield from (f"  {line}" for line in everything_of(part))


def recordings_in_use(facts: FunctionFacts) -> str:
    """Say how many calls were recorded, and how many recordings serve calls now."""
    derived = f", {facts.derived} of them derived for other sizes without a call" if facts.derived else ""
    return f"recordings {facts.made}, in use {len(facts.recordings)}{derived}"


def place(source: str) -> str:
    """``file.py:3`` for a full path."""
    return PurePath(source).name


def seconds(value: float) -> str:
    """Format a time in a suitable unit."""
    for size, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value * 1e9:.0f} ns"


def size(nbytes: float) -> str:
    """Format bytes in a suitable unit."""
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "KB")):
        if nbytes >= unit:
            return f"{nbytes / unit:.3g} {name}"
    return f"{nbytes:.0f} bytes"


def _why_not_one_graph(facts: FunctionFacts) -> Iterator[str]:
    if facts.eager_because:
        yield f"runs eagerly: {facts.eager_because}"
    if facts.broken_because:
        yield f"graph break: {facts.broken_because}"
        yield f"runs as Python with {len(facts.parts)} compiled part{'s' * (len(facts.parts) != 1)}:"


def _again(reasons: Sequence[str]) -> Iterator[str]:
    """Reasons why calls were recorded again, equal reasons together."""
    counts: dict[str, int] = {}
    for reason in reasons:
        counts[reason] = counts.get(reason, 0) + 1
    for reason, count in list(counts.items())[-SHOWN:]:
        yield f"recorded again: {reason}{f' ({count} times)' if count > 1 else ''}"
    if len(counts) > SHOWN:
        yield f"  and for {len(counts) - SHOWN} other reasons"


def _short_graph(recording: RecordingFacts, graph: GraphFacts) -> Iterator[str]:
    if not graph.stages:
        yield f"{graph.name}: {graph.nodes} nodes, {graph.not_measured or 'run as recorded'}"
        return
    calls = [k for k in graph.kernels if not k.prepares]
    text = f"{graph.name}: {graph.nodes} nodes as {len(calls)} kernel call{'s' * (len(calls) != 1)}"
    if graph.seconds is not None:
        share = f", {100 * (graph.share or 0):.0f} % of the machine's peak" if graph.share else ""
        text += f", {seconds(graph.seconds)} with {graph.threads} thread{'s' * (graph.threads > 1)}{share}"
    yield text + (f"; {recording.says}" if recording.says else "")
    if graph.profile and graph.profile.disturbed:
        yield f"  preempted {graph.profile.taken_away} times; mean times may be too high"
    if graph.checked:
        yield f"  {graph.checked}"
    if graph.not_measured:
        yield f"  times: {graph.not_measured}"
    yield f"  memory: {_memory(graph.memory)}"
    yield from _hot(calls)
    yield from _apart(graph.apart)


def _memory(memory: MemoryFacts) -> str:
    measured = f", measured {size(memory.measured)}" if memory.measured is not None else ""
    return (
        f"{size(memory.predicted)} a call{measured} (temporary values {size(memory.arena + memory.scratch)}, results "
        f"{size(memory.results)}); reads {size(memory.arguments + memory.state + memory.constants)}"
    )


def _hot(calls: Sequence[KernelFacts]) -> Iterator[str]:
    """The kernels that take most of the time, calls of one kernel together, each with its bottleneck."""
    by_name: defaultdict[str, list[KernelFacts]] = defaultdict(list)
    for k in calls:
        by_name[k.name].append(k)
    total = sum(k.seconds or 0.0 for k in calls)
    groups = sorted(by_name.items(), key=lambda item: -sum(k.seconds or 0.0 for k in item[1]))
    for _, group in groups[:SHOWN]:
        title = common_title(k.title for k in group)
        times = f" x {len(group)}" if len(group) > 1 else ""
        own = sum(k.seconds or 0.0 for k in group)
        if total:
            longest = max(group, key=lambda k: k.seconds or 0.0)
            yield f"  {seconds(own):>8} {100 * own / total:4.0f} %  {title}{times}"
            if longest.limit:
                yield f"{'':18}{longest.limit}"
        else:
            yield f"  {title}{times}"
    if len(groups) > SHOWN:
        yield f"  and {len(groups) - SHOWN} more kernels"


def _apart(apart: Sequence[Apart]) -> Iterator[str]:
    """Unfused kernels, the most bytes passed first, equal reasons together."""
    reasons: defaultdict[str, list[Apart]] = defaultdict(list)
    for a in apart:
        reasons[a.reason].append(a)
    order = sorted(reasons.items(), key=lambda item: -sum(a.nbytes for a in item[1]))
    if order:
        yield "  kernels that were not fused:"
    for reason, found in order[:SHOWN]:
        largest = max(found, key=lambda a: a.nbytes)
        count, nbytes = sum(a.count for a in found), sum(a.nbytes for a in found)
        first, second = (
            title or key for title, key in zip(largest.titles, (largest.producer, largest.consumer), strict=True)
        )
        yield f"    {reason}: {count} time{'s' * (count > 1)}, {size(nbytes)}"
        yield f"      such as {first} | {second}"


def _costs(costs: Costs) -> Iterator[str]:
    how = "loading the machine code from the cache" if costs.loaded else "compiling"
    text = f"{how} took {seconds(costs.compiling)}"
    if costs.eager is None or costs.call is None:
        yield f"{text}{f'; {costs.why_not}' if costs.why_not else ''}"
    elif costs.break_even is None:
        yield f"{text}; a call takes {seconds(costs.call)} and eagerly {seconds(costs.eager)}: no break-even"
    else:
        saved = seconds(costs.eager - costs.call)
        yield f"{text}, saves {saved} a call ({seconds(costs.eager)} eagerly), pays after {costs.break_even:,} calls"


def _border(recording: RecordingFacts) -> Iterator[str]:
    """Yield lines on the inputs, outputs, predicates, guards and operators of a recording."""
    yield f"captured {recording.name}: {recording.calls} calls"
    for title, items in (*recording.inputs.items(), *recording.outputs.items()):
        yield from _listed(title, items)
    yield from _listed("valid while these values stay the same", recording.predicates)
    yield from _listed("reused while these guards hold", recording.guards)
    yield "  operators: " + ", ".join(f"{n} {name}" for name, n in recording.operators.items())


def _listed(title: str, items: Iterable[str]) -> Iterator[str]:
    items = list(items)
    if items:
        yield f"  {title}:"
        yield from (f"    {item}" for item in items)


def _whole_graph(recording: RecordingFacts, graph: GraphFacts) -> Iterator[str]:
    yield from _short_graph(recording, graph)
    yield from _listed("steps", _steps(graph))
    yield graph.together.rstrip()
    yield from _listed("kernels", _kernels(graph))


def _steps(graph: GraphFacts) -> Iterator[str]:
    for stage in graph.stages:
        yield f"{stage.name}: {stage.size}, {stage.seconds * 1e3:.1f} ms"
        if stage.rules:
            yield "  " + ", ".join(f"{n} x {rule}" for rule, n in stage.rules.items())
        for subject, chosen, reason, source in stage.choices:
            yield f"  {subject}: {chosen}; {reason}{f' (from {source})' if source else ''}"


def _kernels(graph: GraphFacts) -> Iterator[str]:
    for k in graph.kernels:
        time = f", {seconds(k.seconds)}" if k.seconds is not None else ""
        share = f", {100 * k.share:.0f} % of peak {k.binding}" if k.share is not None else ""
        once = ", once for many calls" if k.prepares else ""
        yield f"{k.number} {k.title}: {size(k.nbytes)}, {k.operations} operations{time}{share}{once}"
        yield f"  {k.name} computes {', '.join(k.operators)}"
        if k.limit:
            yield f"  {k.limit}"
        lines = [line for text in k.schedules for line in text.splitlines()]
        yield from (f"    {line}" for line in lines or ["custom loops"])
