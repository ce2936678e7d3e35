"""The process of one engine: reads a command per line, does it, answers with one line of JSON.

``python -m benchmarks.worker ENGINE THREADS CACHE PLACE``. Commands: prepare (a workload), time, result, memory, quit.
An engine of one thread prepares on core PLACE, in parallel with others, and is timed on the first core.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import statistics
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cases import WORKLOADS
from benchmarks.engines import ENGINES, Call, Engine, Unsupported

SAMPLE_SECONDS = 2e-3
"""A sample is as many calls as fill this time."""
FIRST_CALLS = 3
SETTLE_SECONDS = 0.1
"""How long several cores are kept busy before they are timed."""


class Worker:
    """The engine and the workload it is at."""

    def __init__(self, engine: Engine, cores: list[int], place: int) -> None:
        self.engine = engine
        self.cores = cores[: engine.threads]
        self.workshop = [cores[(place + n) % len(cores)] for n in range(engine.threads)]
        self.baseline = _memory()
        self.call: Call | None = None
        self.first: Any = None
        self.repeat = 1

    def prepare(self, workload: str) -> dict[str, Any]:
        """Set the workload up and call it until it is settled; seconds, peak bytes of that, and before it."""
        _pin(self.workshop)
        self.call = self.first = None
        self.call = self.engine.prepare(WORKLOADS[workload])
        seconds, busy = [], []
        for _ in range(FIRST_CALLS):
            cpu, start = _processor_time(), time.perf_counter()
            self.first = self.call()
            seconds.append(time.perf_counter() - start)
            busy.append(_processor_time() - cpu)
        peak = _memory() - self.baseline
        self.repeat = 1
        while (took := self._sample()[0] * self.repeat) < SAMPLE_SECONDS and self.repeat < 10**6:
            self.repeat = max(self.repeat + 1, int(self.repeat * min(10.0, SAMPLE_SECONDS / max(took, 1e-9))))
        return {"first_calls": seconds, "first_cpu": busy, "peak": peak, "imported": self.baseline}

    def time(self, seconds: float, samples: int) -> dict[str, Any]:
        """Seconds per call, of the wall clock and of all of the process's threads."""
        _pin(self.cores)
        settled = time.perf_counter() + (SETTLE_SECONDS if len(self.cores) > 1 else 0.0)
        while time.perf_counter() < settled:
            self._sample()
        end = time.perf_counter() + seconds
        found = [self._sample()]
        while time.perf_counter() < end and len(found) < samples:
            found.append(self._sample())
        return {"wall": [w for w, _ in found], "cpu": statistics.median(c for _, c in found)}

    def result(self, path: str) -> dict[str, Any]:
        """Write the results of the last of the first calls to a file."""
        np.savez(path, *self.engine.arrays(self.first))
        return {}

    def memory(self) -> dict[str, Any]:
        """Peak bytes of settled calls beyond what importing the engine takes."""
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
        self._sample()
        return {"bytes": _memory() - self.baseline}

    def _sample(self) -> tuple[float, float]:
        call = self.call
        assert call is not None
        cpu, start = time.process_time(), time.perf_counter()
        for _ in range(self.repeat):
            call()
        return (time.perf_counter() - start) / self.repeat, (time.process_time() - cpu) / self.repeat


def _pin(cores: list[int]) -> None:
    """Let this process, with all of its threads, use ``cores`` only."""
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):
            os.sched_setaffinity(int(task), cores)


def _processor_time() -> float:
    """Return the processor time of this process and of its finished children, such as C++ compilers."""
    return sum(os.times()[:4])


def _memory() -> int:
    """Peak resident bytes of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(x.split()[1]) for x in lines if x.startswith("VmHWM"))


def _answer(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return work()
    except Unsupported as reason:
        return {"unsupported": str(reason)}
    except Exception as error:
        text = (str(error) or repr(error)).strip().splitlines()[0][:300]
        return {"failed": f"{type(error).__name__}: {text}", "traceback": traceback.format_exc()}


def main() -> None:
    """Serve commands until told to quit or until the input ends."""
    name, threads, cache, place = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])
    cores = sorted(os.sched_getaffinity(0))
    _pin(cores[:threads])
    faulthandler.enable()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    start = time.perf_counter()
    ready: dict[str, Any] = {}
    worker = None
    try:
        worker = Worker(ENGINES[name](threads, cache), cores, place)
        ready["import_seconds"] = time.perf_counter() - start
    except ImportError as error:
        ready["missing"] = str(error)
    print(json.dumps(ready), file=answers, flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        do = command.pop("do")
        if do == "quit" or worker is None:
            break
        print(json.dumps(_answer(partial(getattr(worker, do), **command))), file=answers, flush=True)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
