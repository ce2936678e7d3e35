"""A convolutional network learns handwritten digits: eagerly, then with the whole training step compiled.

python examples/digits.py [--epochs 10]
"""

from __future__ import annotations

import argparse
import time

import tracecomp as torch
from tracecomp import nn
from tracecomp.demo import digits
from tracecomp.nn import functional as F
from tracecomp.utils.data import DataLoader


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(16)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(32)
        self.head = nn.Linear(32 * 2 * 2, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.gelu(self.norm1(self.conv1(x))), 2)
        x = F.max_pool2d(F.gelu(self.norm2(self.conv2(x))), 2)
        return self.head(x.flatten(1))


def train(compiled: bool, epochs: int) -> list[float]:
    torch.manual_seed(0)
    learn, held_out = digits()
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    loader = DataLoader(learn, 64, shuffle=True, drop_last=True, generator=torch.Generator().manual_seed(1))

    def step(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss

    if compiled:
        step = torch.compile(step)
    losses = []
    start = time.perf_counter()
    for epoch in range(epochs):
        for images, labels in loader:
            losses.append(step(images, labels).item())
        schedule.step()
        print(f"epoch {epoch + 1}: loss {losses[-1]:.4f}")
    model.eval()
    with torch.no_grad():
        images, labels = held_out.tensors
        accuracy = (model(images).argmax(1) == labels).float().mean().item()
    way = f"compiled, {len(step.graphs)} graph" if compiled else "eager"
    print(f"{way}: {time.perf_counter() - start:.1f} s, held-out accuracy {accuracy:.2%}\n")
    return losses


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10)
    epochs = parser.parse_args().epochs
    eager, compiled = train(False, epochs), train(True, epochs)
    apart = max(abs(a - b) for a, b in zip(eager[:50], compiled[:50], strict=True))
    print(f"greatest difference of the first 50 losses: {apart:.1e}")
