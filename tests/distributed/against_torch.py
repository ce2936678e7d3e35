"""Data-parallel steps compared with PyTorch's: ``python -m tests.distributed.against_torch [ROUNDS]``.

Two processes with one thread each use TCP; PyTorch uses gloo. Each round runs every program in turn, in separate
processes, and takes the median of its steps. The output is the median over rounds, and how much longer PyTorch's eager
step takes. ``alone`` is the same step without DistributedDataParallel, so the difference is communication.
"""

from __future__ import annotations

import importlib
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from tests.distributed.gangs import gang, succeed
from tracecomp.base import progress

STEPS, FIRST = 40, 5
WAYS = ("torch", "torch alone", "tracecomp", "tracecomp compiled", "tracecomp compiled alone")
"""A library, then whether its step is compiled and whether it runs without the other process."""


def mlp(torch: Any) -> tuple[Any, Any, Any]:
    nn = torch.nn
    net = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    return net, torch.randn(64, 256), torch.arange(64) % 10


def convolutions(torch: Any) -> tuple[Any, Any, Any]:
    nn = torch.nn
    body = nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2)
    return nn.Sequential(*body, nn.Flatten(), nn.Linear(800, 10)), torch.randn(16, 1, 28, 28), torch.arange(16) % 10


def gpt(torch: Any) -> tuple[Any, Any, Any]:
    nn = torch.nn

    class GPT(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.places = nn.Embedding(96, 128), nn.Parameter(torch.zeros(64, 128))
            self.blocks = nn.ModuleList(
                nn.TransformerEncoderLayer(128, 4, 512, 0.0, "gelu", batch_first=True, norm_first=True)
                for _ in range(2)
            )
            self.head = nn.Linear(128, 96)
            self.register_buffer("mask", torch.ones(64, 64, dtype=torch.bool).triu(1))

        def forward(self, x: Any) -> Any:
            x = self.embed(x) + self.places
            for block in self.blocks:
                x = block(x, src_mask=self.mask)
            return self.head(x).flatten(0, 1)

    return GPT(), torch.randint(0, 96, (8, 64)), torch.randint(0, 96, (512,))


MODELS: Mapping[str, Callable[[Any], tuple[Any, Any, Any]]] = {
    "MLP 256-512-512-10, batch 64": mlp,
    "two convolutions, 28x28, batch 16": convolutions,
    "GPT, 2 blocks of width 128, 8x64 characters": gpt,
}


def timed(library: str, how: list[str]) -> None:
    """In one process: the median milliseconds of a step of each model, one a line."""
    torch = importlib.import_module(library)
    dist = importlib.import_module(f"{library}.distributed")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for make in MODELS.values():
        torch.manual_seed(0)
        net, x, y = make(torch)
        model = net if "alone" in how else torch.nn.parallel.DistributedDataParallel(net)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

        def step(model: Any = model, optimizer: Any = optimizer, x: Any = x, y: Any = y) -> Any:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        run = torch.compile(step) if "compiled" in how else step
        took = []
        for _ in range(STEPS):
            begin = time.perf_counter()
            run()
            took.append((time.perf_counter() - begin) * 1e3)
        dist.barrier()
        if dist.get_rank() == 0:
            print("median", statistics.median(took[FIRST:]), flush=True)
    dist.destroy_process_group()


def main(rounds: int) -> None:
    found = defaultdict[tuple[str, str], list[float]](list)
    with progress.shown("rounds"):
        progress.expect(rounds * len(WAYS))
        for way in WAYS * rounds:
            ended = gang(2, "-m", "tests.distributed.against_torch", "run", *way.split())
            succeed(ended)
            medians = [line.split()[1] for line in ended[0].text.splitlines() if line.startswith("median")]
            for model, ms in zip(MODELS, medians, strict=True):
                found[model, way].append(float(ms))
            progress.advance(way)
    least = {key: statistics.median(times) for key, times in found.items()}
    for model in MODELS:
        told = ", ".join(f"{way} {least[model, way]:.2f}" for way in WAYS)
        print(f"{model}, ms a step: {told}")
    for way in WAYS:
        ratios = [least[model, "torch"] / least[model, way] for model in MODELS]
        print(f"{way}: {', '.join(f'{r:.2f}' for r in ratios)} times as fast as torch, geometric mean "
              f"{statistics.geometric_mean(ratios):.2f}")  # fmt: skip


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"]:
        timed(sys.argv[2], sys.argv[3:])
    else:
        main(int(sys.argv[1]) if sys.argv[1:] else 5)
