"""Checked mode: it finds planted faults, and reports nothing for correct code."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracecomp as tc
from tests.codegen.programs import elementwise
from tests.fuzz import loop_programs
from tracecomp.base import config
from tracecomp.base.errors import CheckError
from tracecomp.codegen.kernels import address, operations, program, storing
from tracecomp.eager_kernels import background
from tracecomp.ir.scalars import call
from tracecomp.ir.types import float32
from tracecomp.nn import functional as F
from tracecomp.passes.program import arena, lower
from tracecomp.runtime.executable import Executable


@pytest.fixture(autouse=True)
def apart(tmp_path: Path) -> Iterator[None]:
    """Keep faulty code out of the cache that other tests use, and out of the code that eager mode compiles."""
    background.finish()
    with config.override(cache_dir=str(tmp_path), check=True, eager="numpy"):
        yield


def checked(f: Callable[..., Any], *args: Any) -> Any:
    """Return the result of ``f`` as compiled code."""
    compiled = tc.compile(f)
    for _ in range(3):
        found = compiled(*args)
    return found


def here(f: Callable[..., Any]) -> str:
    """The file and line of the body of ``f``."""
    return f"{Path(__file__).name}:{inspect.getsourcelines(f)[1] + 1}"


# ---- programs, one for each kind of access


def elements(x: Any) -> Any:
    return (x * 2 + 1).exp()


def reversed_rows(x: Any) -> Any:
    return x.flip(1) + 1


def rows(x: Any) -> Any:
    return F.softmax(x, 1)


def products(x: Any) -> Any:
    return x @ x.T


def turned(x: Any) -> Any:
    return (x + 1).T.contiguous()


def picked(x: Any) -> Any:
    return x[tc.tensor([3, 1, 1, 0])] * 2


def put(x: Any) -> Any:
    return tc.zeros(40, 50).index_add(0, tc.tensor([3, 1, 1]), x[:3])


def halves(x: Any) -> Any:
    return x.to(tc.bfloat16) * 3


def signs(x: Any) -> Any:
    return (x > 0).any(1)


def windows(x: Any) -> Any:
    return F.max_pool2d(x.reshape(1, 1, 37, 50), 3)


def steps(x: Any) -> Any:
    return x.cumsum(0)


PROGRAMS = (elements, reversed_rows, rows, products, turned, picked, put, halves, signs, windows, steps)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("f", PROGRAMS)
def test_sound_programs_pass(f: Callable[..., Any]) -> None:
    x = tc.randn(37, 50)
    assert tc.allclose(checked(f, x).float(), f(x).float(), rtol=1e-4, atol=1e-4)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("by", [-1, 1, 3, 10**9])
@pytest.mark.parametrize("f", PROGRAMS)
def test_an_address_beside_a_buffer_is_found(f: Callable[..., Any], by: int, monkeypatch: pytest.MonkeyPatch) -> None:
    right = address.Indexer.address

    def wrong(self: Any, base: Any, elem: str, o: Any) -> Any:
        in_kernel = self.evaluate is not program._no_expression
        return right(self, base, elem, replace(o, const=o.const + by) if in_kernel else o)

    monkeypatch.setattr(address.Indexer, "address", wrong)
    with pytest.raises(CheckError, match=r"access out of bounds, buffer \d+ of ") as found:
        checked(f, tc.randn(37, 50))
    assert here(f) in str(found.value)


def chain(x: Any) -> Any:
    a = F.softmax(x @ x.T, 1)
    b = F.softmax(a @ x, 1)
    return F.softmax(a @ b, 1)


@pytest.mark.parametrize("fault", ["all in one place", "too short a life"])
def test_memory_that_another_value_took_over_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(lifetimes: Any) -> Any:
        if fault == "all in one place":
            found = list(lifetimes)
            return {x.value: 0 for x in found}, max((x.nbytes for x in found), default=0)
        return arena.plan_arena(replace(x, last=max(x.first, x.last - 1)) for x in lifetimes)

    monkeypatch.setattr(lower, "plan_arena", wrong)
    with pytest.raises(CheckError, match="read of stale memory") as found:
        checked(chain, tc.randn(37, 37))
    assert Path(__file__).name in str(found.value)


def test_memory_that_was_not_written_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last row of what one kernel leaves for another is not stored."""
    right = storing.Storing._store_element

    def wrong(self: Any, stmt: Any, value: Any) -> None:
        if stmt.buffer.name in self.tags and self.indexer.offset(stmt.offset).const == 0:
            right(self, stmt, value)

    monkeypatch.setattr(storing.Storing, "_store_element", wrong)
    with pytest.raises(CheckError):
        checked(chain, tc.randn(37, 37))


def test_a_wrong_operator_is_named_with_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    right = operations.emit

    def wrong(e: Any, op: str, *rest: Any) -> Any:
        return right(e, "sub" if op == "add" else op, *rest)

    monkeypatch.setattr(operations, "emit", wrong)
    with pytest.raises(CheckError, match=r"first in add \(.*test_checked.py:\d+\)"):
        checked(elements, tc.randn(37, 50))


def test_state_is_as_before_a_call_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = operations.emit
    monkeypatch.setattr(operations, "emit", lambda e, op, *rest: right(e, "sub" if op == "add" else op, *rest))
    weight, compiled = tc.ones(5), tc.compile(lambda x: weight.add_(x))
    compiled(tc.ones(5))
    for _ in range(2):
        before = weight.tolist()
        with pytest.raises(CheckError):
            compiled(tc.ones(5))
        assert weight.tolist() == before


def test_what_guards_overlook_is_found() -> None:
    model = tc.nn.Dropout(0.0)
    compiled = tc.compile(lambda x: model(x) + 1, checked=True)
    for _ in range(3):
        compiled(tc.ones(3))
    vars(model)["p"] = 0.5  # past what counts the changes
    with pytest.raises(CheckError, match="guards missed a change"):
        compiled(tc.ones(3))


def test_explain_tells_of_calls_and_where_nan_came_from() -> None:
    compiled = tc.compile(lambda x: (x - x) / (x - x) + 1, checked=True)
    for _ in range(3):
        compiled(tc.ones(3))
    text = str(compiled.explain())
    assert "2 calls agree with the interpreter" in text
    assert "first NaN: div (" in text and Path(__file__).name in text


def test_training_gives_the_same_bits() -> None:
    def train(check: bool) -> list[float]:
        tc.manual_seed(0)
        model = tc.nn.Sequential(tc.nn.Linear(8, 16), tc.nn.Tanh(), tc.nn.Linear(16, 3))
        optimizer = tc.optim.AdamW(model.parameters())
        x, y = tc.randn(32, 8), tc.randint(0, 3, (32,))

        def step() -> Any:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        with config.override(check=check):
            compiled = tc.compile(step)
            return [compiled().item() for _ in range(6)] + model[0].weight.flatten().tolist()

    assert train(True) == train(False)


def test_loop_programs_have_the_same_bits() -> None:
    for seed in range(4):
        assert loop_programs.difference(seed, checked=True) is None


def test_memory_has_guards_on_both_sides() -> None:
    made = elementwise(lambda a: call("add", a, a), [float32], float32, 100)
    assert Executable(replace(made, checked=True)).image.checked
    text = Executable(made).llvm_ir
    assert "checked" not in text and "checked" in Executable(replace(made, checked=True)).llvm_ir
    x, y = np.ones(100, np.float32), np.zeros(100, np.float32)
    Executable(replace(made, checked=True)).run([x], [y])
    assert (y == 2).all()
