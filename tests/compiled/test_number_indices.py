"""A 0-d tensor as an index: eagerly the result is a view, which a compiled function keeps for every number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tracecomp as torch

Program = Callable[[Any, Any], Any]


def iadd(x: Any, i: Any) -> Any:
    x[i] += 1
    return x * 1


def chained(x: Any, i: Any) -> Any:
    x[i][1] = 5.0
    return x * 1


def memory_written_later(x: Any, i: Any) -> Any:
    row = x[i]
    x.mul_(2)
    return row + 0


def index_written_later(x: Any, i: Any) -> Any:
    row = x[i]
    i.add_(1)
    row.fill_(3.0)
    return x * 1


def gradient(x: Any, i: Any) -> Any:
    x = x.detach().requires_grad_()
    (x[i] ** 2).sum().backward()
    return x.grad


PROGRAMS: dict[str, tuple[Program, int]] = {
    "reading": (lambda x, i: x[i] * 2, 1),
    "writing": (lambda x, i: (x[i].fill_(7), x.clone())[1], 2),
    "adding": (iadd, 2),
    "chained": (chained, 2),
    "memory written later": (memory_written_later, 2),
    "index written later": (index_written_later, 2),
    "returned": (lambda x, i: x[i], 2),
    "part returned": (lambda x, i: x[i][1:], 2),
    "of a value": (lambda x, i: (x * 2)[i], 1),
    "with a list": (lambda x, i: x[i, :, torch.tensor([0, 1, 1])], 1),
    "two": (lambda x, i: x[i, i] + 1, 1),
    "gradient": (gradient, 1),
}


@pytest.mark.parametrize("case", PROGRAMS)
def test_every_number_gives_what_it_gives_eagerly(case: str) -> None:
    fn, recordings = PROGRAMS[case]
    compiled = torch.compile(fn)
    for number in (0, 1, 0, 1, 1, 0):
        x, i = torch.arange(24.0).reshape(2, 3, 4), torch.tensor(number)
        y, j = x.clone(), i.clone()
        want, got = fn(x, i), compiled(y, j)
        assert torch.equal(got, want)
        want.fill_(9.0)
        got.fill_(9.0)
        assert torch.equal(x, y)
        assert torch.equal(i, j)
    assert f"recordings {recordings}," in str(compiled.explain()).splitlines()[0]


def put(x: Any, i: Any) -> Any:
    x[i] = x.sum()
    return x * 1


NUMBERED: dict[str, tuple[Program, int]] = {
    "put": (put, 2),
    "reading": (PROGRAMS["reading"][0], 2),
    "of a value": (PROGRAMS["of a value"][0], 2),
    **{name: (PROGRAMS[name][0], 5) for name in ("writing", "adding", "chained", "memory written later", "returned")},
}
"""Programs, and how many recordings seven calls with five numbers make: views of memory hold for one place."""


@pytest.mark.sampled(4)
@pytest.mark.parametrize("case", NUMBERED)
def test_numbers_among_the_arguments_index_as_tensors_do(case: str) -> None:
    program, most = NUMBERED[case]
    compiled = torch.compile(program, backend="interpret")
    for i in (0, 2, 1, -1, 2, 0, -3):
        x = torch.arange(9.0).reshape(3, 3)
        y = x.clone()
        assert compiled(x, i).tolist() == program(y, i).tolist()
        assert x.tolist() == y.tolist()
    assert int(str(compiled.explain()).split("recordings ")[1].split(",")[0]) <= most
    with pytest.raises(IndexError):
        compiled(torch.zeros(3, 3), 3)
