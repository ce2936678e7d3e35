"""Trains small models over logical shards in any number of processes: ``python shards.py FOLDER [STEPS]``.

Rank 0 writes digests of weights, buffers and optimizer state to ``FOLDER/SIZE.txt``.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tracecomp as torch
from tracecomp import distributed as dist
from tracecomp import nn
from tracecomp.nn import functional as F
from tracecomp.nn.parallel import DistributedDataParallel
from tracecomp.utils.data import DataLoader, DistributedSampler, TensorDataset

SHARDS, EACH, CLASSES, WORDS, LENGTH = 4, 3, 5, 11, 6


class Block(nn.Module):
    """Attention and a perceptron with residual connections."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width), nn.Dropout(0.2))

    def forward(self, x: Any) -> Any:
        n, length, width = x.shape
        q, k, v = self.qkv(self.first(x)).split(width, dim=2)
        q, k, v = (t.view(n, length, self.heads, width // self.heads).transpose(1, 2) for t in (q, k, v))
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=0.1 if self.training else 0.0)
        x = x + self.out(seen.transpose(1, 2).reshape(n, length, width))
        return x + self.mlp(self.second(x))


class CharGPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, 8), nn.Embedding(LENGTH, 8)
        self.drop, self.block, self.head = nn.Dropout(0.1), Block(8, 2), nn.Linear(8, WORDS)

    def forward(self, x: Any) -> Any:
        x = self.drop(self.words(x) + self.places(torch.arange(x.shape[1])))
        return self.head(self.block(x))


def mlp() -> Any:
    return nn.Sequential(nn.Linear(7, 16), nn.Tanh(), nn.Dropout(0.3), nn.Linear(16, CLASSES))


def convnet() -> Any:
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 6, 2), nn.BatchNorm2d(6),
        nn.ReLU(), nn.Flatten(), nn.Linear(24, CLASSES),
    )  # fmt: skip
    return nn.SyncBatchNorm.convert_sync_batchnorm(net)


def labelled(*shape: int) -> Any:
    return torch.randn(40, *shape), torch.randint(0, CLASSES, (40,))


def sentences() -> Any:
    text = torch.randint(0, WORDS, (40, LENGTH + 1))
    return text[:, :-1].contiguous(), text[:, 1:].contiguous()


MODELS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "mlp": (mlp, lambda: labelled(7)), "convnet": (convnet, lambda: labelled(1, 8, 8)), "gpt": (CharGPT, sentences)
}  # fmt: skip


def batches(sampler: Any, loader: Any, steps: int) -> Iterator[Any]:
    epoch = 0
    while True:
        sampler.set_epoch(epoch)
        for batch in loader:
            yield batch
            steps -= 1
            if not steps:
                return
        epoch += 1


def train(kind: str, steps: int, compiled: bool) -> str:
    """The digest of everything after ``steps`` steps of AdamW with clipping, two batches to a step."""
    torch.manual_seed(7)
    make, data = MODELS[kind]
    dataset = TensorDataset(*data())
    model = DistributedDataParallel(make(), shards=SHARDS, bucket_cap_mb=0.001)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    sampler = DistributedSampler(dataset, shards=SHARDS, shard_size=EACH)
    loader = DataLoader(dataset, batch_size=sampler.batch_size, sampler=sampler)

    def step(x: Any, y: Any, last: bool) -> Any:
        x, y = model.shard(x, y)
        loss = F.cross_entropy(model(x).reshape(-1, WORDS if kind == "gpt" else CLASSES), y.reshape(-1)) / 2
        loss.backward()
        if last:
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            optimizer.zero_grad()
        return model.mean(loss)

    run = torch.compile(step) if compiled else step
    losses = [run(x, y, bool(i % 2)).item() for i, (x, y) in enumerate(batches(sampler, loader, steps))]
    found = hashlib.sha256(repr(losses).encode())
    for _, value in sorted(model.state_dict().items()):
        found.update(value.numpy().tobytes())
    for state in optimizer.state_dict()["state"].values():
        for _, value in sorted(state.items()):
            found.update(value.numpy().tobytes())
    return f"{kind} {'compiled' if compiled else 'eager'} {losses[0]:.6f} {losses[-1]:.6f} {found.hexdigest()}"


def main(folder: Path, steps: int, compiled: bool) -> None:
    dist.init_process_group("gloo" if "RANK" in os.environ else "mpi")
    lines = [train(kind, steps, compiled) for kind in MODELS]
    every: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(every, lines)
    assert all(other == lines for other in every), every
    if dist.get_rank() == 0:
        (folder / f"{dist.get_world_size()}{'c' if compiled else ''}.txt").write_text("\n".join(lines))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), len(sys.argv) > 3)
