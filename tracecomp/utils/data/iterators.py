"""Iterators over a ``DataLoader``, in this process and with workers. Libraries derive from them."""

from __future__ import annotations

import functools
import itertools
import multiprocessing
import os
import queue
import time
from collections.abc import Iterator
from typing import Any, NoReturn

from tracecomp._utils import ExceptionWrapper
from tracecomp.base.user_warnings import warn_as_pytorch
from tracecomp.eager.rng import Generator, default_generator
from tracecomp.functional import names as T
from tracecomp.ir.types import int64
from tracecomp.utils.data import worker
from tracecomp.utils.data.datapipes.base import IterDataPipe
from tracecomp.utils.data.fetch import _DatasetKind

_POLL_SECONDS = 2.0
"""Between two looks whether workers still live."""


def _share_dist_seed(generator: Generator | None, pg: object = None) -> int:
    """A random seed of 63 bits from ``generator``. ``pg`` is ignored: processes agree by seeding alike."""
    return int(T.empty((), dtype=int64).random_(generator=generator).item())


class _BaseDataLoaderIter:
    """One pass over ``loader``. Subclasses define ``_next_data``.

    Args:
        loader: a ``DataLoader``, or an object with its attributes.
    """

    def __init__(self, loader: Any) -> None:
        self._dataset = loader.dataset
        self._dataset_kind = loader._dataset_kind
        self._IterableDataset_len_called: int | None = loader._IterableDataset_len_called
        self._auto_collation = loader._auto_collation
        self._drop_last = loader.drop_last
        self._index_sampler = loader._index_sampler
        self._num_workers = loader.num_workers
        self._pin_memory = False
        self._timeout = loader.timeout
        self._collate_fn = loader.collate_fn
        # Only workers need a seed. Without them the generator stays as it is, unlike in PyTorch: a program that resumes
        # in the middle of a pass then continues with the same random numbers.
        generator = default_generator if loader.generator is None else loader.generator
        if not isinstance(generator, Generator):
            raise TypeError(f"DataLoader: generator must be torch.Generator, not {type(generator).__name__}")
        self._base_seed = _share_dist_seed(generator if self._num_workers else generator.clone_state())
        self._shared_seed = self._base_seed
        self._persistent_workers = loader.persistent_workers
        self._sampler_iter: Iterator[Any] = iter(self._index_sampler)
        self._num_yielded = 0

    def __iter__(self) -> _BaseDataLoaderIter:
        return self

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        """Begin the next pass."""
        self._sampler_iter = iter(self._index_sampler)
        self._num_yielded = 0
        self._IterableDataset_len_called = loader._IterableDataset_len_called
        if not first_iter and isinstance(self._dataset, IterDataPipe):
            self._shared_seed = _share_dist_seed(loader.generator)

    def _next_index(self) -> Any:
        return next(self._sampler_iter)

    def _next_data(self) -> Any:
        raise NotImplementedError

    def __next__(self) -> Any:
        data = self._next_data()
        self._num_yielded += 1
        length = self._IterableDataset_len_called
        if self._dataset_kind == _DatasetKind.Iterable and length is not None and self._num_yielded > length:
            advice = (
                "For multiprocessing data-loading, this could be caused by not properly configuring the "
                "IterableDataset replica at each worker. Please see "
                "https://pytorch.org/docs/stable/data.html#torch.utils.data.IterableDataset for examples."
            )
            warn_as_pytorch(
                f"Length of IterableDataset {self._dataset} was reported to be {length}(when accessing "
                f"len(dataloader)), but {self._num_yielded} samples have been fetched. "
                + (advice if self._num_workers else "")
            )
        return data

    def __len__(self) -> int:
        return len(self._index_sampler)

    def __getstate__(self) -> NoReturn:
        raise NotImplementedError("{} cannot be pickled", type(self).__name__)


class _SingleProcessDataLoaderIter(_BaseDataLoaderIter):
    """Read in this process."""

    def __init__(self, loader: Any) -> None:
        super().__init__(loader)
        if self._timeout:
            raise AssertionError("_SingleProcessDataLoaderIter requires timeout == 0")
        if self._num_workers:
            raise AssertionError("_SingleProcessDataLoaderIter requires num_workers == 0")
        self._dataset_fetcher = _DatasetKind.create_fetcher(
            self._dataset_kind, self._dataset, self._auto_collation, self._collate_fn, self._drop_last
        )

    def _next_data(self) -> Any:
        return self._dataset_fetcher.fetch(self._next_index())


