"""Chains of steps over items compared with PyTorch's: items, lengths, errors, and the view of loaders' workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tracecomp as tc
from tracecomp.utils.data import DataLoader
from tracecomp.utils.data.datapipes.iter import IterableWrapper

torch = pytest.importorskip("torch")
Make = Callable[[Any, Any], Any]
# A loader warns if there are fewer processors than workers.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


def wrapped(p: Any, n: int = 7) -> Any:
    return p.iter.IterableWrapper(list(range(n)))


PROGRAMS: dict[str, Make] = {
    "map": lambda t, p: wrapped(p).map(lambda x: x * 2),
    "map a part": lambda t, p: p.iter.IterableWrapper([(1, 2, 3), (4, 5, 6)]).map(lambda x: -x, input_col=1),
    "map parts": lambda t, p: p.iter.IterableWrapper([(1, 2, 3)]).map(lambda x, y: x + y, input_col=[0, 2]),
    "map to the end": lambda t, p: p.iter.IterableWrapper([(1, 2)]).map(lambda x: x + 9, input_col=0, output_col=-1),
    "map a key": lambda t, p: p.iter.IterableWrapper([{"a": 1}]).map(lambda x: x + 9, input_col="a", output_col="b"),
    "map nowhere": lambda t, p: wrapped(p).map(lambda x: x, output_col=1),
    "filter": lambda t, p: wrapped(p).filter(lambda x: x % 3 == 0),
    "filter by no bool": lambda t, p: wrapped(p).filter(lambda x: x % 3),
    "batch": lambda t, p: wrapped(p).batch(3),
    "batch of whole ones": lambda t, p: wrapped(p).batch(3, drop_last=True),
    "batch of none": lambda t, p: wrapped(p).batch(0),
    "unbatch": lambda t, p: wrapped(p, 8).batch(2).batch(2).unbatch(),
    "unbatch all": lambda t, p: wrapped(p, 8).batch(2).batch(2).unbatch(unbatch_level=-1),
    "unbatch too deep": lambda t, p: wrapped(p).batch(2).unbatch(unbatch_level=2),
    "collate": lambda t, p: wrapped(p).batch(3).collate().map(lambda x: x.tolist()),
    "concat": lambda t, p: wrapped(p).concat(wrapped(p, 2)),
    "zip": lambda t, p: wrapped(p).zip(wrapped(p, 2)),
    "mux": lambda t, p: wrapped(p).mux(wrapped(p, 2)),
    "zip with no pipe": lambda t, p: wrapped(p).zip([1, 2]),
    "no shuffle": lambda t, p: wrapped(p).shuffle().set_shuffle(False),
    "no method": lambda t, p: wrapped(p).nothing(),
    "a shard": lambda t, p: shard(wrapped(p).sharding_filter(), 3, 1),
    "no shard": lambda t, p: shard(wrapped(p).sharding_filter(), 3, 3),
    "by index": lambda t, p: p.map.SequenceWrapper([4, 5, 6]).map(lambda x: x * 2),
    "batch by index": lambda t, p: p.map.SequenceWrapper([4, 5, 6]).batch(2),
    "concat by index": lambda t, p: p.map.SequenceWrapper([4, 5, 6]).concat(p.map.SequenceWrapper([7])),
    "zip by index": lambda t, p: p.map.SequenceWrapper([4, 5, 6]).zip(p.map.SequenceWrapper([7, 8])),
}


def shard(pipe: Any, count: int, mine: int) -> Any:
    pipe.apply_sharding(count, mine)
    return pipe


def outcome(t: Any, make: Make) -> Any:
    """The items and the length, or the class of the error."""
    try:
        pipe = make(t, t.utils.data.datapipes)
        items = [pipe[i] for i in range(len(pipe))] if not hasattr(type(pipe), "__iter__") else list(pipe)
    except Exception as error:
        return type(error)
    try:
        return items, len(pipe)
    except TypeError:
        return items


@pytest.mark.parametrize("name", PROGRAMS)
def test_items_lengths_and_errors_are_those_of_pytorch(name: str) -> None:
    assert outcome(tc, PROGRAMS[name]) == outcome(torch, PROGRAMS[name])


def test_shuffled_items_are_the_same_items_in_an_order_of_the_seed() -> None:
    def drawn(seed: int, size: int = 10000) -> list[int]:
        return list(IterableWrapper(range(50)).shuffle(buffer_size=size).set_seed(seed))

    assert sorted(drawn(1)) == list(range(50)) and drawn(1) == drawn(1) != drawn(2)
    assert all(item <= place + 4 for place, item in enumerate(drawn(1, 4)))
    tc.manual_seed(0)
    first = list(IterableWrapper(range(50)).shuffle())
    tc.manual_seed(0)
    assert list(IterableWrapper(range(50)).shuffle()) == first


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_share_out_shuffled_items_without_loss_or_repetition(workers: int) -> None:
    tc.manual_seed(0)
    loader = DataLoader(IterableWrapper(range(23)).shuffle().sharding_filter(), batch_size=None, num_workers=workers)
    epochs = [list(loader) for _ in range(2)]
    assert [sorted(items) for items in epochs] == [list(range(23))] * 2 and epochs[0] != epochs[1]


def test_names_are_taken_once() -> None:
    for t in (tc, torch):
        data = t.utils.data
        with pytest.raises(Exception, match="already taken"):
            data.functional_datapipe("map")(type("Mine", (data.IterDataPipe,), {}))
        assert data.functional_datapipe("mine")(int) is int  # an argument that is not a step is returned unchanged
