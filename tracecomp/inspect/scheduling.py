"""Schedules by hand: print those of a program's kernels, replace them, compare bits and times."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from tracecomp.inspect.capture import Captured, capture
from tracecomp.inspect.command import UsageError, add_arguments, program
from tracecomp.ir.program import call_steps
from tracecomp.passes.building import Built, build
from tracecomp.passes.explain import describe_schedules
from tracecomp.runtime.executable import Executable

Array = np.ndarray[Any, Any]

TURNS = 15
"""Runs of both programs, alternating: the median of each kernel's times counts."""


@dataclass(frozen=True)
class Tried:
    """The result of user schedules: seconds of every kernel with the chosen and the user's schedule."""

    seconds: Mapping[str, tuple[float, float]]
    same_bits: bool
    text: str

    def __str__(self) -> str:
        """A line for each kernel: microseconds before and after, and their ratio."""
        lines = [f"{'kernel':<40} {'chosen':>10} {'by hand':>10} {'ratio':>6}"]
        for name, (before, after) in self.seconds.items():
            lines.append(f"{name:<40} {before * 1e6:8.1f}us {after * 1e6:8.1f}us {after / before:6.2f}")
        lines.append("same bits" if self.same_bits else "BITS DIFFER: a defect in the schedule's primitives")
        return "\n".join(lines)


def schedules(fn: Callable[..., object], *args: Any, **kwargs: Any) -> dict[str, str]:
    """Return the schedules of the kernels of ``fn(*args, **kwargs)``, by name, as text that can be passed back.

    CaptureError if it cannot be recorded.
    """
    built = build(capture(fn, args, kwargs).graph)
    kernels = {step.kernel.name: step.kernel for step in call_steps(built.program.steps)}
    return {name: "\n".join(kernel.schedules) for name, kernel in kernels.items()}


def try_schedules(
    by_hand: Mapping[str, str], fn: Callable[..., object], *args: Any, threads: int | None = None, **kwargs: Any
) -> Tried:
    """Run ``fn(*args, **kwargs)`` with the chosen schedules and with the user's: return times, and whether bits agree.

    ``by_hand`` are texts by kernel (``k3``, or its full name); fields that a text leaves out are chosen. ScheduleError
    for a text that cannot be read, does not fit, or would change results.
    """
    captured = capture(fn, args, kwargs)
    programs = build(captured.graph), build(captured.graph, schedules=by_hand)
    runs = [_Run(built, captured, threads) for built in programs]
    names = [step.kernel.name for step in call_steps(programs[0].program.steps)]
    times: list[list[list[float]]] = [[], []]
    for _ in range(TURNS):
        for run, found in zip(runs, times, strict=True):
            found.append(run.timed())
    before, after = ([median(turns) for turns in zip(*found, strict=True)] for found in times)
    seconds: dict[str, tuple[float, float]] = {}
    for name, one, other in zip(names, before, after, strict=True):
        known = seconds.get(name, (0.0, 0.0))
        seconds[name] = known[0] + one, known[1] + other
    first, second = (run.outputs for run in runs)
    same = all(a.tobytes() == b.tobytes() for a, b in zip(first, second, strict=True))
    return Tried(seconds, same, describe_schedules(programs[1].program))


class _Run:
    """One of the two programs with separate operands."""

    def __init__(self, built: Built, captured: Captured, threads: int | None) -> None:
        self.executable, self.threads = Executable(built.program), threads
        given = iter(captured.arrays)
        inputs = [i.data if i.role == "constant" else next(given) for i in built.graph.inputs]
        self.inputs = [*(np.array(a, order="C") for a in inputs), *built.constants]
        self.outputs = [np.zeros(o.value.shape, o.value.dtype.numpy) for o in built.graph.outputs]

    def timed(self) -> list[float]:
        """The seconds of each kernel call, in order."""
        return [seconds for _, seconds in self.executable.run_profiled(self.inputs, self.outputs, self.threads)]


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``schedule`` to the command line."""
    line = "print the kernels' schedules; with --use, apply schedules from files and compare bits and times"
    parser = commands.add_parser("schedule", help=line, description=line)
    add_arguments(parser)
    parser.add_argument(
        "--use", action="append", default=[], metavar="KERNEL=FILE", help="a schedule for a kernel, such as k3=my.sched"
    )
    parser.add_argument("--threads", type=int, help="threads of both programs")
    parser.set_defaults(run=run_schedule)


def by_kernel(pairs: Sequence[str]) -> dict[str, str]:
    """The texts of ``KERNEL=FILE`` by kernel; UsageError for another form, or a missing file."""
    found = {}
    for pair in pairs:
        kernel, equals, file = pair.partition("=")
        if not equals or not Path(file).is_file():
            raise UsageError(f"{pair}: expected KERNEL=FILE")
        found[kernel] = Path(file).read_text(encoding="utf8")
    return found


def run_schedule(options: argparse.Namespace) -> int:
    """Print the schedules, or the comparison; 1 if bits differ."""
    fn, (args, kwargs) = program(options)
    if not options.use:
        for name, text in schedules(fn, *args, **kwargs).items():
            print(f"# {name}\n{text or '# custom loops'}\n")
        return 0
    tried = try_schedules(by_kernel(options.use), fn, *args, threads=options.threads, **kwargs)
    print(tried.text, file=sys.stderr)
    print(tried)
    return 0 if tried.same_bits else 1
