"""Steps whose items come in order."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import Any

from tracecomp.functional import names as T
from tracecomp.ir.types import int64
from tracecomp.utils.data.collate import default_collate
from tracecomp.utils.data.datapipes.base import IterDataPipe, functional_datapipe
from tracecomp.utils.data.worker import get_worker_info

__all__ = [
    "Batcher", "Collator", "Concater", "Filter", "IterableWrapper", "Mapper", "Multiplexer", "ShardingFilter",
    "Shuffler", "UnBatcher", "Zipper",
]  # fmt: skip
Items = Iterable[Any]
Function = Callable[..., Any]
Column = int | str | list[Any] | tuple[Any, ...] | None
"""A position in an item: an index, a key, or several."""


def _columns(given: Column) -> list[Any]:
    return list(given) if isinstance(given, list | tuple) else [given]


def _length(pipe: IterDataPipe, source: object) -> int:
    """The length of ``source``. TypeError, for ``pipe``, where it has none."""
    if isinstance(source, Sized):
        return len(source)
    raise TypeError(f"{type(pipe).__name__} instance doesn't have valid length")


class IterableWrapper(IterDataPipe):
    """The items of any iterable, of a copy of it by default."""

    def __init__(self, iterable: Items, deepcopy: bool = True) -> None:
        self.iterable, self.deepcopy = iterable, deepcopy

    def __iter__(self) -> Iterator[Any]:
        return iter(copy.deepcopy(self.iterable) if self.deepcopy else self.iterable)

    def __len__(self) -> int:
        return _length(self, self.iterable)


@functional_datapipe("map")
class Mapper(IterDataPipe):
    """``fn`` of each item; of its part ``input_col``, put in the place ``output_col``, where these are given."""

    def __init__(self, datapipe: Items, fn: Function, input_col: Column = None, output_col: Column = None) -> None:
        if input_col is None and output_col is not None:
            raise ValueError("`output_col` must be None when `input_col` is None.")
        if len(_columns(output_col)) > 1:
            raise ValueError("`output_col` must be a single-element list or tuple")
        self.datapipe, self.fn, self.input_col, self.output_col = datapipe, fn, input_col, _columns(output_col)[0]

    def _applied(self, item: Any) -> Any:
        if self.input_col is None:
            return self.fn(item)
        first, *others = _columns(self.input_col)
        result = self.fn(*(item[c] for c in (first, *others)))
        changed = list(item) if isinstance(item, tuple) else copy.copy(item)
        if self.output_col is None:
            changed[first] = result
            for column in sorted(others, reverse=True):
                del changed[column]
        elif self.output_col == -1 and not isinstance(item, dict):
            changed.append(result)
        else:
            changed[self.output_col] = result
        return tuple(changed) if isinstance(item, tuple) else changed

    def __iter__(self) -> Iterator[Any]:
        return (self._applied(item) for item in self.datapipe)

    def __len__(self) -> int:
        return _length(self, self.datapipe)


@functional_datapipe("collate")
class Collator(Mapper):
    """Each list of items as one batch."""

    def __init__(self, datapipe: Items, collate_fn: Function = default_collate) -> None:
        super().__init__(datapipe, collate_fn)


@functional_datapipe("filter")
class Filter(IterDataPipe):
    """The items, or those of its parts ``input_col``, for which ``filter_fn`` holds."""

    def __init__(self, datapipe: Items, filter_fn: Function, input_col: Column = None) -> None:
        self.datapipe, self.filter_fn, self.input_col = datapipe, filter_fn, input_col

    def _holds(self, item: Any) -> bool:
        found = self.filter_fn(*([item] if self.input_col is None else [item[c] for c in _columns(self.input_col)]))
        if not isinstance(found, bool):
            raise ValueError(f"Boolean output is required for `filter_fn` of FilterIterDataPipe, got {type(found)}")
        return found

    def __iter__(self) -> Iterator[Any]:
        return (item for item in self.datapipe if self._holds(item))


@functional_datapipe("batch")
class Batcher(IterDataPipe):
    """Lists of ``batch_size`` items, or what ``wrapper_class`` makes of them; the last may be shorter."""

    def __init__(
        self, datapipe: Items, batch_size: int, drop_last: bool = False, wrapper_class: Function = list
    ) -> None:
        if batch_size <= 0:
            raise AssertionError("Batch size is required to be larger than 0!")
        self.datapipe, self.batch_size, self.drop_last = datapipe, batch_size, drop_last
        self.wrapper_class = wrapper_class

    def __iter__(self) -> Iterator[Any]:
        batch = []
        for item in self.datapipe:
            batch.append(item)
            if len(batch) == self.batch_size:
                yield self.wrapper_class(batch)
                batch = []
        if batch and not self.drop_last:
            yield self.wrapper_class(batch)

    def __len__(self) -> int:
        n = _length(self, self.datapipe)
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)


@functional_datapipe("unbatch")
class UnBatcher(IterDataPipe):
    """The items of lists within lists, ``unbatch_level`` deep; -1: of all."""

    def __init__(self, datapipe: Items, unbatch_level: int = 1) -> None:
        if unbatch_level < -1:
            raise ValueError("unbatch_level must be -1 or >= 0")
        self.datapipe, self.unbatch_level = datapipe, unbatch_level

    def _parts(self, item: object, level: int) -> Iterator[object]:
        if level == 0 or (level < 0 and not isinstance(item, list)):
            yield item
        elif isinstance(item, list):
            for part in item:
                yield from self._parts(part, level - 1 if level > 0 else level)
        else:
            raise IndexError(f"unbatch_level {self.unbatch_level} exceeds the depth of the DataPipe")

    def __iter__(self) -> Iterator[Any]:
        for item in self.datapipe:
            yield from self._parts(item, self.unbatch_level)


@functional_datapipe("shuffle")
class Shuffler(IterDataPipe):
    """Items in random order: each time any of the next ``buffer_size``. All workers of a loader draw one order."""

    def __init__(self, datapipe: Items, *, buffer_size: int = 10000, unbatch_level: int = 0) -> None:
        if buffer_size <= 0:
            raise ValueError("buffer_size should be larger than 0")
        self.datapipe = UnBatcher(datapipe, unbatch_level) if unbatch_level else datapipe
        self.buffer_size, self._enabled = buffer_size, True
        self._seed: int | None = None

    def set_shuffle(self, shuffle: bool = True) -> Shuffler:
        """Whether to shuffle."""
        self._enabled = shuffle
        return self

    def set_seed(self, seed: int) -> Shuffler:
        """The order of the next iteration."""
        self._seed = seed
        return self

    def _drawn(self) -> int:
        worker = get_worker_info()
        if self._seed is not None:
            seed, self._seed = self._seed, None
            return seed
        if worker is not None:
            return worker.seed - worker.id
        return int(T.empty((), dtype=int64).random_())

    def __iter__(self) -> Iterator[Any]:
        if not self._enabled:
            yield from self.datapipe
            return
        drawn = random.Random(self._drawn())
        buffer: list[object] = []
        for item in self.datapipe:
            if len(buffer) == self.buffer_size:
                i = drawn.randrange(len(buffer))
                buffer[i], item = item, buffer[i]
                yield item
            else:
                buffer.append(item)
        while buffer:
            yield buffer.pop(drawn.randrange(len(buffer)))

    def __len__(self) -> int:
        return _length(self, self.datapipe)


@functional_datapipe("sharding_filter")
class ShardingFilter(IterDataPipe):
    """Every n-th item, for n processes that read the same: those of ``apply_sharding``, or a loader's workers."""

    def __init__(self, source_datapipe: Items) -> None:
        self.source_datapipe = source_datapipe
        self._given: tuple[int, int] | None = None

    def is_shardable(self) -> bool:
        return True

    def apply_sharding(self, num_of_instances: int, instance_id: int) -> None:
        """Items ``instance_id``, ``instance_id + num_of_instances`` and so on. ValueError for no such process."""
        if instance_id >= num_of_instances:
            raise ValueError(f"instance_id({instance_id}) should be smaller than num_of_instances({num_of_instances})")
        self._given = num_of_instances, instance_id

    def _part(self) -> tuple[int, int]:
        worker = get_worker_info()
        return self._given or ((worker.num_workers, worker.id) if worker is not None else (1, 0))

    def __iter__(self) -> Iterator[Any]:
        count, mine = self._part()
        return (item for i, item in enumerate(self.source_datapipe) if i % count == mine)

    def __len__(self) -> int:
        count, mine = self._part()
        n = _length(self, self.source_datapipe)
        return n // count + (mine < n % count)


