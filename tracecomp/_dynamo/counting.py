"""Counts of recordings of compiled functions, under the names of PyTorch's counters."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterable, Iterator

from tracecomp import compiled


def with_parts(made: compiled.Compiled) -> Iterator[compiled.Compiled]:
    """A compiled function and its compiled parts between graph breaks."""
    yield made
    for part in made.parts.used() if made.parts is not None else ():
        yield from with_parts(part)


def everything() -> Iterator[compiled.Compiled]:
    """All existing compiled functions."""
    return (found for found in gc.get_objects() if type(found) is compiled.Compiled)


def reason(made: compiled.Compiled) -> str | None:
    """The reason of a function's first graph break, if it has one."""
    return made.eager_because or (made.parts.reason if made.parts is not None else None)


def counted(functions: Iterable[compiled.Compiled]) -> dict[str, Counter[str]]:
    """Recordings, graph breaks by reason, and operators of the graphs in use."""
    listed = list(functions)
    recordings = sum(c.recordings for c in listed)
    ops = sum(bool(node.inputs) for c in listed for g in c.graphs for node in g.nodes)
    return {
        "stats": Counter(unique_graphs=recordings, calls_captured=ops),
        "frames": Counter(total=recordings, ok=recordings),
        "graph_break": Counter(why for c in listed if (why := reason(c)) is not None),
    }
