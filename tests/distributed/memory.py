"""A model that is larger than one process may be, trained by four: ``python -m tests.distributed.memory``.

Every process limits its data to ``LIMIT`` more than it has before the model is made (RLIMIT_DATA). Alone it runs out of
memory. Four processes train, and print their peak next to the value of ``predicted``. The status is 1 if either fails,
or if a peak is more than ``MORE`` times the prediction.

How much memory a process has is a measurement, so the suite counts instead (``counted``): rows that each process keeps,
and whole layers that live at the same time.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import tracecomp as torch
from tests.distributed.gangs import gang, succeed
from tracecomp import distributed as dist
from tracecomp import nn
from tracecomp.base import config
from tracecomp.distributed.fsdp import fully_shard
from tracecomp.distributed.fsdp.bucket import Bucket

LAYERS, WIDTH, BATCH = 24, 1024, 8
LAYER = 4 * WIDTH * (WIDTH + 1)
LIMIT = 220 << 20
"""Bytes: less than the 403 MB of parameters, gradients and two moments, more than a quarter and some layers."""
MORE = 1.3
"""Times the prediction."""


def data_bytes() -> int:
    """The private writable memory of this process, which RLIMIT_DATA limits."""
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("VmData"))
    return int(line.split()[1]) << 10


def resident(name: str) -> int:
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith(name))
    return int(line.split()[1]) << 10


def predicted(size: int) -> int:
    """Bytes at the peak, in the backward pass of a layer after the first step.

    A share of parameters, gradients and two moments; a layer's weights as pieces and as a whole. Also its gradient as
    computed, as sent and as received, and the transport's copies.
    """
    return 4 * LAYERS * LAYER // size + 2 * LAYER + 4 * LAYER


def made(depth: int, width: int) -> Any:
    """A model whose layers are sharded as they are made."""
    layers = []
    for _ in range(depth):
        layers += [fully_shard(nn.Linear(width, width), reshard_after_forward=True), nn.Tanh()]
    return fully_shard(nn.Sequential(*layers))


def train(depth: int, width: int) -> float:
    """The loss after some steps."""
    net = made(depth, width)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    for _ in range(2):
        loss = net(torch.randn(BATCH, width)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss.item()


class Wholes:
    """Memory of whole layers that lives at the same time, at most, however it is viewed."""

    def __init__(self) -> None:
        self._alive: list[weakref.ref[Any]] = []
        self.most = 0
        gathered = Bucket.gathered

        def seen(bucket: Bucket) -> Sequence[Any]:
            found = gathered(bucket)
            memory = found[0]._data
            while isinstance(memory.base, np.ndarray):  # whoever has a view has all of it
                memory = memory.base
            if all(alive() is not memory for alive in self._alive):
                self._alive.append(weakref.ref(memory))
            self.look()
            return found

        Bucket.gathered = seen  # type: ignore[assignment,method-assign]

    def look(self) -> None:
        """Count those that live now."""
        self._alive = [alive for alive in self._alive if alive() is not None]
        self.most = max(self.most, len(self._alive))


def counted(depth: int, width: int) -> dict[str, int]:
    """Return how many elements of a model this process keeps, and how many whole layers it has had."""
    wholes, net = Wholes(), made(depth, width)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    for _ in range(2):
        loss = net(torch.randn(BATCH, width)).square().mean()
        wholes.look()
        loss.backward()
        gradients = sum(p.grad.numel() for p in net.parameters())
        optimizer.step()
        optimizer.zero_grad()
    moments = sum(v.numel() for s in optimizer.state.values() for v in s.values() if v.ndim)
    return {
        "parameters": sum(p.numel() for p in net.parameters()), "gradients": gradients, "moments": moments,
        "whole layers": wholes.most,
    }  # fmt: skip


def count() -> None:
    """Print what ``counted`` finds."""
    dist.init_process_group("gloo")
    print(json.dumps(counted(12, 8)))
    dist.destroy_process_group()


def main() -> None:
    dist.init_process_group("gloo" if "RANK" in os.environ else "mpi")
    torch.manual_seed(0)
    train(2, WIDTH)  # excludes modules that are loaded at first use
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
    if sys.argv[1:] == ["count"]:
        count()
    elif sys.argv[1:] == ["train"]:
        with config.override(eager="numpy"):  # a compiler, loaded when calls are made often, takes as much as a layer
            main()
    else:
        failed, lines = show()
        print("one process runs out of memory" if failed else "one process had enough memory", *lines, sep="\n")
        peaks = [line.replace(",", "").split() for line in lines]
        sys.exit(not failed or any(int(words[3]) > MORE * int(words[6]) for words in peaks))
