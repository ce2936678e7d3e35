"""The worker process of a data loader."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracecomp._utils import ExceptionWrapper
from tracecomp.eager.rng import manual_seed


@dataclass(frozen=True)
class WorkerInfo:
    """Number, seed and dataset of the worker process that asks."""

    id: int
    num_workers: int
    seed: int
    dataset: Any


_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """About this worker process; None outside of one."""
    return _info


class Exhausted:
    """Tells that an iterable dataset has no more items in this worker."""


def run(worker: int, count: int, seed: int, dataset: Any, fetcher: Any, tasks: Any, results: Any, init: Any) -> None:
    """Serve tasks (number, indices) until None arrives; every answer is (number, worker, batch or ExceptionWrapper)."""
    global _info
    failure = None
    try:
        random.seed(seed)
        np.random.seed(seed % 2**32)
        manual_seed(seed)
        _info = WorkerInfo(worker, count, seed, dataset)
        if init is not None:
            init(worker)
        fetch = fetcher.start(dataset)
    except Exception:  # of the program: sent to who loads, and raised there
        failure = ExceptionWrapper(where=f"in DataLoader worker process {worker}")
    while (task := tasks.get()) is not None:
        number, indices = task
        answer: Any = failure
        if failure is None:
            try:
                answer = fetch(indices)
            except StopIteration:
                answer = Exhausted()
            except Exception:  # of the data set: sent to who loads, and raised there
                answer = ExceptionWrapper(where=f"in DataLoader worker process {worker}")
        results.put((number, worker, answer))


def _generate_state(base_seed: int, worker_id: int) -> list[int]:
    """Four words to seed numpy's generator with in a worker, by numpy's own mixing of seeds."""
    words = [worker_id, base_seed & 0xFFFFFFFF, base_seed >> 32, 0]
    return [int(word) for word in np.random.SeedSequence(words).generate_state(4)]
