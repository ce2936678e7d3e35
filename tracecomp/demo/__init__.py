"""The demo: two networks learn handwritten digits, eagerly and compiled, and the two ways are compared."""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import tracecomp as torch
from tracecomp.base import config
from tracecomp.eager.modes import no_grad
from tracecomp.eager.rng import Generator, manual_seed
from tracecomp.eager.tensor import Tensor
from tracecomp.nn import GELU, BatchNorm2d, Conv2d, Flatten, Linear, MaxPool2d, Module, ReLU, Sequential
from tracecomp.nn import functional as F
from tracecomp.optim import AdamW
from tracecomp.utils.data import DataLoader, TensorDataset

DIGITS = Path(__file__).parent / "data" / "digits.npz"
WARM_UP = 3
"""Steps that record, plan and compile; later ones are timed."""


def convnet() -> Module:
    """Two convolutions with batch norm and pooling, one linear layer."""
    return Sequential(
        Conv2d(1, 16, 3, padding=1, bias=False), BatchNorm2d(16), GELU(), MaxPool2d(2),
        Conv2d(16, 32, 3, padding=1, bias=False), BatchNorm2d(32), GELU(), MaxPool2d(2),
        Flatten(), Linear(32 * 2 * 2, 10),
    )  # fmt: skip


def mlp() -> Module:
    """Three linear layers."""
    return Sequential(Flatten(), Linear(64, 256), ReLU(), Linear(256, 128), ReLU(), Linear(128, 10))


@dataclass
class Run:
    """The results of one training. Times are seconds, one per step."""

    losses: list[float] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    accuracy: float = 0.0
    graphs: int = 0

    @property
    def step(self) -> float:
        """The median of the timed steps."""
        return statistics.median(self.times[WARM_UP:])

    @property
    def first(self) -> float:
        """Total time of the first calls."""
        return sum(self.times[:WARM_UP])


def digits() -> tuple[TensorDataset, TensorDataset]:
    """1797 images of 8x8 grey values in [0, 1], four fifths for training and one fifth held out."""
    with np.load(DIGITS) as file:
        images, labels = file["images"], file["labels"]
    order = np.random.default_rng(0).permutation(len(images))
    x = torch.from_numpy((images[order] / 16.0).astype(np.float32)[:, None])
    y = torch.from_numpy(labels[order].astype(np.int64))
    split = len(images) * 4 // 5
    return TensorDataset(x[:split], y[:split]), TensorDataset(x[split:], y[split:])


def progress(name: str, total: int) -> tuple[Callable[[str], None], Callable[[], None]]:
    """Return functions to advance and to close a bar: tqdm's if installed, else a line for every tenth."""
    try:
        from tqdm import tqdm
    except ImportError:
        return _plain_progress(name, total), lambda: None
    bar = tqdm(total=total, desc=name, unit="step", leave=False)

    def advance(note: str) -> None:
        bar.set_postfix_str(note, refresh=False)
        bar.update()

    return advance, bar.close


def _plain_progress(name: str, total: int) -> Callable[[str], None]:
    done = 0

    def advance(note: str) -> None:
        nonlocal done
        done += 1
        if done * 10 // total > (done - 1) * 10 // total:
            print(f"{name}: {done}/{total} steps, {note}")

    return advance


def batches(data: TensorDataset, size: int, epochs: int) -> Iterator[Sequence[Tensor]]:
    """Shuffled batches of ``epochs`` passes, in the same order at every call."""
    loader = DataLoader(data, size, shuffle=True, drop_last=True, generator=Generator().manual_seed(1))
    for _ in range(epochs):
        yield from loader


def accuracy(model: Module, data: TensorDataset) -> float:
    """The fraction of images that ``model`` classifies correctly."""
    model.eval()
    with no_grad():
        images, labels = data.tensors
        return float((model(images).argmax(1) == labels).float().mean())


def train(name: str, build: Callable[[], Module], compiled: bool, batch: int, epochs: int) -> Run:
    """Train a new model on the digits, with reproducible numbers."""
    manual_seed(0)
    learn, held_out = digits()
    model = build()
    optimizer = AdamW(model.parameters(), lr=3e-3)

    def step(images: Tensor, labels: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss

    run = Run()
    call: Any = torch.compile(step) if compiled else step
    advance, close = progress(f"{name}, {'compiled' if compiled else 'eager'}", len(learn) // batch * epochs)
    for images, labels in batches(learn, batch, epochs):
        start = time.perf_counter()
        loss = call(images, labels)
        run.times.append(time.perf_counter() - start)
        run.losses.append(float(loss))
        advance(f"loss {run.losses[-1]:.4f}")
    close()
    run.accuracy = accuracy(model, held_out)
    run.graphs = len(call.graphs) if compiled else 0
    return run


def table(rows: Sequence[Sequence[str]]) -> str:
    """Columns padded to their widest entry."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(c.rjust(w) if i else c.ljust(w) for i, (c, w) in enumerate(zip(r, widths, strict=True)))
                     for r in rows)  # fmt: skip


def report(name: str, eager: Run, compiled: Run) -> list[list[str]]:
    """Two rows of the table."""
    rows = []
    for way, run in (("eager", eager), ("compiled", compiled)):
        rows.append([
            f"{name}, {way}", f"{run.losses[-1]:.4f}", f"{run.accuracy:.2%}", f"{run.step * 1e3:.2f} ms",
            f"{eager.step / run.step:.1f}x", f"{run.first:.2f} s",
        ])  # fmt: skip
    return rows


def demo(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; 0 when both ways agree at every step of the first epoch and the network is accurate."""
    parser = argparse.ArgumentParser(prog="python -m tracecomp demo", description=__doc__)
    parser.add_argument("--epochs", type=int, default=15, help="passes over the images (default 15)")
    parser.add_argument("--batch", type=int, default=64, help="images per step (default 64)")
    parser.add_argument("--dump", type=Path, help="folder for the stages of every graph (default: a temporary one)")
    options = parser.parse_args(arguments)
    if options.batch < 1 or options.epochs * (len(digits()[0]) // options.batch) <= WARM_UP:
        parser.error(f"{options.epochs} epochs with batches of {options.batch} make at most {WARM_UP} steps, too few")
    folder = options.dump or Path(tempfile.mkdtemp(prefix="tracecomp-demo-"))
    rows = [["network", "last loss", "held-out accuracy", "step", "speed", "first calls"]]
    complaints = []
    with config.override(dump=str(folder)):
        for name, build in (("convolutional", convnet), ("mlp", mlp)):
            eager, compiled = (train(name, build, way, options.batch, options.epochs) for way in (False, True))
            rows += report(name, eager, compiled)
            epoch = len(eager.losses) // options.epochs
            pairs = zip(eager.losses[:epoch], compiled.losses[:epoch], strict=True)
            apart = max(abs(a - b) for a, b in pairs)
            print(f"{name}: {compiled.graphs} graph, losses of the first epoch differ by at most {apart:.1e}")
            if apart > 1e-4:
                complaints.append(f"{name}: eager and compiled losses differ by more than 1e-4")
            if build is convnet and min(eager.accuracy, compiled.accuracy) < 0.97:
                complaints.append(f"{name}: held-out accuracy is below 97% after {options.epochs} epochs")
    print("\n" + table(rows))
    print(f"\n'first calls' is the time of the first {WARM_UP} steps, compilation included.")
    print(f"Every stage of every graph, as text: {folder}")
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    return 1 if complaints else 0
