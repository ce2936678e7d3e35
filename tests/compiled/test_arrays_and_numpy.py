"""Array arguments that numpy and tensors both read or change: compiled and uncompiled calls do the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracecomp as torch

Program = Callable[[Any, Any], Any]


def statements(text: str) -> Program:
    """The function of ``a``, an array, and ``x``, a tensor, that runs statements and returns ``r``."""
    space: dict[str, Any] = {"np": np, "torch": torch}
    exec("def program(a, x):\n    " + "\n    ".join(text.split("; ")) + "\n    return r", space)
    program: Program = space["program"]
    return program


READS = ("a.sum()", "np.sum(a)", "a.copy()", "a[0]", "a[1:] * 2", "a.tolist()", "sorted(a)", "memoryview(a)[2]",
         "a.T.copy()", "a == 5", "str(a)", "max(a)")  # fmt: skip
WRITES = ("a.sort()", "a[0] = -7", "a += 1", "np.add(a, 1, out=a)", "a.fill(3)", "np.copyto(a, 2.0)", "a[1:][0] = 9",
          "b = a.reshape(3, 1); b += 1", "a.T[0] = 8", "np.random.default_rng(0).shuffle(a)")  # fmt: skip
PROGRAMS = [
    *(f"t = torch.from_numpy(a); r = t * 2, {read}" for read in READS),
    *(f"r = {read}; t = torch.from_numpy(a); t.add_(x)" for read in READS),
    *(f"t = torch.from_numpy(a); t.add_(x); r = t * 1, {read}" for read in READS),
    *(f"{write}; r = x * 2" for write in WRITES),
    *(f"{write}; t = torch.from_numpy(a); r = t * x" for write in WRITES),
    *(f"t = torch.from_numpy(a); {write}; r = t * x" for write in WRITES),
    "t = torch.from_numpy(a); u = torch.from_numpy(a[1:]); t.add_(x); r = u * 1",
    "t = torch.from_numpy(a); t.add_(x); r = x * float(np.sum(a))",
    "t = torch.from_numpy(a); r = t * x",
    "t = torch.from_numpy(a); t.mul_(x); r = t",
]
CALLS = ((0.0, 2.0), (1.0, 1.0), (1.0, 3.0), (2.0, 3.0), (2.0, 0.0), (0.0, 1.0))


@pytest.mark.filterwarnings("ignore:graph break in")
@pytest.mark.parametrize("text", PROGRAMS)
def test_numpy_and_tensors_take_turns(text: str) -> None:
    program = statements(text)
    compiled = torch.compile(program)
    for last, factor in CALLS:
        arrays = [np.array([5.0, 3.0, 4.0 + last]) for _ in range(2)]
        x = torch.full((3,), factor, dtype=torch.float64)
        want, got = program(arrays[0], x), compiled(arrays[1], x)
        assert str(got) == str(want)
        assert arrays[1].tolist() == arrays[0].tolist()


@pytest.mark.parametrize("text", PROGRAMS[-2:])
def test_an_array_that_only_tensors_use_is_an_input(text: str) -> None:
    compiled = torch.compile(statements(text), fullgraph=True)
    for last in range(4):
        compiled(np.array([5.0, 3.0, last]), torch.full((3,), 2.0, dtype=torch.float64))
    assert compiled.recordings == 1


@pytest.mark.filterwarnings("ignore:graph break in")
@pytest.mark.parametrize("write", ["a[0] = 9", "a += 1", "a[1:][0] = n", "np.add(a, 1, out=a)", "a.fill(n)"])
@pytest.mark.parametrize("make", ["from_numpy(a)", "as_tensor(a)", "from_numpy(a[1:])", "tensor(a)"])
def test_an_array_made_in_the_call_is_changed_after_its_tensor(make: str, write: str) -> None:
    space: dict[str, Any] = {"np": np, "torch": torch}
    lines = ("a = np.arange(4.0)", f"t = torch.{make}", "y = t * x", write, "return y, t * n")
    exec("def program(x, n):\n    " + "\n    ".join(lines), space)
    compiled = torch.compile(space["program"])
    for n in (1, 2, 2, 3, 1):
        x = torch.full((1,), n + 0.5, dtype=torch.float64)
        assert str(compiled(x, n)) == str(space["program"](x, n))
    assert make != "tensor(a)" or compiled.recordings > 1
