"""Arguments that are other objects of one class at every call, as a cache for each request."""

from __future__ import annotations

import copy
import heapq
from collections.abc import Callable
from typing import Any

import pytest

import tracecomp as torch
from tracecomp.record.pytree import is_varying

pytestmark = pytest.mark.filterwarnings("ignore:graph break in", "ignore:.* spent ")


class Layer:
    """Part of a cache."""

    factor = 2

    def __init__(self) -> None:
        self.keys: Any = None
        self.count = 0

    def update(self, x: Any) -> Any:
        self.keys = x if self.keys is None else torch.cat([self.keys, x])
        return self.keys


class Cache:
    """An argument that keeps tensors from call to call."""

    def __init__(self) -> None:
        self.layers = [Layer(), Layer()]
        self.name = "cache"


KEPT: dict[str, Any] = {"cache": Cache(), "seen": {}}
"""Objects that programs find outside of their arguments."""


def grows(x: Any, cache: Any) -> Any:
    return cache.layers[0].update(x).sum() + cache.layers[1].update(x * 2).sum()


def counts(x: Any, cache: Any) -> Any:
    cache.layers[0].count += 1
    return x * cache.layers[0].count


def adds(x: Any, cache: Any) -> Any:
    cache.last = x + 1
    return x * (2 if hasattr(cache, "extra") else 3)


def deletes(x: Any, cache: Any) -> Any:
    if hasattr(cache, "name"):
        del cache.name
    return x * 2


def sets_unseen(x: Any, cache: Any) -> Any:
    copy._reconstruct(Cache(), None, lambda: cache, (), {"last": x * 3, "number": 7})  # type: ignore[attr-defined]
    return x * 2


def changes_a_list_unseen(x: Any, cache: Any) -> Any:
    heapq.heappush(cache.__dict__.setdefault("heap", []), 1)
    return x * len(cache.heap)


def compares(x: Any, cache: Any) -> Any:
    return x * 2 if cache is KEPT["cache"] else x * 3


def looks_up(x: Any, cache: Any) -> Any:
    seen = KEPT["seen"]
    return x * 2 if cache in seen else x * 3


def returns(x: Any, cache: Any) -> Any:
    cache.layers[1].keys = x * 5
    return x, cache


def reads_the_class(x: Any, cache: Any) -> Any:
    return x * cache.layers[0].factor


PROGRAMS = [
    grows, counts, adds, deletes, sets_unseen, changes_a_list_unseen, compares, looks_up, returns, reads_the_class,
]  # fmt: skip


