"""The command line of the benchmarks."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import machine, report
from benchmarks.cases import KINDS, WORKLOADS, select
from benchmarks.cases.models import LOADED, STARTS
from benchmarks.compare import BEFORE, Commits, checkout, compare, table
from benchmarks.engines import PEERS
from benchmarks.plot import draw
from benchmarks.speed import OURS, Team, Turns, measure
from benchmarks.start import starts, under_load
from benchmarks.workload import Workload

ENGINES = (OURS, *PEERS)
TRAINING = (OURS, "torch", "torch.compile", "jax.jit")
PARTS = ("speed", "start", "load")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m benchmarks", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="measure, print the table, write JSON")
    run.add_argument("--engines", default=",".join(ENGINES), help=f"comma-separated, of: {', '.join(ENGINES)}")
    run.add_argument(
        "--parts",
        default=",".join(PARTS),
        help="comma-separated, of: speed, start (first call, warm start, memory), load (on a busy machine)",
    )
    run.add_argument(
        "--output", type=Path, default=Path("results.json"), help="JSON file to write (default: %(default)s)"
    )
    show = commands.add_parser("show", help="print the tables of JSON files, of several as if of one run")
    show.add_argument("results", type=Path, nargs="+")
    plot = commands.add_parser("plot", help="draw JSON files; needs matplotlib")
    plot.add_argument("results", type=Path, nargs="+")
    plot.add_argument("image", type=Path)
    for command in (show, plot):
        command.add_argument(
            "--cpu", action="store_true", help="compare processor time, which other work disturbs less"
        )
    versus = commands.add_parser(
        "compare", help="measure two commits in turns; fails if a workload became slower beyond noise"
    )
    versus.add_argument("before", help="the commit to compare with")
    versus.add_argument("now", nargs="?", default="HEAD", help="the other commit (default: %(default)s)")
    versus.add_argument("--limit", type=float, default=0.03, help="the share that counts (default: %(default)s)")
    for command in (run, versus):
        _add_selection(command)
    commands.add_parser("list", help="print the names of the workloads")
    return parser


def _add_selection(command: argparse.ArgumentParser) -> None:
    """Add the options that choose workloads, threads and times."""
    command.add_argument(
        "--classes", nargs="+", default=[], help=f"parts of workload names (see list); classes: {', '.join(KINDS)}"
    )
    command.add_argument("--threads", default="1,2", help="comma-separated thread counts (default: %(default)s)")
    command.add_argument("--quick", action="store_true", help="fewer and shorter turns")
    command.add_argument(
        "--patience", type=float, default=180, help="seconds an engine may take to prepare (default: %(default)s)"
    )
    command.add_argument(
        "--cache",
        type=Path,
        default=Path(".benchmarks"),
        help="folder of compiled code and exported models, kept between runs (default: %(default)s)",
    )


def _say(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


def _names(text: str, allowed: tuple[str, ...], what: str, parser: argparse.ArgumentParser) -> list[str]:
    found = [n.strip() for n in text.split(",") if n.strip()]
    wrong = [n for n in found if n not in allowed]
    if wrong:
        parser.error(f"no {what} {', '.join(wrong)}; there are: {', '.join(allowed)}")
    return found


def _run(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    engines = _names(arguments.engines, ENGINES, "engine", parser)
    parts = _names(arguments.parts, PARTS, "part", parser)
    workloads, counts = _selected(arguments, parser)
    results: dict[str, Any] = {
        "commands": [_command()],
        "machine": machine.describe(),
        "missing": {},
        "speed": {},
        "start": {},
        "load": {},
    }
    if "speed" in parts:
        _export(engines, workloads, arguments)
        for count in counts:
            _speed(engines, workloads, count, arguments, results)
    if "start" in parts:
        for w in (WORKLOADS[s] for s in STARTS if WORKLOADS[s] in workloads):
            _starts(engines, w, arguments, results)
    if "load" in parts and WORKLOADS[LOADED] in workloads and len(os.sched_getaffinity(0)) > 1:
        for engine in (e for e in engines if e in TRAINING):
            results["load"][engine] = under_load(engine, WORKLOADS[LOADED], arguments.cache, arguments.patience, _say)
            _save(results, arguments.output)
    _save(results, arguments.output)
    print(report.full(results))


def _selected(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> tuple[list[Workload], list[int]]:
    """The workloads and thread counts asked for; the cache's folder is made."""
    try:
        workloads = select(arguments.classes)
        counts = [int(n) for n in arguments.threads.split(",")]
    except ValueError as error:
        parser.error(str(error))
    if any(not 1 <= n <= len(os.sched_getaffinity(0)) for n in counts):
        parser.error(f"--threads: this process may use {len(os.sched_getaffinity(0))} cores")
    arguments.cache = arguments.cache.resolve()
    arguments.cache.mkdir(parents=True, exist_ok=True)
    return workloads, counts


