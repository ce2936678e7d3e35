"""The topics that can be logged."""

from __future__ import annotations

TOPICS = {
    "graphs": "each recorded graph, as text",
    "recompiles": "why a call was recorded again: the guard, its old and new value",
    "breaks": "why a function does not run as one graph",
    "passes": "each step of a compilation: its time and the program's size after it",
    "fusion": "the kernels, and why others were not fused",
    "schedule": "the loops of each kernel, in order",
    "memory": "the arena and the other memory of a call",
    "compile": "programs compiled in another process: when they are ready",
    "code": "whether machine code was compiled or came from the cache",
    "all": "all of these",
}


def topics(text: str) -> tuple[str, ...]:
    """Topics separated by commas; ValueError for one that does not exist."""
    found = tuple(name.strip() for name in text.split(",") if name.strip())
    unknown = [name for name in found if name not in TOPICS]
    if unknown:
        raise ValueError(f"unknown topic {', '.join(unknown)}; topics are {', '.join(TOPICS)}")
    return found


def describe() -> str:
    """One line per topic."""
    return "Topics of TRACECOMP_LOG, separated by commas:\n" + "\n".join(f"  {t:<12} {d}" for t, d in TOPICS.items())
