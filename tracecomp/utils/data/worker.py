"""The worker process of a data loader."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracecomp._utils import ExceptionWrapper
from tracecomp.eager.rng import manual_seed

Init = Callable[[int], None] | None


@dataclass(frozen=True)
class WorkerInfo:
    """Number, seed and dataset of the worker process that asks."""

    id: int
    num_workers: int
    seed: int
    dataset: Any


_worker_info: WorkerInfo | None = None
_shared: int | None = None


def get_worker_info() -> WorkerInfo | None:
    """About this worker process; None outside of one."""
    return _worker_info


def shared_seed() -> int | None:
    """The seed that all workers of a loader share in one pass over it; None outside of a worker."""
    return _shared


@dataclass(frozen=True)
class _IterableDatasetStopIteration:
    """The answer of a worker whose iterable dataset has no more items."""

    worker_id: int


@dataclass(frozen=True)
class _ResumeIteration:
    """The task to begin the next pass, with another shared seed."""

    seed: int | None = None


def run(info: WorkerInfo, start: Callable[[], Any], tasks: Any, results: Any, init: Init, seed: int) -> None:
    """Serve tasks until None arrives.

    Args:
        info: this worker.
        start: returns the fetcher for one pass over the dataset.
        tasks: a queue of pairs (tag, indices), and of ``_ResumeIteration``.
        results: a queue of pairs (tag, batch or ExceptionWrapper or ``_IterableDatasetStopIteration``).
        init: None, or a function of the worker's number, called first.
        seed: shared by the workers in the first pass.
    """
    global _worker_info, _shared
    random.seed(info.seed)
    np.random.seed(info.seed % 2**32)
    manual_seed(info.seed)
    _worker_info, _shared = info, seed
    fetcher, failure = _begun(start, init, info.id)
    while (task := tasks.get()) is not None:
        if isinstance(task, _ResumeIteration):
            _shared = task.seed
            fetcher, failure = _begun(start, None, info.id)
            continue
        tag, indices = task
        answer: Any = failure
        if failure is None:
            try:
                answer = fetcher.fetch(indices)
            except StopIteration:
                answer = _IterableDatasetStopIteration(info.id)
            except Exception:  # of the data set: sent to who loads, and raised there
                answer = ExceptionWrapper(where=f"in DataLoader worker process {info.id}")
        results.put((tag, answer))


def _begun(start: Callable[[], Any], init: Init, number: int) -> tuple[Any, ExceptionWrapper | None]:
    """A fetcher, or the exception with which the program failed to begin. The loading process raises it."""
    try:
        if init is not None:
            init(number)
        return start(), None
    except Exception:  # of the program: raised in the loading process
        return None, ExceptionWrapper(where=f"in DataLoader worker process {number}")


def _generate_state(base_seed: int, worker_id: int) -> list[int]:
    """Four words to seed numpy's generator with in a worker, by numpy's own mixing of seeds."""
    words = [worker_id, base_seed & 0xFFFFFFFF, base_seed >> 32, 0]
    return [int(word) for word in np.random.SeedSequence(words).generate_state(4)]
