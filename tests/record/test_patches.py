"""Functions of the library that a program replaces between calls are seen, also where the library calls them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tracecomp as torch
from tracecomp import nn

F = nn.functional
_MODULE, _TANH = nn.GELU(), nn.Tanh()
PROGRAMS: dict[str, tuple[Any, str, Callable[[Any], Any]]] = {
    "function": (torch, "relu", lambda x: torch.relu(x)),
    "function of a namespace": (torch.linalg, "norm", lambda x: torch.linalg.norm(x)),
    "layer": (F, "gelu", lambda x: F.gelu(x)),
    "layer that a module calls": (F, "gelu", lambda x: _MODULE(x)),
    "method of a tensor": (torch.Tensor, "sigmoid", lambda x: x.sigmoid()),
    "forward of a module": (nn.Tanh, "forward", lambda x: _TANH(x)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_replaced_function_is_called(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, attribute, program = PROGRAMS[name]
    run = torch.compile(program)
    x = torch.ones(2)
    before = program(x).tolist()
    for _ in range(4):
        assert run(x).tolist() == before
    with monkeypatch.context() as patch:
        patch.setattr(owner, attribute, lambda *args, **kwargs: x * 40.0)
        for _ in range(4):
            assert run(x).tolist() == [40.0, 40.0]
    for _ in range(4):
        assert run(x).tolist() == before
