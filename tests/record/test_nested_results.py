"""Results and effects that are nested more deeply than recursive functions may go: their calls run as Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tracecomp as torch
from tracecomp.base.errors import CaptureError

DEPTH = 2000
kept: list[Any] = []


class Link:
    """An object that holds another."""

    def __init__(self, inner: object) -> None:
        self.inner = inner


WRAPPED: dict[str, Callable[[Any], Any]] = {
    "list": lambda x: [x],
    "tuple": lambda x: (x,),
    "dict": lambda x: {"inner": x},
    "object": Link,
}


def _nested(name: str, value: Any) -> Any:
    for _ in range(DEPTH):
        value = WRAPPED[name](value)
    return value


def _innermost(value: Any) -> Any:
    for _ in range(DEPTH):
        value = (
            value[0] if isinstance(value, list | tuple) else value["inner"] if isinstance(value, dict) else value.inner
        )
    return value


@pytest.mark.parametrize("verify", [None, 1])
@pytest.mark.parametrize("name", WRAPPED)
def test_a_result_of_many_levels_is_eagers(name: str, verify: int | None) -> None:
    run = torch.compile(lambda x: _nested(name, x * 2), verify=verify)
    with pytest.warns(UserWarning, match="a value that the call leaves is nested too deeply"):
        first = run(torch.ones(2))
    for result in (first, run(torch.ones(2)), run(torch.ones(2))):
        assert _innermost(result).tolist() == [2.0, 2.0]
    with pytest.raises(CaptureError, match="nested too deeply"):
        torch.compile(lambda x: _nested(name, x * 2), fullgraph=True)(torch.ones(2))


@pytest.mark.parametrize("name", WRAPPED)
def test_a_value_of_many_levels_is_kept_by_every_call(name: str) -> None:
    def program(x: Any) -> Any:
        kept.append(_nested(name, x * 2))
        return x + 1

    run = torch.compile(program)
    with pytest.warns(UserWarning, match="nested too deeply"):
        assert [run(torch.full((), float(k))).item() for k in range(3)] == [1.0, 2.0, 3.0]
    assert [_innermost(value).item() for value in kept] == [0.0, 2.0, 4.0]
    kept.clear()


@pytest.mark.parametrize("name", WRAPPED)
def test_numbers_of_a_call_are_plain_at_any_depth(name: str) -> None:
    def program(x: Any) -> Any:
        return _nested(name, float(x.sum()) + 1)

    run = torch.compile(program)
    run.quiet = True
    for k in range(3):
        assert type(_innermost(run(torch.full((), float(k))))) is float
