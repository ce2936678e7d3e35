"""Two commits in turns: which workloads became slower, beyond what noise explains."""

from __future__ import annotations

import os
import subprocess
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.bars import geomean
from benchmarks.process import ROOT, Process
from benchmarks.report import time_text
from benchmarks.speed import OURS, Team, Turns, measure
from benchmarks.workload import Workload

BEFORE = "before"
PACKAGES = ("tracecomp", "tracecomp_runtime")
REPEATS = 3
"""How often a workload is measured that seems slower; it counts if every measurement says so."""


class Commits(Team):
    """tracecomp of two folders: the new one takes the name of the engine, the old one is called before."""

    def __init__(
        self, folders: dict[str, Path], threads: int, cache: Path, patience: float, say: Callable[[str], None]
    ) -> None:
        self._folders = folders
        super().__init__(list(folders), threads, cache, patience, say)

    def _start(self, engine: str) -> Process:
        return Process(OURS, self.threads, self._cache, self._patience, self._places[engine], self._folders[engine])


def checkout(commit: str, folder: Path) -> Path:
    """Put the packages of ``commit`` and the benchmarks of this checkout in ``folder``.

    CalledProcessError for a commit that git does not know. All packages must come from the commit: files of another
    folder count as the user's, so that programs that reach them are not captured.
    """
    folder.mkdir(parents=True)
    archive = folder / "package.tar"
    there = _git("ls-tree", "--name-only", commit, *PACKAGES).split()
    _git("archive", "--output", str(archive), commit, *there)
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    archive.unlink()
    os.symlink(ROOT / "benchmarks", folder / "benchmarks")
    return folder


def _git(*arguments: str) -> str:
    """The output of a git command in this repository."""
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def compare(
    team: Commits, workloads: Sequence[Workload], turns: Turns, limit: float, say: Callable[[str], None]
) -> tuple[dict[str, float], list[str]]:
    """The time before over the time now of each workload, and those that failed or became slower by over ``limit``.

    A time is the least of all samples, which other work on the machine disturbs least.
    """
    found: dict[str, float] = {}
    bad: list[str] = []
    for n, w in enumerate(workloads):
        ratios: list[float] = []
        rows: dict[str, Any] = {}
        while not ratios or (len(ratios) < REPEATS and ratios[-1] < 1 - limit):
            rows = measure(team, w, turns)
            if "ratio" not in rows.get(BEFORE, {}):
                break
            ratios.append(rows[BEFORE]["least"] / rows[OURS]["least"])
        if not ratios:
            if "failed" in rows.get(OURS, {}) and "failed" not in rows.get(BEFORE, {}):
                bad.append(w.id)
            say(f"{n + 1}/{len(workloads)} {w.id}: {', '.join(f'{k} {_reason(r)}' for k, r in rows.items())}")
            continue
        found[w.id] = max(ratios)
        slower = found[w.id] < 1 - limit
        bad += [w.id] * slower
        say(
            f"{n + 1}/{len(workloads)} {w.id}: {time_text(rows[BEFORE]['least'])} -> "
            f"{time_text(rows[OURS]['least'])}, {found[w.id]:.2f}{' SLOWER' * slower}"
        )
    return found, bad


def _reason(row: dict[str, Any]) -> str:
    return str(row.get("failed") or row.get("unsupported") or "ran")


def table(found: dict[str, float], bad: Sequence[str]) -> str:
    """The ratios by kind of workload, and the workloads that became slower or failed."""
    kinds: dict[str, list[float]] = {}
    for name, ratio in found.items():
        kinds.setdefault(name.split("/")[0], []).append(ratio)
    lines = ["time before / time now (above 1: faster now)", "", "| kind | workloads | geomean | least |"]
    lines.append("|---|---|---|---|")
    lines += [f"| {k} | {len(v)} | {geomean(v):.2f} | {min(v):.2f} |" for k, v in kinds.items()]
    lines += ["", f"slower or failed: {', '.join(bad)}" if bad else "none became slower"]
    return "\n".join(lines)
