"""Values that later calls of a recording are given and that eager mode refuses: indices out of range, zero divisors."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import pytest

import tracecomp as tc

BACKENDS = ("native", "interpret")
Call = Callable[..., Any]


def assigned(x: Any, i: Any, j: Any) -> Any:
    x[i, j] = 7.0
    return x


def added(x: Any, i: Any, j: Any) -> Any:
    x.add_(x.clone().flatten()[i * 4 + j].sum())
    return x


INDEXED: dict[str, Call] = {
    "read": lambda x, i, j: x[i, j],
    "read behind a slice": lambda x, i, j: x[None][:, i, j],
    "written": assigned,
    "put": lambda x, i, j: x.index_put_((i, j), tc.tensor(5.0)),
    "accumulated": lambda x, i, j: x.index_put_((i, j), tc.tensor(5.0), accumulate=True),
}
DIVIDED: dict[str, Call] = {
    "floor": lambda a, b: a // b,
    "remainder": lambda a, b: a % b,
    "fmod": lambda a, b: tc.fmod(a, b),
    "truncated": lambda a, b: tc.div(a, b, rounding_mode="trunc"),
    "a number": lambda a, b: 5 // b,
    "fused": lambda a, b: (a + 1) // (b * 2 - b) + 1,
    "summed": lambda a, b: (a // b).sum(),
    "padded": lambda a, b: tc.nn.functional.pad(a // b, (2, 2)) * 2,
    "in place": lambda a, b: a.floor_divide_(b),
    "in part": lambda a, b: (a // b)[2:],
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("i", "j"), [((0, -4), (0, 1)), ((0, 1), (0, -5)), ((0, 1), (4, 0)), ((3, 0), (0, 0))])
@pytest.mark.parametrize("name", INDEXED)
def test_each_of_several_indices_is_checked(name: str, i: tuple[int, int], j: tuple[int, int], backend: str) -> None:
    run = tc.compile(INDEXED[name], backend=backend)
    for _ in range(4):
        good = INDEXED[name](tc.arange(12.0).reshape(3, 4), tc.tensor([0, -3]), tc.tensor([-4, 3])).tolist()
        assert run(tc.arange(12.0).reshape(3, 4), tc.tensor([0, -3]), tc.tensor([-4, 3])).tolist() == good
    x = tc.arange(12.0).reshape(3, 4)
    with pytest.raises(IndexError):
        run(x, tc.tensor(i), tc.tensor(j))
    assert x.tolist() == tc.arange(12.0).reshape(3, 4).tolist()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", (tc.int64, tc.int32, tc.int8, tc.uint8))
@pytest.mark.parametrize("name", DIVIDED)
def test_integers_are_not_divided_by_zero(name: str, dtype: Any, backend: str) -> None:
    run = tc.compile(DIVIDED[name], backend=backend)
    given, divisor = tc.arange(1, 12).to(dtype), tc.arange(2, 13).to(dtype)
    for _ in range(4):
        assert run(given.clone(), divisor).tolist() == DIVIDED[name](given.clone(), divisor).tolist()
    for at in (0, 10):
        zero, a = divisor.clone(), given.clone()
        zero[at] = 0
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            run(a, zero)
        assert a.tolist() == given.tolist()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_call_that_fails_leaves_what_it_would_write(backend: str) -> None:
    run = tc.compile(added, backend=backend)
    index = tc.tensor([1, 2])
    for _ in range(4):
        run(tc.ones(3, 4), index, tc.tensor([0, 3]))
    x = tc.ones(3, 4)
    with pytest.raises(IndexError):
        run(x, index, tc.tensor([0, 9]))
    assert x.tolist() == [[1.0] * 4] * 3


def test_an_index_that_another_thread_changes_stays_within_bounds() -> None:
    index, x, source = tc.zeros(200_000, dtype=tc.int64), tc.zeros(64), tc.ones(200_000)

    @tc.compile
    def step(x: Any, index: Any, source: Any) -> Any:
        return x.index_add_(0, index, source)

    for _ in range(4):
        step(x, index, source)
    stop = threading.Event()

    def change() -> None:
        while not stop.is_set():
            index._data.fill(2**40)
            index._data.fill(3)

    other = threading.Thread(target=change)
    other.start()
    try:
        for _ in range(40):
            with contextlib.suppress(IndexError):
                step(x, index, source)
    finally:
        stop.set()
        other.join()
    assert x.shape == (64,)
