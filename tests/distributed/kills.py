"""Kills processes of a training run, again and again: ``python -m tests.distributed.kills [TIMES [mpi]]``.

Each time 2, 3 or 4 processes train (``resumed.py``) and save every step, and ``kill -9`` ends a random one at a random
moment. Every third time this happens while they make their group, else in a random step. The others must end within
``LIMIT`` seconds, with an error that names it. Then 1 to 4 processes continue to the end, which must have the bits of
an undisturbed run. With ``mpi`` the launcher starts them by ``mpiexec``. It must end within as many seconds, name the
killed process, and leave no process behind. The status is 1 if any of this fails.
"""

from __future__ import annotations

import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.distributed.gangs import gang, succeed
from tests.distributed.test_launcher import environment

SCRIPT = str(Path(__file__).with_name("resumed.py"))
STEPS, LIMIT = 12, 10.0


def finished(folder: Path, size: int) -> str:
    """Return the digest of a run that continues to its end."""
    ended = gang(size, SCRIPT, str(folder), str(STEPS))
    succeed(ended)
    return next(line for line in ended[0].text.splitlines() if line.startswith("digest"))


def killed(folder: Path, size: int, rank: int, step: int, milliseconds: int) -> tuple[str, float]:
    """Return the failure, if any, and the longest time that another process took to end."""
    ended = gang(size, SCRIPT, str(folder), str(STEPS), str(rank), str(step), str(milliseconds))
    if ended[rank].status != -9:
        return "it ended before", 0.0
    others = [e for r, e in enumerate(ended) if r != rank]
    took = max(e.at for e in others) - ended[rank].at
    named = re.compile(f"rank {rank} (died|did not join)")
    if any(e.status == 0 or not named.search(e.text) for e in others):
        return "NOT NAMED: " + " | ".join(e.text[-300:] for e in others), took
    return "" if took < LIMIT else "LATE", took


def killed_over_mpi(folder: Path, size: int, rank: int, step: int, milliseconds: int) -> tuple[str, float]:
    """As ``killed``, under ``mpiexec``."""
    launcher = [sys.executable, "-m", "tracecomp.distributed.run", "--launcher", "mpiexec", "-n", str(size), SCRIPT]
    death = str(folder), str(STEPS), str(rank), str(step), str(milliseconds)
    done = subprocess.run([*launcher, *death], capture_output=True, text=True, timeout=120, env=environment())
    if done.returncode == 0:
        return "it ended before", 0.0
    took = time.monotonic() - float((folder / "died").read_text())
    if done.returncode != 128 + signal.SIGKILL or f"rank {rank} " not in done.stderr:
        return f"NOT NAMED: {done.returncode} {done.stderr[-300:]}", took
    if any(Path(f"/proc/{path.read_text()}").exists() for path in folder.glob("pid*")):
        return "SOME ARE LEFT", took
    return "" if took < LIMIT else "LATE", took


def main(times: int, way: Callable[[Path, int, int, int, int], tuple[str, float]]) -> int:
    choose, told, longest = random.Random(0), Counter[str](), 0.0
    with TemporaryDirectory() as home:
        folder = Path(home)
        expected = finished(folder / "undisturbed", 2)
        done = 0
        while done < times:
            size, step = choose.randint(2, 4), choose.randrange(STEPS) if done % 3 else -1
            rank, delay = choose.randrange(size), choose.randint(0, 40 if done % 3 else 120)
            why, took = way(folder / "killed", size, rank, step, delay)
            if why == "it ended before":
                shutil.rmtree(folder / "killed")
                continue
            done += 1
            after = choose.randint(1, 4)
            if finished(folder / "killed", after) != expected:
                why += "OTHER BITS"
            shutil.rmtree(folder / "killed")
            told[why] += 1
            longest = max(longest, took)
            moment = f"{delay} ms after step {step}"
            words = f"rank {rank} of {size} killed {moment}, others ended after {took:.2f} s, {after} went on"
            print(f"{done}: {words}{': ' + why if why else ''}", flush=True)
    print(f"{told['']} of {times} as they must be, the longest end {longest:.2f} s", flush=True)
    return int(told[""] != times)


if __name__ == "__main__":
    ways = {"mpi": killed_over_mpi, "tcp": killed}
    sys.exit(main(int(sys.argv[1]) if sys.argv[1:] else 100, ways[sys.argv[2] if sys.argv[2:] else "tcp"]))
