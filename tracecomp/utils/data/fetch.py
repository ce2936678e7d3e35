"""Reading of items: by key, or in the order of an iterable dataset."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class _BaseDatasetFetcher:
    """Base of fetchers: ``fetch(possibly_batched_index)`` reads one batch, or one item if batches are disabled."""

    def __init__(self, dataset: Any, auto_collation: bool, collate_fn: Callable[[Any], Any], drop_last: bool) -> None:
        self.dataset, self.auto_collation, self.collate_fn, self.drop_last = (
            dataset, auto_collation, collate_fn, drop_last,
        )  # fmt: skip

    def fetch(self, possibly_batched_index: Any) -> Any:
        raise NotImplementedError


class _IterableDatasetFetcher(_BaseDatasetFetcher):
    """Read the next items of an iterable dataset. ``fetch`` raises StopIteration at the end."""

    def __init__(self, dataset: Any, auto_collation: bool, collate_fn: Callable[[Any], Any], drop_last: bool) -> None:
        super().__init__(dataset, auto_collation, collate_fn, drop_last)
        self.dataset_iter = iter(dataset)
        self.ended = False

    def fetch(self, possibly_batched_index: Any) -> Any:
        # An iterator that has ended is never read again: a dataset that is its own iterator could restart.
        if self.ended:
            raise StopIteration
        if not self.auto_collation:
            return self.collate_fn(next(self.dataset_iter))
        batch = []
        for _ in possibly_batched_index:  # by next() alone: iter() may restart a dataset that is its own iterator
            try:
                batch.append(next(self.dataset_iter))
            except StopIteration:
                self.ended = True
                break
        if not batch or (self.drop_last and self.ended):
            raise StopIteration
        return self.collate_fn(batch)


class _MapDatasetFetcher(_BaseDatasetFetcher):
    """Read items by key, all items of a batch at once if the dataset defines ``__getitems__``."""

    def fetch(self, possibly_batched_index: Any) -> Any:
        if not self.auto_collation:
            return self.collate_fn(self.dataset[possibly_batched_index])
        if getattr(self.dataset, "__getitems__", None):
            return self.collate_fn(self.dataset.__getitems__(possibly_batched_index))
        return self.collate_fn([self.dataset[i] for i in possibly_batched_index])


class _DatasetKind:
    """How a dataset is read: by key, or in its own order."""

    Map, Iterable = 0, 1

    @staticmethod
    def create_fetcher(
        kind: int, dataset: Any, auto_collation: bool, collate_fn: Callable[[Any], Any], drop_last: bool
    ) -> _BaseDatasetFetcher:
        """The fetcher for a dataset of this kind."""
        cls = _MapDatasetFetcher if kind == _DatasetKind.Map else _IterableDatasetFetcher
        return cls(dataset, auto_collation, collate_fn, drop_last)
