"""``python -m benchmarks.compile_times``: processor time and memory until large programs run compiled.

Every program runs in fresh processes with one thread: with an empty cache, and for tracecomp also with the filled one.
A call of tracecomp that does not record is followed by ``wait()``, so its time has that of the worker process.
torchvision must be installed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.cases.large import LARGE
from benchmarks.compare import checkout
from benchmarks.engines import ENGINES, Tracecomp, Unsupported, environment
from benchmarks.process import ROOT
from benchmarks.speed import OURS

PEERS = ("torch.compile", "jax.jit")
CALLS = 5
"""Calls of a process. The last ones run compiled."""
SHARE, SECONDS = 0.1, 0.3
"""Limits for the program of a second process: its share of the first time, and its seconds."""


class _Waiting(Tracecomp):
    """tracecomp with the compiler in another process, for which each call waits."""

    made: Any = None

    def compile(self, f: Any) -> Any:
        self.made = super().compile(f)
        return self.made

    def wait(self, before: int) -> int:
        """Wait for the compiler after a call that did not record; return the number of recordings so far.

        ``before`` is that number before the call. Earlier versions compile in the call.
        """
        if self.made.recordings == before and hasattr(self.made, "wait"):
            self.made.wait()
        return int(self.made.recordings)


def _one(engine: str, name: str, cache: Path) -> dict[str, Any]:
    """Make ``CALLS`` calls in this process; their processor seconds, what recorded, and peak memory."""
    workload = next(w for w in LARGE if w.id == name)
    if engine == OURS:
        import_module("tracecomp").as_torch()  # torchvision imports torch
    made = (_Waiting if engine == OURS else ENGINES[engine])(1, cache)
    if isinstance(made, ENGINES["jax.jit"]) and workload.jax is None:
        raise Unsupported("written for torch alone")
    call = made.prepare(workload)
    seconds, recordings = [], [0]
    for _ in range(CALLS):
        begin = processor_time()
        call()
        if isinstance(made, _Waiting):
            recordings.append(made.wait(recordings[-1]))
        seconds.append(processor_time() - begin)
    return {"cpu": seconds, "recordings": recordings, "bytes": sum(map(_peak, [os.getpid(), *_living()]))}


def processor_time() -> float:
    """Processor seconds of this process and its children, those that have ended too."""
    ticks = os.sysconf("SC_CLK_TCK")
    living = sum(sum(map(int, fields[11:15])) for pid in _living() if (fields := _status(pid)))
    return sum(os.times()[:4]) + living / ticks


def _living() -> list[int]:
    """The children that run."""
    numbers = [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit()]
    return [n for n in numbers if (fields := _status(n)) and int(fields[1]) == os.getpid()]


def _status(pid: int) -> list[str]:
    """The fields of a process behind its name, from its state on; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return []


def _peak(pid: int) -> int:
    """Peak resident bytes of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return 1024 * next(int(x.split()[1]) for x in lines if x.startswith("VmHWM"))


def _measure(engine: str, name: str, cache: Path, folder: Path, patience: float) -> dict[str, Any]:
    """The figures of a process of ``engine``; ``{"failed": why}`` if it prints none."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.compile_times", "--one", engine, name, str(cache)]
    env = environment(1, cache) | {"TRACECOMP_WAIT": "0", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    try:
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=patience)
    except subprocess.TimeoutExpired:
        return {"failed": f"over {patience:.0f} s"}
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or ["no message"])[-1][:100]}
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def _until_compiled(row: dict[str, Any]) -> float:
    """Processor seconds of the first calls beyond those of compiled ones."""
    return float(sum(row["cpu"]) - CALLS * min(row["cpu"]))


def _compiling(row: dict[str, Any]) -> float:
    """Processor seconds of the calls before compiled ones that did not record."""
    counts = row["recordings"]
    calls = [cpu for cpu, before, now in zip(row["cpu"], counts[:-1], counts[1:], strict=True) if before == now]
    return float(sum(calls) - len(calls) * min(calls))


