"""The cost of compiling, counted in calls of Python functions: it grows in proportion to the program."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import tracecomp as tc
from tracecomp import nn
from tracecomp.codegen import emit_program
from tracecomp.ir.graph import Graph
from tracecomp.passes.building import build
from tracecomp.runtime.compiler import host_target


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.first, self.second = nn.LayerNorm(8), nn.Linear(8, width), nn.Linear(width, 8)

    def forward(self, x: Any) -> Any:
        return x + self.second(nn.functional.gelu(self.first(self.norm(x))))


def training(model: nn.Module) -> Graph:
    optimizer = tc.optim.AdamW(model.parameters(), lr=1e-3)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step(tc.randn(4, 8))
    return tc.trace(step, tc.randn(4, 8))


def equal_blocks(n: int) -> Graph:
    return training(nn.Sequential(*(Block(16) for _ in range(n))))


def distinct_blocks(n: int) -> Graph:
    return training(nn.Sequential(*(Block(16 + k) for k in range(n))))


def nested(n: int) -> Graph:
    model: nn.Module = nn.Linear(8, 8)
    for _ in range(n):
        model = nn.Sequential(model, nn.Tanh())
    return training(model)


def small_parameters(n: int) -> Graph:
    params = [nn.Parameter(tc.randn(k % 7 + 1)) for k in range(n)]
    optimizer = tc.optim.AdamW(params, lr=1e-3)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = sum(((p * x).sum() for p in params), tc.zeros(()))
        loss.backward()
        nn.utils.clip_grad_norm_(params, 1.0)
        optimizer.step()
        return loss

    step(tc.ones(1))
    return tc.trace(step, tc.ones(1))


def chain(n: int) -> Graph:
    def fn(x: Any) -> Any:
        for _ in range(20 * n):
            x = (x * 1.5).sin()
        return x

    return tc.trace(fn, tc.ones(3))


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


def compile_text(graph: Graph) -> None:
    """Run all passes, and write the program as LLVM text."""
    emit_program(build(graph).program, host_target())


@pytest.mark.parametrize("make", [equal_blocks, distinct_blocks, nested, small_parameters, chain])
def test_compiling_grows_with_the_program(make: Callable[[int], Graph]) -> None:
    counts = []
    for n in (3, 12):
        counts.append(calls(partial(compile_text, make(n))))
    few, many = counts
    assert many <= 4.6 * few, counts
