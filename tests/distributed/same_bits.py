"""Same bits for any number of processes and threads: ``python -m tests.distributed.same_bits [STEPS]``.

It trains an MLP with dropout, a convolutional network with SyncBatchNorm and a small GPT with dropout (``shards.py``:
AdamW, clipping, two batches to a step). They run in 1, 2, 3 and 4 processes with 1 and 2 threads each, eagerly and
compiled. It compares digests of losses, weights, buffers and optimizer state. The status is 1 if two differ.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.distributed.gangs import gang, succeed

SCRIPT = str(Path(__file__).with_name("shards.py"))


def digests(folder: Path, size: int, steps: int, compiled: bool, threads: int = 1) -> list[str]:
    """A line for each model, of ``size`` processes."""
    more = ["compiled"] if compiled else []
    environment = {"TRACECOMP_NUM_THREADS": str(threads)}
    succeed(gang(size, SCRIPT, str(folder), str(steps), *more, more=environment, seconds=60 + 5.0 * steps * size))
    return (folder / f"{size}{'c' if compiled else ''}.txt").read_text().splitlines()


def main(steps: int) -> int:
    different = 0
    for compiled in (False, True):
        expected: list[str] = []
        for size in (1, 2, 3, 4):
            for threads in (1, 2):
                begin = time.monotonic()
                with TemporaryDirectory() as folder:
                    found = digests(Path(folder), size, steps, compiled, threads)
                expected = expected or found
                different += found != expected
                told = "the same bits" if found == expected else f"DIFFERENT: {found}"
                how = "compiled" if compiled else "eager"
                seconds = time.monotonic() - begin
                print(
                    f"{how}, {size} processes, {threads} threads, {steps} steps: {told} ({seconds:.0f} s)", flush=True
                )
        print(*expected, sep="\n", flush=True)
    return min(different, 1)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 200))
