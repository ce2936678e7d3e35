"""Steps with items by index."""

from __future__ import annotations

import bisect
import copy
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

from tracecomp.utils.data.datapipes.base import MapDataPipe, functional_datapipe

Function = Callable[..., Any]
__all__ = ["Batcher", "Concater", "Mapper", "SequenceWrapper", "Zipper"]


class SequenceWrapper(MapDataPipe):
    """The items of any sequence or mapping, of a copy of it by default."""

    def __init__(self, sequence: object, deepcopy: bool = True) -> None:
        self.sequence: Any = copy.deepcopy(sequence) if deepcopy else sequence

    def __getitem__(self, index: object) -> Any:
        return self.sequence[index]

    def __len__(self) -> int:
        return len(self.sequence)


@functional_datapipe("map")
class Mapper(MapDataPipe):
    """``fn`` of each item."""

    def __init__(self, datapipe: MapDataPipe, fn: Function) -> None:
        self.datapipe, self.fn = datapipe, fn

    def __getitem__(self, index: object) -> Any:
        return self.fn(self.datapipe[index])

    def __len__(self) -> int:
        return len(self.datapipe)


@functional_datapipe("batch")
class Batcher(MapDataPipe):
    """Lists of ``batch_size`` items; the last may be shorter."""

    def __init__(
        self, datapipe: Sequence[Any], batch_size: int, drop_last: bool = False,
        wrapper_class: Function = list,
    ) -> None:  # fmt: skip
        if batch_size <= 0:
            raise AssertionError("Batch size is required to be larger than 0!")
        self.datapipe, self.batch_size, self.drop_last = datapipe, batch_size, drop_last
        self.wrapper_class = wrapper_class

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(f"Index {index} is out of bound.")
        places = range(index * self.batch_size, min((index + 1) * self.batch_size, len(self.datapipe)))
        return self.wrapper_class([self.datapipe[i] for i in places])

    def __len__(self) -> int:
        n = len(self.datapipe)
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)


class _Several(MapDataPipe):
    def __init__(self, *datapipes: Any) -> None:
        if not datapipes:
            raise ValueError(f"Expected at least one DataPipe for {type(self).__name__}, but got nothing")
        if not all(isinstance(pipe, MapDataPipe) for pipe in datapipes):
            raise TypeError(f"Expected all inputs to be `MapDataPipe` for {type(self).__name__}")
        self.datapipes = datapipes


@functional_datapipe("concat")
class Concater(_Several):
    """The items of the first, then those of the next."""

    def __getitem__(self, index: int) -> Any:
        ends = list(accumulate(len(pipe) for pipe in self.datapipes))
        if not 0 <= index < ends[-1]:
            raise IndexError(f"Index {index} is out of range.")
        which = bisect.bisect_right(ends, index)
        return self.datapipes[which][index - (ends[which - 1] if which else 0)]

    def __len__(self) -> int:
        return sum(len(pipe) for pipe in self.datapipes)


@functional_datapipe("zip")
class Zipper(_Several):
    """Tuples of one item of each."""

    def __getitem__(self, index: object) -> tuple[Any, ...]:
        return tuple(pipe[index] for pipe in self.datapipes)

    def __len__(self) -> int:
        return min(len(pipe) for pipe in self.datapipes)
