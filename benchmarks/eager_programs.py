"""Users' programs in eager mode compared with PyTorch's, step by step in turns in one process.

    python -m benchmarks.eager_programs [--only NAME ...] [--heat 60] [--seconds 4] [--threads 1] [--json FILE]

A program is one step, written once for both libraries. Both are warmed by ``--heat`` steps, then step in turn. A time
is the least of a library's steps. The ratio of medians is next to it, as steps differ. With one thread it is the
thread's processor time, which other work on the machine changes little.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import tracecomp
from benchmarks import machine
from benchmarks.eager import mean_ratio
from tracecomp.eager_kernels import background

Step = Callable[[], Any]


def _trained(t: Any, model: Any, optimizer: Any, loss: Callable[[], Any]) -> Step:
    def step() -> Any:
        optimizer.zero_grad()
        found = loss()
        found.backward()
        optimizer.step()
        return found.item()

    return step


def mlp(t: Any) -> Step:
    """A classifier of 64 features, batches of 32, Adam."""
    nn = t.nn
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
    x, y = t.randn(32, 64), t.randint(0, 10, (32,))
    return _trained(t, model, t.optim.Adam(model.parameters()), lambda: nn.functional.cross_entropy(model(x), y))


def cnn(t: Any) -> Step:
    """LeNet on 28x28, batches of 16, SGD with momentum."""
    nn = t.nn
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32 * 49, 10),
    )  # fmt: skip
    x, y = t.randn(16, 1, 28, 28), t.randint(0, 10, (16,))
    optimizer = t.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    return _trained(t, model, optimizer, lambda: nn.functional.cross_entropy(model(x), y))


def residual(t: Any) -> Step:
    """Three residual blocks of 16 channels on 32x32, batches of 8, SGD."""
    nn, f = t.nn, t.nn.functional

    class Block(nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = (nn.Conv2d(16, 16, 3, padding=1, bias=False) for _ in range(2))
            self.norm, self.last = nn.BatchNorm2d(16), nn.BatchNorm2d(16)

        def forward(self, x: Any) -> Any:
            return f.relu(x + self.last(self.two(f.relu(self.norm(self.one(x))))))

    model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), *[Block() for _ in range(3)], nn.AdaptiveAvgPool2d(1))
    head = nn.Linear(16, 10)
    x, y = t.randn(8, 3, 32, 32), t.randint(0, 10, (8,))
    optimizer = t.optim.SGD([*model.parameters(), *head.parameters()], lr=0.1)
    return _trained(t, model, optimizer, lambda: f.cross_entropy(head(model(x).flatten(1)), y))


def _gpt(t: Any, width: int = 64, heads: int = 4, layers: int = 2, context: int = 32) -> Any:
    nn, f = t.nn, t.nn.functional

    class Block(nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.last = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x: Any) -> Any:
            b, n, c = x.size()
            q, k, v = self.qkv(self.norm(x)).split(width, dim=2)
            q, k, v = (a.view(b, n, heads, c // heads).transpose(1, 2) for a in (q, k, v))
            y = f.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).contiguous().view(b, n, c))
            return x + self.mlp(self.last(x))

    class GPT(nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(96, width), nn.Embedding(context, width)
            self.blocks = nn.ModuleList([Block() for _ in range(layers)])
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 96, bias=False)

        def forward(self, tokens: Any) -> Any:
            x = self.words(tokens) + self.places(t.arange(tokens.size(1)))
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))

    return GPT()


def gpt(t: Any) -> Step:
    """A GPT of two layers of 64, four rows of 32 tokens, AdamW."""
    model, text = _gpt(t), t.randint(0, 96, (4, 33))
    return _trained(
        t, model, t.optim.AdamW(model.parameters()),
        lambda: t.nn.functional.cross_entropy(model(text[:, :-1]).reshape(-1, 96), text[:, 1:].reshape(-1)),
    )  # fmt: skip


def generation(t: Any) -> Step:
    """Sixteen tokens of the GPT, drawn from its best ten."""
    model = _gpt(t).eval()

    def step() -> Any:
        tokens = t.zeros((1, 1), dtype=t.long)
        with t.no_grad():
            for _ in range(16):
                logits = model(tokens)[:, -1, :] / 0.8
                best, _ = t.topk(logits, 10)
                logits[logits < best[:, [-1]]] = -float("inf")
                drawn = t.multinomial(t.softmax(logits, dim=-1), num_samples=1)
                tokens = t.cat((tokens, drawn), dim=1)
        return tokens

    return step


def cached_generation(t: Any) -> Step:
    """Sixteen steps of one layer of attention whose keys and values are kept by ``cat``."""
    nn, f = t.nn, t.nn.functional
    qkv, out, head, words = nn.Linear(64, 192), nn.Linear(64, 64), nn.Linear(64, 96), nn.Embedding(96, 64)

    def step() -> Any:
        token, keys, values = t.zeros(1, dtype=t.long), t.zeros(1, 4, 0, 16), t.zeros(1, 4, 0, 16)
        with t.no_grad():
            for _ in range(16):
                q, k, v = qkv(words(token)).view(1, 1, 3, 4, 16).permute(2, 0, 3, 1, 4).unbind(0)
                keys, values = t.cat([keys, k], dim=2), t.cat([values, v], dim=2)
                y = f.scaled_dot_product_attention(q, keys, values)
                token = head(out(y.transpose(1, 2).reshape(1, 64))).argmax(-1)
        return token

    return step


def loading(t: Any) -> Step:
    """An epoch of a DataLoader, 128 samples in batches of 16, shuffled, with a small model in evaluation."""
    data, nn = t.utils.data, t.nn

    class Samples(data.Dataset):  # type: ignore[name-defined]
        def __init__(self) -> None:
            self.x, self.y = t.randn(128, 3, 8, 8), t.randint(0, 4, (128,))

        def __len__(self) -> int:
            return 128

        def __getitem__(self, i: int) -> Any:
            return (self.x[i] - 0.5) / 0.2, int(self.y[i])

    loader, model = data.DataLoader(Samples(), batch_size=16, shuffle=True), nn.Linear(192, 4)

    def step() -> int:
        right = 0
        with t.no_grad():
            for x, y in loader:
                right += (model(x.flatten(1)).argmax(1) == y).sum().item()
        return right

    return step


def augmentation(t: Any) -> Step:
    """Sixteen images of 3x32x32: each padded, cropped, mirrored, made brighter, erased in a patch, normalized."""
    images, mean, std = t.rand(16, 3, 32, 32), t.tensor([0.5, 0.4, 0.3]), t.tensor([0.2, 0.2, 0.2])

    def step() -> Any:
        done = []
        for image in images:
            top, left = t.randint(0, 8, (2,)).tolist()
            image = t.nn.functional.pad(image, (4, 4, 4, 4))[:, top : top + 32, left : left + 32]
            if t.rand(1).item() < 0.5:
                image = image.flip(-1)
            image = (image * (0.8 + 0.4 * t.rand(1))).clamp(0, 1)
            image[:, 4:12, 8:16] = 0
            done.append((image - mean[:, None, None]) / std[:, None, None])
        return t.stack(done)

    return step


def reinforcement(t: Any) -> Step:
    """REINFORCE: one episode of 20 steps in a small world, the returns, and an update by Adam."""
    nn = t.nn
    policy = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))
    optimizer = t.optim.Adam(policy.parameters(), lr=1e-2)

    def step() -> Any:
        state, logs, rewards = [0.0, 0.1, 0.2, 0.3], [], []
        for _ in range(20):
            chosen = t.distributions.Categorical(logits=policy(t.tensor(state)))
            action = chosen.sample()
            logs.append(chosen.log_prob(action))
            push = action.item() - 0.5
            state = [0.9 * s + 0.1 * push * (i + 1) for i, s in enumerate(state)]
            rewards.append(1.0 - abs(state[0]))
        total = 0.0
        returns: list[float] = []
        for reward in reversed(rewards):
            total = reward + 0.99 * total
            returns.insert(0, total)
        goal = t.tensor(returns)
        goal = (goal - goal.mean()) / (goal.std() + 1e-6)
        loss = -(t.stack(logs) * goal).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def recurrent(t: Any) -> Step:
    """An LSTM over 24 characters, batches of 8, gradients clipped, RMSprop."""
    nn = t.nn
    words, lstm, head = nn.Embedding(64, 32), nn.LSTM(32, 64, batch_first=True), nn.Linear(64, 64)
    parameters = [*words.parameters(), *lstm.parameters(), *head.parameters()]
    optimizer, text = t.optim.RMSprop(parameters), t.randint(0, 64, (8, 25))

    def step() -> Any:
        optimizer.zero_grad()
        hidden, _ = lstm(words(text[:, :-1]))
        loss = nn.functional.cross_entropy(head(hidden).view(-1, 64), text[:, 1:].reshape(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        return loss.item()

    return step


def autoencoder(t: Any) -> Step:
    """A variational autoencoder of 64 pixels, batches of 32, Adam."""
    nn, f = t.nn, t.nn.functional
    inner, middle, spread = nn.Linear(64, 48), nn.Linear(48, 8), nn.Linear(48, 8)
    outer = nn.Sequential(nn.Linear(8, 48), nn.ReLU(), nn.Linear(48, 64))
    model, x = nn.ModuleList([inner, middle, spread, outer]), t.rand(32, 64)

    def loss() -> Any:
        h = f.relu(inner(x))
        mu, log_var = middle(h), spread(h)
        z = mu + t.exp(0.5 * log_var) * t.randn_like(log_var)
        found = f.binary_cross_entropy_with_logits(outer(z), x, reduction="sum")
        return found - 0.5 * t.sum(1 + log_var - mu.pow(2) - log_var.exp())

    return _trained(t, model, t.optim.Adam(model.parameters()), loss)


def graph_network(t: Any) -> Step:
    """Two rounds of messages between 60 nodes along 240 edges by ``index_add``, SGD."""
    nn, f = t.nn, t.nn.functional
    x, source, target = t.randn(60, 16), t.randint(0, 60, (240,)), t.randint(0, 60, (240,))
    first, second, y = nn.Linear(32, 16), nn.Linear(32, 4), t.randint(0, 4, (60,))
    model = nn.ModuleList([first, second])

    def around(h: Any) -> Any:
        degree = t.zeros(60).index_add(0, target, t.ones(240)).clamp(min=1)
        return t.zeros(60, h.size(1)).index_add(0, target, h[source]) / degree[:, None]

    def loss() -> Any:
        h = f.relu(first(t.cat([x, around(x)], dim=1)))
        return f.cross_entropy(second(t.cat([h, around(h)], dim=1)), y)

    return _trained(t, model, t.optim.SGD(model.parameters(), lr=0.1), loss)


def clustering(t: Any) -> Step:
    """A round of k-means: 200 points, 8 means."""
    points = t.randn(200, 2)

    def step() -> Any:
        means = points[:8].clone()
        for _ in range(3):
            nearest = t.cdist(points, means).argmin(1)
            for k in range(8):
                mine = points[nearest == k]
                if len(mine) > 0:
                    means[k] = mine.mean(0)
        return means

    return step


PROGRAMS: dict[str, Callable[[Any], Step]] = {
    f.__name__: f
    for f in (
        mlp, cnn, residual, gpt, generation, cached_generation, loading, augmentation, reinforcement, recurrent,
        autoencoder, graph_network, clustering,
    )
}  # fmt: skip


def measure(name: str, heat: int, seconds: float, clock: Callable[[], float]) -> dict[str, Any]:
    """Least and median times of a step of both."""
    pair = [PROGRAMS[name](library) for library in (tracecomp, torch)]
    for step in pair:
        for _ in range(heat):
            step()
    background.finish()
    for _ in range(heat // 3):
        pair[0]()
    background.finish()
    times: list[list[float]] = [[], []]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[0]) < 5:
        for step, own in zip(pair, times, strict=True):
            start = clock()
            step()
            own.append(clock() - start)
    least, middle = [min(own) for own in times], [statistics.median(own) for own in times]
    return {"name": name, "ours": least[0], "torch": least[1], "median": middle[0] / middle[1]}


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser("python -m benchmarks.eager_programs", description=__doc__)
    parser.add_argument("--only", nargs="+", default=list(PROGRAMS), choices=PROGRAMS)
    parser.add_argument("--heat", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    for library in (tracecomp, torch):
        library.set_num_threads(arguments.threads)
        library.manual_seed(0)
    clock = time.thread_time if arguments.threads == 1 else time.perf_counter
    rows = []
    for name in arguments.only:
        row = measure(name, arguments.heat, arguments.seconds, clock)
        rows.append(row)
        ratio = row["ours"] / row["torch"]
        milliseconds = f"{row['ours'] * 1e3:9.2f} {row['torch'] * 1e3:9.2f} ms"
        print(f"{name:20} {milliseconds} {ratio:7.2f} (median {row['median']:.2f})", flush=True)
    told = f"{arguments.threads} thread(s), load {os.getloadavg()[0]:.1f}"
    worst = math.exp(sum(math.log(r["median"]) for r in rows) / len(rows))
    print(f"\n{machine.processor()}, {told}: mean {mean_ratio(rows):.2f}, of medians {worst:.2f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
