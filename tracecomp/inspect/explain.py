"""``explain``: what was captured, what each pass decided, which nodes share a kernel and why the rest does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from tracecomp import config
from tracecomp.dump import Dump
from tracecomp.inspect.capture import settled
from tracecomp.ir.graph import Graph
from tracecomp.passes import manager
from tracecomp.passes.explain import describe_partition, describe_stages
from tracecomp.passes.fuse import Fuser
from tracecomp.record.recording import Recording

SHOWN = 12


def explain(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    """What happens to ``fn(*args, **kwargs)`` on its way to native code, in words.

    CaptureError if it cannot be recorded.
    """
    recording, _ = settled(fn, args, kwargs)
    stages = manager.run(recording.graph, Dump("", enabled=False))
    partition = Fuser(stages[-1].graph, config.current().fusion).run()
    return "\n".join(
        [describe_recording(recording), "", describe_stages(stages), "", describe_partition(partition)]
    ).rstrip()


def describe_recording(recording: Recording) -> str:
    """The border of a recorded graph: what it reads, what it gives, what it depends on."""
    graph = recording.graph
    lines = [f"captured {graph.name}: {len(list(graph.live_nodes()))} nodes"]
    for role, title in (
        ("argument", "arguments"), ("state", "state, read anew at every call"),
        ("host", "Python numbers, read anew at every call"), ("constant", "constants"),
    ):  # fmt: skip
        lines += _listed(title, [f"{i.name}: {i.value.type}" for i in graph.inputs if i.role == role])
    lines += _listed("results", [f"{o.name}: {o.value.type}" for o in graph.outputs if o.role == "result"])
    lines += _listed("state written", [f"{o.name}: {o.value.type}" for o in graph.outputs if o.role == "state"])
    lines += _listed(
        "valid while these values stay as they were",
        [f"{seen} at {source or 'an unknown line'}" for _, seen, source in recording.predicates],
    )
    lines += _listed("most frequent operators", [f"{n} x {name}" for name, n in _operators(graph).most_common(8)])
    return "\n".join(lines)


def _operators(graph: Graph) -> Counter[str]:
    return Counter(n.op.name for n in graph.live_nodes())


def _listed(title: str, items: list[str]) -> list[str]:
    if not items:
        return []
    more = [f"    and {len(items) - SHOWN} more"] if len(items) > SHOWN else []
    return [f"  {title}:", *(f"    {item}" for item in items[:SHOWN]), *more]
