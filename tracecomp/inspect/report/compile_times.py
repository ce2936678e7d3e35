"""The time of compiling a graph as a tree of steps, drawn as a flame graph or as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tracecomp.inspect.facts import GraphFacts, StageFacts
from tracecomp.inspect.text_report import seconds
from tracecomp.passes.pipeline import PIPELINE

WIDTH = 40
"""Characters of the longest bar."""
LEAST = 0.01
"""Least share of the whole that the text shows."""

Tree = dict[str, Any]
"""``name``, ``seconds``, ``more`` (text) and ``parts`` (trees); the time of the parts is included."""


def compile_times(graph: GraphFacts, recording: float, code: Mapping[str, float]) -> Tree:
    """The steps from recording to linking. ``code`` are the seconds of the steps after the passes."""
    names = {step.name for step in PIPELINE}
    passes = [s for s in graph.stages if s.name.removeprefix("without_") in names]
    lowering = [s for s in graph.stages if s not in passes and s.seconds]
    return _tree(
        graph.name,
        [
            *([_tree("recording", [], recording)] if recording else []),
            _tree("passes", list(map(_step, passes))),
            _tree("lowering", list(map(_step, lowering))),
            _tree("machine code", [_tree(name, [], taken) for name, taken in code.items()]),
        ],
    )


def _step(stage: StageFacts) -> Tree:
    return _tree(stage.name, [_tree(n, [], taken) for n, taken in stage.parts.items()], stage.seconds, stage.size)


def _tree(name: str, parts: Sequence[Tree], taken: float | None = None, more: str = "") -> Tree:
    parts = [p for p in parts if p["seconds"] > 0]
    total = sum(p["seconds"] for p in parts) if taken is None else taken
    return {"name": name, "seconds": total, "more": more, "parts": parts}


def as_text(tree: Tree) -> str:
    """The tree in lines, each step with a bar under the part of the whole that it takes."""
    return "\n".join(_lines(tree, 0, 0.0, max(tree["seconds"], 1e-9)))


def _lines(tree: Tree, level: int, start: float, whole: float) -> Iterator[str]:
    share = tree["seconds"] / whole
    first, width = round(WIDTH * start / whole), max(round(WIDTH * share), 1)
    bar = f"{' ' * min(first, WIDTH - 1)}{'#' * width}"
    yield f"{bar:<{WIDTH + 1}} {seconds(tree['seconds']):>8} {100 * share:3.0f} %  {'  ' * level}{tree['name']}"
    for part in tree["parts"]:
        if part["seconds"] >= LEAST * whole:
            yield from _lines(part, level + 1, start, whole)
        start += part["seconds"]
