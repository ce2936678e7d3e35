"""Calls of dynamic sizes and nested arguments that native code compares: what differs is noticed, the rest fits."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tracecomp import nn
from tracecomp.compiled.function import Compiled

pytestmark = pytest.mark.filterwarnings("ignore:graph break in", "ignore:.* spent ")


class Cache:
    """Rows that grow, their number, and options."""

    def __init__(self, rows: int = 3) -> None:
        self.keys = torch.arange(rows * 4.0).reshape(rows, 4)
        self.values = self.keys * 2
        self.count = rows
        self.name = "cache"
        self.scale = 3.0
        self.parts: list[Any] = [torch.ones(4), {"one": torch.ones(2, 4)}]


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.linear = nn.Linear(4, 4)
        self.factor = 2.0
        self.kept = torch.ones(1, 4)

    def forward(self, x: Any, cache: Any = None, flag: bool = True, **options: Any) -> Any:
        cache.keys = torch.cat([cache.keys, x])
        cache.values = torch.cat([cache.values, self.linear(x) * self.factor])
        cache.count += x.shape[0]
        if cache.count >= 500 or not flag:
            x = x - 1
        seen = (x @ cache.keys.T).softmax(-1) @ cache.values * cache.scale + self.kept
        last = seen + cache.parts[0] + cache.parts[1]["one"].sum(0)
        return {"last": last, "count": cache.count, "same": cache.parts[0] is x, "names": [cache.name, *options]}


Call = dict[str, Any]


def arguments(rows: int = 34, count: int = 1) -> Call:
    return {"x": torch.full((count, 4), 0.5), "cache": Cache(rows), "flag": True, "other": None}


def _set(name: str, value: Callable[[Any], Any]) -> Callable[[Call, Any], None]:
    return lambda call, model: setattr(call["cache"], name, value(call["cache"]))


def keep_rows(cache: Any, count: int) -> None:
    cache.keys, cache.values = cache.keys[:count], cache.values[:count]


def _argument(name: str, value: Callable[[Call], Any]) -> Callable[[Call, Any], None]:
    return lambda call, model: call.__setitem__(name, value(call))


CHANGES: dict[str, Callable[[Call, Any], Any]] = {
    "dtype": _argument("x", lambda c: c["x"].double()),
    "rank": _argument("x", lambda c: c["x"][None]),
    "class": _argument("x", lambda c: nn.Parameter(c["x"])),
    "requires grad": lambda c, m: c["x"].requires_grad_(),
    "order in memory": _argument("x", lambda c: torch.ones(4, c["x"].shape[0]).T),
    "flag": _argument("flag", lambda c: False),
    "flag of another type": _argument("flag", lambda c: 1),
    "more arguments": _argument("further", lambda c: 1),
    "another option": _argument("other", lambda c: 0),
    "sizes that were equal": _set("values", lambda o: o.values[1:]),
    "size of one": lambda c, m: keep_rows(c["cache"], 1),
    "no rows": lambda c, m: keep_rows(c["cache"], 0),
    "another count": _set("count", lambda o: 7),
    "a large count": _set("count", lambda o: 800),
    "a huge count": _set("count", lambda o: 2**70),
    "a negative count": _set("count", lambda o: -5),
    "a float count": _set("count", lambda o: float(o.count)),
    "a boolean count": _set("count", lambda o: True),
    "another name": _set("name", lambda o: "".join(["ca", "che 2"])),
    "an equal name": _set("name", lambda o: "".join(["ca", "che"])),
    "another number": _set("scale", lambda o: 4.0),
    "an equal number": _set("scale", lambda o: float("3")),
    "one tensor twice": lambda c, m: c["cache"].parts.__setitem__(0, c["cache"].parts[1]["one"]),
    "one memory twice": _set("values", lambda o: o.keys[:]),
    "an argument that is captured": _argument("x", lambda c: MODELS["used"].kept),
    "an argument that is an attribute": lambda c, m: c["cache"].parts.__setitem__(0, c["x"]),
    "a list of another length": lambda c, m: c["cache"].parts.append(1),
    "an attribute more": _set("extra", lambda o: 5),
    "an array": _argument("x", lambda c: c["x"].numpy()),
    "a module's number": lambda c, m: setattr(m, "factor", m.factor + 1),
    "a module's tensor": lambda c, m: setattr(m, "kept", m.kept + 1),
    "a parameter": lambda c, m: m.linear.weight.data.mul_(2),
    "another parameter": lambda c, m: setattr(m.linear, "weight", nn.Parameter(m.linear.weight * 3)),
    "a hook": lambda c, m: m.linear.register_forward_hook(lambda *_: torch.zeros(1, 4)),
    "the class of the cache": lambda c, m: setattr(c["cache"], "__class__", type("Cache", (Cache,), {})),
}
MODELS: dict[str, Any] = {}


def outcome(model: Any, fn: Any, call: Call) -> Any:
    """The result of a call, or its error, and the state of the cache after it."""
    MODELS["used"] = model
    try:
        result = fn(**call)
        text = {k: v.detach().numpy().tobytes() if isinstance(v, torch.Tensor) else v for k, v in result.items()}
    except (RuntimeError, TypeError, ValueError, AttributeError, OverflowError) as error:
        return type(error).__name__
    cache = call["cache"]
    left = [(type(x), x.detach().numpy().tobytes() if isinstance(x, torch.Tensor) else repr(x)) for x in
            (cache.keys, cache.values, cache.count)]  # fmt: skip
    return repr(text), left, result["last"].requires_grad


def ready(model: Any) -> Compiled:
    """The compiled model, whose calls native code compares."""
    compiled = torch.compile(model.forward)
    for rows in range(33, 62):
        compiled(**arguments(rows))
    (served,) = [e for e in compiled.entries if e.check is not None and e.check._hits > 10]
    assert served.is_sized() and served.fast is None
    return compiled


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("with_grad", [False, True])
def test_changes_are_noticed(name: str, with_grad: bool) -> None:
    with torch.set_grad_enabled(with_grad):
        ours, eager = Model(), Model()
        compiled = ready(ours)
        for change in (None, name, name, None, None):
            for rows in (34, 39, 39):
                calls = arguments(rows), arguments(rows)
                for call, model in zip(calls, (ours, eager), strict=True):
                    if change is not None:
                        CHANGES[change](call, model)
                assert outcome(ours, compiled, calls[0]) == outcome(eager, eager.forward, calls[1]), (change, rows)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, lambda: torch.autocast("cpu", torch.bfloat16)])
def test_modes_of_the_thread_are_noticed(mode: Callable[[], Any]) -> None:
    ours, eager = Model(), Model()
    compiled = ready(ours)
    for _ in range(3):
        with mode():
            assert outcome(ours, compiled, arguments()) == outcome(eager, eager.forward, arguments())
        assert outcome(ours, compiled, arguments()) == outcome(eager, eager.forward, arguments())


def test_a_row_that_differs_in_each_call_is_left_to_python() -> None:
    """An equal text is another object in each call: native code compares the rest from the second update on."""
    model = Model()
    with torch.no_grad():
        compiled = torch.compile(model.forward)
        for rows in range(33, 62):
            call = arguments(rows)
            call["cache"].name = "".join(["ca", "che"])
            compiled(**call)
        assert max(e.check._hits for e in compiled.entries if e.check is not None) > 10


def test_sizes_of_threads_are_their_own() -> None:
    model = Model()
    with torch.no_grad():
        compiled = ready(model)
        expected = {rows: model(**arguments(rows))["last"].numpy().tobytes() for rows in range(33, 62)}
    wrong: list[int] = []

    def run(first: int) -> None:
        with torch.no_grad():
            for k in range(300):
                rows = 33 + (first + 7 * k) % 29
                if compiled(**arguments(rows))["last"].numpy().tobytes() != expected[rows]:
                    wrong.append(rows)

    threads = [threading.Thread(target=run, args=(first,)) for first in (0, 20, 40)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_objects_that_end_are_let_go_of() -> None:
    model = Model()
    with torch.no_grad():
        compiled = ready(model)
        checks = [e.check for e in compiled.entries if e.check is not None]
        del model
        compiled.reset()
        x = np.zeros(3)
        assert all(c._fitting([x]) is None for c in checks)


def test_arguments_end_after_their_calls() -> None:
    """Without a collection: the rows that a call has left hold none of its arguments."""

    class Owner:
        def scaled(self, x: Any) -> Any:
            return x * 3

    def apply(method: Any, cache: Any, x: Any) -> Any:
        cache.keys = torch.cat([cache.keys, method(x)])
        return cache.keys.sum(0)

    compiled = torch.compile(apply)
    owner = Owner()
    gc.disable()
    try:
        for rows in range(33, 53):
            cache = Cache(rows)
            compiled(owner.scaled, cache, x=torch.ones(1, 4))
            ends = weakref.ref(cache), weakref.ref(cache.keys)
            del cache
            assert [ref() for ref in ends] == [None] * 2
        assert any(e.check is not None and e.check._hits for e in compiled.entries)
        end = weakref.ref(owner)
        del owner
        assert end() is None
    finally:
        gc.enable()