class _MultiProcessingDataLoaderIter(_BaseDataLoaderIter):
    """Read in worker processes. Batches come in the order of the sampler, unless the loader says ``in_order=False``."""

    _shutdown = True

    def __init__(self, loader: Any) -> None:
        super().__init__(loader)
        self._prefetch_factor = loader.prefetch_factor
        self._in_order = loader.in_order
        if self._num_workers <= 0:
            raise AssertionError("num_workers must be greater than 0 for MultiProcessingDataLoaderIter")
        if self._prefetch_factor <= 0:
            raise AssertionError("prefetch_factor must be greater than 0 for MultiProcessingDataLoaderIter")
        self._worker_init_fn = loader.worker_init_fn
        self._start_workers(loader.multiprocessing_context or multiprocessing)
        self._pass = -1
        self._reset(loader, first_iter=True)

    def _start_workers(self, context: Any) -> None:
        self._worker_result_queue = context.Queue()
        self._index_queues = [context.Queue() for _ in range(self._num_workers)]
        start = functools.partial(
            _DatasetKind.create_fetcher,
            self._dataset_kind, self._dataset, self._auto_collation, self._collate_fn, self._drop_last,
        )  # fmt: skip
        self._workers = []
        self._shutdown, self._owner = False, os.getpid()
        for i, tasks in enumerate(self._index_queues):
            info = worker.WorkerInfo(i, self._num_workers, self._base_seed + i, self._dataset)
            arguments = info, start, tasks, self._worker_result_queue, self._worker_init_fn, self._shared_seed
            process = context.Process(target=worker.run, args=arguments, daemon=True)
            process.start()
            self._workers.append(process)

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        super()._reset(loader, first_iter)
        self._pass += 1  # tells answers to an abandoned pass from those of this one
        self._send_idx = self._rcvd_idx = 0
        self._task_info: dict[int, int] = {}  # the worker of every task that was not handed out yet
        self._arrived: dict[int, Any] = {}
        self._workers_status = [True] * self._num_workers
        self._worker_queue_idx_cycle = itertools.cycle(range(self._num_workers))
        if not first_iter:
            for tasks in self._index_queues:
                tasks.put(worker._ResumeIteration(self._shared_seed))
        for _ in range(self._prefetch_factor * self._num_workers):
            self._try_put_index()

    def _try_put_index(self) -> None:
        """Send the next task, if there is one, to the next worker that has data left."""
        if not any(self._workers_status):
            return
        try:
            index = self._next_index()
        except StopIteration:
            return
        target = next(i for i in self._worker_queue_idx_cycle if self._workers_status[i])
        self._index_queues[target].put(((self._pass, self._send_idx), index))
        self._task_info[self._send_idx] = target
        self._send_idx += 1

    def _next_answer(self) -> tuple[int, Any]:
        """The worker and the answer of the oldest task, or of any task if order does not matter."""
        while True:
            number = self._rcvd_idx if self._in_order else next(iter(self._arrived), -1)
            if number in self._arrived:
                break
            (of_pass, arrived), answer = self._get_data()
            if of_pass == self._pass:
                self._arrived[arrived] = answer
        self._rcvd_idx += 1
        return self._task_info.pop(number), self._arrived.pop(number)

    def _next_data(self) -> Any:
        while self._task_info:
            # The end of a worker's data counts when its turn comes, not when it arrives: which worker gets the
            # next task, and with it the order of batches, does not depend on timing.
            source, answer = self._next_answer()
            if isinstance(answer, worker._IterableDatasetStopIteration):
                self._workers_status[source] = False
                self._try_put_index()
                continue
            self._try_put_index()
            if isinstance(answer, ExceptionWrapper):
                answer.reraise()
            return answer
        if not self._persistent_workers:
            self._shutdown_workers()
        raise StopIteration

    def _get_data(self) -> Any:
        """The next answer. RuntimeError when time is up or a worker died."""
        start = time.monotonic()
        while True:
            left = self._timeout - (time.monotonic() - start) if self._timeout else _POLL_SECONDS
            try:
                return self._worker_result_queue.get(timeout=max(min(left, _POLL_SECONDS), 0.001))
            except queue.Empty:
                dead = [str(p.pid) for p in self._workers if not p.is_alive()]
                if dead:
                    self._shutdown_workers()
                    raise RuntimeError(f"DataLoader worker (pid(s) {', '.join(dead)}) exited unexpectedly") from None
                if self._timeout and time.monotonic() - start >= self._timeout:
                    self._shutdown_workers()
                    raise RuntimeError(f"DataLoader timed out after {self._timeout} seconds") from None

    def _shutdown_workers(self) -> None:
        """End the workers. A forked child that has a copy of this iterator leaves them alone."""
        if self._shutdown or self._owner != os.getpid():
            return
        self._shutdown = True
        for tasks in self._index_queues:
            tasks.put(None)
        for process in self._workers:
            process.join(timeout=1.0)
            if process.is_alive():
                process.terminate()
                process.join()
        for channel in (*self._index_queues, self._worker_result_queue):
            channel.cancel_join_thread()
            channel.close()

    def __del__(self) -> None:
        self._shutdown_workers()
