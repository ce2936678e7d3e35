"""Names of PyTorch's ``DataLoader`` that other libraries read, write and derive from."""

from __future__ import annotations

import collections
from collections.abc import Iterator
from typing import Any, ClassVar, TypeVar

import numpy as np
import pytest

import tracecomp as tc
from tracecomp.utils.data import DataLoader, IterableDataset, default_convert
from tracecomp.utils.data.fetch import _DatasetKind
from tracecomp.utils.data.iterators import (
    _BaseDataLoaderIter,
    _MultiProcessingDataLoaderIter,
    _SingleProcessDataLoaderIter,
)


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


class Duck:
    """As fastai does it: an object with a loader's attributes, whose dataset is an iterator of finished batches."""

    _IterableDataset_len_called, _auto_collation, drop_last, pin_memory = None, False, False, False
    dataset_kind = _dataset_kind = _DatasetKind.Iterable
    generator, timeout, worker_init_fn, persistent_workers, in_order = None, 0, None, False, True
    multiprocessing_context = None
    _index_sampler = range(10**9)

    def __init__(self, workers: int) -> None:
        self.num_workers, self.prefetch_factor = workers, 2

    dataset: ClassVar[Any] = [tc.ones(2), tc.zeros(2)]

    @staticmethod
    def collate_fn(item: Any) -> Any:
        return item


@pytest.mark.parametrize("workers", [0, 1])
def test_iterators_take_any_object_with_the_attributes_of_a_loader(workers: int) -> None:
    kind = _MultiProcessingDataLoaderIter if workers else _SingleProcessDataLoaderIter
    iterator = kind(Duck(workers))
    assert isinstance(iterator, _BaseDataLoaderIter)
    assert [b.tolist() for b in iterator] == [[1, 1], [0, 0]]
    assert next(iterator, None) is None


class Counted(_SingleProcessDataLoaderIter):
    def __init__(self, loader: Any) -> None:
        super().__init__(loader)
        self.indices: list[Any] = []

    def _next_index(self) -> Any:
        self.indices.append(super()._next_index())
        return self.indices[-1]


def test_iterators_may_be_derived_from() -> None:
    iterator = Counted(DataLoader([1, 2, 3], batch_size=2))
    assert [b.tolist() for b in iterator] == [[1, 2], [3]] and len(iterator) == 2
    assert iterator.indices == [[0, 1], [2]] and iterator._num_yielded == 2
    with pytest.raises(NotImplementedError):
        iterator.__getstate__()


class Failing:
    def __len__(self) -> int:
        return 4

    def __getitem__(self, i: int) -> int:
        if i == 1:
            raise ValueError("one")
        return i


@pytest.mark.parametrize("workers", [0, 2])
def test_loading_continues_after_an_error(workers: int) -> None:
    iterator = iter(DataLoader(Failing(), batch_size=None, num_workers=workers))  # type: ignore[arg-type]
    assert next(iterator) == 0
    with pytest.raises(ValueError, match="one"):
        next(iterator)
    assert list(iterator) == [2, 3]


class Numbers(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        info = tc.utils.data.get_worker_info()
        first = info.id if info else 0
        return iter(range(first, first + 3 - first))

    def __len__(self) -> int:
        return 2


def test_persistent_workers_begin_each_pass_anew() -> None:
    loader = DataLoader(Numbers(), batch_size=1, num_workers=2, persistent_workers=True)
    first = [b.tolist() for b in loader]
    assert first == [[0], [1], [1], [2], [2]]
    abandoned = iter(loader)
    assert next(abandoned).tolist() == [0]
    assert [b.tolist() for b in loader] == first  # nothing of the pass that was left
    indexed = DataLoader(list(range(6)), num_workers=2, persistent_workers=True)
    for _ in range(3):
        next(iter(indexed))
        assert [int(b) for b in indexed] == list(range(6))


def test_more_items_than_the_dataset_reported() -> None:
    loader = DataLoader(Numbers(), batch_size=1)
    assert len(loader) == 2
    with pytest.warns(UserWarning, match="was reported to be 2.*but 3 samples have been fetched"):
        assert len(list(loader)) == 3


def test_a_pass_without_workers_draws_no_random_numbers() -> None:
    tc.manual_seed(0)
    expected = tc.rand(3).tolist()
    tc.manual_seed(0)
    assert len(list(DataLoader(list(range(7)), 2))) == 4
    assert tc.rand(3).tolist() == expected


class Tagged(dict[str, Any]):
    """A mapping with another attribute."""

    tag = ""


class TaggedList(list[Any]):
    tag = ""


def both(make: Any) -> None:
    """``make`` of both packages gives the same, or raises the same."""
    torch = pytest.importorskip("torch")
    results = []
    for t in (tc, torch):
        try:
            results.append(make(t))
        except Exception as error:
            results.append((type(error), str(error)))
    assert str(results[0]).replace("tracecomp", "torch") == str(results[1])
    assert type(results[0]) is type(results[1]) or "Tensor" in str(type(results[1]))


CASES = {
    "attributes of mappings": lambda t, d: vars(d.default_collate([tagged(Tagged(a=1)), tagged(Tagged(a=2))])),
    "attributes of lists": lambda t, d: vars(d.default_collate([tagged(TaggedList([1, 2])), TaggedList([3, 4])])),
    "ordered": lambda t, d: d.default_collate([collections.OrderedDict(b=1, a="x")] * 2),
    "defaults": lambda t, d: d.default_collate([collections.defaultdict(int, a=1)] * 2),
    "objects": lambda t, d: d.default_collate([object()]),
    "arrays of text": lambda t, d: d.default_collate([np.array(["a", "b"])]),
    "numbers of numpy": lambda t, d: d.default_collate([np.float32(1), np.float32(2)]),
    "unequal": lambda t, d: d.default_collate([[1], [1, 2]]),
    "sparse": lambda t, d: d.default_collate([t.ones(2).to_sparse()]),
    "converted text": lambda t, d: d.default_convert(np.array(["a"])),
    "converted lists": lambda t, d: vars(d.default_convert(tagged(TaggedList([np.ones(2)])))),
    "converted tuples": lambda t, d: d.default_convert((np.ones(2), {"a": range(2)}, "b")),
    "exact type first": lambda t, d: d.collate(
        [True, False], collate_fn_map={int: lambda b, **_: "int", bool: lambda b, **_: "bool"}
    ),
}


def tagged(value: Any) -> Any:
    value.tag = "kept"
    return value


@pytest.mark.peers
@pytest.mark.parametrize("name", CASES)
def test_collation_is_that_of_pytorch(name: str) -> None:
    both(lambda t: CASES[name](t, __import__(f"{t.__name__}.utils.data._utils.collate", fromlist=["collate"])))


def test_names_of_the_inner_modules() -> None:
    torch = pytest.importorskip("torch")
    from tracecomp.utils.data import _utils, dataloader

    theirs = torch.utils.data._utils
    for ours, module in (
        (_utils.collate, theirs.collate),
        (_utils.fetch, theirs.fetch),
        (dataloader, torch.utils.data.dataloader),
    ):
        functions = {n for n, v in vars(module).items() if getattr(v, "__module__", "") == module.__name__}
        missing = functions - set(vars(ours)) - {"_get_distributed_settings", "_sharding_worker_init_fn"}
        assert not {n for n in missing if not isinstance(getattr(module, n), TypeVar)}
    assert default_convert(3) == 3
