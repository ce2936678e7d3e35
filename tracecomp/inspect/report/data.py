"""Everything that a report shows, as data that ``json.dumps`` takes."""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tracecomp.compiled.backends import Native
from tracecomp.compiled.function import Compiled
from tracecomp.inspect import assembly
from tracecomp.inspect.assembly import with_lines
from tracecomp.inspect.bottleneck import rates_now
from tracecomp.inspect.environment import environment
from tracecomp.inspect.explain import explained
from tracecomp.inspect.facts import FunctionFacts, GraphFacts, plain
from tracecomp.inspect.node_errors import node_errors
from tracecomp.inspect.report.compile_times import compile_times
from tracecomp.inspect.report.stages import Nodes, Texts, kernel_table, scope_paths, stage_table
from tracecomp.inspect.text_report import short
from tracecomp.ir.loop_printer import kernel_lines
from tracecomp.ir.program import Kernel, Program, call_steps
from tracecomp.passes.cost.machine import host
from tracecomp.passes.kernel_title import common_title
from tracecomp.passes.steps import Stage
from tracecomp.runtime import peaks

FORMAT = 2
"""Version of the JSON format; a comparison with another format is rejected."""
AROUND = 12
"""Lines of source that are shown around each line that the program comes from."""


def report_data(
    compiled: Compiled, args: tuple[object, ...], kwargs: Mapping[str, object], errors: bool = False
) -> dict[str, Any]:
    """Return the facts about a compiled function, with the graph after every step, kernels, their code, and the source.

    ``errors``: include errors of every node against float64.
    """
    facts = explained(compiled, args, kwargs)
    programs = [
        program_data(graph, 0.0 if number else recording.seconds, errors)
        for function in _functions(facts)
        for recording in function.recordings
        for number, graph in enumerate(g for g in recording.graphs if g.backend is not None)
    ]
    return {
        "format": FORMAT,
        "name": facts.name,
        "words": list(short(facts)),
        "facts": _without_kernels(plain(facts)),
        "programs": programs,
        "sources": sources(programs),
        "machine": _machine(max((g.threads for g in facts.graphs), default=1)),
        "environment": environment(),
    }


def _functions(facts: FunctionFacts) -> Iterator[FunctionFacts]:
    yield facts
    for part in facts.parts:
        yield from _functions(part)


def _without_kernels(facts: dict[str, Any]) -> dict[str, Any]:
    """Facts about recordings and costs; the programs contain those about graphs."""
    recordings = [{k: v for k, v in r.items() if k != "graphs"} for r in facts["recordings"]]
    return {**facts, "recordings": recordings, "parts": [_without_kernels(p) for p in facts["parts"]]}


def program_data(graph: GraphFacts, recording: float, errors: bool = False) -> dict[str, Any]:
    """One graph: its steps, kernels and memory, and on request its nodes' errors. ``recording`` are seconds."""
    backend = graph.backend
    assert isinstance(backend, Native)
    built, texts = backend.built, Texts()
    nodes = Nodes(texts)
    stages, tables, numbers = _stages(built.stages, nodes)
    inputs = tables[-1]["inputs"]
    paths = dict(zip(numbers, scope_paths(built.graph, list(numbers), inputs), strict=True))
    calls = list(call_steps(built.program.steps))
    kernels = {c.kernel.name: c.kernel for c in calls}
    bodies, files = assembly.functions(backend.executable.annotated), assembly.files(backend.executable.annotated)
    functions = {c.kernel.name: name for c, name in zip(calls, backend.executable.code.functions, strict=True)}
    facts = plain(graph)
    apart = node_errors(built.graph, graph.operands()) if errors and graph.operands is not None else {}
    return {
        "name": graph.name,
        "phase": graph.phase,
        "seconds": graph.seconds,
        "wall": graph.wall,
        "share": graph.share,
        "threads": graph.threads,
        "recordedNodes": graph.nodes,
        "steps": facts["stages"],
        "compileTimes": compile_times(graph, recording, backend.executable.seconds),
        "apart": facts["apart"],
        "memory": facts["memory"],
        "texts": texts.list,
        "nodes": nodes.rows,
        "errors": {numbers[n]: error for n, error in apart.items() if n in numbers},
        "stages": stages,
        "tables": tables,
        "kernelGraph": kernel_table(built.lowered.frame, built.program, paths),
        "calls": [{**k, "title": str(own.title), "computed": own.title.computed,
                   "nodes": sorted({numbers[n] for n in c.nodes if n in numbers})}
                  for k, own, c in zip(facts["kernels"], graph.kernels, calls, strict=True)],
        "titles": {
            name: common_title(k.title for k in graph.kernels if k.name == name) for name in kernels
        },
        "kernels": {
            name: _code(kernel, assembly.of_kernel(functions[name], bodies), files, built.program, texts)
            for name, kernel in kernels.items()
        },
    }  # fmt: skip


def _stages(
    stages: Iterable[Stage[Any]], nodes: Nodes
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], dict[Any, int]]:
    """The stages, the different tables of their nodes, and the numbers of the last stage's nodes."""
    rows: list[dict[str, Any]] = []
    tables: list[dict[str, Any]] = []
    numbers: dict[Any, int] = {}
    for stage in stages:
        numbers = nodes.of(stage.state)
        table = stage_table(stage.state, numbers)
        if not tables or table != tables[-1]:
            tables.append(table)
        rows.append({"name": stage.name, "table": len(tables) - 1})
    return rows, tables, numbers


def _code(
    kernel: Kernel, functions: dict[str, Sequence[str]], files: dict[str, str], program: Program, texts: Texts
) -> dict[str, Any]:
    """A kernel's schedule, loops and assembly; each line of these has the number of the user's line, or -1."""
    loops = kernel_lines(kernel)
    found = [pair for name, body in functions.items() for pair in ((f"{name}:", ""), *with_lines(body, files))]
    of_loops = [str(program.sources[o]) if o in program.sources else "" for _, o in loops]
    return {
        "schedule": "\n".join(kernel.schedules) or "custom loops",
        "loops": [line for line, _ in loops],
        "loopsLines": [texts.number(s) if s else -1 for s in of_loops],
        "assembly": [line for line, _ in found],
        "assemblyLines": [texts.number(s) if s else -1 for _, s in found],
    }


def sources(programs: Iterable[dict[str, Any]]) -> dict[str, dict[str, str]]:
    """The user's lines of nodes, with surrounding lines, by file and number."""
    wanted: dict[str, set[int]] = {}
    for program in programs:
        for row in program["nodes"]:
            file, _, line = program["texts"][row[4]].rpartition(":")
            if re.fullmatch(r"\d+", line):
                wanted.setdefault(file, set()).update(range(max(int(line) - AROUND, 1), int(line) + AROUND + 1))
    return {
        file: {str(n): text.rstrip("\n") for n in sorted(lines) if (text := linecache.getline(file, n))}
        for file, lines in wanted.items()
    }


def _machine(threads: int) -> dict[str, Any]:
    """Measured peaks, for the roofline."""
    rates, machine = rates_now(), host()
    return {
        "threads": threads,
        "flops": peaks.flops(threads),
        "bandwidth": peaks.bandwidth(threads),
        "cacheBandwidth": rates.load_bytes * threads,
        "l2": machine.l2_bytes,
    }
