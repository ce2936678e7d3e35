"""Datasets under the names of torch.utils.data."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from tracecomp.base.user_warnings import warn_as_pytorch
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T

Item = TypeVar("Item", covariant=True)


class Dataset(Generic[Item]):
    """Items by key: subclasses define ``__getitem__`` and, mostly, ``__len__``."""

    def __getitem__(self, index: Any) -> Item:
        raise NotImplementedError("Subclasses of Dataset should implement __getitem__.")

    def __add__(self, other: Dataset[object]) -> ConcatDataset:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[Item]):
    """Items in order: subclasses define ``__iter__``."""

    def __iter__(self) -> Iterator[Item]:
        raise NotImplementedError("Subclasses of IterableDataset should implement __iter__.")

    def __add__(self, other: Dataset[object]) -> ChainDataset:  # type: ignore[override]
        return ChainDataset([self, other])


class TensorDataset(Dataset[tuple[Tensor, ...]]):
    """Rows of tensors of equal first size. AssertionError when the sizes differ."""

    def __init__(self, *tensors: Tensor) -> None:
        for t in tensors:
            if not hasattr(t, "shape"):
                raise AttributeError(f"TensorDataset: expected tensors, got {type(t).__name__}")
            if not len(t.shape):
                raise IndexError("TensorDataset: expected tensors of at least one dimension, got one without")
        if any(len(t) != len(tensors[0]) for t in tensors):
            raise AssertionError("Size mismatch between tensors")
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple(t[index] for t in self.tensors)

    def __len__(self) -> int:
        return len(self.tensors[0])


def _parts(datasets: Any) -> list[Any]:
    return list(datasets.values() if isinstance(datasets, dict) else datasets)


def _items(dataset: Any, indices: Sequence[Any]) -> Sequence[Any]:
    if not callable(getattr(dataset, "__getitems__", None)):
        return [dataset[i] for i in indices]
    found: Sequence[Any] = dataset.__getitems__(indices)
    if len(found) != len(indices):
        raise ValueError(f"Nested dataset's output size mismatch. Expected {len(indices)}, got {len(found)}")
    return found


class StackDataset(Dataset[Any]):
    """Items of several datasets side by side, as a tuple or (given names) a dict. ValueError when lengths differ."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if bool(args) == bool(kwargs):
            raise ValueError(
                "Supported either ``tuple``- (via ``args``) or``dict``- (via ``kwargs``) like input/output, but both "
                "types are given." if args else "At least one dataset should be passed"
            )  # fmt: skip
        self.datasets: Any = args or kwargs
        parts = _parts(self.datasets)
        self._length = len(parts[0])
        if any(len(p) != self._length for p in parts):
            raise ValueError("Size mismatch between datasets")

    def __getitem__(self, index: Any) -> Any:
        if isinstance(self.datasets, dict):
            return {k: d[index] for k, d in self.datasets.items()}
        return tuple(d[index] for d in self.datasets)

    def __getitems__(self, indices: Sequence[object]) -> list[Any]:
        """Return the items at ``indices``, with one request to each dataset. ValueError if it returns another number of
        them."""
        columns = [_items(d, indices) for d in _parts(self.datasets)]
        rows = zip(*columns, strict=True)
        if isinstance(self.datasets, dict):
            return [dict(zip(self.datasets, row, strict=True)) for row in rows]
        return list(rows)

    def __len__(self) -> int:
        return self._length


class ConcatDataset(Dataset[Any]):
    """Several datasets one after another. AssertionError for none, or for iterable ones."""

    def __init__(self, datasets: Iterable[Dataset[Any]]) -> None:
        self.datasets: list[Any] = list(datasets)
        if not self.datasets:
            raise AssertionError("datasets should not be an empty iterable")
        if any(isinstance(d, IterableDataset) for d in self.datasets):
            raise AssertionError("ConcatDataset does not support IterableDataset")
        self.cumulative_sizes = list(itertools.accumulate(len(d) for d in self.datasets))

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, idx: int) -> Any:
        if idx < 0:
            if -idx > len(self):
                raise ValueError("absolute value of index should not exceed dataset length")
            idx += len(self)
        which = bisect.bisect_right(self.cumulative_sizes, idx)
        return self.datasets[which][idx - (self.cumulative_sizes[which - 1] if which else 0)]


class ChainDataset(IterableDataset[Any]):
    """Several iterable datasets one after another."""

    def __init__(self, datasets: Iterable[Dataset[Any]]) -> None:
        self.datasets: list[Any] = list(datasets)

    def __iter__(self) -> Iterator[Any]:
        for dataset in self.datasets:
            if not isinstance(dataset, IterableDataset):
                raise AssertionError("ChainDataset only supports IterableDataset")
            yield from dataset

    def __len__(self) -> int:
        return sum(len(d) for d in self.datasets)


class Subset(Dataset[Any]):
    """The items of a dataset at given indices."""

    def __init__(self, dataset: Dataset[Any], indices: Sequence[int]) -> None:
        self.dataset = dataset
        self.indices = indices

    def __getitem__(self, idx: Any) -> Any:
        if isinstance(idx, list):
            return self.dataset[[self.indices[i] for i in idx]]
        return self.dataset[self.indices[idx]]

    def __getitems__(self, indices: list[int]) -> list[Any]:
        chosen = [self.indices[i] for i in indices]
        if hasattr(self.dataset, "__getitems__"):
            return self.dataset.__getitems__(chosen)  # type: ignore[no-any-return]
        return [self.dataset[i] for i in chosen]

    def __len__(self) -> int:
        return len(self.indices)


def random_split(dataset: Any, lengths: Sequence[int | float], generator: Any = None) -> list[Subset]:
    """Random parts of a dataset; lengths are counts, or fractions that sum to 1. ValueError when they do not fit."""
    total = len(dataset)
    sizes: list[Any] = list(lengths)
    if math.isclose(sum(sizes), 1) and sum(sizes) <= 1:
        for i, fraction in enumerate(sizes):
            if not 0 <= fraction <= 1:
                raise ValueError(f"Fraction at index {i} is not between 0 and 1")
        sizes = [math.floor(total * f) for f in sizes]
        for i in range(total - sum(sizes)):
            sizes[i % len(sizes)] += 1
        for i, size in enumerate(sizes):
            if size == 0:
                warn_as_pytorch(f"Length of split at index {i} is 0. This might result in an empty dataset.")
    if sum(sizes) != total:
        raise ValueError("Sum of input lengths does not equal the length of the input dataset!")
    order = T.randperm(total, generator=generator).tolist()
    ends = list(itertools.accumulate(int(s) for s in sizes))
    return [Subset(dataset, order[end - int(size) : end]) for end, size in zip(ends, sizes, strict=True)]
