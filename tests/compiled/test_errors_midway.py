"""Calls that raise in the middle: what precedes the error is written as in eager mode, and what follows is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tracecomp as torch
from tracecomp import nn

F = nn.functional

FAILING: dict[str, Callable[[Any, Any], Any]] = {
    "index": lambda x, i: x[i],
    "indices from numbers": lambda x, i: x[i] + x[i - 4],
    "index of the state": lambda x, i: x.add_(1)[i],
    "index_select": lambda x, i: x.index_select(0, i.reshape(1)),
    "gather": lambda x, i: x.gather(0, i.reshape(1)),
    "take": lambda x, i: x.take(i),
    "write": lambda x, i: x.index_put_((i.reshape(1),), torch.tensor([2.0])),
    "scatter": lambda x, i: x.scatter(0, i.reshape(1), 5.0),
    "scatter_add_": lambda x, i: x.scatter_add_(0, i.reshape(1), x[:1] * 1),
    "embedding": lambda x, i: F.embedding(i, x.reshape(2, 2)),
    "cross entropy": lambda x, i: F.cross_entropy(x.reshape(1, 4), i.reshape(1)),
    "inverse": lambda x, i: torch.linalg.inv(torch.eye(2) * (i - 2)),
    "solve": lambda x, i: torch.linalg.solve(torch.eye(2) * (i - 2), x.reshape(2, 2)),
    "cholesky": lambda x, i: torch.linalg.cholesky(torch.eye(2) * (3 - i)),
    "division": lambda x, i: torch.arange(4) // (2 - i),
    "remainder": lambda x, i: torch.arange(4) % (2 - i),
    "assertion": lambda x, i: _assert(i < 3),
}  # fmt: skip
SURROUNDINGS: dict[str, Callable[[Any, Any, Any, Callable[[], Any]], Any]] = {}


def _assert(condition: Any) -> Any:
    assert condition.item()
    return condition


def around(fn: Callable[[Any, Any, Any, Callable[[], Any]], Any]) -> Callable[..., Any]:
    SURROUNDINGS[fn.__name__.replace("_", " ")] = fn
    return fn


@around
def tensors_alone(w: Any, v: Any, state: dict[str, Any], fails: Callable[[], Any]) -> Any:
    w.add_(1)
    found = fails()
    w.add_(10)
    return found


@around
def several_writes(w: Any, v: Any, state: dict[str, Any], fails: Callable[[], Any]) -> Any:
    w.mul_(2).add_(1)
    v[0] = w.sum()
    found = fails()
    v.add_(w)
    w.sub_(v)
    return found, v * 2


@around
def objects(w: Any, v: Any, state: dict[str, Any], fails: Callable[[], Any]) -> Any:
    state["n"] += 1
    state["t"] = state["t"] + w
    w.add_(state["t"])
    found = fails()
    state["n"] += 10
    state["t"] = state["t"] * 2
    state["list"].append(v * 1)
    return found


@around
def two_failures(w: Any, v: Any, state: dict[str, Any], fails: Callable[[], Any]) -> Any:
    w.add_(1)
    first = fails()
    v.add_(w)
    second = v[w[0].to(torch.int64) % 5]
    w.add_(v)
    return first, second


def shown(x: Any) -> Any:
    if isinstance(x, torch.Tensor):
        return str(x.dtype), x.tolist()
    if isinstance(x, dict):
        return {k: shown(v) for k, v in x.items()}
    return [shown(v) for v in x] if isinstance(x, tuple | list) else x


@pytest.mark.filterwarnings("ignore:graph break")
@pytest.mark.parametrize("surroundings", SURROUNDINGS)
@pytest.mark.parametrize("name", FAILING)
def test_state_after_an_error_is_that_of_eager_mode(name: str, surroundings: str) -> None:
    def step(w: Any, v: Any, x: Any, i: Any, state: dict[str, Any]) -> Any:
        return SURROUNDINGS[surroundings](w, v, state, lambda: FAILING[name](x, i))

    def run(fn: Callable[..., Any]) -> list[Any]:
        w, v, seen = torch.zeros(3), torch.zeros(4), []
        state = {"n": 0, "t": torch.zeros(3), "list": list[Any]()}
        for i in (1, 1, 1, 2, 7, 1, 3, 9, 0):
            x = torch.arange(4.0)
            try:
                found = fn(w, v, x, torch.tensor(i), state)
            except (IndexError, RuntimeError, AssertionError) as error:
                found = type(error).__name__, str(error).split(" (")[0]
            seen.append(shown([found, w, v, x, state]))
        return seen

    for got, want in zip(run(torch.compile(step)), run(step), strict=True):
        assert got == want


def test_optimizer_step_with_a_bad_index() -> None:
    """The error of a forward pass leaves parameters, moments, gradients and the count of steps."""

    def run(compiled: bool) -> list[Any]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Embedding(5, 4), nn.LayerNorm(4), nn.Linear(4, 3))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)

        def step(tokens: Any, target: Any) -> Any:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(tokens), target)
            loss.backward()
            optimizer.step()
            return loss

        call, seen = torch.compile(step) if compiled else step, list[Any]()
        for token, target in ((1, 0), (2, 1), (3, 2), (7, 1), (1, 1), (2, 5), (4, 0)):
            try:
                found: Any = call(torch.tensor([token, 1]), torch.tensor([target, 0])).item()
            except IndexError:
                found = IndexError
            state = [list(s.values()) for s in optimizer.state.values()]
            grads = [None if p.grad is None else p.grad for p in model.parameters()]
            seen.append(shown([found, list(model.parameters()), grads, state]))
        return seen

    for got, want in zip(run(True), run(False), strict=True):
        assert got == want
