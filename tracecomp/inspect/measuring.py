"""The commands ``report``, ``profile`` and ``bench``, which measure times."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from tracecomp.compiled.function import Compiled
from tracecomp.inspect.command import EPILOG, UsageError, add_arguments, called, check_output, compiled_of, program
from tracecomp.inspect.report import write_report
from tracecomp.inspect.report.compile_times import as_text
from tracecomp.inspect.text_report import seconds

TURNS = 7
"""Measurements of each side, alternating; their median counts."""
LEAST = 0.02
"""Least seconds of a measurement: shorter calls are repeated."""


@dataclass(frozen=True)
class Bench:
    """Seconds of a call, eagerly and compiled, measured alternately; of the first compiled call; of compiling."""

    eager: float
    compiled: float
    first_call: float
    turns: int

    @property
    def ratio(self) -> float:
        return self.eager / self.compiled

    def __str__(self) -> str:
        return (
            f"eager {seconds(self.eager)}, compiled {seconds(self.compiled)}: {self.ratio:.3g} times as fast; "
            f"the first calls, until it runs natively, took {seconds(self.first_call)} (medians of {self.turns} turns)"
        )


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the three to the command line."""
    adding: tuple[tuple[str, Callable[[argparse.Namespace], int], str], ...] = (
        ("report", run_report, "write a report on a compiled function to one HTML file"),
        ("profile", run_profile, "time, bytes, operations and share of the machine's peak for each kernel"),
        ("bench", run_bench, "time eager and compiled calls, or the text generation of a model folder"),
    )
    for name, run, line in adding:
        parser = commands.add_parser(
            name, help=line, description=line, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        add_arguments(parser)
        parser.add_argument("--threads", type=int, help="threads of the compiled program")
        parser.set_defaults(run=run)
        if name == "report":
            parser.add_argument("-o", "--output", default="report.html", metavar="FILE", help="default report.html")
            parser.add_argument("--errors", action="store_true", help="compare every node with float64 (slow)")
            parser.add_argument("--against", metavar="OLD.json", help="begin with the changes since that report")
        else:
            parser.add_argument("--json", action="store_true", help="print JSON")
        if name == "profile":
            parser.add_argument("--trace", metavar="FILE", help="write a trace of the kernels for Chrome")
            parser.add_argument("--calls", type=int, default=10, help="number of timed calls (default 10)")


def run_report(options: argparse.Namespace) -> int:
    """Write the report."""
    output = check_output(options.output)
    if options.against and not Path(options.against).is_file():
        raise UsageError(f"no file {options.against}")
    fn, (args, kwargs) = program(options)
    compiled = compiled_of(fn, options.threads)
    if not args and not kwargs:
        called(compiled)
    path = write_report(compiled, output, tuple(args), kwargs, options.against, options.errors)
    for made in json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))["programs"]:
        print(f"compiling {made['name']} ({made['phase']}):\n{as_text(made['compileTimes'])}")
    print(f"wrote {path} and {path.with_suffix('.json')}", file=sys.stderr)
    return 0


def run_profile(options: argparse.Namespace) -> int:
    """Print times by kernel."""
    fn, (args, kwargs) = program(options)
    found = compiled_of(fn, options.threads).profile(*args, calls=options.calls, **kwargs)
    if options.trace:
        found.export_chrome_trace(options.trace)
    print(json.dumps(asdict(found)) if options.json else found)
    return 0


def run_bench(options: argparse.Namespace) -> int:
    """Print times of calls."""
    fn, (args, kwargs) = program(options)
    found = bench(compiled_of(fn, options.threads), tuple(args), kwargs)
    print(json.dumps({**asdict(found), "ratio": found.ratio}) if options.json else found)
    return 0


def bench(compiled: Compiled, args: tuple[object, ...], kwargs: Mapping[str, object], turns: int = TURNS) -> Bench:
    """Times of alternating eager and compiled calls. Calls change the state as usual."""
    start = time.perf_counter()
    for _ in range(3):  # one records, one compiles, one runs
        compiled(*args, **kwargs)
    first = time.perf_counter() - start
    times: dict[Any, list[float]] = {compiled.fn: [], compiled: []}
    counts = {run: _count(run, args, kwargs) for run in times}
    for _ in range(turns):
        for run, found in times.items():
            start = time.perf_counter()
            for _ in range(counts[run]):
                run(*args, **kwargs)
            found.append((time.perf_counter() - start) / counts[run])
    return Bench(median(times[compiled.fn]), median(times[compiled]), first, turns)


def _count(run: Callable[..., object], args: tuple[object, ...], kwargs: Mapping[str, object]) -> int:
    """The number of calls per measurement."""
    start = time.perf_counter()
    run(*args, **kwargs)
    return max(int(LEAST / max(time.perf_counter() - start, 1e-7)), 1)
