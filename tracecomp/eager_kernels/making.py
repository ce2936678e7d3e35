"""Compile operators to machine code; loaded, with passes and codegen, if some code is not on disk."""

from __future__ import annotations

from tracecomp.base.dump import Dump
from tracecomp.base.errors import CompileError
from tracecomp.ir.graph import Graph
from tracecomp.passes.building import build
from tracecomp.runtime import images
from tracecomp.runtime.image import Image

_SCHEDULE = {"k0": "lanes across rows\n  nontemporal no\n  threads parallel\n"}


def counted_image(graph: Graph) -> Image:
    """Machine code of a graph of one operator on more elements than any array has."""
    # Not dumped: the dump folder contains the user's programs, under stable names.
    return images.counted_image(build(graph, dump=Dump("", enabled=False), schedules=_SCHEDULE).program)


def program_image(graph: Graph) -> Image:
    """Machine code of a graph of one operator for its shapes; CompileError if that needs constants."""
    built = build(graph)
    if built.constants:
        raise CompileError(f"{graph.name} needs constants")
    return images.image_of(built.program)
