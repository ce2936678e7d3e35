"""The graph passes, in order, and the one runner that times, verifies, dumps, skips and stops them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import gettempdir

from tracecomp.base import config
from tracecomp.base.dump import Dump
from tracecomp.base.errors import CompileError
from tracecomp.ir.graph import Graph
from tracecomp.ir.printer import print_graph
from tracecomp.ir.verify import verify
from tracecomp.passes.graph import (
    complex_to_real,
    constant_folding,
    dead_code,
    layout,
    loop_invariants,
    rule_sets,
    scan_accumulators,
    split_reductions,
)
from tracecomp.passes.graph.rewrite import Log


@dataclass(frozen=True, slots=True)
class Pass:
    """A named function from graph to graph, with one line on what it is for."""

    name: str
    run: Callable[[Graph, Log], Graph]
    doc: str


PIPELINE: tuple[Pass, ...] = (
    Pass("pairs", complex_to_real.split_complex, "complex values as pairs of real ones"),
    Pass("simplify", rule_sets.simplify, "bit-exact algebra on scalars and shapes"),
    Pass("fold", constant_folding.fold_constants, "compute what depends on constants only"),
    Pass("decompose", rule_sets.decompose, "padding, transposed convolutions and composed operators, spelled out"),
    Pass("layout", layout.plan, "channels last where convolutions gain from it; convolutions become contractions"),
    Pass("canonical", rule_sets.canonicalise, "one spelling for contractions and reductions"),
    Pass("scan_sums", scan_accumulators.sum_after_scans, "sums over the steps of a scan, once after it"),
    Pass("split", split_reductions.split_reductions, "long reductions in two stages"),
    Pass("hoist", loop_invariants.hoist, "what every step of a scan would repeat, once before it"),
    Pass("dead_code", dead_code.remove_dead_code, "what control operators compute and nobody reads"),
)


@dataclass(frozen=True, slots=True)
class Stage:
    """The graph after one pass, what the pass did, and how long it took."""

    name: str
    graph: Graph
    log: Log
    seconds: float


def run(graph: Graph, dump: Dump, passes: tuple[Pass, ...] = PIPELINE) -> list[Stage]:
    """``graph`` after each pass, the recorded graph first; CompileError names the pass that failed.

    Obeys the settings ``skip_passes``, ``stop_after``, ``verify`` and ``dump``.
    """
    settings = config.current()
    unknown = set(settings.skip_passes) - {p.name for p in passes}
    if unknown:
        raise ValueError(f"no pass called {', '.join(sorted(unknown))}; there are {', '.join(p.name for p in passes)}")
    stages = [Stage("recorded", graph, Log(), 0.0)]
    _write(dump, stages[0])
    for step in passes[: settings.stop_after]:
        if step.name not in settings.skip_passes:
            stages.append(_run_pass(step, stages[-1].graph, settings.verify))
            _write(dump, stages[-1])
    return stages


def _write(dump: Dump, stage: Stage) -> None:
    dump.write(stage.name, lambda: print_graph(stage.graph, comments=True))


def _run_pass(step: Pass, graph: Graph, check: bool) -> Stage:
    log = Log()
    start = time.perf_counter()
    try:
        result = step.run(graph, log)
        if check:
            verify(result)
    except Exception as error:
        path = write_reproduction(step, graph)
        raise CompileError(
            f"pass {step.name} failed on graph {graph.name}: {type(error).__name__}: {error}\n"
            f"reproduce with: python {path}"
        ) from error
    return Stage(step.name, result, log, time.perf_counter() - start)


_REPRODUCTION = '''\
"""Runs pass {name} of tracecomp on the graph on which it failed."""

from tracecomp.ir.parser import parse_graph
from tracecomp.ir.verify import verify
from tracecomp.passes.pipeline import PIPELINE
from tracecomp.passes.graph.rewrite import Log

GRAPH = r"""
{graph}
"""

[step] = [p for p in PIPELINE if p.name == "{name}"]
verify(step.run(parse_graph(GRAPH), Log()))
'''


def write_reproduction(step: Pass, graph: Graph) -> Path:
    """A script that runs ``step`` on ``graph`` alone, in the dump folder or the system's temporary folder."""
    folder = Path(config.current().dump or gettempdir())
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"tracecomp_reproduce_{step.name}.py"
    path.write_text(_REPRODUCTION.format(name=step.name, graph=print_graph(graph)), encoding="utf-8")
    return path
