"""Errors that a program catches: each call takes the way that it takes without compilation."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from typing import Any

import pytest

import tracecomp as torch
from tracecomp.nn import functional as F

Program = Callable[..., Any]


def caught(body: Program) -> Program:
    """``body``, or zeros where it raises."""

    def program(*args: Any) -> Any:
        try:
            return body(*args) + 1
        except (IndexError, RuntimeError, ArithmeticError):
            return args[0] * 0

    return program


def ignored(body: Program) -> Program:
    """Whether ``body`` raises, as ones or zeros."""

    def program(x: Any) -> Any:
        try:
            body(x)
        except (IndexError, RuntimeError, ArithmeticError):
            return x * 0
        return x * 0 + 1

    return program


def suppressed(x: Any) -> Any:
    y = x * 0
    with contextlib.suppress(RuntimeError):
        y = torch.linalg.cholesky(x)
    return y


def raised_again(x: Any) -> Any:
    def inner() -> Any:
        try:
            return torch.linalg.inv(x)
        except RuntimeError as error:
            raise KeyError("singular") from error

    try:
        return inner()
    except KeyError:
        return x * 0


def finally_only(x: Any) -> Any:
    seen = []
    try:
        try:
            return torch.linalg.inv(x)
        finally:
            seen.append(1)
    except RuntimeError:
        return x * 0 + len(seen)


BODIES: dict[str, Program] = {
    "cholesky": torch.linalg.cholesky,
    "inverse": torch.linalg.inv,
    "solve": lambda x: torch.linalg.solve(x, torch.ones(2, 1)),
    "index": lambda x: torch.arange(4.0)[x.long()],
    "gather": lambda x: torch.arange(4.0).gather(0, x.long()[0]),
    "index_add": lambda x: torch.arange(4.0).index_add(0, x.long()[0], torch.ones(2)),
    "embedding": lambda x: F.embedding(x.long(), torch.ones(3, 2)),
    "cross_entropy": lambda x: F.cross_entropy(torch.ones(2, 3), x.long()[0]),
    "one_hot": lambda x: F.one_hot(x.long()).float(),
    "bincount": lambda x: torch.bincount(x.long()[0]) * 1.0,
    "integer division": lambda x: 7 // x.long(),
    "shape of a selection": lambda x: x[x > 1].reshape(2, 1),
}
OF_ELEMENTS: dict[str, Program] = {
    **{name: caught(body) for name, body in BODIES.items()},
    **{f"{name}, not used": ignored(body) for name, body in BODIES.items()},
    "suppressed": suppressed,
    "raised again": raised_again,
    "finally": finally_only,
}
MATRICES = [[[2.0, 0.0], [0.0, 2.0]], [[1.0, 5.0], [5.0, 1.0]], [[0.0, 0.0], [0.0, 0.0]], [[-1.0, 0.0], [0.0, 1.0]]]


def outcome(fn: Program, *args: Any) -> Any:
    try:
        return fn(*args).tolist()
    except Exception as error:
        return type(error).__name__


@pytest.mark.filterwarnings("ignore:graph break in")
@pytest.mark.parametrize("name", OF_ELEMENTS)
def test_errors_of_elements(name: str) -> None:
    fn = OF_ELEMENTS[name]
    for order in (MATRICES, MATRICES[::-1]):
        compiled = torch.compile(fn)
        for matrix in [order[0], *order, *order]:
            want = outcome(fn, torch.tensor(matrix))
            assert outcome(compiled, torch.tensor(matrix)) == want, matrix


def written(x: Any, n: int) -> Any:
    y = x.clone()
    y[n] = 9.0
    return y


OF_NUMBERS: dict[str, Program] = {
    "index": lambda x, n: x[n],
    "written": written,
    "select": lambda x, n: x.select(0, n),
    "narrow": lambda x, n: x.narrow(0, 0, n),
    "reshape": lambda x, n: x.reshape(n, -1),
    "index_select": lambda x, n: x.index_select(0, torch.tensor([n])),
    "sizes": lambda x, n: x + torch.ones(n),
    "dimension": lambda x, n: x.sum(n),
    "division": lambda x, n: x * (7 // (n - 4)),
    "topk": lambda x, n: x.topk(n, dim=0).values,
}


@pytest.mark.filterwarnings("ignore:graph break in")
@pytest.mark.parametrize("name", OF_NUMBERS)
def test_errors_of_numbers(name: str) -> None:
    fn = caught(OF_NUMBERS[name])
    for order in ((5, 6, 4, 1, 0, 7, 2, 3, -1, -5), (0, 1, 2, 5, 3, 6, 4)):
        compiled = torch.compile(fn)
        for n in order:
            x = torch.arange(8.0).reshape(4, 2)
            assert outcome(compiled, x, n) == outcome(fn, x, n), n


@pytest.mark.parametrize("sizes", list(itertools.permutations((2, 3, 5, 6)))[::5])
def test_errors_of_sizes(sizes: tuple[int, ...]) -> None:
    fn = caught(lambda x: x + torch.arange(3.0))
    compiled = torch.compile(fn)
    for n in (*sizes, *sizes):
        assert outcome(compiled, torch.ones(n)) == outcome(fn, torch.ones(n)), n


def test_an_error_about_shapes_is_recorded() -> None:
    fn = caught(lambda x: x + torch.ones(7, 7))
    compiled = torch.compile(fn, fullgraph=True)
    for k in range(3):
        assert compiled(torch.ones(2) * k).tolist() == [0.0, 0.0]
    assert compiled.recordings == 1


@pytest.mark.parametrize("may_raise", [False, True])
def test_handlers_cost_nothing_where_no_element_can_raise(may_raise: bool) -> None:
    def program(x: Any, y: Any) -> Any:
        try:
            x.add_(y.exp() @ y + (y[y.long()] if may_raise else y.sum()))
        except ValueError:
            return x * 0
        return x.sum()

    compiled = torch.compile(program)
    want, x = torch.zeros(3), torch.zeros(3)
    for _ in range(3):
        y = torch.tensor([0.0, 1.0, 2.0])
        assert compiled(x, y).tolist() == program(want, y).tolist()
        assert x.tolist() == want.tolist()
    assert compiled.entries[0].recording.may_be_left == may_raise
