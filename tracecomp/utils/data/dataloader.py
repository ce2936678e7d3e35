"""DataLoader: batches of a dataset, read here or in worker processes."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import queue
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing.context import BaseContext
from typing import Any, Generic

from tracecomp._utils import ExceptionWrapper
from tracecomp.base.errors import warn_user
from tracecomp.functional import names as T
from tracecomp.utils.data import worker
from tracecomp.utils.data.collate import default_collate, default_convert
from tracecomp.utils.data.dataset import Dataset, Item, IterableDataset
from tracecomp.utils.data.sampler import BatchSampler, Endless, RandomSampler, SequentialSampler

_POLL_SECONDS = 2.0
"""Between two looks whether workers still live."""


def _drawn(items: Iterator[object]) -> Iterator[Any]:
    """Yield ``items`` without restarting: a dataset may be its own iterator."""
    while True:
        try:
            item = next(items)
        except StopIteration:
            return
        yield item


class Fetcher:
    """How items become a batch; ``start(dataset)`` gives the function from indices to a batch."""

    def __init__(self, iterable: bool, batched: bool, drop_last: bool, collate: Callable[[Any], object]) -> None:
        self.iterable, self.batched, self.drop_last, self.collate = iterable, batched, drop_last, collate

    def start(self, dataset: Any) -> Callable[[Any], Any]:
        """The function that reads; StopIteration when an iterable dataset has no more."""
        if not self.iterable:
            return lambda indices: self._by_key(dataset, indices)
        items = _drawn(iter(dataset))
        return lambda indices: self._next(items, indices)

    def _by_key(self, dataset: Any, indices: Any) -> Any:
        if not self.batched:
            return self.collate(dataset[indices])
        if hasattr(dataset, "__getitems__"):
            return self.collate(dataset.__getitems__(indices))
        return self.collate([dataset[i] for i in indices])

    def _next(self, items: Iterator[Any], indices: Any) -> Any:
        if not self.batched:
            return self.collate(next(items))
        batch = list(itertools.islice(items, len(indices)))
        if not batch or (self.drop_last and len(batch) < len(indices)):
            raise StopIteration
        return self.collate(batch)


_FIXED = frozenset({"batch_size", "batch_sampler", "dataset", "drop_last", "persistent_workers", "sampler"})


def _check_workers(count: int, context: object) -> None:
    """ValueError or TypeError for a ``multiprocessing_context`` that is none, a warning for more workers than cores."""
    if context is not None and not count:
        raise ValueError(
            "multiprocessing_context can only be used with multi-process loading (num_workers > 0), but got "
            f"num_workers={count}"
        )
    if isinstance(context, str) and context not in multiprocessing.get_all_start_methods():
        raise ValueError(
            "multiprocessing_context option should specify a valid start method in "
            f"{multiprocessing.get_all_start_methods()!r}, but got multiprocessing_context={context!r}"
        )
    if not isinstance(context, str | BaseContext | None):
        raise TypeError(f"multiprocessing_context option should be a valid context object or string, not {context}")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if count > cores:
        warn_user(
            f"This DataLoader will create {count} worker processes, more than the {cores} processors there are: "
            "excessive worker creation might get DataLoader running slow or even freeze"
        )


class DataLoader(Generic[Item]):
    """Iterates over a dataset in batches; arguments as torch.utils.data.DataLoader.

    ``pin_memory`` is accepted and without effect. ValueError for arguments that exclude each other.
    """

    def __init__(
        self, dataset: Dataset[Item] | Sequence[Item], batch_size: int | None = 1, shuffle: bool | None = None,
        sampler: object = None, batch_sampler: object = None, num_workers: int = 0,
        collate_fn: Callable[[Any], Any] | None = None, pin_memory: bool = False, drop_last: bool = False,
        timeout: float = 0, worker_init_fn: Callable[[int], None] | None = None, multiprocessing_context: Any = None,
        generator: Any = None, *, prefetch_factor: int | None = None, persistent_workers: bool = False,
        pin_memory_device: str = "", in_order: bool = True,
    ) -> None:  # fmt: skip
        if num_workers < 0:
            raise ValueError("num_workers option should be non-negative; use num_workers=0 to disable multiprocessing.")
        if timeout < 0:
            raise ValueError("timeout option should be non-negative")
        if num_workers == 0 and prefetch_factor is not None:
            raise ValueError(
                "prefetch_factor option could only be specified in multiprocessing. "
                "let num_workers > 0 to enable multiprocessing, otherwise set prefetch_factor to None."
            )
        if prefetch_factor is not None and prefetch_factor < 0:
            raise ValueError("prefetch_factor option should be non-negative")
        if persistent_workers and num_workers == 0:
            raise ValueError("persistent_workers option needs num_workers > 0")
        self.dataset: Any = dataset
        self.num_workers = num_workers
        self.prefetch_factor = 2 if prefetch_factor is None and num_workers else prefetch_factor
        self.pin_memory = pin_memory
        self.pin_memory_device = pin_memory_device
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.generator = generator
        self.persistent_workers = persistent_workers
        self.in_order = in_order
        self._iterable = isinstance(dataset, IterableDataset)
        self._choose_samplers(batch_size, shuffle, sampler, batch_sampler, drop_last)
        self.collate_fn = collate_fn or (default_collate if self._auto_collation else default_convert)
        self._pool: WorkerPool | None = None
        _check_workers(num_workers, multiprocessing_context)
        self.__initialized = True

    def __setattr__(self, name: str, value: object) -> None:
        """ValueError for what decided how the loader was made."""
        if name in _FIXED and self.__dict__.get("_DataLoader__initialized"):
            raise ValueError(f"{name} attribute should not be set after {type(self).__name__} is initialized")
        super().__setattr__(name, value)

    def _choose_samplers(
        self, batch_size: int | None, shuffle: bool | None, sampler: Any, batch_sampler: Any, drop_last: bool
    ) -> None:
        # A stream has no order that a sampler could change.
        if self._iterable:
            for name, value in (("shuffle", shuffle), ("sampler", sampler), ("batch_sampler", batch_sampler)):
                if value:
                    raise ValueError(
                        f"DataLoader with IterableDataset: expected unspecified {name} option, but got {name}={value}"
                    )
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ValueError(
                    "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last"
                )
            # Batches come from the sampler as they are; None says that nothing is put together again.
            batch_size = None
        elif batch_size is None and drop_last:
            raise ValueError("batch_size=None option disables auto-batching and is mutually exclusive with drop_last")
        if sampler is None:
            if self._iterable:
                sampler = Endless()
            elif shuffle:
                sampler = RandomSampler(self.dataset, generator=self.generator)
            else:
                sampler = SequentialSampler(self.dataset)
        if batch_size is not None and batch_sampler is None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.sampler: Iterable[Any] = sampler
        self.batch_sampler: Iterable[Any] | None = batch_sampler

    @property
    def _auto_collation(self) -> bool:
        """Whether items are put together to batches."""
        return self.batch_sampler is not None

    @property
    def _index_sampler(self) -> Iterable[Any]:
        return self.sampler if self.batch_sampler is None else self.batch_sampler

    @property
    def _fetcher(self) -> Fetcher:
        return Fetcher(self._iterable, self._auto_collation, self.drop_last, self.collate_fn)

    def __len__(self) -> int:
        if not self._iterable:
            indices: Any = self._index_sampler  # TypeError from a sampler that does not know its length
            return len(indices)
        n = len(self.dataset)
        if self.batch_size is None:
            return n
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)

    def __iter__(self) -> Iterator[Any]:
        return self._get_iterator()

    def _get_iterator(self) -> Iterator[Any]:
        """A new iterator; subclasses of other libraries keep one, and ask for it here."""
        if self.num_workers == 0:
            return self._read_here()
        if not self.persistent_workers:
            return self._read_with(WorkerPool(self))
        if self._pool is None or not self._pool.alive:
            self._pool = WorkerPool(self)
        return self._read_with(self._pool)

    def _read_here(self) -> Iterator[Any]:
        fetch = self._fetcher.start(self.dataset)
        for indices in self._index_sampler:
            try:
                batch = fetch(indices)
            except StopIteration:
                return
            yield batch

    def _read_with(self, pool: WorkerPool) -> Iterator[Any]:
        try:
            yield from pool.batches(iter(self._index_sampler))
        finally:
            if not self.persistent_workers:
                pool.close()


class WorkerPool:
    """The worker processes of a loader, and the order of what they send."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        context = loader.multiprocessing_context
        if context is None or isinstance(context, str):
            context = multiprocessing.get_context(context)
        self.loader = loader
        self.alive = True
        self._results = context.Queue()
        self._tasks = [context.Queue() for _ in range(loader.num_workers)]
        seed = int(T.randint(0, 2**31 - 1, (1,), generator=loader.generator).item())
        self._processes = []
        for i, tasks in enumerate(self._tasks):
            arguments = (
                i, loader.num_workers, seed + i, loader.dataset, loader._fetcher, tasks, self._results,
                loader.worker_init_fn,
            )  # fmt: skip
            process = context.Process(target=worker.run, args=arguments, daemon=True)
            process.start()
            self._processes.append(process)

    def batches(self, indices: Iterator[object]) -> Iterator[Any]:
        """Batches in the order of ``indices`` (or, if the loader says so, as they arrive)."""
        numbers = itertools.count()
        active = set(range(len(self._tasks)))
        turn = itertools.cycle(range(len(self._tasks)))
        waiting: dict[int, int] = {}
        arrived: dict[int, Any] = {}
        expected = 0

        def send() -> None:
            if not active:
                return
            task = next(indices, self)
            if task is self:
                return
            target = next(i for i in turn if i in active)
            number = next(numbers)
            waiting[number] = target
            self._tasks[target].put((number, task))

        for _ in range((self.loader.prefetch_factor or 1) * len(self._tasks)):
            send()
        while waiting or arrived:
            if expected in arrived:
                answer = arrived.pop(expected)
                expected += 1
                if isinstance(answer, worker.Exhausted):
                    continue
                if isinstance(answer, ExceptionWrapper):
                    self.close()
                    answer.reraise()
                yield answer
                continue
            number, source, answer = self._receive()
            del waiting[number]
            if isinstance(answer, worker.Exhausted):
                active.discard(source)
            arrived[number if self.loader.in_order else expected + len(arrived)] = answer
            send()

    def _receive(self) -> Any:
        """The next answer. RuntimeError when time is up or a worker died."""
        limit = self.loader.timeout
        start = time.monotonic()
        while True:
            left = limit - (time.monotonic() - start) if limit else _POLL_SECONDS
            try:
                return self._results.get(timeout=max(min(left, _POLL_SECONDS), 0.001))
            except queue.Empty:
                dead = [str(p.pid) for p in self._processes if not p.is_alive()]
                if dead:
                    self.close()
                    raise RuntimeError(f"DataLoader worker (pid(s) {', '.join(dead)}) exited unexpectedly") from None
                if limit and time.monotonic() - start >= limit:
                    self.close()
                    raise RuntimeError(f"DataLoader timed out after {limit} seconds") from None

    def close(self) -> None:
        """End the workers."""
        if not self.alive:
            return
        self.alive = False
        for tasks in self._tasks:
            tasks.put(None)
        for process in self._processes:
            process.join(timeout=1.0)
            if process.is_alive():
                process.terminate()
                process.join()
        for channel in (*self._tasks, self._results):
            channel.cancel_join_thread()
            channel.close()

    def __del__(self) -> None:
        self.close()


class _DatasetKind:
    """How a dataset is read: by key, or in its own order."""

    Map, Iterable = 0, 1


class _BaseDataLoaderIter:
    """Base of PyTorch's iterators over a loader; here they are generators, so nothing is one."""


class _SingleProcessDataLoaderIter(_BaseDataLoaderIter):
    """The one that reads in this process."""


class _MultiProcessingDataLoaderIter(_BaseDataLoaderIter):
    """The one that reads in workers."""
