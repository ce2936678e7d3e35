"""Internal errors of the observer."""

from __future__ import annotations

from typing import Any

import pytest

import tracecomp as torch
from tracecomp.record import object_reads


class Odd:
    """An object that cannot say how long it is."""

    def __len__(self) -> int:
        raise ValueError("no length")


def test_a_fault_of_the_observer_is_a_warning_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_reads, "is_key", None)
    table = {"scale": 2.0}
    compiled = torch.compile(lambda x: x * table["scale"])
    with pytest.warns() as found:
        assert compiled(torch.ones(2)).tolist() == [2, 2]
    assert any(
        str(w.message).startswith("internal error of tracecomp") and "object_reads.py" in str(w.message) for w in found
    )
    assert any("cannot be inspected" in str(w.message) for w in found)


def test_a_class_of_the_program_that_fails_is_no_fault_of_the_observer() -> None:
    odd = Odd()

    def program(x: torch.Tensor) -> torch.Tensor:
        try:
            return x * len(odd)
        except ValueError:
            return x * 3

    with pytest.warns() as found:
        assert torch.compile(program)(torch.ones(2)).tolist() == [3, 3]
        torch.compile(lambda x: x.numpy())(torch.ones(2))
    assert not any("internal error of tracecomp" in str(w.message) for w in found)


@pytest.mark.parametrize("module", [None, 3])
def test_functions_without_a_module_are_recorded(module: object) -> None:
    """Such as those of ``exec`` in a namespace without ``__name__``."""
    namespace: dict[str, Any] = {}
    exec("def inner(x): return x * 2\ndef outer(x): return inner(x) + 1", namespace)
    for name in ("inner", "outer"):
        namespace[name].__module__ = module
    compiled = torch.compile(namespace["outer"], fullgraph=True)
    assert [compiled(torch.ones(2)).tolist() for _ in range(3)] == [[3, 3]] * 3
