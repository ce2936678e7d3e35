"""A model that is larger than one process may be, trained by four: ``python -m tests.distributed.memory``.

Every process limits its own data to ``LIMIT`` more than it has before the model is made (RLIMIT_DATA). Alone it runs
out of memory; four processes train, and print their peak beside what ``predicted`` says.
"""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

import tracecomp as torch
from tests.distributed.gangs import gang, succeed
from tracecomp import distributed as dist
from tracecomp import nn
from tracecomp.base import config
from tracecomp.distributed.fsdp import fully_shard

LAYERS, WIDTH, BATCH = 24, 1024, 8
LAYER = 4 * WIDTH * (WIDTH + 1)
LIMIT = 220 << 20
"""Bytes: less than the 403 MB of parameters, gradients and two moments, more than a quarter and some layers."""


def data_bytes() -> int:
    """The private writable memory of this process, which RLIMIT_DATA limits."""
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("VmData"))
    return int(line.split()[1]) << 10


def resident(name: str) -> int:
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith(name))
    return int(line.split()[1]) << 10


def predicted(size: int) -> int:
    """Bytes at the peak, in the backward pass of a layer after the first step.

    A share of parameters, gradients and two moments; a layer's weights as pieces and as a whole; its gradient as it was
    computed, for each process to send, as received, and what the transport copies.
    """
    return 4 * LAYERS * LAYER // size + 2 * LAYER + 4 * LAYER


def train(depth: int, width: int) -> float:
    """The loss after some steps of a model whose layers are sharded as they are made."""
    layers = []
    for _ in range(depth):
        layers += [fully_shard(nn.Linear(width, width), reshard_after_forward=True), nn.Tanh()]
    net = fully_shard(nn.Sequential(*layers))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    for _ in range(2):
        loss = net(torch.randn(BATCH, width)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss.item()


def main() -> None:
    dist.init_process_group("gloo" if "RANK" in os.environ else "mpi")
    torch.manual_seed(0)
    train(2, WIDTH)  # what is loaded at first use is no part of it
    before = resident("VmRSS")
    limit = data_bytes() + LIMIT
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    loss = train(LAYERS, WIDTH)
    peak, size = resident("VmHWM") - before, dist.get_world_size()
    print(f"{size} processes: peak {peak / 1e6:.0f} MB, predicted {predicted(size) / 1e6:.0f} MB, loss {loss:.6f}")
    dist.destroy_process_group()


def show() -> tuple[bool, list[str]]:
    """Whether one process ran out of memory, and what four wrote."""
    (alone,) = gang(1, "-m", "tests.distributed.memory", "train", seconds=120)
    four = gang(4, "-m", "tests.distributed.memory", "train", seconds=300)
    succeed(four)
    return alone.status != 0 and "MemoryError" in alone.text, [e.text.strip() for e in four]


if __name__ == "__main__":
    if sys.argv[1:] == ["train"]:
        with config.override(eager="numpy"):  # a compiler, loaded when calls are made often, takes as much as a layer
            main()
    else:
        failed, lines = show()
        print("one process runs out of memory" if failed else "one process had enough memory", *lines, sep="\n")
