"""Run programs in separate processes, and compare their results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from importlib.util import find_spec
from pathlib import Path

import numpy as np

ROOT = next(p for p in Path(__file__).parents if (p / "pyproject.toml").is_file())
TOLERANCE = 2e-3
SECONDS = 300


@dataclass
class Run:
    """One program under one torch: its results, or why there are none."""

    results: dict[str, np.ndarray] = field(default_factory=dict)
    graphs: list[int] = field(default_factory=list)
    error: str = ""


def installed(library: str) -> str:
    """The version of the distribution that has ``library``; empty when it is not installed."""
    if find_spec(library.partition(".")[0]) is None:
        return ""
    try:
        return version(packages_distributions().get(library, [library])[0])
    except PackageNotFoundError:
        return "?"


def run(library: str, program: str, mode: str, torch: str | None = None) -> Run:
    """Run a program on tracecomp, or on the PyTorch in the folder ``torch``."""
    path = os.pathsep.join(filter(None, (torch, str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "2"}
    with tempfile.TemporaryDirectory() as folder:
        out = f"{folder}/out.npz"
        command = [sys.executable, "-m", "tests.ecosystem.child", library, program, mode, out]
        command += [] if torch else ["--tracecomp"]
        try:
            done = subprocess.run(
                command, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            return Run(error=f"more than {SECONDS} s")
        if done.returncode:
            lines = [line for line in done.stderr.strip().splitlines() if line.strip()]
            return Run(error=lines[-1].strip() if lines else f"exit code {done.returncode}")
        with np.load(out) as found:
            report = json.loads(str(found["report"]))
            return Run({k: found[k] for k in found.files if k != "report"}, report["graphs"])


def difference(a: Run, b: Run) -> float:
    """The largest difference of two runs' results, relative to the largest number of each; inf where shapes differ."""
    if set(a.results) != set(b.results):
        return float("inf")
    worst = 0.0
    for name, x in a.results.items():
        y = b.results[name]
        if x.shape != y.shape:
            return float("inf")
        if x.size and not np.array_equal(x, y, equal_nan=True):
            scale = max(float(np.nanmax(np.abs(y))), 1e-6)
            gap = np.abs(x - y)
            worst = max(worst, float(np.max(gap)) / scale if np.isfinite(gap).all() else float("inf"))
    return worst
