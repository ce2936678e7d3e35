"""A program written for PyTorch, which knows no shards: ``python plain.py FOLDER STEPS [HOW...]``.

HOW names the wrapper of the model (``fsdp`` or ``fully_shard``, else DistributedDataParallel) and the compiled part
(``step``, or the ``module`` as PyTorch's programs do). Rank 0 writes digests of losses, weights, buffers and optimizer
state to ``FOLDER/digests.txt``. They are the same for any HOW.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tracecomp as torch
import tracecomp.distributed as dist
from tests.distributed.shards import CLASSES, MODELS
from tracecomp import nn
from tracecomp.distributed.fsdp import FullyShardedDataParallel, fully_shard
from tracecomp.nn.parallel import DistributedDataParallel as DDP
from tracecomp.utils.data import DataLoader, DistributedSampler, TensorDataset

GLOBAL_BATCH = 24


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.out = nn.LSTM(7, 6, 2, batch_first=True, dropout=0.2), nn.Linear(6, CLASSES)

    def forward(self, x: Any) -> Any:
        return self.out(self.rnn(x)[0][:, -1])


def recurrent_data() -> Any:
    return torch.randn(40, 4, 7), torch.randint(0, CLASSES, (40,))


def wrapped(module: Any, how: Sequence[str]) -> Any:
    if "fsdp" in how:
        return FullyShardedDataParallel(module)
    if "fully_shard" in how:
        for child in module.children():
            if any(True for _ in child.parameters()):
                fully_shard(child)
        return fully_shard(module)
    return DDP(module)


def contents(value: Any) -> bytes:
    """The bytes of a tensor, whole if it is sharded: every rank calls it."""
    found: bytes = (value.full_tensor() if hasattr(value, "full_tensor") else value).numpy().tobytes()
    return found


def train(kind: str, steps: int, how: Sequence[str]) -> str:
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.manual_seed(0)
    make, data = {**MODELS, "lstm": (Recurrent, recurrent_data)}[kind]
    dataset = TensorDataset(*data())
    sampler = DistributedSampler(dataset, num_replicas=world_size, rank=rank)
    loader = DataLoader(dataset, batch_size=GLOBAL_BATCH // world_size, sampler=sampler)
    model, criterion = wrapped(make(), how), nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    forward = torch.compile(model) if "module" in how else model

    def train_step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        out = forward(x)
        loss = criterion(out.reshape(-1, out.size(-1)), y.reshape(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        return loss

    run = torch.compile(train_step) if "step" in how else train_step
    log: list[str] = []
    total, epoch = 0.0, 0
    while len(log) < steps:
        sampler.set_epoch(epoch)
        epoch += 1
        for x, y in loader:
            loss = run(x, y)
            total += loss.item() * x.size(0)
            mean = loss.detach().clone()
            dist.all_reduce(mean)
            mean /= world_size
            log.append(f"{loss.item()} {mean.item()}")
            if len(log) == steps:
                break
    sums = torch.tensor([total])
    dist.all_reduce(sums)
    found = hashlib.sha256(repr((log, sums.tolist())).encode())
    for value in model.state_dict().values():
        found.update(contents(value))
    for state in optimizer.state_dict()["state"].values():
        for _, value in sorted(state.items()):
            found.update(contents(value))
    return f"{kind} {log[-1]} {found.hexdigest()}"


def main(folder: Path, steps: int, how: Sequence[str]) -> None:
    dist.init_process_group("gloo")
    lines = [train(kind, steps, how) for kind in (*MODELS, "lstm")]
    if dist.get_rank() == 0:
        (folder / "digests.txt").write_text("\n".join(lines))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
