"""Results of compiled calls that share memory with each other, with arguments or with state. PyTorch is the
reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracecomp as tc

BACKENDS = ("native", "interpret")
Program = Callable[..., Any]

STATE = np.arange(6.0, dtype=np.float32)


def one_twice(torch: Any, x: Any, w: Any) -> Any:
    y = x * 2
    return y, y


def transposed(torch: Any, x: Any, w: Any) -> Any:
    y = x * 2
    return y, y.t(), y.t()[1:]


def views_without_their_base(torch: Any, x: Any, w: Any) -> Any:
    y = x * 2
    return y[1:], y[:, ::2]


def detached(torch: Any, x: Any, w: Any) -> Any:
    y = x * 2
    return y, y.detach(), y.data, y.detach()[0]


def of_an_argument(torch: Any, x: Any, w: Any) -> Any:
    return x[:1], x.t(), x, x.detach()


def of_state(torch: Any, x: Any, w: Any) -> Any:
    return w[2:4], w.view(2, 3), x + w[0]


def without_gradients(torch: Any, x: Any, w: Any) -> Any:
    y = x * 2
    with torch.no_grad():
        return y, y[0]


def of_one_written(torch: Any, x: Any, w: Any) -> Any:
    y = x * 2
    z = y[:, 1:]
    y.add_(1)
    z.mul_(3)
    return z, y, y[0]


def of_an_argument_written(torch: Any, x: Any, w: Any) -> Any:
    x.add_(1)
    x[0].mul_(2)
    return x[-1], x


def in_another_order(torch: Any, x: Any, w: Any) -> Any:
    return x.t() + 1, (x.t() * 2)[1:]


def expanded(torch: Any, x: Any, w: Any) -> Any:
    y = x.sum(0)
    return y.expand(3, 6), y[None], y


def unbound(torch: Any, x: Any, w: Any) -> Any:
    return list((x + 1).unbind(0))


PROGRAMS: list[Program] = [
    one_twice, transposed, views_without_their_base, detached, of_an_argument, of_state, without_gradients,
    of_one_written, of_an_argument_written, in_another_order, expanded, unbound,
]  # fmt: skip
ARGUMENTS: dict[str, Callable[[Any], Any]] = {
    "dense": lambda a: a,
    "strided": lambda a: a[::2],
    "a column": lambda a: a[:, :1],
    "turned": lambda a: a.t(),
    "expanded": lambda a: a[:1].expand(4, 6),
    "one row of many": lambda a: a[::2, :2][:1],
}


def seen(torch: Any, results: list[Any], given: list[Any]) -> list[Any]:
    """Values, layouts, and what shares memory with what, before and after a write to the first result."""
    tensors = [*results, *given]
    told: list[Any] = [[(*layout(t), t.requires_grad, t._version, t._is_view()) for t in tensors]]
    told.append([next(k for k, o in enumerate(tensors) if o is t) for t in tensors])
    told.append([t.tolist() for t in tensors])
    for t in (results[0], results[-1]):
        try:
            t.add_(100)
        except RuntimeError as error:
            told.append(str(error)[:40])
        told.append([t.tolist() for t in tensors])
    return told


def layout(t: Any) -> tuple[Any, ...]:
    """Strides, where they matter, and where the elements begin."""
    if not t.numel():
        return ()
    return [s for s, n in zip(t.stride(), t.shape, strict=True) if n > 1], t.storage_offset()


def calls(torch: Any, program: Program, argument: Callable[[Any], Any], wrap: Any = None) -> list[Any]:
    w = torch.tensor(STATE)

    def run(x: Any) -> Any:
        return program(torch, x, w)

    fn, told = wrap(run) if wrap else run, []
    for k in range(4):
        a = torch.arange(24.0).reshape(4, 6) + k
        x = argument(a)
        try:
            told.append(seen(torch, list(fn(x)), [x, a, w]))
        except RuntimeError as error:
            told.append([type(error)])
    return told


@pytest.mark.sampled(3)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("argument", ARGUMENTS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_results_share_memory_as_in_eager_mode(program: Program, argument: str, backend: str) -> None:
    if argument == "expanded" and program is of_an_argument_written:
        pytest.skip("refused")
    want = calls(tc, program, ARGUMENTS[argument])
    got = calls(tc, program, ARGUMENTS[argument], lambda f: tc.compile(f, backend=backend))
    for a, b in zip(got, want, strict=True):
        assert a == b


@pytest.mark.parametrize("argument", ("dense", "strided", "a column", "one row of many"))
@pytest.mark.parametrize("program", PROGRAMS)
def test_eager_results_share_memory_as_in_torch(program: Program, argument: str) -> None:
    torch = pytest.importorskip("torch")
    got = calls(tc, program, ARGUMENTS[argument])
    for a, b in zip(got, calls(torch, program, ARGUMENTS[argument]), strict=True):
        assert a == b


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_write_through_one_result_changes_the_history_of_the_others(backend: str) -> None:
    def program(x: Any, w: Any) -> Any:
        y = x * w
        return y, y[0], y.t()

    found = []
    for run in (program, tc.compile(program, backend=backend)):
        for _ in range(3):
            x, w = tc.arange(6.0).reshape(2, 3).requires_grad_(), tc.full((3,), 2.0).requires_grad_()
            y, row, turned = run(x, w)
            row.mul_(w)
            (y.sum() + (turned * turned).sum()).backward()
            found.append((x.grad.tolist(), w.grad.tolist(), type(y.grad_fn).__name__))
    assert all(f == found[0] for f in found)
