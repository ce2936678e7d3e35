"""The compiled text of many programs: it must be the same in every process, whatever ran there before.

``python -m tests.codegen.texts`` prints a digest for each.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator

from tests.fuzz import panels
from tests.replay import corpus
from tests.replay.digests import MACHINES
from tracecomp.base import config
from tracecomp.codegen.kernels.program import emit_program
from tracecomp.codegen.text.native import host_target
from tracecomp.ir.graph import Graph
from tracecomp.ir.loop_printer import print_program
from tracecomp.ir.parser import parse_graph
from tracecomp.ir.program import Program
from tracecomp.ir.types import TensorType, float64, uint8
from tracecomp.passes.building import build
from tracecomp.passes.cost.machine import host
from tracecomp.runtime.compiler import key_of

TURNED = [
    ((40, 20000), (1, 0)), ((1100, 1300), (1, 0)), ((9, 400, 300), (0, 2, 1)), ((300, 7, 600), (2, 1, 0)),
    ((1024, 1024), (1, 0)), ((17, 33), (1, 0)),
]  # fmt: skip
"""Transposes, most of them of memory that no cache holds, with rests."""


def programs(graphs: int, loops: int) -> Iterator[tuple[str, Program]]:
    """So many recorded graphs for two machines, transposes for this one, and so many random loop programs."""
    recorded = [g for g in corpus.load() if len(g.graph) < 6000]
    for found in recorded[:: max(len(recorded) // graphs, 1)]:
        with config.override(**found.settings):
            for name, machine in MACHINES.items():
                graph = parse_graph(found.graph)
                built = build(graph, found.aliases, frozen=frozenset(found.frozen), machine=machine)
                yield f"{found.name} for {name}", built.program
    for shape, dims in TURNED:
        for dtype in (float64, uint8):
            built = build(turned(TensorType(dtype, shape), dims), machine=host())
            yield f"{dtype.short} {shape} turned to {dims}", built.program
    for seed in range(loops):
        yield f"random {seed}", panels.Maker(seed, 3).program


def turned(kind: TensorType, dims: tuple[int, ...]) -> Graph:
    """A graph that puts the axes of its input into another order."""
    graph = Graph("turned")
    graph.add_output(graph.apply("permute", graph.add_input(kind, "x"), dims=dims))
    return graph


def texts(graphs: int = 8, loops: int = 4) -> dict[str, str]:
    """For each program its text, the machine code's text, and the key under which that is stored."""
    target, found = host_target(), {}
    for name, program in programs(graphs, loops):
        code = emit_program(program, target).text
        found[name] = "\n".join([print_program(program), code, key_of(code, target)])
    return found


def digests(found: dict[str, str]) -> dict[str, str]:
    """A digest of each text."""
    return {name: hashlib.sha256(text.encode()).hexdigest() for name, text in found.items()}


def main() -> None:
    print(json.dumps(digests(texts())))


if __name__ == "__main__":
    main()
