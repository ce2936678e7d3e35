"""Datasets, samplers and the loader, with and without worker processes."""

from __future__ import annotations

import os
import threading
from collections import namedtuple
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest

import tracecomp as tc
from tracecomp.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    StackDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
    get_worker_info,
    random_split,
)

# A loader warns if there are fewer processors than workers.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


class Squares(Dataset[Any]):
    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> Any:
        if not 0 <= i < self.n:
            raise IndexError(i)
        return tc.tensor(float(i * i)), i


class Stream(IterableDataset[Any]):
    def __init__(self, n: int) -> None:
        self.n = n

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        return iter(range(self.n)) if info is None else iter(range(info.id, self.n, info.num_workers))


class Broken(Squares):
    def __getitem__(self, i: int) -> Any:
        if i == 5:
            raise ValueError("item five is broken")
        return super().__getitem__(i)


class Endless(Squares):
    def __getitem__(self, i: int) -> Any:
        threading.Event().wait()


class Dying(Squares):
    def __getitem__(self, i: int) -> Any:
        os._exit(3)


class Seeds(Squares):
    def __getitem__(self, i: int) -> Any:
        info = get_worker_info()
        assert info is not None
        return info.id, info.seed, float(tc.rand(1)), float(np.random.rand())


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("drop_last", [False, True])
def test_batches_come_in_order(workers: int, drop_last: bool) -> None:
    loader = DataLoader(Squares(10), batch_size=4, num_workers=workers, drop_last=drop_last)
    batches = list(loader)
    assert len(batches) == len(loader) == (2 if drop_last else 3)
    assert [b[1].tolist() for b in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]][: len(batches)]
    assert batches[0][0].tolist() == [0.0, 1.0, 4.0, 9.0]
    assert batches[0][0].dtype is tc.float32 and batches[0][1].dtype is tc.int64


def test_shuffling_is_a_new_permutation_each_pass_and_reproducible() -> None:
    data = TensorDataset(tc.arange(20))

    def passes() -> list[list[int]]:
        loader = DataLoader(data, batch_size=20, shuffle=True, generator=tc.Generator().manual_seed(3))
        return [next(iter(loader))[0].tolist() for _ in range(2)]

    first, second = passes()
    assert sorted(first) == sorted(second) == list(range(20)) and first != second
    assert passes() == [first, second]


@pytest.mark.parametrize("workers", [0, 2])
def test_iterable_datasets(workers: int) -> None:
    batches = [b.tolist() for b in DataLoader(Stream(7), batch_size=2, num_workers=workers)]
    assert sorted(x for b in batches for x in b) == list(range(7))
    assert [b.tolist() for b in DataLoader(Stream(5), batch_size=2, drop_last=True)] == [[0, 1], [2, 3]]
    assert list(DataLoader(Stream(3), batch_size=None)) == [0, 1, 2]


@pytest.mark.parametrize("workers", [0, 1])
def test_errors_keep_their_type_and_show_the_workers_traceback(workers: int) -> None:
    loader = DataLoader(Broken(8), batch_size=2, num_workers=workers)
    with pytest.raises(ValueError, match="item five is broken") as caught:
        list(loader)
    if workers:
        assert "worker process 0" in str(caught.value) and "__getitem__" in str(caught.value)


@pytest.mark.slow
def test_timeouts_and_dead_workers_are_reported() -> None:
    with pytest.raises(RuntimeError, match=r"timed out after 0\.5 seconds"):
        list(DataLoader(Endless(2), num_workers=1, timeout=0.5))
    with pytest.raises(RuntimeError, match="exited unexpectedly"):
        list(DataLoader(Dying(2), num_workers=1))


def test_workers_have_seeds_of_their_own_and_repeat() -> None:
    def rows() -> list[Any]:
        tc.manual_seed(0)
        return [[c.tolist()[0] for c in b] for b in DataLoader(Seeds(4), num_workers=2)]

    first = rows()
    assert [r[0] for r in first] == [0, 1, 0, 1]
    assert first[1][1] == first[0][1] + 1
    assert len({r[2] for r in first}) == len({r[3] for r in first}) == 4
    assert rows() == first


def test_worker_init_runs_in_every_worker(tmp_path: Any) -> None:
    def note(worker: int) -> None:
        (tmp_path / str(worker)).touch()

    list(DataLoader(Squares(4), num_workers=2, worker_init_fn=note))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["0", "1"]


def test_persistent_workers_serve_several_passes() -> None:
    loader = DataLoader(Squares(6), batch_size=3, num_workers=1, persistent_workers=True)
    assert [[b[1].tolist() for b in loader] for _ in range(2)] == [[[0, 1, 2], [3, 4, 5]]] * 2


def test_map_style_data_may_be_any_container() -> None:
    data: Any = {"a": 1.5, "b": 2.5}
    assert next(iter(DataLoader(data, sampler=list(data), batch_size=2))).tolist() == [1.5, 2.5]