def _cells(row: dict[str, Any]) -> list[str]:
    """Seconds until compiled, and MB."""
    if "failed" in row:
        return [row["failed"], ""]
    return [f"{_until_compiled(row):.1f}", f"{row['bytes'] / 1e6:.0f}"]


def _line(name: str, rows: dict[str, Any], engines: list[str]) -> str:
    """The row of a program."""
    cold, warm = rows[OURS], rows["warm"]
    cells = [name.partition("/")[2] if "torchvision" in name else name.replace("/", ", "), *_cells(cold)]
    if "failed" in cold or "failed" in warm:
        cells += ["", ""]
    else:
        first, second = _compiling(cold), _compiling(warm)
        mark = "" if second <= min(SECONDS, SHARE * first) else " (!)"
        cells += [f"{first:.2f}", f"{second:.3f}{mark}"]
    for engine in engines:
        cells += _cells(rows[engine])
    return f"| {' | '.join(cells)} |"


def _head(engines: list[str]) -> str:
    columns = ["program", "seconds", "MB", "compiling", "from the cache"]
    columns += [c for engine in engines for c in (engine, "MB")]
    return f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}"


TITLE = """# Compile times

Generated by `{command}`; do not edit.
{machine}. Load: {load}.

*Seconds* are processor seconds of the first calls beyond those of compiled calls, until the program runs compiled: of
the process, its worker and its compilers, with one thread and an empty cache. *MB* is the peak memory of the process
and its worker. *Compiling* is the part of the seconds without the calls that record. *From the cache* is that part in a
second process. (!) marks more than a tenth of the first process, or more than {limit} s.
"""


def main() -> None:
    """Measure every program, and print the table after each."""
    parser = argparse.ArgumentParser("python -m benchmarks.compile_times", description=__doc__)
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--programs", nargs="+", default=[""], help="parts of their names (default: all)")
    parser.add_argument("--engines", nargs="*", default=list(PEERS), help=f"others, of: {', '.join(PEERS)}")
    parser.add_argument("--before", help="a commit of tracecomp to compare with")
    parser.add_argument("--patience", type=float, default=600, help="seconds of a process (default: %(default)s)")
    parser.add_argument("--output", type=Path, help="file for the table (default: standard output)")
    arguments = parser.parse_args()
    if arguments.one:
        engine, name, cache = arguments.one
        try:
            print(json.dumps(_one(engine, name, Path(cache))))
        except Unsupported as reason:
            print(json.dumps({"failed": str(reason)}))
        return
    with tempfile.TemporaryDirectory() as trees:
        folders = dict.fromkeys([OURS, *arguments.engines], ROOT)
        if arguments.before:
            folders[arguments.before] = checkout(arguments.before, Path(trees, "before"))
        _table(arguments, folders)


def _table(arguments: argparse.Namespace, folders: dict[str, Path]) -> None:
    engines, load = [e for e in folders if e != OURS], os.getloadavg()[0]
    lines = []
    for name in (w.id for w in LARGE if any(part in w.id for part in arguments.programs)):
        rows = {}
        for engine, folder in folders.items():
            with tempfile.TemporaryDirectory() as cache:
                kind = engine if engine in PEERS else OURS
                rows[engine] = _measure(kind, name, Path(cache), folder, arguments.patience)
                if engine == OURS:
                    rows["warm"] = _measure(kind, name, Path(cache), folder, arguments.patience)
        lines.append(_line(name, rows, engines))
        print(lines[-1], file=sys.stderr, flush=True)
    title = TITLE.format(
        command=" ".join(["python -m benchmarks.compile_times", *sys.argv[1:]]), machine=machine.processor(),
        load=f"{load:.1f} at the beginning, {os.getloadavg()[0]:.1f} at the end", limit=SECONDS,
    )  # fmt: skip
    text = "\n".join([title, _head(engines), *lines, ""])
    if arguments.output is None:
        print(text)
    else:
        arguments.output.write_text(text)


if __name__ == "__main__":
    main()
