"""Reproduction scripts: they run one step alone on the state on which it failed."""

from __future__ import annotations

from pathlib import Path
from tempfile import mkdtemp

from tracecomp.base import config
from tracecomp.ir.graph import Graph
from tracecomp.ir.printer import print_graph
from tracecomp.passes.program.frame import Frame
from tracecomp.passes.program.frame_text import print_frame

_PASS = '''\
"""Runs pass {name} of tracecomp on the graph on which it failed."""

from tracecomp.ir.parser import parse_graph
from tracecomp.ir.verify import verify
from tracecomp.passes.pipeline import PIPELINE
from tracecomp.passes.steps import Log

GRAPH = r"""
{state}
"""

[step] = [p for p in PIPELINE if p.name == "{name}"]
verify(step.run(parse_graph(GRAPH), Log()))
'''

_LOWERING_STEP = '''\
"""Runs lowering step {name} of tracecomp on the frame on which it failed; what a frame's text leaves out, before."""

from tracecomp.passes.cost.machine import *
from tracecomp.passes.pipeline import resumed
from tracecomp.passes.program.frame_text import parse_frame

FRAME = r"""
{state}
"""

resumed(parse_frame(FRAME, {machine}), "{first}", "{name}")
'''

_PLANNING = ("fusion", "implicit_padding", "concat_in_place", "row_fusion", "output_buffers")
"""Steps whose results are in a frame's text; later steps run again from ``output_buffers``."""


def of_pass(name: str, graph: Graph) -> str:
    """The script for a graph pass."""
    return _PASS.format(name=name, state=print_graph(graph))


def of_lowering_step(name: str, frame: Frame) -> str:
    """The script for a lowering step."""
    # The script runs the step itself; its replacement has the same name.
    name = name.removeprefix("without_")
    # Kernels have no text that reads back, so later steps start from the last state that has one.
    first = name if name in _PLANNING else "output_buffers"
    return _LOWERING_STEP.format(name=name, first=first, state=print_frame(frame), machine=frame.machine)


def write(name: str, script: str) -> Path:
    """Write the script to a file in the dump folder, or in a new one that other users cannot write to."""
    folder = Path(config.current().dump or mkdtemp(prefix="tracecomp-"))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"tracecomp_reproduce_{name}.py"
    path.write_text(script, encoding="utf-8")
    return path
