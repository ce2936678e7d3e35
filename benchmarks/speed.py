"""Speed: engines take turns on each workload, and what they compute is compared."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import has_cores
from benchmarks.process import Failed, Process
from benchmarks.workload import Workload

Row = dict[str, Any]
OURS = "tracecomp"
WAIT_SECONDS = 0.2


@dataclass(frozen=True)
class Turns:
    """How long to measure: ``rounds`` turns of each engine, each of some samples within ``seconds``.

    ``tries``: how often a turn is taken, and cores are waited for before it, while others use them.
    """

    rounds: int
    seconds: float
    samples: int
    tries: int = 5


class Team:
    """The processes of several engines; one that dies is started again for the next workload."""

    def __init__(
        self, engines: list[str], threads: int, cache: Path, patience: float, say: Callable[[str], None]
    ) -> None:
        self.threads = threads
        self.missing: dict[str, str] = {}
        self._cache = cache
        self._patience = patience
        self._processes: dict[str, Process] = {}
        self._places = {engine: n for n, engine in enumerate(engines)}
        for engine in engines:
            say(f"starting {engine}, threads: {threads}")
            try:
                process = self._start(engine)
            except Failed as error:
                self.missing[engine] = str(error)
                continue
            if "missing" in process.ready:
                self.missing[engine] = process.ready["missing"]
                process.stop()
            else:
                self._processes[engine] = process

    @property
    def engines(self) -> list[str]:
        """The engines that are there."""
        return list(self._processes)

    def ask(self, engine: str, do: str, **options: Any) -> Row:
        """An engine's answer; when its process dies, ``{"failed": why}``."""
        if engine not in self._processes:
            return {"failed": self.missing[engine]}
        try:
            return self._processes[engine].ask(do, **options)
        except Failed as error:
            self._processes.pop(engine).stop()
            try:
                self._processes[engine] = self._start(engine)
            except Failed as again:
                self.missing[engine] = str(again)
            return {"failed": str(error)}

    def stop(self) -> None:
        """End all processes."""
        for process in self._processes.values():
            process.stop()

    def _start(self, engine: str) -> Process:
        return Process(engine, self.threads, self._cache, self._patience, self._places[engine])


def measure(team: Team, workload: Workload, turns: Turns) -> dict[str, Row]:
    """Return each engine's seconds per call, and their ratio to tracecomp's in the same round; or why it has none.

    ``least`` is the shortest time of all.
    """
    with ThreadPoolExecutor() as pool:
        answers = pool.map(lambda engine: team.ask(engine, "prepare", workload=workload.id), team.engines)
        rows = dict(zip(team.engines, answers, strict=True))
    ready = [e for e, row in rows.items() if "first_calls" in row]
    _compare(team, workload, rows, ready)
    ready = [e for e in ready if "failed" not in rows[e]]
    rounds: dict[str, list[float]] = {e: [] for e in ready}
    cpu: dict[str, list[float]] = {e: [] for e in ready}
    least = dict.fromkeys(ready, float("inf"))
    for turn in range(turns.rounds):
        for engine in ready[turn % len(ready) :] + ready[: turn % len(ready)] if ready else []:
            answer = _turn(team, engine, turns)
            if "wall" in answer:
                rounds[engine].append(statistics.median(answer["wall"]))
                cpu[engine].append(answer["cpu"])
                least[engine] = min(least[engine], *answer["wall"])
            else:
                rows[engine] |= answer
    for engine in ready:
        if "failed" not in rows[engine]:
            rows[engine] |= {
                "seconds": statistics.median(rounds[engine]), "cpu": statistics.median(cpu[engine]),
                "least": least[engine],
            }  # fmt: skip
            if OURS in ready and "failed" not in rows[OURS]:
                pairs = zip(rounds[engine], rounds[OURS], strict=True)
                rows[engine]["ratio"] = statistics.median(theirs / ours for theirs, ours in pairs)
    for row in rows.values():
        row.pop("traceback", None)
    return rows


def _turn(team: Team, engine: str, turns: Turns) -> Row:
    """An engine's turn, taken again where the cores were not whole before and after it."""
    answer: Row = {}
    for _ in range(turns.tries):
        for _ in range(turns.tries):
            if has_cores(team.threads):
                break
            time.sleep(WAIT_SECONDS)
        answer = team.ask(engine, "time", seconds=turns.seconds, samples=turns.samples)
        if "wall" not in answer or has_cores(team.threads):
            break
    return answer


def _compare(team: Team, workload: Workload, rows: dict[str, Row], ready: list[str]) -> None:
    """Mark as failed whoever disagrees with the reference, torch or the first peer that is there."""
    with tempfile.TemporaryDirectory() as folder:
        results: dict[str, list[Any]] = {}
        for engine in ready:
            path = Path(folder) / f"{len(results)}.npz"
            answer = team.ask(engine, "result", path=str(path))
            if answer:
                rows[engine] |= answer
                continue
            with np.load(path) as stored:
                results[engine] = [stored[f"arr_{n}"] for n in range(len(stored))]
    reference = next((e for e in ("torch", "jax.jit", "numpy", "onnxruntime") if e in results), None)
    if reference is None:
        return
    rows[reference]["reference"] = True
    for engine, found in results.items():
        gap = _gap(found, results[reference])
        rows[engine]["difference"] = gap
        if not gap <= workload.tolerance:
            rows[engine]["failed"] = f"result differs from {reference}'s by {gap:.1e}"


def _gap(found: list[Any], expected: list[Any]) -> float:
    """The largest difference, relative to the largest number expected."""
    if [f.shape for f in found] != [e.shape for e in expected]:
        return float("inf")
    gaps = [0.0]
    for f, e in zip(found, expected, strict=True):
        if e.size:
            far = np.abs(f.astype(np.float64) - e.astype(np.float64)).max()
            gaps.append(float(far) / max(1.0, float(np.abs(e).max())) if np.isfinite(far) else float("inf"))
    return max(gaps)
