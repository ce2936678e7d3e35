"""Eager operators compared with PyTorch's, in turns in one run: three sizes of each, and a geometric mean for each
class.

    python -m benchmarks.eager [--classes unary loss] [--threads 1] [--turns 5] [--json FILE]

Every operator is called until machine code serves it, as in a loop of a program, and is then timed. ``--cold`` times
calls without it (``TRACECOMP_EAGER=numpy``). Times are the least of some turns of each library, one after the other.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

import tracecomp
from benchmarks import machine
from tracecomp.base import config
from tracecomp.eager_kernels import background

SIZES = {"tiny": 16, "10k": 10_000, "1M": 1_000_000}
TURN = 0.02
"""Seconds of a turn, at least one call."""

Call = Callable[[], Any]


def _names(text: str) -> list[str]:
    return text.split()


UNARY = _names(
    "abs neg exp exp2 expm1 log1p sin cos tan tanh sinh atan asinh erf erfc sigmoid sqrt rsqrt square reciprocal floor "
    "round sign relu isnan clone cumsum0 sort0 argmax logical_not"
)
BINARY = _names("add sub mul div maximum minimum pow2 atan2 fmod remainder eq lt logical_and where lerp addcmul hypot")
REDUCED = _names("sum mean std var amax amin prod logsumexp1 norm all sum0 mean1 std1 amax1 argmin1 count_nonzero")
ROWS = _names(
    "softmax log_softmax layer_norm rms_norm normalize cumsum topk cat stack flip transpose index_select gather"
)
ACTIVATIONS = _names(
    "gelu silu mish softplus elu selu celu hardswish hardtanh leaky_relu logsigmoid tanhshrink softsign glu"
)
LOSSES = _names(
    "mse_loss l1_loss smooth_l1_loss huber_loss kl_div binary_cross_entropy_with_logits cross_entropy soft_margin_loss"
)
NETS = _names("linear matmul conv2d batch_norm max_pool2d avg_pool2d embedding attention dropout lstm")
GRADED = _names("mul gelu softmax layer_norm cross_entropy mse_loss linear")
RANDOM = _names("rand randn randint bernoulli rand_item")
WRITES = _names("add_ mul_ copy_ clamp_ zero_ sgd adam")
VIEWS = _names("index slice view permute unsqueeze item zeros ones_like tolist contiguous")


def _unary(t: Any, name: str, n: int) -> Call:
    x = t.rand(n) * 0.8 + 0.1
    if name.endswith("0"):
        return lambda: getattr(t, name[:-1])(x, 0)
    return lambda: getattr(t, name)(x)


def _binary(t: Any, name: str, n: int) -> Call:
    x, y = t.rand(n) + 0.1, t.rand(n) + 0.2
    mask = x > y
    special: dict[str, Call] = {
        "pow2": lambda: x**2.5, "where": lambda: t.where(mask, x, y), "lerp": lambda: t.lerp(x, y, 0.3),
        "addcmul": lambda: t.addcmul(x, x, y), "logical_and": lambda: t.logical_and(mask, mask),
    }  # fmt: skip
    return special.get(name) or (lambda: getattr(t, name)(x, y))


def _square(t: Any, n: int) -> Any:
    side = max(int(math.sqrt(n)), 2)
    return t.rand(side, side)


def _reduced(t: Any, name: str, n: int) -> Call:
    x = _square(t, n)
    if name[-1] in "01":
        return lambda: getattr(t, name[:-1])(x, int(name[-1]))
    return lambda: getattr(t, name)(x)


def _rows(t: Any, name: str, n: int) -> Call:
    x, f = _square(t, n), t.nn.functional
    side = x.shape[0]
    places = t.arange(side).flip(0)
    table = places.repeat(side).reshape(side, side)
    calls: dict[str, Call] = {
        "softmax": lambda: t.softmax(x, 1), "log_softmax": lambda: t.log_softmax(x, 1),
        "layer_norm": lambda: f.layer_norm(x, (side,)), "rms_norm": lambda: f.rms_norm(x, (side,)),
        "normalize": lambda: f.normalize(x), "cumsum": lambda: t.cumsum(x, 1), "topk": lambda: t.topk(x, 2),
        "cat": lambda: t.cat([x, x]), "stack": lambda: t.stack([x, x]), "flip": lambda: t.flip(x, (0,)),
        "transpose": lambda: x.t().contiguous(), "index_select": lambda: t.index_select(x, 0, places),
        "gather": lambda: t.gather(x, 0, table),
    }  # fmt: skip
    return calls[name]


def _activation(t: Any, name: str, n: int) -> Call:
    x, fn = t.randn(n + n % 2), getattr(t.nn.functional, name)
    return lambda: fn(x)


def _loss(t: Any, name: str, n: int) -> Call:
    x, y, fn = _square(t, n), _square(t, n), getattr(t.nn.functional, name)
    if name == "cross_entropy":
        target = t.arange(x.shape[0])
        return lambda: fn(x, target)
    return lambda: fn(x, y, reduction="batchmean") if name == "kl_div" else fn(x, y)


def _net(t: Any, name: str, n: int) -> Call:
    f, x = t.nn.functional, _square(t, n)
    side = x.shape[0]
    image = t.rand(2, 4, max(side // 3, 4), max(side // 3, 4))
    weight, mean, var = t.rand(8, 4, 3, 3), t.zeros(4), t.ones(4)
    words, table, heads = t.arange(side), t.rand(side, 32), t.rand(2, 2, min(side, 256), 16)
    lstm, steps = t.nn.LSTM(8, 8), t.rand(min(side, 100), 2, 8)
    calls: dict[str, Call] = {
        "linear": lambda: f.linear(x, x), "matmul": lambda: x @ x, "conv2d": lambda: f.conv2d(image, weight),
        "batch_norm": lambda: f.batch_norm(image, mean, var), "max_pool2d": lambda: f.max_pool2d(image, 2),
        "avg_pool2d": lambda: f.avg_pool2d(image, 2), "embedding": lambda: f.embedding(words, table),
        "attention": lambda: f.scaled_dot_product_attention(heads, heads, heads), "dropout": lambda: f.dropout(x, 0.5),
        "lstm": lambda: lstm(steps),
    }  # fmt: skip
    return calls[name]


def _graded(t: Any, name: str, n: int) -> Call:
    f, x = t.nn.functional, _square(t, n).requires_grad_()
    y, target = _square(t, n), t.arange(x.shape[0])
    forward: dict[str, Call] = {
        "mul": lambda: x * y, "gelu": lambda: f.gelu(x), "softmax": lambda: t.softmax(x, 1),
        "layer_norm": lambda: f.layer_norm(x, (x.shape[1],)), "cross_entropy": lambda: f.cross_entropy(x, target),
        "mse_loss": lambda: f.mse_loss(x, y), "linear": lambda: f.linear(x, y),
    }  # fmt: skip
    seed = t.ones(()) if "loss" in name or "entropy" in name else y
    return lambda: forward[name]().backward(seed)


def _random(t: Any, name: str, n: int) -> Call:
    p = t.full((n,), 0.5)
    calls: dict[str, Call] = {
        "rand": lambda: t.rand(n), "randn": lambda: t.randn(n), "randint": lambda: t.randint(0, 9, (n,)),
        "bernoulli": lambda: t.bernoulli(p), "rand_item": lambda: t.rand(1).item(),
    }  # fmt: skip
    return calls[name]


def _write(t: Any, name: str, n: int) -> Call:
    x, y = t.rand(n), t.ones(n)
    if name in ("sgd", "adam"):
        p = t.nn.Parameter(t.rand(n))
        p.grad = t.rand(n)
        step = (t.optim.SGD if name == "sgd" else t.optim.Adam)([p], lr=1e-3)
        return lambda: step.step()
    calls: dict[str, Call] = {
        "add_": lambda: x.add_(y), "mul_": lambda: x.mul_(y), "copy_": lambda: x.copy_(y),
        "clamp_": lambda: x.clamp_(0.1, 0.9), "zero_": lambda: x.zero_(),
    }  # fmt: skip
    return calls[name]


def _view(t: Any, name: str, n: int) -> Call:
    x, one = _square(t, n), t.rand(1)
    calls: dict[str, Call] = {
        "index": lambda: x[1], "slice": lambda: x[1:3], "view": lambda: x.view(-1), "permute": lambda: x.permute(1, 0),
        "unsqueeze": lambda: x.unsqueeze(0), "item": lambda: one.item(), "zeros": lambda: t.zeros(n),
        "ones_like": lambda: t.ones_like(x), "tolist": lambda: one.tolist(), "contiguous": lambda: x.contiguous(),
    }  # fmt: skip
    return calls[name]


CLASSES: dict[str, tuple[list[str], Callable[[Any, str, int], Call]]] = {
    "unary": (UNARY, _unary), "binary": (BINARY, _binary), "reduction": (REDUCED, _reduced), "rows": (ROWS, _rows),
    "activation": (ACTIVATIONS, _activation), "loss": (LOSSES, _loss), "net": (NETS, _net),
    "gradient": (GRADED, _graded), "random": (RANDOM, _random), "write": (WRITES, _write), "view": (VIEWS, _view),
}  # fmt: skip


def _turn(call: Call) -> float:
    """Seconds of a call, over one turn."""
    start, count = time.perf_counter(), 0
    while (spent := time.perf_counter() - start) < TURN:
        call()
        count += 1
    return spent / count


def _heat(call: Call) -> None:
    end = time.perf_counter() + 1.0
    for _ in range(64):
        call()
        if time.perf_counter() > end:
            break
    background.finish()


def measure(classes: list[str], turns: int) -> Iterator[dict[str, Any]]:
    """One row for each operator and size, as it is known."""
    for kind in classes:
        names, make = CLASSES[kind]
        for name in names:
            for size, n in SIZES.items():
                pair = [make(library, name, n) for library in (tracecomp, torch)]
                for call in pair:
                    _heat(call)
                times = [min(column) for column in zip(*[map(_turn, pair) for _ in range(turns)], strict=True)]
                yield {"class": kind, "name": name, "size": size, "ours": times[0], "torch": times[1]}


def mean_ratio(rows: list[dict[str, Any]]) -> float:
    """Geometric mean of our time over PyTorch's."""
    return math.exp(sum(math.log(r["ours"] / r["torch"]) for r in rows) / len(rows))


