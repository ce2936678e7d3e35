"""Starting the processes of a test, and never leaving one behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tracecomp.distributed.launching import reserved_port

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Ended:
    """The end of one process: its status, its output, and the time (``time.monotonic()``)."""

    status: int
    text: str
    at: float


def gang(size: int, *command: str, more: Mapping[str, str] | None = None, seconds: float = 120.0) -> Sequence[Ended]:
    """``python command`` as ``size`` processes that talk over TCP; all are ended after ``seconds``."""
    with reserved_port() as port:
        return _at_port(port, size, command, more or {}, seconds)


def _at_port(port: int, size: int, command: Sequence[str], more: Mapping[str, str], seconds: float) -> Sequence[Ended]:
    """The same, with a store at ``port``."""
    marks = ("OMPI_", "PMI", "MPI_")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(marks)}
    environment |= {
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(size),
        "PYTHONPATH": str(ROOT), "TRACECOMP_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", **more,
    }  # fmt: skip
    started = [
        subprocess.Popen(
            [sys.executable, *command], env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )
        for rank in range(size)
    ]  # fmt: skip

    def end(process: subprocess.Popen[str]) -> Ended:
        text = process.communicate(timeout=seconds)[0]
        return Ended(process.returncode, text, time.monotonic())

    try:
        with ThreadPoolExecutor(size) as threads:
            return [*threads.map(end, started)]
    finally:
        for process in started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            if process.stdout is not None:
                process.stdout.close()


def succeed(ended: Sequence[Ended]) -> None:
    """Every process has ended well; else the test shows what they wrote."""
    assert all(e.status == 0 for e in ended), "\n".join(
        f"--- rank {r}: {e.status}\n{e.text}" for r, e in enumerate(ended)
    )
