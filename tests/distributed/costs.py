"""The cost of communication and of the order of sums: ``python -m tests.distributed.costs``.

Two processes run under ``mpiexec``. Sums are compared with those of mpi4py. Training steps with logical shards
alternate with data-parallel steps without shards. There every process adds up its batch, then one sum runs over
processes: the fastest possible, whose bits depend on the number of processes. Figures are medians.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import tracecomp as torch
from tracecomp import distributed as dist
from tracecomp import nn
from tracecomp.nn import functional as F
from tracecomp.nn.parallel import DistributedDataParallel

TURNS, BATCH, WIDTH = 40, 256, 512
SIZES = (1, 1 << 14, 1 << 20, 1 << 22)


def milliseconds(run: Callable[[], Any]) -> float:
    """One call, which all processes begin together."""
    dist.barrier()
    begin = time.perf_counter()
    run()
    return (time.perf_counter() - begin) * 1e3


def turns(runs: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """The median time of each, of calls in turns."""
    found: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(TURNS):
        for name, run in runs.items():
            found[name].append(milliseconds(run))
    return {name: statistics.median(times) for name, times in found.items()}


def sums() -> None:
    from mpi4py import MPI

    for count in SIZES:
        x, raw, into = torch.ones(count), np.ones(count, np.float32), np.empty(count, np.float32)
        runs: dict[str, Callable[[], Any]] = {
            "here": partial(dist.all_reduce, x), "mpi4py": partial(MPI.COMM_WORLD.Allreduce, raw, into),
        }  # fmt: skip
        told = ", ".join(f"{name} {ms:.3f} ms" for name, ms in turns(runs).items())
        if dist.get_rank() == 0:
            print(f"a sum of {4 * count} bytes: {told}", flush=True)


def training(shards: int | None) -> Callable[[], Any]:
    """A compiled step on this process's part of a batch."""
    torch.manual_seed(0)
    layers = [m for _ in range(4) for m in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    model = DistributedDataParallel(nn.Sequential(*layers, nn.Linear(WIDTH, 10)), shards=shards)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x, y = torch.randn(BATCH, WIDTH), torch.arange(BATCH) % 10

    @torch.compile
    def step() -> None:
        seen, goal = (x, y) if shards is None else model.shard(x, y)
        optimizer.zero_grad()
        F.cross_entropy(model(seen), goal).backward()
        optimizer.step()

    for _ in range(3):
        step()
    return step


def main() -> None:
    dist.init_process_group("mpi")
    sums()
    found = turns({str(shards): training(shards) for shards in (None, 2, 4, 8)})
    if dist.get_rank() == 0:
        for shards, ms in found.items():
            print(f"a step with shards={shards}: {ms:.1f} ms, {ms / found['None']:.2f} of that without", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    if sys.argv[1:] == ["run"]:
        main()
    else:
        launcher = [sys.executable, "-m", "tracecomp.distributed.run", "--launcher", "mpiexec", "-n", "2"]
        sys.exit(subprocess.call([*launcher, "-m", "tests.distributed.costs", "run"]))
