"""``python -m benchmarks.first_steps``: the first 50 training steps of large networks, with an empty cache.

Engines take turns in fresh processes: tracecomp, whose steps run eagerly until the worker has compiled them, tracecomp
that waits for the compiler, both libraries without compiling, and torch.compile. The shortest of several turns counts.
The losses of tracecomp must be equal in bits. torchvision must be installed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.cases.large import TRAINED
from benchmarks.compile_times import processor_time
from benchmarks.engines import ENGINES, environment
from benchmarks.process import ROOT

STEPS = 50
RUNS = {
    "tracecomp": ("tracecomp", "0"), "tracecomp, wait=True": ("tracecomp", "1"),
    "tracecomp eager": ("tracecomp eager", "0"), "torch eager": ("torch", "0"), "torch.compile": ("torch.compile", "0"),
}  # fmt: skip
"""The engine of a run, and whether calls wait for the compiler."""
OURS = [name for name in RUNS if name.startswith("tracecomp")]
PATIENCE = 900
"""Seconds that a process may take."""


def _one(engine: str, name: str, cache: Path, threads: int) -> dict[str, Any]:
    """Make the steps in this process."""
    if engine.startswith("tracecomp"):
        import_module("tracecomp").as_torch()  # torchvision imports torch
    made = ENGINES[engine](threads, cache)
    call = made.prepare(next(w for w in TRAINED if w.id == name))
    begin, ends, losses = processor_time(), [time.perf_counter()], hashlib.sha256()
    for _ in range(STEPS):
        (loss,) = made.arrays(call())
        ends.append(time.perf_counter())
        losses.update(loss.tobytes())
    longest = max(b - a for a, b in pairwise(ends))
    return {
        "wall": ends[-1] - ends[0], "cpu": processor_time() - begin, "longest": longest, "losses": losses.hexdigest(),
    }  # fmt: skip


def _measure(run: str, name: str, threads: int) -> dict[str, Any]:
    engine, waits = RUNS[run]
    with tempfile.TemporaryDirectory() as cache:
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.first_steps"]
        command += ["--one", engine, name, cache, "--threads", str(threads)]
        env = environment(threads, Path(cache)) | {"TRACECOMP_WAIT": waits}
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=PATIENCE, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.first_steps", description=__doc__)
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--programs", nargs="+", default=[""], help="parts of their names (default: all)")
    parser.add_argument("--runs", nargs="+", default=list(RUNS), help=f"of: {'; '.join(RUNS)} (default: all)")
    parser.add_argument("--turns", type=int, default=2, help="processes of each run (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="(default: %(default)s)")
    arguments = parser.parse_args()
    if arguments.one:
        engine, name, cache = arguments.one
        print(json.dumps(_one(engine, name, Path(cache), arguments.threads)))
        return
    print(f"{machine.processor()}, threads: {arguments.threads}, load {os.getloadavg()[0]:.1f} at the beginning\n")
    print(
        f"| first {STEPS} steps | run | wall, s | processor, s | longest step, s |\n|---|---|---|---|---|", flush=True
    )
    for name in (w.id for w in TRAINED if any(part in w.id for part in arguments.programs)):
        turns = [
            {run: _measure(run, name, arguments.threads) for run in arguments.runs} for _ in range(arguments.turns)
        ]
        for run in arguments.runs:
            wall, cpu, longest = (min(rows[run][what] for rows in turns) for what in ("wall", "cpu", "longest"))
            print(f"| {name} | {run} | {wall:.1f} | {cpu:.1f} | {longest:.2f} |", flush=True)
        losses = {rows[run]["losses"] for rows in turns for run in arguments.runs if run in OURS}
        assert len(losses) <= 1, f"losses of {name} differ in bits"


if __name__ == "__main__":
    main()