def state(value: Any, met: tuple[int, ...] = ()) -> Any:
    """All that an object holds."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, list):
        return [state(v, met) for v in value]
    if isinstance(value, Cache | Layer):
        return {k: state(v, (*met, id(value))) for k, v in vars(value).items() if id(v) not in met}
    return value


def requests(fn: Callable[..., Any]) -> list[Any]:
    """Several calls with each of several objects."""
    found: list[Any] = []
    KEPT["cache"], KEPT["seen"] = Cache(), {}
    for number in range(6):
        cache: Any = KEPT["cache"] if number == 3 else Cache()
        if number % 2:
            cache.me = cache
        if number == 4:
            cache.extra = 1
            KEPT["seen"][cache] = True
        if number == 5:
            cache.layers[1] = cache.layers[0]
            Layer.factor = 3
        for step in range(5):
            result = fn(torch.full((2,), float(step + number)), cache)
            if isinstance(result, tuple):
                assert result[1] is cache
                result = result[0]
            found.append((result.tolist(), state(cache)))
    Layer.factor = 2
    return found


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_calls_with_fresh_objects(program: Callable[..., Any]) -> None:
    assert requests(torch.compile(program)) == requests(program)


class DecodingCache(Cache):
    """A cache whose identity no program uses."""


def test_decoding_with_a_fresh_cache_takes_few_recordings() -> None:
    compiled = torch.compile(grows, fullgraph=True)
    for _ in range(4):
        caches = DecodingCache(), DecodingCache()
        for step in range(6):
            x = torch.full((2,), float(step))
            assert compiled(x, caches[0]).item() == grows(x, caches[1]).item()
        assert state(caches[0]) == state(caches[1])
    before = compiled.recordings
    for _ in range(9):
        compiled(torch.ones(2), caches[0])
    assert compiled.recordings == before <= 8


class CountingCache:
    """A cache that also counts its updates, as those of a sliding window do."""

    def __init__(self) -> None:
        self.keys: Any = torch.zeros(0)
        self.count = 0
        self.most = 8

    def update(self, x: Any) -> Any:
        self.count += x.shape[0]
        self.keys = torch.cat([self.keys, x])[-self.most :]
        return self.keys

    def size(self) -> int:
        return self.count if self.count < self.most else self.most


def counts_and_grows(x: Any, cache: Any) -> Any:
    return (cache.update(x) * torch.arange(cache.size())).sum() + cache.count


def fails_when_full(x: Any, cache: Any) -> Any:
    cache.update(x)
    if cache.count > 6:
        raise ValueError("full")
    return x * cache.count


def test_numbers_that_grow_with_a_size_take_few_recordings() -> None:
    compiled = torch.compile(counts_and_grows, fullgraph=True)
    recordings = []
    for number in range(6):
        caches = CountingCache(), CountingCache()
        for step in range(1 + 3 * number):
            x = torch.full((1,), float(step))
            assert compiled(x, caches[0]).item() == counts_and_grows(x, caches[1]).item()
            assert vars(caches[0])["count"] == caches[1].count and type(caches[0].count) is int
            assert caches[0].keys.tolist() == caches[1].keys.tolist()
        recordings.append(compiled.recordings)
    assert recordings[-1] == recordings[-2]


def test_followed_numbers_of_objects_are_plain_after_an_error() -> None:
    compiled = torch.compile(fails_when_full)
    for _ in range(3):
        caches = CountingCache(), CountingCache()
        for step in range(9):
            x = torch.full((1,), float(step))
            results = []
            for fn, cache in zip((compiled, fails_when_full), caches, strict=True):
                try:
                    results.append(fn(x, cache).tolist())
                except ValueError as error:
                    results.append(str(error))
            assert results[0] == results[1]
            assert [type(v) for v in vars(caches[0]).values()] == [type(v) for v in vars(caches[1]).values()]
            assert caches[0].count == caches[1].count


def test_a_cache_for_each_request_needs_no_recording_more_than_a_single_request() -> None:
    class Rows(Layer):
        """A class that no other test has given to a compiled function."""

    class Request:
        def __init__(self) -> None:
            self.layers = [Rows(), Rows()]

    def step(x: Any, request: Any) -> Any:
        return request.layers[0].update(x).sum(0) + request.layers[1].update(x * 2).sum(0)

    compiled = torch.compile(step)
    recordings = []
    for _ in range(3):
        own, other = Request(), Request()
        for n in (5, *[1] * 8):
            x = torch.randn(n, 4)
            assert torch.equal(compiled(x, own), step(x, other))
        recordings.append(compiled.recordings)
    assert recordings == [3, 3, 3]  # the prompt, the first and the other tokens


def test_only_objects_that_calls_hold_are_taken_apart_at_once() -> None:
    """An object that lives elsewhere is most often one for all calls: guards cover its reads only."""

    class Options:
        def __init__(self) -> None:
            self.factor = 2

    class Holder:
        def __init__(self, held: Any) -> None:
            self.held = held

    class Request:
        def __init__(self, options: Any) -> None:
            self.options, self.keys = options, None

    def program(x: Any, request: Any) -> Any:
        request.keys = x * request.options.factor
        return request.keys

    def alone(x: Any, options: Any) -> Any:
        return x * options.factor

    options = Options()
    holders: list[Any] = [Holder(options), Holder({"a": [options]}), lambda: options]
    KEPT["holders"] = holders
    compiled, apart = torch.compile(program, fullgraph=True), torch.compile(alone, fullgraph=True)
    for n in range(3):
        x = torch.ones(2) * n
        assert torch.equal(compiled(x, Request(options)), x * 2) and torch.equal(apart(x, options), x * 2)
    del KEPT["holders"]
    assert is_varying(Request) and not is_varying(Options) and not is_varying(Holder)
    assert compiled.recordings == apart.recordings == 1
    options.factor, options.other = 3, 4  # type: ignore[attr-defined]
    assert compiled(x, Request(options)).tolist() == [6.0, 6.0] and apart(x, options).tolist() == [6.0, 6.0]


def test_attributes_of_the_class_need_no_recording_of_their_own() -> None:
    class Part(Layer):
        extra: Any

    def program(x: Any, part: Any) -> Any:
        part.keys = x * part.factor + hasattr(part, "extra")
        return part.keys

    def run(part: Any) -> int:
        return int(compiled(torch.ones(1), part).item())

    compiled = torch.compile(program)
    assert [run(Part()) for _ in range(5)] == [2] * 5
    assert compiled.recordings == 1
    Part.factor = 5
    assert [run(Part()) for _ in range(2)] == [5, 5]
    own = Part()
    own.factor = 7
    assert [run(own), run(Part()), run(own)] == [7, 5, 7]
    Part.extra = True
    assert [run(Part()), run(own)] == [6, 8]
    del Part.extra, own.factor
    assert [run(Part()), run(own)] == [5, 5]
