"""The cost of recording and compiling, counted in calls of Python functions: it grows in proportion to the program."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import tracecomp as tc
from tracecomp import nn
from tracecomp.codegen import emit_program
from tracecomp.passes.building import build
from tracecomp.runtime.compiler import host_target


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.first, self.second = nn.LayerNorm(8), nn.Linear(8, width), nn.Linear(width, 8)

    def forward(self, x: Any) -> Any:
        return x + self.second(nn.functional.gelu(self.first(self.norm(x))))


Program = tuple[Callable[..., Any], Any]
"""A function and its argument."""


def training(model: nn.Module) -> Program:
    optimizer = tc.optim.AdamW(model.parameters(), lr=1e-3)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, tc.randn(4, 8)


def equal_blocks(n: int) -> Program:
    return training(nn.Sequential(*(Block(16) for _ in range(n))))


def distinct_blocks(n: int) -> Program:
    return training(nn.Sequential(*(Block(16 + k) for k in range(n))))


def nested(n: int) -> Program:
    model: nn.Module = nn.Linear(8, 8)
    for _ in range(n):
        model = nn.Sequential(model, nn.Tanh())
    return training(model)


def small_parameters(n: int) -> Program:
    params = [nn.Parameter(tc.randn(k % 7 + 1)) for k in range(n)]
    optimizer = tc.optim.AdamW(params, lr=1e-3)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = sum(((p * x).sum() for p in params), tc.zeros(()))
        loss.backward()
        nn.utils.clip_grad_norm_(params, 1.0)
        optimizer.step()
        return loss

    return step, tc.ones(1)


def chain(n: int) -> Program:
    def fn(x: Any) -> Any:
        for _ in range(20 * n):
            x = (x * 1.5).sin()
        return x

    return fn, tc.ones(3)


def nested_lists(n: int, each: int = 15) -> Program:
    """A tensor in ``each * n`` lists, which the function takes apart and builds again."""
    depth = each * n
    given: Any = tc.ones(3)
    for _ in range(depth):
        given = [given]

    def fn(x: Any) -> Any:
        for _ in range(depth):
            (x,) = x
        x = x.sin()
        for _ in range(depth):
            x = [x]
        return x

    return fn, given


def nested_dictionaries(n: int, each: int = 15) -> Program:
    """A tensor at every depth of ``each * n`` dictionaries."""
    depth = each * n
    given: dict[str, Any] = {"value": tc.ones(3)}
    for _ in range(depth):
        given = {"value": tc.ones(3), "inner": given}

    def fn(x: dict[str, Any]) -> Any:
        total = x["value"]
        while (inner := x.get("inner")) is not None:
            x = inner
            total = total + x["value"]
        return total

    return fn, given


def dictionary(n: int) -> Program:
    """``30 * n`` tensors by name, of which the function makes as many."""
    return lambda d: {k: x * 2 for k, x in d.items()}, {f"layer{k}.weight": tc.ones(3) for k in range(30 * n)}


def calls(run: Callable[[], object]) -> int:
    """How many calls of Python functions ``run`` makes."""
    count = 0

    def profile(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(before)
    return count


PROGRAMS = [equal_blocks, distinct_blocks, nested, small_parameters, chain]
CONTAINERS = [nested_lists, nested_dictionaries, dictionary]


DEEP = [nested_lists, nested_dictionaries]


def check_growth(cost: Callable[[int], int], power: int = 1) -> None:
    """Four times the size may cost 4.6 times as much; with ``power`` 2, the square of that."""
    few, many = cost(3), cost(12)
    assert many <= 4.6**power * few, (few, many)


@pytest.mark.parametrize("make", [*PROGRAMS, *CONTAINERS])
def test_recording_grows_with_the_program(make: Callable[[int], Program]) -> None:
    def cost(n: int) -> int:
        fn, given = make(n)
        fn(given)  # optimizers create their state
        return calls(partial(tc.trace, fn, given))

    # Guards take a snapshot of each container that the program reads, with all that it holds.
    check_growth(cost, 2 if make in DEEP else 1)


@pytest.mark.parametrize("make", [*PROGRAMS, *CONTAINERS])
def test_compiling_grows_with_the_program(make: Callable[[int], Program]) -> None:
    """All passes, and writing the program as LLVM text."""

    def cost(n: int) -> int:
        fn, given = make(n)
        fn(given)
        graph = tc.trace(fn, given)
        return calls(lambda: emit_program(build(graph).program, host_target()))

    check_growth(cost)


@pytest.mark.parametrize("make", CONTAINERS)
def test_calls_grow_with_the_containers(make: Callable[[int], Program]) -> None:
    """Recorded, compiled and repeated calls: guards, bindings and results."""

    def cost(n: int) -> int:
        fn, given = make(n)
        compiled = tc.compile(fn, wait=True)

        def several() -> None:
            for _ in range(5):
                compiled(given)

        return calls(several)

    check_growth(cost, 2 if make in DEEP else 1)


@pytest.mark.parametrize("make", DEEP)
def test_containers_that_are_nested_too_deeply_run_eagerly(make: Callable[[int, int], Program]) -> None:
    fn, given = make(4, 100)
    compiled = tc.compile(fn, wait=True)
    for _ in range(3):
        found, want = compiled(given), fn(given)
        while isinstance(found, list):
            (found,), (want,) = found, want
        assert bytes(found.numpy()) == bytes(want.numpy())
