"""Arguments and state that share memory while some of it is written: every way of sharing, in turns with none."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracecomp as tc

BACKENDS = ("native", "interpret")
Pair = tuple[Any, Any]


def other_dtype(torch: Any) -> Pair:
    x = torch.arange(8.0)
    return x, x.view(torch.int32)[2:6]


def other_size(torch: Any) -> Pair:
    x = torch.arange(8.0)
    return x[1:6], x.view(torch.int16)[6:10]


def one_array(torch: Any) -> Pair:
    a = np.arange(8, dtype=np.float32)
    return torch.from_numpy(a), torch.from_numpy(a[::2])


def dlpack(torch: Any) -> Pair:
    x = torch.arange(8.0)
    return x, torch.from_dlpack(x)[3:5]


def an_array_and_its_tensor(torch: Any) -> Pair:
    a = np.arange(8, dtype=np.float32)
    return torch.from_numpy(a), a[4:]


SHARED: dict[str, Callable[[Any], Pair]] = {
    "nothing": lambda torch: (torch.arange(8.0), torch.arange(8.0)),
    "detached": lambda torch: (lambda x: (x, x.detach()))(torch.arange(8.0)),
    "data": lambda torch: (lambda x: (x, x.data))(torch.arange(8.0)),
    "a view": lambda torch: (lambda x: (x, x[2:6]))(torch.arange(8.0)),
    "two views": lambda torch: (lambda x: (x[:5], x[3:]))(torch.arange(8.0)),
    "columns": lambda torch: (lambda x: (x[:, :2], x[:, 1:]))(torch.arange(12.0).reshape(4, 3)),
    "apart in one memory": lambda torch: (lambda x: (x[:, :1], x[:, 1:]))(torch.arange(12.0).reshape(4, 3)),
    "turned": lambda torch: (lambda x: (x.t(), x[1]))(torch.arange(12.0).reshape(4, 3)),
    "expanded": lambda torch: (lambda x: (x, x[:1].expand(4)))(torch.arange(4.0)),
    "windows": lambda torch: (lambda x: (x, x.unfold(0, 3, 2)))(torch.arange(8.0)),
    "another dtype": other_dtype,
    "another size": other_size,
    "one array": one_array,
    "dlpack": dlpack,
    "an array": an_array_and_its_tensor,
}


def writing(torch: Any, x: Any, y: Any) -> Any:
    y = torch.as_tensor(y)
    total = y.sum()
    x.mul_(2)
    return y + 1, x, y[1:], total


def writing_both(torch: Any, x: Any, y: Any) -> Any:
    x[1:3] = 5
    torch.as_tensor(y)[..., :1].add_(1)
    return x * 1, torch.as_tensor(y) * 1


def seen(results: Any, given: Pair) -> Any:
    return [np.asarray(t).tolist() for t in (*results, *given)], [getattr(t, "_version", 0) for t in given]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("program", (writing, writing_both))
@pytest.mark.parametrize("how", SHARED)
def test_written_memory_may_be_shared(how: str, program: Any, backend: str) -> None:
    torch = pytest.importorskip("torch")
    if how == "expanded" and program is writing_both:
        pytest.skip("torch warns of a write to one of several equal elements")
    run = tc.compile(lambda x, y: program(tc, x, y), backend=backend)
    for _ in range(5):
        for pattern in (how, "nothing"):
            want, given = SHARED[pattern](torch), SHARED[pattern](tc)
            assert seen(run(*given), given) == seen(program(torch, *want), want)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_argument_may_be_memory_of_state(backend: str) -> None:
    w = tc.arange(6.0)

    def program(x: Any) -> Any:
        x.add_(1)
        w.mul_(2)
        return x.sum() + w.sum()

    run = tc.compile(program, backend=backend)
    for turn in range(4):
        for x in (tc.ones(3), w[2:5], tc.ones(3), w.detach()[3:]):
            before, copy = w.tolist(), x.tolist()
            mine = np.array(before)
            inside = x._data.base is w._data
            place = mine[(x._address() - w._address()) // 4 :][:3] if inside else np.array(copy)
            place += 1
            mine *= 2
            assert run(x).item() == place.sum() + mine.sum(), turn
            assert w.tolist() == mine.tolist() and x.tolist() == place.tolist()


@pytest.mark.parametrize("backend", BACKENDS)
def test_arrays_among_the_arguments_are_written(backend: str) -> None:
    def program(a: Any, b: Any) -> Any:
        t = tc.from_numpy(a)
        t.add_(b)
        return t, a

    run = tc.compile(program, backend=backend)
    for k in range(4):
        a = np.full(3, float(k))
        t, same = run(a, tc.ones(3, dtype=tc.float64))
        assert same is a and a.tolist() == [k + 1.0] * 3
        t.mul_(2)
        assert a.tolist() == [2 * k + 2.0] * 3


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("captured", (False, True))
def test_read_only_memory_is_refused_as_in_eager_mode(backend: str, captured: bool) -> None:
    state = np.zeros(4, np.float32)
    w = tc.from_numpy(state)

    def step(x: Any) -> Any:
        (w if captured else x).add_(1)
        return x * 1

    run = tc.compile(step, backend=backend)
    given = np.zeros(4, np.float32)
    for _ in range(3):
        run(tc.from_numpy(given))
    for _ in range(2):
        locked = state if captured else given
        locked.flags.writeable = False
        view = tc.from_numpy(given)
        if captured:
            w._data.flags.writeable = False
        with pytest.raises(RuntimeError, match="read-only"):
            run(view)
        assert locked.tolist() == [3.0 + _] * 4
        locked.flags.writeable = True
        if captured:
            w._data.flags.writeable = True
        run(tc.from_numpy(given))


DAMAGE: dict[str, Callable[[Any], object]] = {
    "no array": lambda t: delattr(t, "_data"),
    "another kind of array": lambda t: setattr(t, "_data", [1.0]),
    "None for the array": lambda t: setattr(t, "_data", None),
    "no storage": lambda t: delattr(t, "_storage"),
    "something as storage": lambda t: setattr(t, "_storage", 5),
    "a storage without memory": lambda t: delattr(t._shared_storage(), "memory"),
    "something as memory": lambda t: setattr(t._shared_storage(), "memory", "x"),
    "something as version": lambda t: setattr(t._shared_storage(), "version", "x"),
    "something as writes": lambda t: setattr(t._shared_storage().memory, "writes", "x"),
    "no flag": lambda t: delattr(t, "_linked"),
    "something as flag": lambda t: setattr(t, "_linked", 7),
    "no history": lambda t: delattr(t, "_grad_fn"),
    "something as gradient": lambda t: setattr(t, "_grad", 5),
    "no gradient": lambda t: delattr(t, "_grad"),
}


@pytest.mark.parametrize("who", ("argument", "captured"))
@pytest.mark.parametrize("damage", DAMAGE)
def test_tensors_without_their_insides_do_not_crash_native_calls(damage: str, who: str) -> None:
    w = tc.nn.Parameter(tc.ones(4))
    w.grad = tc.ones(4)

    @tc.compile
    def step(x: Any) -> Any:
        with tc.no_grad():
            w.sub_(w.grad * x)
            x.mul_(2)
        return x + 1

    x = tc.ones(4)
    for _ in range(4):
        step(x)
    DAMAGE[damage](x if who == "argument" else w)
    with contextlib.suppress(AttributeError, TypeError, RuntimeError, AssertionError):
        step(x)
    assert tc.compile(lambda t: t + 1)(tc.ones(2)).tolist() == [2, 2]
