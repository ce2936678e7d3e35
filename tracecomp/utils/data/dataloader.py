"""DataLoader: batches of a dataset, read here or in worker processes."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing.context import BaseContext
from typing import Any, Generic, cast

from tracecomp.base.user_warnings import warn_as_pytorch
from tracecomp.communication.world import world
from tracecomp.utils.data import _utils as _utils
from tracecomp.utils.data.collate import default_collate, default_convert
from tracecomp.utils.data.dataset import Dataset, Item, IterableDataset
from tracecomp.utils.data.fetch import _DatasetKind
from tracecomp.utils.data.iterators import _BaseDataLoaderIter as _BaseDataLoaderIter
from tracecomp.utils.data.iterators import _MultiProcessingDataLoaderIter, _SingleProcessDataLoaderIter
from tracecomp.utils.data.iterators import _share_dist_seed as _share_dist_seed
from tracecomp.utils.data.sampler import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    _InfiniteConstantSampler,
)
from tracecomp.utils.data.worker import get_worker_info as get_worker_info

_FIXED = frozenset({"batch_size", "batch_sampler", "dataset", "drop_last", "persistent_workers", "sampler"})


def _checked_context(count: int, context: Any) -> Any:
    """The ``multiprocessing_context``, which may be the name of one. ValueError or TypeError for anything else."""
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
    return multiprocessing.get_context(context) if isinstance(context, str) else context


def _warn_of_many(count: int) -> None:
    """Warn for more workers than processors."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if count > cores:
        warn_as_pytorch(
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
        self.multiprocessing_context = _checked_context(num_workers, multiprocessing_context)
        self.generator = generator
        self.persistent_workers = persistent_workers
        self.in_order = in_order
        self._iterable = isinstance(dataset, IterableDataset)
        self._dataset_kind = _DatasetKind.Iterable if self._iterable else _DatasetKind.Map
        self._IterableDataset_len_called: int | None = None
        self._choose_samplers(batch_size, shuffle, sampler, batch_sampler, drop_last)
        self.collate_fn = collate_fn or (default_collate if self._auto_collation else default_convert)
        self._iterator: Any = None
        _warn_of_many(num_workers)
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
                sampler = _InfiniteConstantSampler()
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

    def __len__(self) -> int:
        if not self._iterable:
            indices: Any = self._index_sampler  # TypeError from a sampler that does not know its length
            return len(indices)
        n = self._IterableDataset_len_called = len(self.dataset)
        if self.batch_size is None:
            return n
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)

    def __iter__(self) -> Iterator[Any]:
        plan, sampler = world.plan, getattr(self.batch_sampler, "sampler", self.sampler)
        if plan is not None and isinstance(sampler, DistributedSampler) and sampler.rows is not None:
            return plan.batches(self._batches())
        return self._batches()

    def _batches(self) -> Iterator[Any]:
        if not (self.persistent_workers and self.num_workers):
            return self._get_iterator()
        if self._iterator is None or self._iterator._shutdown:
            self._iterator = self._get_iterator()
        else:
            self._iterator._reset(self)
        return cast("Iterator[Any]", self._iterator)

    def _get_iterator(self) -> Iterator[Any]:
        """A new iterator. Loaders of other libraries keep one, and get it here."""
        return _SingleProcessDataLoaderIter(self) if not self.num_workers else _MultiProcessingDataLoaderIter(self)
