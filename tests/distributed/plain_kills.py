"""Kill processes of a program written for PyTorch: ``python -m tests.distributed.plain_kills [TIMES]``.

The launcher runs ``plain_resumed.py`` with ``--shards 8`` in 1 to 4 processes. ``kill -9`` from outside ends a random
one of them a random moment after a random step. The launcher must end with its status and name its rank; then another
number of processes continues from the last checkpoint. After ``KILLS`` kills a run continues to its end, which must
have the bits of an undisturbed run. Runs save by ``torch.save`` and by ``distributed.checkpoint``, in turn. The
status is 1 when one is not so.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.distributed.test_launcher import environment

SCRIPT = str(Path(__file__).with_name("plain_resumed.py"))
STEPS, KILLS, WAYS = 12, 5, ("file", "folder")


def started(folder: Path, size: int, way: str) -> subprocess.Popen[str]:
    """The launcher with the program."""
    folder.mkdir(exist_ok=True)
    launcher = [sys.executable, "-m", "tracecomp.distributed.run", "--launcher", "local", "--shards", "8"]
    command = [*launcher, "-n", str(size), SCRIPT, str(folder), str(STEPS), way]
    pipe = subprocess.PIPE
    more = {"TRACECOMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=pipe, stderr=subprocess.STDOUT, text=True, env=environment() | more)


def finished(folder: Path, size: int, way: str) -> str:
    """Return the digest of a run that continues to its end."""
    process = started(folder, size, way)
    text = process.communicate(timeout=600)[0]
    assert process.returncode == 0, text
    return next(line.split()[-1] for line in text.splitlines() if " digest " in line)


def killed(folder: Path, size: int, way: str, rank: int, step: int, delay: float) -> str:
    """Kill one process ``delay`` seconds after a step of this run; return the failure, if any."""
    with started(folder, size, way) as process:
        assert process.stdout is not None
        seen, text = 0, ""
        for line in process.stdout:
            text += line
            seen += " step " in line
            if seen == step:
                break
        time.sleep(delay)
        victim = _process(process.pid, rank)
        if victim is not None:
            os.kill(victim, signal.SIGKILL)
        text += process.stdout.read()
        status = process.wait(timeout=600)
    if status == 0 or victim is None:
        return "it ended before"
    named = f"tracecomp: rank {rank} was ended by SIGKILL" in text
    return "" if status == 128 + signal.SIGKILL and named else f"NOT NAMED: {status} {text[-500:]}"


def _process(launcher: int, rank: int) -> int | None:
    """The process of a rank, by its environment: a launcher may have other children."""
    for child in Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split():
        try:
            if f"\0RANK={rank}\0".encode() in b"\0" + Path(f"/proc/{child}/environ").read_bytes():
                return int(child)
        except OSError:
            continue
    return None


def interrupted(folder: Path, way: str, kills: int, choose: random.Random) -> tuple[str, list[str]]:
    """Kill a run ``kills`` times, then let it end: return its digest, and the failure of each kill."""
    told: list[str] = []
    size = choose.randint(1, 4)
    while len(told) < kills:
        rank, step, delay = choose.randrange(size), choose.randint(1, 2), choose.randint(0, 40) / 1000
        why = killed(folder, size, way, rank, step, delay)
        if why == "it ended before":
            break
        told.append(why)
        print(f"{way}: rank {rank} of {size} killed {delay * 1000:.0f} ms after {step} steps {why}", flush=True)
        size = choose.choice([n for n in (1, 2, 3, 4) if n != size])
    return finished(folder, size, way), told


def main(times: int) -> int:
    choose, good, done = random.Random(0), 0, 0
    with TemporaryDirectory() as home:
        folder = Path(home)
        expected = {way: finished(folder / f"undisturbed {way}", 2, way) for way in WAYS}
        wrong = len({*expected.values()}) - 1
        while done < times:
            way = WAYS[(done // KILLS) % 2]
            digest, told = interrupted(folder / f"{way} {done}", way, min(KILLS, times - done), choose)
            if digest != expected[way]:
                told = [f"{why} OTHER BITS" for why in told]
            done += len(told)
            good += told.count("")
            print(f"{way}: {'the same bits' if digest == expected[way] else 'OTHER BITS'}", flush=True)
    print(f"{good} of {done} kills as they must be", flush=True)
    return int(good != done or wrong > 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if sys.argv[1:] else 20))
