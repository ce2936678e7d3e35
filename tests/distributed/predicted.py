"""The simulator compared with measurements: ``python -m tests.distributed.predicted``.

2, 3 and 4 processes each run a step of an MLP. The times of sums of two sizes give the cost of a message. The times of
the step's compiled parts give the cost of code, on the cores that processes share here. Both predict the step. A table
of predictions follows, for 8 to 4,096 processes on a network of 10 GB/s.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import tracecomp as torch
from tests.distributed.gangs import gang, succeed
from tracecomp import distributed as dist
from tracecomp import nn
from tracecomp.distributed.simulate import WAYS, Network, Step, read, simulate, step_of, typical, write
from tracecomp.nn import functional as F
from tracecomp.nn.parallel import DistributedDataParallel

WIDTH, DEPTH, BATCH, CALLS = 512, 6, 512, 15
LARGE = 1 << 20


def step() -> Any:
    """A compiled step of data-parallel training, and its arguments."""
    layers = [m for _ in range(DEPTH) for m in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    model = DistributedDataParallel(nn.Sequential(*layers, nn.Linear(WIDTH, 10)), bucket_cap_mb=2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    @torch.compile(fullgraph=True)
    def run(x: Any, y: Any) -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    return run, (torch.randn(BATCH, WIDTH), torch.randint(0, 10, (BATCH,)))


def best(run: Any) -> float:
    """The median of the seconds that calls take."""
    times = []
    for _ in range(CALLS):
        dist.barrier()
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def main(folder: Path) -> None:
    dist.init_process_group("gloo" if "RANK" in os.environ else "mpi")
    torch.manual_seed(0)
    run, given = step()
    for _ in range(4):
        run(*given)
    small, large = torch.zeros(1), torch.zeros(LARGE)
    sums = [best(lambda t=t: dist.all_reduce(t)) for t in (small, large)]
    steps = []

    def once() -> None:
        run(*given)
        steps.append(step_of(run))

    took = best(once)
    every: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(every, typical(steps))
    if dist.get_rank() == 0:
        write(typical(every), folder / "step.json")
        (folder / "times.txt").write_text(" ".join(map(str, (*sums, took))))
    dist.destroy_process_group()


def measured(folder: Path, size: int) -> tuple[Step, Network, float]:
    """The step in ``size`` processes, what messages cost there, and what the step took."""
    succeed(gang(size, "-m", "tests.distributed.predicted", str(folder), seconds=300))
    small, large, took = (float(x) for x in (folder / "times.txt").read_text().split())
    bandwidth = 2 * 4 * LARGE * (size - 1) / size / max(large - 2 * small, 1e-9)
    return read(folder / "step.json"), Network(small / size, bandwidth, small / size), took


def show(folder: Path) -> None:
    for size in (2, 3, 4):
        found, network, took = measured(folder, size)
        told = simulate(found, size, network)
        print(
            f"{size} processes: predicted {told.seconds * 1e3:.1f} ms, measured {took * 1e3:.1f} ms, "
            f"{told.seconds / took:.2f} of it; hidden {told.hidden:.0%}", flush=True,
        )  # fmt: skip
    print("| ranks | way | step, ms | communication, ms | hidden |\n|---|---|---|---|---|")
    for size in (8, 64, 512, 4096):
        for way in WAYS:
            told = simulate(found, size, Network(), way=way, straggling=0.1)
            times = f"{told.seconds * 1e3:.1f} | {told.communication * 1e3:.2f}"
            print(f"| {size} | {way} | {times} | {told.hidden:.0%} |")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with TemporaryDirectory() as home:
            show(Path(home))