def table(rows: list[dict[str, Any]]) -> str:
    """Means by class and size, in Markdown."""
    lines = ["| class | operators | " + " | ".join(SIZES) + " | all |", "|---|---|" + "---|" * (len(SIZES) + 1)]
    for kind in [*dict.fromkeys(r["class"] for r in rows), ""]:
        own = [r for r in rows if not kind or r["class"] == kind]
        cells = [f"{mean_ratio([r for r in own if r['size'] == size]):.2f}" for size in SIZES]
        count = len({(r["class"], r["name"]) for r in own})
        lines.append(f"| {kind or 'all'} | {count} | {' | '.join(cells)} | {mean_ratio(own):.2f} |")
    return "\n".join(lines)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser("python -m benchmarks.eager", description=__doc__)
    parser.add_argument("--classes", nargs="+", default=list(CLASSES), choices=CLASSES)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    for library in (tracecomp, torch):
        library.set_num_threads(arguments.threads)
        library.manual_seed(0)
    rows = []
    for row in measure(arguments.classes, arguments.turns):
        rows.append(row)
        microseconds = f"{row['ours'] * 1e6:10.1f} {row['torch'] * 1e6:10.1f} us"
        ratio = row["ours"] / row["torch"]
        print(f"{row['class']:10} {row['name']:34} {row['size']:5} {microseconds} {ratio:7.2f}", flush=True)
    told = f"{arguments.threads} thread(s), eager={config.current().eager}, load {os.getloadavg()[0]:.1f}"
    print(f"\n{machine.processor()}, {told}\n")
    print(table(rows))
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
