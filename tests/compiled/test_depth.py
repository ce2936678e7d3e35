"""Programs of many operators and operands: compiling them takes no recursion that grows with their number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tracecomp as torch


def _dependent(n: int) -> Callable[[Any], Any]:
    def fn(x: Any) -> Any:
        out = [x]
        for _ in range(n - 1):
            out.append(out[-1] + 0.5)
        return torch.stack(out)

    return fn


def _stacked(n: int) -> Callable[[Any], Any]:
    return lambda x: torch.stack([x * i for i in range(n)])


def _joined(n: int) -> Callable[[Any], Any]:
    return lambda x: torch.cat([x[: i % 3] * i for i in range(n)])


def _interleaved(n: int) -> Callable[[Any], Any]:
    return lambda x: torch.stack([x + i for i in range(n)], -1)


def _alive(n: int) -> Callable[[Any], Any]:
    def fn(x: Any) -> Any:
        parts = [torch.sin(x + i) for i in range(n)]
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return total

    return fn


def _chain(n: int) -> Callable[[Any], Any]:
    def fn(x: Any) -> Any:
        for _ in range(n):
            x = x * 0.5 + 1
        return x

    return fn


@pytest.mark.parametrize(
    "fn",
    [
        _dependent(400), _stacked(33), _stacked(700), _joined(300), _interleaved(200), _chain(500),
        pytest.param(_alive(3000), marks=pytest.mark.slow), pytest.param(_chain(10000), marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_many_operators_are_compiled(fn: Callable[[Any], Any]) -> None:
    compiled = torch.compile(fn, fullgraph=True)
    x = torch.arange(4.0)
    for _ in range(2):
        assert torch.equal(compiled(x), fn(x))


def test_many_operators_are_differentiated() -> None:
    fn = _dependent(200)
    compiled = torch.compile(fn, fullgraph=True)
    for _ in range(2):
        grads = []
        for f in (compiled, fn):
            x = torch.arange(4.0, requires_grad=True)
            f(x).square().sum().backward()
            assert x.grad is not None
            grads.append(x.grad)
        assert torch.equal(*grads)


def _nested(depth: int) -> torch.nn.Module:
    model: torch.nn.Module = torch.nn.Linear(4, 4)
    for _ in range(depth):
        model = torch.nn.Sequential(model, torch.nn.Tanh())
    return model


def _deepest(run: Callable[[torch.nn.Module], object]) -> int:
    """How deeply modules may be nested for ``run``, to 5."""
    depth = 100
    while True:
        try:
            run(_nested(depth + 5))
        except RecursionError:
            return depth
        depth += 5


def test_recordings_nest_modules_about_as_deeply_as_eager_calls() -> None:
    x = torch.ones(2, 4)
    assert _deepest(lambda model: torch.trace(model, x)) >= _deepest(lambda model: model(x)) - 15


def test_a_recording_that_is_nested_too_deeply_names_the_limit() -> None:
    with pytest.raises(RecursionError) as raised:
        torch.trace(_nested(600), torch.ones(2, 4))
    assert "sys.setrecursionlimit" in raised.value.__notes__[0]
