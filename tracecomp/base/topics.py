"""The topics that can be logged."""

from __future__ import annotations

TOPICS = {
    "graphs": "each recorded graph, as text",
    "recompiles": "why a call was recorded again: the guard, the value that was and the one that is",
    "breaks": "why a function does not run as one graph",
    "passes": "each step of a compilation: how long it took, how large the program is then",
    "fusion": "which kernels there are, and why they are not fewer",
    "schedule": "how each kernel's loops run",
    "memory": "the arena and what a call takes beside it",
    "code": "the machine code's size, and whether it came from the cache",
    "all": "all of these",
}


def topics(text: str) -> tuple[str, ...]:
    """Topics separated by commas; ValueError for one that does not exist."""
    found = tuple(name.strip() for name in text.split(",") if name.strip())
    unknown = [name for name in found if name not in TOPICS]
    if unknown:
        raise ValueError(f"there is no topic {', '.join(unknown)}; there are {', '.join(TOPICS)}")
    return found


def describe() -> str:
    """One line per topic."""
    return "Topics of TRACECOMP_LOG, separated by commas:\n" + "\n".join(f"  {t:<12} {d}" for t, d in TOPICS.items())
