"""What other libraries' loaders read and write of ``DataLoader``: names that PyTorch has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tracecomp.utils.data import DataLoader


class Endless:
    """A sampler that begins again."""

    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield from self.sampler


class Repeated(DataLoader[Any]):
    """As libraries do it: one iterator over all epochs, and another batch sampler once the loader is made."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._DataLoader__initialized = False
        self.batches = len(self._index_sampler)  # type: ignore[arg-type]
        self.batch_sampler = Endless(self.batch_sampler)
        self._DataLoader__initialized = True
        self.iterator = self._get_iterator()

    def __iter__(self) -> Iterator[Any]:
        for _ in range(self.batches):
            yield next(self.iterator)


def test_a_loader_that_keeps_its_iterator() -> None:
    loader = Repeated(list(range(5)), batch_size=2)
    assert [b.tolist() for b in loader] == [b.tolist() for b in loader] == [[0, 1], [2, 3], [4]]
    with pytest.raises(ValueError, match="batch_sampler attribute should not be set after Repeated is initialized"):
        loader.batch_sampler = None
