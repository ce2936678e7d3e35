"""Element types that can be stored and converted only, such as uint16: compiled calls give what eager ones do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tracecomp as torch
from tracecomp.ir.types import NAMED_DTYPES, STORAGE_DTYPES

DTYPES = [d for d in STORAGE_DTYPES if d not in NAMED_DTYPES]
PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "there and back": lambda x, d: x.to(d).to(torch.int64 if d.kind == "int" else torch.float32) * 2,
    "result": lambda x, d: x.to(d),
    "view": lambda x, d: x.to(d).reshape(-1, 1)[::2],
    "beside other work": lambda x, d: (x.to(d).to(torch.float32).sum(), (x * 2).float().mean()),
}


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_compiled_calls_give_what_eager_ones_do(program: str, dtype: Any) -> None:
    def fn(x: Any) -> Any:
        return PROGRAMS[program](x, dtype)

    compiled = torch.compile(fn, fullgraph=True)
    for size in (4, 4, 6, 6, 8, 4):
        x = torch.arange(size) if dtype.kind == "int" else torch.arange(size) * 0.25 + 0.5
        got, want = compiled(x), fn(x)
        for a, b in zip(got, want, strict=True) if isinstance(got, tuple) else [(got, want)]:
            assert a.dtype is b.dtype and a.stride() == b.stride()
            assert a.to(torch.float64).tolist() == b.to(torch.float64).tolist()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_arguments_of_such_types_are_converted(dtype: Any) -> None:
    compiled = torch.compile(lambda x: x.to(torch.float32) + 1, fullgraph=True)
    for size in (3, 3, 5, 5):
        x = torch.arange(1, size + 1).float().to(dtype)
        assert compiled(x).tolist() == (x.to(torch.float32) + 1).tolist()


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "exp": lambda x: x.exp(),
    "sum of exp": lambda x: x.exp().sum(),
    "sum": lambda x: (x / 3).sum(),
    "product of matrices": lambda x: (x / 3) @ (x / 7).mT,
    "softmax": lambda x: x.softmax(-1),
    "tanh and log": lambda x: x.tanh() + (x + 1).log(),
    "layer_norm": lambda x: torch.nn.functional.layer_norm(x, (x.shape[-1],)),
}


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_compiled_calls_have_the_bits_of_eager_ones(function: str, dtype: Any) -> None:
    """Graphs with such types have no machine code, and their operators still round and sum as eager mode's do."""

    def fn(x: Any) -> Any:
        return FUNCTIONS[function](x.to(torch.float32))

    compiled = torch.compile(fn, fullgraph=True)
    for rows in (5, 5, 5, 7, 7):
        x = (torch.arange(rows * 20) % 7).reshape(rows, 20).to(dtype)
        assert compiled(x).numpy().tobytes() == fn(x).numpy().tobytes()
