"""Processor time of training steps with ``TRACECOMP_CHECK=calls:N`` and without: ``python -m benchmarks.check_cost``.

Two copies of each model train in turns in one process, N steps at a time. One of N checked steps is compared with an
eager one. The table has the time of N steps, and the increase from unchecked to checked ones. Other processes and
threads of the machine count only by the caches that they share.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import tracecomp
from benchmarks.cases.models import GPT, RESNET, Model
from benchmarks.workload import fill, optimizer
from tracecomp.base import config

STEPS = ((RESNET, 16), (GPT, 8))
"""Batch sizes, as in the other benchmarks."""
WARM = 20
"""Eager steps before, in which eager operators are compiled."""


def step(model: Model, batch: int, check: int | None) -> Callable[[], object]:
    """A compiled training step of a new model, which is compared with eager every ``check`` calls."""
    workload = model.workload(batch, "adamw" if model is GPT else "sgd")
    data, target = (tracecomp.from_numpy(a) for a in workload.arrays())
    net = fill(tracecomp, workload.torch(tracecomp))
    updates = optimizer(tracecomp, workload.optimizer, net.parameters(), fused=False)

    def train(data: Any, target: Any) -> Any:
        updates.zero_grad()
        logits = net(data)
        loss = tracecomp.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), target.reshape(-1))
        loss.backward()
        updates.step()
        return loss.detach()

    for _ in range(WARM):
        train(data, target)
    with config.override(check_calls=check):
        compiled = tracecomp.compile(train)
    return lambda: compiled(data, target)


def timed(call: Callable[[], object], count: int) -> float:
    """Processor milliseconds of ``count`` calls."""
    start = time.process_time()
    for _ in range(count):
        call()
    return 1e3 * (time.process_time() - start)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.check_cost",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--every", metavar="N", type=int, default=100, help="calls per comparison; default 100")
    parser.add_argument("--turns", type=int, default=8, help="N calls each, of either kind; default 8")
    options = parser.parse_args()
    tracecomp.set_num_threads(1)
    print(f"| step | {options.every} unchecked, ms | one of them checked, ms | least | median |")
    print("|---|---|---|---|---|")
    for model, batch in STEPS:
        steps = [step(model, batch, check) for check in (None, options.every)]
        for run in steps:
            timed(run, options.every)
        turns: list[tuple[float, float]] = []
        for turn in range(options.turns):
            first = turn % 2
            times = {n: timed(steps[n], options.every) for n in (first, 1 - first)}
            turns.append((times[0], times[1]))
        plain, checked = (min(t[n] for t in turns) for n in (0, 1))
        least, middle = checked / plain - 1, statistics.median(t[1] / t[0] for t in turns) - 1
        print(f"| {model.label}, batch {batch} | {plain:.0f} | {checked:.0f} | {least:.1%} | {middle:.1%} |")


if __name__ == "__main__":
    main()