def test_collation_of_nested_items() -> None:
    Point = namedtuple("Point", "x y")
    items = [{"p": Point(i, [float(i), np.float32(i)]), "s": "ab", "a": np.ones(2) * i} for i in range(3)]
    batch = default_collate(items)
    assert batch["p"].x.tolist() == [0, 1, 2] and batch["p"].y[0].dtype is tc.float64
    assert batch["s"] == ["ab"] * 3 and tuple(batch["a"].shape) == (3, 2)
    with pytest.raises(RuntimeError, match="equal size"):
        default_collate([[1], [1, 2]])
    with pytest.raises(TypeError, match="default_collate"):
        default_collate([object()])


def test_splits_and_joins() -> None:
    parts = random_split(range(10), [0.5, 0.25, 0.25], tc.Generator().manual_seed(1))
    assert [len(p) for p in parts] == [6, 2, 2]
    assert sorted(x for p in parts for x in p) == list(range(10))  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="Sum of input lengths"):
        random_split(range(10), [3, 3])
    joined = ConcatDataset([Squares(2), Squares(3)])
    assert len(joined) == 5 and joined[-1][1] == 2 and joined[2][1] == 0
    assert [x[1] for x in Subset(joined, [4, 0])] == [2, 0]  # type: ignore[attr-defined]


def test_samplers() -> None:
    tc.manual_seed(0)
    assert list(BatchSampler(SequentialSampler(range(5)), 2, False)) == [[0, 1], [2, 3], [4]]
    assert sorted(RandomSampler(range(4))) == [0, 1, 2, 3]
    assert len(list(RandomSampler(range(4), replacement=True, num_samples=9))) == 9
    assert sorted(SubsetRandomSampler([3, 5, 7])) == [3, 5, 7]
    assert set(WeightedRandomSampler([0.0, 1.0, 1.0], 50)) == {1, 2}


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"num_workers": -1}, "num_workers"),
        ({"sampler": [0], "shuffle": True}, "mutually exclusive"),
        ({"batch_sampler": [[0]], "drop_last": True}, "mutually exclusive"),
        ({"prefetch_factor": 2}, "prefetch_factor"),
        ({"timeout": -1}, "timeout"),
        ({"multiprocessing_context": "fork"}, "num_workers > 0"),
        ({"multiprocessing_context": "bad", "num_workers": 1}, "valid start method"),
    ],
)
def test_arguments_that_make_no_sense(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DataLoader(Squares(4), **options)


def test_a_context_has_to_be_one() -> None:
    with pytest.raises(TypeError, match="valid context"):
        DataLoader(Squares(4), num_workers=1, multiprocessing_context=object())


def test_more_workers_than_processors_are_warned_about() -> None:
    with pytest.warns(UserWarning, match="excessive worker creation"):
        DataLoader(Squares(4), num_workers=1_000_000)


@pytest.mark.parametrize("name", ["batch_size", "sampler", "batch_sampler", "drop_last", "dataset"])
def test_what_decided_how_a_loader_was_made_stays(name: str) -> None:
    loader = DataLoader(Squares(4))
    with pytest.raises(ValueError, match=f"{name} attribute should not be set"):
        setattr(loader, name, None)
    loader.num_workers = 0


def test_stacked_datasets_are_asked_for_batches() -> None:
    class Whole(Dataset[Any]):
        def __getitems__(self, indices: list[int]) -> Any:
            return [10 * i for i in indices]

        def __len__(self) -> int:
            return 4

    assert StackDataset(Whole(), [0, 1, 4, 9]).__getitems__([3, 1]) == [(30, 9), (10, 1)]
    assert StackDataset(a=Whole(), b=[0, 1, 4, 9]).__getitems__([2]) == [{"a": 20, "b": 4}]
    Whole.__getitems__ = lambda self, indices: []  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="Expected 2, got 0"):
        StackDataset(Whole(), Squares(4)).__getitems__([3, 1])


def test_sequences_that_are_not_made_of_their_items_become_lists() -> None:
    found = default_collate([range(2), range(2)])
    assert [x.tolist() for x in found] == [[0, 0], [1, 1]]


def test_draws_with_replacement_are_made_as_they_are_asked_for() -> None:
    tc.manual_seed(0)
    draws = list(islice(RandomSampler(range(7), replacement=True, num_samples=10**10), 100))
    assert set(draws) == set(range(7)) and len(draws) == 100
    for count in (1, 32, 45):
        assert len(list(RandomSampler(range(7), replacement=True, num_samples=count))) == count


@pytest.mark.parametrize("drop_last", [False, True])
def test_shares_of_a_distributed_sampler(drop_last: bool) -> None:
    data = list(range(11))
    shares = [DistributedSampler(data, 3, rank, drop_last=drop_last) for rank in range(3)]
    assert [len(s) for s in shares] == [len(list(s)) for s in shares] == [3 if drop_last else 4] * 3
    first = [i for s in shares for i in s]
    assert len(set(first)) == (9 if drop_last else 11)
    for s in shares:
        s.set_epoch(1)
    assert [i for s in shares for i in s] != first
    assert list(DistributedSampler(data, shuffle=False)) == data
    assert list(DistributedSampler(data, 2, 1, shuffle=False)) == [1, 3, 5, 7, 9, 0]
    with pytest.raises(ValueError, match="rank should be in the interval"):
        DistributedSampler(data, 2, 2)
