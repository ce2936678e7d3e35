"""An LSTM learns to add: two numbers of a sequence are marked, their sum is the answer (Hochreiter and Schmidhuber).

python examples/lstm.py [--steps 600]
"""

from __future__ import annotations

import argparse
import time

import tracecomp as torch
from tracecomp import nn
from tracecomp.nn import functional as F

LENGTH, HIDDEN, BATCH = 12, 48, 64


class Adder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(2, HIDDEN, batch_first=True)
        self.head = nn.Linear(HIDDEN, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        _, (last, _) = self.lstm(x)
        return self.head(last[0]).squeeze(1)


def batch(generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Sequences of (number, mark) with one mark in each half, and the sums of the marked numbers."""
    numbers = torch.rand(BATCH, LENGTH, generator=generator)
    marks = torch.zeros(BATCH, LENGTH)
    for half in range(2):
        at = torch.randint(0, LENGTH // 2, (BATCH, 1), generator=generator) + half * (LENGTH // 2)
        marks.scatter_(1, at, 1.0)
    return torch.stack([numbers, marks], 2), (numbers * marks).sum(1)


def train(compiled: bool, steps: int) -> list[float]:
    torch.manual_seed(0)
    model = Adder()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    if compiled:
        step = torch.compile(step)
    numbers = torch.Generator().manual_seed(1)
    losses = []
    start = time.perf_counter()
    for i in range(steps):
        losses.append(step(*batch(numbers)).item())
        if (i + 1) % 200 == 0:
            print(f"step {i + 1}: loss {losses[-1]:.4f}")
    way = f"compiled, {len(step.graphs)} graph" if compiled else "eager"
    print(f"{way}: {time.perf_counter() - start:.1f} s\n")
    return losses


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=600)
    steps = parser.parse_args().steps
    eager, compiled = train(False, steps), train(True, steps)
    apart = max(abs(a - b) for a, b in zip(eager[:50], compiled[:50], strict=True))
    print(f"greatest difference of the first 50 losses: {apart:.1e}")
