"""First call, warm start and memory, each in separate processes; and a step next to a busy process."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.process import Failed, Process
from benchmarks.speed import OURS, Row
from benchmarks.workload import Workload


def starts(engine: str, workload: Workload, patience: float) -> Row:
    """Seconds until calls are settled with an empty cache and in a second process, and peak memory of both kinds.

    Cold and warm count the time of the first calls in addition to settled ones. tracecomp's first call runs eagerly, as
    without compiling: ``eager`` is the time of that alone. One thread.
    """
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder)
        cold, row = _begin(engine, workload, cache, patience)
        if cold is None:
            return row
        warm, again = _begin(engine, workload, cache, patience)
        row |= {"cold": cold, "warm": warm, "cold_cpu": row["cpu"], "warm_cpu": again.get("cpu")}
        row |= {f"warm_{k}": again.get(k) for k in ("peak", "peak_settled")}
        if engine == OURS:
            row["eager"], eager = _begin("tracecomp eager", workload, cache, patience)
            row["eager_cpu"] = eager.get("cpu")
    return row


def _begin(engine: str, workload: Workload, cache: Path, patience: float) -> tuple[float | None, Row]:
    """Return the time of the first calls in addition to settled ones (for an eager engine: its first call), and the
    memory."""
    try:
        process = Process(engine, 1, cache, patience)
    except Failed as error:
        return None, {"failed": str(error)}
    try:
        if "missing" in process.ready:
            return None, process.ready
        answer = process.ask("prepare", workload=workload.id)
        if "first_calls" not in answer:
            return None, {k: v for k, v in answer.items() if k != "traceback"}
        later = process.ask("time", seconds=0.3, samples=20)
        settled = statistics.median(later["wall"])
        took, cpu = (
            calls[0] if engine.endswith("eager") else sum(calls) - each * len(calls)
            for calls, each in ((answer["first_calls"], settled), (answer["first_cpu"], later["cpu"]))
        )
        row = {
            "settled": settled,
            "import_seconds": process.ready["import_seconds"],
            "peak": answer["peak"],
            "imported": answer["imported"],
            "cpu": cpu,
        }
        row["peak_settled"] = process.ask("memory")["bytes"]
        return took, row
    except Failed as error:
        return None, {"failed": str(error)}
    finally:
        process.stop()


@contextmanager
def _busy(core: int) -> Iterator[None]:
    """A process that keeps one core busy."""
    code = f"import os; os.sched_setaffinity(0, {{{core}}})\nwhile True: pass"
    process = subprocess.Popen([sys.executable, "-c", code])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def under_load(engine: str, workload: Workload, cache: Path, patience: float, say: Callable[[str], None]) -> Row:
    """Return seconds of a step with 1 and with 2 threads, alone and next to a process that keeps the last core busy."""
    row: Row = {}
    for threads in (1, 2):
        try:
            process = Process(engine, threads, cache, patience)
        except Failed as error:
            return {"failed": str(error)}
        try:
            if "missing" in process.ready:
                return process.ready
            say(f"under load: {engine}, threads: {threads}")
            answer = process.ask("prepare", workload=workload.id)
            if "first_calls" not in answer:
                return {k: v for k, v in answer.items() if k != "traceback"}
            row[f"alone {threads}"] = _settled(process)
            with _busy(max(os.sched_getaffinity(0))):
                row[f"busy {threads}"] = _settled(process)
        except Failed as error:
            return {"failed": str(error)}
        finally:
            process.stop()
    return row


def _settled(process: Process) -> Any:
    return statistics.median(process.ask("time", seconds=1.5, samples=200)["wall"])
