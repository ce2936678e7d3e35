"""``python -m tools.pipeline_figure``: draw docs/figures/pipeline.svg, the README's training step at each stage."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import tracecomp
from tracecomp.passes.pipeline import LOWERING, PIPELINE

ROOT = Path(__file__).parents[1]
PATH = ROOT / "docs" / "figures" / "pipeline.svg"
ROW, WIDTH = 46, 560
"""Height of a row and width of the picture, in the SVG's pixels."""


def training_step() -> Any:
    """Compile the step of the README's first program for one thread, and return its explanation."""
    code = re.search(r"```python\n(.*?)^for threads", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    assert code
    namespace: dict[str, Any] = {}
    exec(code[1], namespace)
    step = tracecomp.compile(namespace["step"], threads=1)
    for _ in range(3):
        step(namespace["start"])
    return step.explain()


def rows(explanation: Any) -> list[tuple[str, str, str]]:
    """Each stage with its action and the size of its result."""
    graph = explanation.graphs[0]
    sizes = {stage.name: stage.size for stage in graph.stages}
    return [
        ("Python", "the function runs once", "1 function"),
        ("record", "operators become graph nodes", sizes["recorded"]),
        ("graph passes", f"{len(PIPELINE)} passes simplify the graph", sizes[PIPELINE[-1].name]),
        ("fusion", "nodes are grouped into kernels", sizes["fusion"]),
        ("lowering", f"{len(LOWERING)} steps choose loops and memory", sizes["kernels"]),
        ("code", "LLVM compiles the kernels", "1 native entry"),
    ]


def svg(stages: Sequence[tuple[str, str, str]]) -> str:
    """Draw the picture: one row for each stage, joined by arrows."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {ROW * len(stages)}" font-family="sans-serif">',
        f'<rect width="{WIDTH}" height="{ROW * len(stages)}" rx="8" fill="#ffffff"/>',
    ]
    for number, (name, what, size) in enumerate(stages):
        y = number * ROW
        parts += [
            f'<rect x="12" y="{y + 7}" width="120" height="30" rx="6" fill="#3f51b5"/>',
            f'<text x="72" y="{y + 27}" font-size="15" fill="#ffffff" text-anchor="middle">{escape(name)}</text>',
            f'<text x="146" y="{y + 27}" font-size="15" fill="#333333">{escape(what)}</text>',
            f'<text x="{WIDTH - 14}" y="{y + 27}" font-size="15" font-weight="bold" fill="#333333" '
            f'text-anchor="end">{escape(size)}</text>',
        ]
        if number:
            parts.append(f'<path d="M72 {y - 9} V{y + 6} m-4 -5 l4 5 l4 -5" stroke="#3f51b5" fill="none"/>')
    return "\n".join([*parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    PATH.write_text(svg(rows(training_step())))
    print(PATH.read_text())