class _Several(IterDataPipe):
    """A step over several sources. ValueError without sources, TypeError unless they are pipes."""

    def __init__(self, *datapipes: IterDataPipe) -> None:
        if not datapipes:
            raise ValueError(f"Expected at least one DataPipe for {type(self).__name__}, but got nothing")
        if not all(isinstance(pipe, IterDataPipe) for pipe in datapipes):
            raise TypeError(f"Expected all inputs to be `IterDataPipe` for {type(self).__name__}")
        self.datapipes = datapipes


@functional_datapipe("concat")
class Concater(_Several):
    """All items of the first, then of the next."""

    def __iter__(self) -> Iterator[Any]:
        for pipe in self.datapipes:
            yield from pipe

    def __len__(self) -> int:
        return sum(_length(self, pipe) for pipe in self.datapipes)


@functional_datapipe("zip")
class Zipper(_Several):
    """Tuples of one item of each, as long as all have one."""

    def __iter__(self) -> Iterator[Any]:
        return zip(*self.datapipes, strict=False)

    def __len__(self) -> int:
        return min(_length(self, pipe) for pipe in self.datapipes)


@functional_datapipe("mux")
class Multiplexer(_Several):
    """One item of each in turn, as long as all have one."""

    def __iter__(self) -> Iterator[Any]:
        for items in zip(*self.datapipes, strict=False):
            yield from items

    def __len__(self) -> int:
        return min(_length(self, pipe) for pipe in self.datapipes) * len(self.datapipes)
