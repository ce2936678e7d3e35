"""``python -m tracecomp run file.ir`` and ``opt``: run what a dump describes, and passes one by one."""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tracecomp.base import config
from tracecomp.base.dump import Dump
from tracecomp.compiled.backends import BACKENDS
from tracecomp.inspect.command import UsageError
from tracecomp.inspect.dumps import arrays_for, read_dump, run_graph, run_program, sample_inputs, with_constants
from tracecomp.inspect.scheduling import by_kernel
from tracecomp.ir.graph import Graph
from tracecomp.ir.loop_printer import print_program
from tracecomp.ir.printer import print_graph
from tracecomp.passes import pipeline
from tracecomp.passes.building import handed_in
from tracecomp.passes.pipeline import LOWERING, PIPELINE, lower
from tracecomp.passes.program.frame_text import print_frame

Array = np.ndarray[Any, Any]


def run_file(argv: Sequence[str]) -> int:
    """Run a graph or a loop program from a file, and print each output with a digest of its bits."""
    parser = argparse.ArgumentParser(prog="python -m tracecomp run", description=run_file.__doc__)
    parser.add_argument("file", type=Path, help="a file.ir of a dump, or the output of trace")
    parser.add_argument(
        "--inputs", type=Path, action="append", default=[], metavar="FILE",
        help="arrays, by name or in order (default for a graph: random arrays)",
    )  # fmt: skip
    parser.add_argument("--way", choices=tuple(BACKENDS), default="native", help="machine code, or the interpreter")
    parser.add_argument("--without", default="", metavar="PASSES", help="passes and lowering steps to skip")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE.npz", help="write the outputs to this file")
    options = parser.parse_args(argv)
    for path in (options.file, *options.inputs):
        if not path.is_file():
            raise UsageError(f"no file {path}")
    try:
        names, found = _outputs(options)
    except ValueError as error:
        raise UsageError(f"{options.file}: {error}") from None
    for name, array in zip(names, found, strict=True):
        digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]
        print(f"{name}: {array.dtype.name}{list(array.shape)} {digest}")
    if options.output:
        np.savez(options.output, *found)
    return 0


def _outputs(options: argparse.Namespace) -> tuple[list[str], list[Array]]:
    """The names of the outputs, and their arrays."""
    dump = read_dump(options.file)
    if not isinstance(dump, Graph):
        arrays = with_constants(dump, options.file.parent, options.inputs)
        return [s.name for s in dump.outputs], run_program(dump, arrays, options.way)
    names = [i.name for i in dump.inputs if i.role != "constant"]
    arrays = arrays_for(names, options.inputs) if options.inputs else sample_inputs(dump)
    left_out = _steps(options.without, [*PIPELINE, *LOWERING])
    with config.override(skip_passes=tuple(s.name for s in left_out)):
        return [o.name for o in dump.outputs], run_graph(dump, arrays, options.way)


def _steps(words: str, steps: Sequence[Any]) -> list[Any]:
    """The steps named by comma-separated words, each a full name or a unique part."""
    found = []
    for word in filter(None, words.split(",")):
        fit = [s for s in steps if s.name == word] or [s for s in steps if word in s.name]
        if len(fit) != 1:
            names = ", ".join(s.name for s in fit or steps)
            raise UsageError(f"{'which' if fit else 'no'} pass {word!r}: there are {names}")
        found += fit
    return found


def add_command(commands: Any) -> None:
    """Add ``opt`` to the command line."""
    line = "run passes on a printed graph and print the result"
    parser = commands.add_parser("opt", help=line, description=line)
    names = ", ".join(s.name for s in PIPELINE)
    parser.add_argument("file", type=Path, help="a printed graph")
    parser.add_argument("--passes", metavar="A,B", help=f"only these, in this order (default: all of {names})")
    parser.add_argument("--print-between", action="store_true", help="print after each step")
    parser.add_argument("--program", action="store_true", help="lower to the loop program")
    parser.add_argument(
        "--schedule", action="append", default=[], metavar="KERNEL=FILE",
        help="lower to the loop program, with this schedule for a kernel, such as k3=my.sched",
    )  # fmt: skip
    parser.set_defaults(run=run_opt)


def run_opt(options: argparse.Namespace) -> int:
    """Print the graph, or the program, after the passes; every step's result is verified."""
    if not options.file.is_file():
        raise UsageError(f"no file {options.file}")
    steps = PIPELINE if options.passes is None else tuple(_steps(options.passes, PIPELINE))
    try:
        graph = read_dump(options.file)
    except ValueError as error:
        raise UsageError(f"{options.file}: {error}") from None
    if not isinstance(graph, Graph):
        raise UsageError(f"{options.file} is a loop program: passes are for graphs")
    with config.override(verify=True):
        return _print(options, graph, steps)


def _print(options: argparse.Namespace, graph: Graph, steps: Any) -> int:
    stages = pipeline.run(graph, Dump("", enabled=False), steps)
    texts = [(stage.name, print_graph(stage.state, comments=True)) for stage in stages]
    if options.program or options.schedule:
        lowered = lower(stages[-1].state)
        if options.schedule:
            lowered = lower(stages[-1].state, given=handed_in(lowered.program, by_kernel(options.schedule)))
        texts += [(stage.name, print_frame(stage.state)) for stage in lowered.stages[1:-1]]
        texts.append((lowered.stages[-1].name, f"{print_program(lowered.program)}\n"))
    for name, text in texts[1:] if options.print_between else texts[-1:]:
        sys.stdout.write(f"# after {name}\n{text}" if options.print_between else text)
    return 0


__all__ = ["add_command", "run_file", "run_opt"]
