"""Compiled calls that append to a tensor continue in its memory. The results are those of eager calls."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tracecomp.eager.room import RoomArray

HEADS, WIDTH = 3, 32
FIRST = 90
"""Elements from which on a cache has enough memory to be worth it."""


class Cache:
    """A cache of keys and values that grows."""

    def __init__(self) -> None:
        self.keys: Any = None
        self.values: Any = None


def step(cache: Any, x: Any) -> Any:
    """Append to a cache, and attend to it."""
    if cache.keys is None:
        cache.keys, cache.values = x.clone(), x * 2
    else:
        cache.keys = torch.cat([cache.keys, x], dim=-2)
        cache.values = torch.cat([cache.values, x * 2], dim=-2)
    return (x @ cache.keys.mT).softmax(-1) @ cache.values


def row(numbers: np.random.Generator, length: int = 1, batch: int = 1) -> Any:
    return torch.tensor(numbers.standard_normal((batch, HEADS, length, WIDTH)).astype(np.float32))


def bits(x: Any) -> Any:
    return x.detach().numpy().tobytes()


def warmed(program: Callable[..., Any], calls: int = 4) -> tuple[Any, Any, np.random.Generator]:
    """A compiled function, and a cache that it has appended to until it does so in place."""
    numbers = np.random.default_rng(3)
    compiled, cache = torch.compile(program, wait=True), Cache()
    compiled(cache, row(numbers, FIRST))
    for _ in range(calls):
        compiled(cache, row(numbers))
    assert type(cache.keys._data) is RoomArray
    return compiled, cache, numbers


def room(t: Any) -> Any:
    return t._data.room if type(t._data) is RoomArray else None


def test_memory_stays_until_it_is_full() -> None:
    """Copies of a cache become rarer, the longer it is."""
    compiled, cache, numbers = warmed(step)
    eager = copy.deepcopy(cache)
    rooms = set()
    added = [row(numbers) for _ in range(100)]
    for x in added:
        compiled(cache, x)
        rooms.add(id(room(cache.keys)))
    assert room(cache.keys) is not None and len(rooms) <= 3
    eager.keys = torch.cat([eager.keys, *added], 2)
    eager.values = torch.cat([eager.values, *(x * 2 for x in added)], 2)
    assert bits(cache.keys) == bits(eager.keys) and bits(cache.values) == bits(eager.values)
    assert cache.keys.stride() == eager.keys.stride() and cache.keys.is_contiguous()


ACTIONS: dict[str, Callable[[Any, Any, random.Random], object]] = {
    "nothing": lambda c, kept, choose: None,
    "hold": lambda c, kept, choose: kept.append(c.keys),
    "hold a view": lambda c, kept, choose: kept.append(c.keys[:, 1:, 3:]),
    "hold a detached one": lambda c, kept, choose: kept.append(c.values.detach()),
    "hold its data": lambda c, kept, choose: kept.append(c.values.data),
    "hold an array": lambda c, kept, choose: kept.append(c.keys.numpy()),
    "hold the cache": lambda c, kept, choose: kept.append(copy.copy(c)),
    "copy the cache": lambda c, kept, choose: kept.append(copy.deepcopy(c)),
    "write": lambda c, kept, choose: c.keys.mul_(1.5),
    "write an element": lambda c, kept, choose: c.keys.__setitem__((0, 1, choose.randrange(FIRST)), 7.0),
    "write through a view": lambda c, kept, choose: c.values.view(-1)[5:9].zero_(),
    "write what is held": lambda c, kept, choose: [t.add_(1) for t in kept if isinstance(t, torch.Tensor)],
    "go back": lambda c, kept, choose: [
        vars(c).update(vars(k)) for k in reversed(kept) if isinstance(k, Cache | SimpleNamespace)
    ][:1],
    "crop": lambda c, kept, choose: vars(c).update(keys=c.keys[:, :, :-2], values=c.values[:, :, :-2]),
    "turn heads": lambda c, kept, choose: vars(c).update(keys=c.keys.flip(1)),
    "reorder": lambda c, kept, choose: vars(c).update(keys=c.keys.index_select(0, torch.tensor([0]))),
    "share": lambda c, kept, choose: vars(c).update(values=c.keys),
    "exchange": lambda c, kept, choose: vars(c).update(values=c.keys, keys=c.values),
    "ask": lambda c, kept, choose: kept.append([c.keys.stride(), c.values.is_contiguous(), c.keys.shape, c.keys.dtype]),
}


def seen(x: Any) -> Any:
    """The observable state of a value."""
    if isinstance(x, torch.Tensor):
        return bits(x), x.shape, x.stride(), x.storage_offset(), x._is_view(), x._version
    if isinstance(x, np.ndarray):
        return x.tobytes(), x.shape, x.strides
    return {k: seen(t) for k, t in vars(x).items()} if isinstance(x, Cache) else x


@pytest.mark.parametrize("seed", range(12))
def test_others_see_what_eager_calls_show(seed: int) -> None:
    """Whatever happens to a cache between calls, and whoever holds it or a part of it."""
    choose = random.Random(seed)
    names = [name for name in choose.choices([*ACTIONS], k=40) for name in (name, *["nothing"] * choose.choice((0, 3)))]
    compiled, cache, numbers = warmed(step)
    eager = copy.deepcopy(cache)
    kept: list[Any] = []
    held: list[Any] = []
    for name in names:
        ACTIONS[name](cache, kept, random.Random(5))
        ACTIONS[name](eager, held, random.Random(5))
        x = row(numbers)
        assert bits(compiled(cache, x)) == bits(step(eager, x)), name
        if choose.random() < 0.3:
            assert seen(cache) == seen(eager) and [*map(seen, kept)] == [*map(seen, held)], name
    assert seen(cache) == seen(eager) and [*map(seen, kept)] == [*map(seen, held)]


def test_one_tensor_in_two_caches() -> None:
    """Each continues from what both have, and does not see what the other appends."""
    compiled, cache, numbers = warmed(step)
    other = copy.copy(cache)
    pair, eager = (cache, other), [copy.deepcopy(c) for c in (cache, other)]
    for n in range(8):
        x = row(numbers)
        assert bits(compiled(pair[n % 2], x)) == bits(step(eager[n % 2], x))
    for ours, theirs in zip(pair, eager, strict=True):
        assert bits(ours.keys) == bits(theirs.keys) and bits(ours.values) == bits(theirs.values)


def test_a_tensor_twice_among_the_arguments() -> None:
    """Two results that begin with one tensor do not share the memory behind it."""

    def both(one: Any, two: Any, x: Any) -> Any:
        one.keys, two.keys = torch.cat([one.keys, x], 2), torch.cat([two.keys, x + 1], 2)
        return one.keys.sum(2) - two.keys.sum(2)

    numbers = np.random.default_rng(1)
    compiled, one, two, start = torch.compile(both, wait=True), Cache(), Cache(), row(numbers, FIRST)
    one.keys, two.keys = start.clone(), start + 1
    for _ in range(6):
        compiled(one, two, row(numbers))
    assert room(one.keys) is not None
    two.keys = one.keys
    eager = [copy.deepcopy(one), copy.deepcopy(two)]
    for _ in range(3):
        x = row(numbers)
        assert bits(compiled(one, two, x)) == bits(both(eager[0], eager[1], x))
    assert bits(one.keys) == bits(eager[0].keys) and bits(two.keys) == bits(eager[1].keys)


def test_a_call_that_takes_another_path_appends_nothing() -> None:
    def program(cache: Any, x: Any) -> Any:
        cache.keys = x.clone() if cache.keys is None else torch.cat([cache.keys, x], dim=-2)
        if x.sum() > 0:
            return cache.keys.sum(-2)
        return cache.keys.amax(-2)

    compiled, cache, numbers = warmed(lambda c, x: program(c, x.abs()), 6)
    compiled, eager = torch.compile(program, wait=True), copy.deepcopy(cache)
    for n in range(12):
        x = row(numbers).abs() * (-1) ** (n // 2)
        assert bits(compiled(cache, x)) == bits(program(eager, x))
    assert bits(cache.keys) == bits(eager.keys)


def test_a_call_that_fails_leaves_the_cache() -> None:
    def program(cache: Any, x: Any, at: Any) -> Any:
        if cache.keys is None:
            cache.keys = x.clone()
        else:
            cache.keys = torch.cat([cache.keys, x], dim=-2)
        return cache.keys.sum(-2)[0, 0][at]

    numbers = np.random.default_rng(2)
    compiled, cache = torch.compile(program, wait=True), Cache()
    compiled(cache, row(numbers, FIRST), torch.tensor(1))
    for _ in range(5):
        compiled(cache, row(numbers), torch.tensor(1))
    before = bits(cache.keys.clone())
    with pytest.raises(IndexError):
        compiled(cache, row(numbers) * float("inf"), torch.tensor(WIDTH))
    eager = copy.deepcopy(cache)
    length = len(before) // (4 * HEADS * WIDTH)
    assert bits(cache.keys[:, :, :length].contiguous()) == before
    x = row(numbers)
    assert bits(compiled(cache, x, torch.tensor(1))) == bits(program(eager, x, torch.tensor(1)))


def test_caches_of_a_module() -> None:
    """Attributes of captured objects grow in place, too."""

    class Decoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.project = torch.nn.Linear(WIDTH, WIDTH)
            self.keys: Any = None

        def forward(self, x: Any) -> Any:
            x = self.project(x)
            self.keys = x if self.keys is None else torch.cat([self.keys, x], dim=-2)
            return (x @ self.keys.mT).softmax(-1) @ self.keys

    torch.manual_seed(0)
    ours, numbers = Decoder(), np.random.default_rng(4)
    eager = copy.deepcopy(ours)
    compiled = torch.compile(ours, wait=True)
    with torch.no_grad():
        for n in range(30):
            x = row(numbers, 1 if n else FIRST)
            assert bits(compiled(x)) == bits(eager(x))
    assert room(ours.keys) is not None and bits(ours.keys) == bits(eager.keys)


def test_padding_that_is_zero_is_not_masked() -> None:
    """Groups of heads and other dtypes: nothing of the size of the cache is computed but the products."""
    compiled = torch.compile(step, wait=True)
    for dtype in (torch.float32, torch.bfloat16):
        cache, numbers = Cache(), np.random.default_rng(3)
        compiled(cache, row(numbers, 2 * FIRST).to(dtype))
        for _ in range(5):
            compiled(cache, row(numbers).to(dtype))
        graphs = [m.inner.graph for e in compiled.entries if e.is_sized() for m in e.plan.forward.made if not m.exact]
        wide = [n for g in graphs for n in g.live_nodes() if n.op.name == "where" and n.outputs[0].shape[-1] == WIDTH]
        assert graphs and not wide


def test_with_heads_in_groups() -> None:
    def grouped(cache: Any, x: Any) -> Any:
        if cache.keys is None:
            cache.keys = x.clone()
        else:
            cache.keys = torch.cat([cache.keys, x], dim=-2)
        keys = cache.keys[:, :, None].expand(-1, -1, 2, -1, -1).flatten(1, 2)
        return (x.repeat(1, 2, 1, 1) @ keys.mT).softmax(-1) @ keys

    compiled, cache, numbers = warmed(grouped)
    eager = copy.deepcopy(cache)
    for _ in range(40):
        x = row(numbers)
        assert bits(compiled(cache, x)) == bits(grouped(eager, x))


def test_other_compiled_calls_write_and_read_a_cache() -> None:
    """Between calls that append: none of them is recorded again."""
    append, cache, numbers = warmed(step)
    scale = torch.compile(lambda c: c.keys.mul_(1.5), wait=True, dynamic=True)
    read = torch.compile(lambda c: c.values.sum((1, 3)) + c.keys.mT[..., -1:, :].sum(), wait=True, dynamic=True)
    eager = copy.deepcopy(cache)
    for n in range(12):
        x = row(numbers)
        assert bits(append(cache, x)) == bits(step(eager, x))
        if n % 2:
            scale(cache)
            eager.keys.mul_(1.5)
        assert bits(read(cache)) == bits(eager.values.sum((1, 3)) + eager.keys.mT[..., -1:, :].sum())
    assert bits(cache.keys) == bits(eager.keys)
    assert scale.recordings <= 2 and read.recordings <= 2


def test_batches_of_any_size() -> None:
    """The padding of a batch is not zero, and that behind the rows stays zero."""
    compiled, numbers = torch.compile(step, wait=True), np.random.default_rng(6)
    rooms = 0
    for batch in (1, 3, 2, 5, 4):
        cache, eager = Cache(), Cache()
        for n in range(12):
            x = row(numbers, 1 if n else FIRST, batch)
            x[0, 0, 0, 0] = float("inf") if n == 7 else 1.0  # padding of the softmax is then NaN
            assert bits(compiled(cache, x)) == bits(step(eager, x))
        rooms += room(cache.keys) is not None
        assert bits(cache.keys) == bits(eager.keys) and cache.values.stride() == eager.values.stride()
    assert rooms >= 4
