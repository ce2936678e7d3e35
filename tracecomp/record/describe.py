"""A recording in words: what its graph reads and gives, and what it depends on."""

from __future__ import annotations

from collections import Counter

from tracecomp.record.recording import Recording

SHOWN = 12
"""Items of a list that are shown."""

_INPUTS = {
    "argument": "arguments",
    "state": "state, read anew at every call",
    "host": "Python numbers, read anew at every call",
    "constant": "constants",
}
_OUTPUTS = {"result": "results", "state": "state written"}


def describe_recording(recording: Recording) -> str:
    """The border of a recorded graph, role by role, and its most frequent operators."""
    graph = recording.graph
    nodes = list(graph.live_nodes())
    lines = [f"captured {graph.name}: nodes {len(nodes)}, calls since {recording.calls}"]
    for role, title in _INPUTS.items():
        lines += _listed(title, [f"{i.name}: {i.value.type}" for i in graph.inputs if i.role == role])
    for role, title in _OUTPUTS.items():
        lines += _listed(title, [f"{o.name}: {o.value.type}" for o in graph.outputs if o.role == role])
    lines += _listed(
        "runs this way as long as these values stay",
        [f"{p.seen} at {p.source or 'an unknown line'}" for p in recording.predicates],
    )
    lines += _listed("used again while", [guard.explain() for guard in recording.guards.list])
    counts = Counter(n.op.name for n in nodes)
    return "\n".join([*lines, "  operators: " + ", ".join(f"{n} {name}" for name, n in counts.most_common(8))])


def _listed(title: str, items: list[str]) -> list[str]:
    if not items:
        return []
    more = [f"    and {len(items) - SHOWN} more"] if len(items) > SHOWN else []
    return [f"  {title}:", *(f"    {item}" for item in items[:SHOWN]), *more]