def _command() -> str:
    load = os.getloadavg()[0]
    return f"`python -m benchmarks {shlex.join(sys.argv[1:])}`, {time.strftime('%Y-%m-%d')}, load {load:.2f}"


def _load(paths: list[Path], cpu: bool) -> dict[str, Any]:
    """The results of several runs on one machine; the highest peaks, and what a later one measured again."""
    first, *others = [json.loads(p.read_text()) for p in paths]
    for other in others:
        first["commands"] += other["commands"]
        for peak in ("flops", "bandwidth"):
            for n, value in other["machine"][peak].items():
                first["machine"][peak][n] = max(value, first["machine"][peak].get(n, 0))
        for part in ("speed", "start"):
            for key, rows in other[part].items():
                first[part].setdefault(key, {}).update(rows)
        for part in ("load", "missing"):
            first[part].update(other[part])
    if cpu:
        _by_processor_time(first)
    return dict(first)


def _by_processor_time(results: dict[str, Any]) -> None:
    """Put processor time in the place of the wall clock's."""
    results["clock"] = "processor time of all threads"
    for rows in (rows for speed in results["speed"].values() for rows in speed.values()):
        ours = rows.get(OURS, {}).get("cpu")
        for row in rows.values():
            if "seconds" in row:
                row["seconds"] = row["cpu"]
            if "ratio" in row:
                row["ratio"] = row["cpu"] / ours


def _compare(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    workloads, counts = _selected(arguments, parser)
    turns = Turns(*((5, 0.04, 15) if arguments.quick else (11, 0.05, 20)))
    slower = 0
    with tempfile.TemporaryDirectory() as name:
        try:
            folders = {OURS: checkout(arguments.now, Path(name, "now"))}
            folders[BEFORE] = checkout(arguments.before, Path(name, "before"))
        except subprocess.CalledProcessError as error:
            parser.error(error.stderr.strip())
        for count in counts:
            team = Commits(folders, count, arguments.cache, arguments.patience, _say)
            found, bad = compare(team, workloads, turns, arguments.limit, _say)
            team.stop()
            slower += len(bad)
            print(f"{machine.processor()}, threads: {count}, {arguments.before} and {arguments.now}\n")
            print(table(found, bad))
    return int(slower > 0)


def _save(results: dict[str, Any], path: Path) -> None:
    path.write_text(json.dumps(results, indent=1))


def _export(engines: list[str], workloads: list[Any], arguments: argparse.Namespace) -> None:
    """Write the models for onnxruntime, unless they are there."""
    if "onnxruntime" not in engines:
        return
    team = Team(["exporter"], 1, arguments.cache, arguments.patience, _say)
    for w in workloads if team.engines else []:
        answer = team.ask("exporter", "prepare", workload=w.id)
        if "failed" in answer:
            _say(f"not exported: {w.id}: {answer['failed']}")
    team.stop()


def _speed(
    engines: list[str], workloads: list[Any], threads: int, arguments: argparse.Namespace, results: dict[str, Any]
) -> None:
    turns = Turns(*((3, 0.04, 15) if arguments.quick else (7, 0.05, 20)))
    team = Team(engines, threads, arguments.cache, arguments.patience, _say)
    results["missing"] |= team.missing
    for engine, reason in team.missing.items():
        _say(f"missing: {engine}: {reason}")
    found = results["speed"][str(threads)] = {}
    for n, w in enumerate(workloads):
        rows = found[w.id] = measure(team, w, turns)
        cells = [
            f"{e} {report.time_text(r['seconds'])}" + (f" ({r['ratio']:.2f})" if "ratio" in r and e != OURS else "")
            if "seconds" in r
            else f"{e} FAILED {r['failed']}"
            for e, r in rows.items()
            if "seconds" in r or "failed" in r
        ]
        _say(f"{n + 1}/{len(workloads)} {w.id}, threads {threads}: {', '.join(cells)}")
        _save(results, arguments.output)
    team.stop()


def _starts(engines: list[str], workload: Any, arguments: argparse.Namespace, results: dict[str, Any]) -> None:
    found = results["start"][workload.id] = {}
    for engine in engines:
        if engine in TRAINING:
            _say(f"start: {workload.id}, {engine}")
            found[engine] = starts(engine, workload, arguments.patience)
            _save(results, arguments.output)


def main() -> None:
    """Do what the command line says."""
    parser = _parser()
    arguments = parser.parse_args()
    if arguments.command == "run":
        _run(arguments, parser)
    elif arguments.command == "compare":
        sys.exit(_compare(arguments, parser))
    elif arguments.command == "list":
        print("\n".join(WORKLOADS))
    elif arguments.command == "show":
        print(report.full(_load(arguments.results, arguments.cpu)))
    else:
        try:
            draw(_load(arguments.results, arguments.cpu), arguments.image)
        except ImportError:
            parser.error("plot needs matplotlib: pip install matplotlib")


if __name__ == "__main__":
    main()
