"""Memory that tensors share with arrays, buffers and storages: compiled and uncompiled calls do the same.

A program runs five times. Its statements create an array or buffer in the call, or use one from outside. They read or
change it before or after a tensor writes the same memory.
"""

from __future__ import annotations

import array
import copy
import ctypes
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

import tracecomp as torch

OWNERS = {  # statements that make ``owner`` and ``t``, a tensor of three float32 over its memory
    "array": ("owner = np.zeros(3, np.float32)", "t = torch.from_numpy(owner)"),
    "as_tensor": ("owner = np.zeros(3, np.float32)", "t = torch.as_tensor(owner)"),
    "row": ("owner = np.zeros((2, 3), np.float32)", "t = torch.from_numpy(owner[0])", "owner = owner[0]"),
    "bits": ("owner = np.zeros(3, np.float32)", "t = torch.from_numpy(owner.view(np.int32)).view(torch.float32)"),
    "dlpack": ("owner = np.zeros(3, np.float32)", "t = torch.from_dlpack(owner)"),
    "numpy": ("t = torch.zeros(3)", "owner = t.numpy()"),
    "asarray": ("t = torch.zeros(3)", "owner = np.asarray(t)"),
    "to_dlpack": ("t = torch.zeros(3)", "owner = np.from_dlpack(t)"),
    "memoryview": ("t = torch.zeros(3)", "owner = memoryview(t.numpy())"),
    "array.array": ("owner = array.array('f', [0, 0, 0])", "t = torch.frombuffer(owner, dtype=torch.float32)"),
    "bytearray": ("owner = bytearray(12)", "t = torch.frombuffer(owner, dtype=torch.float32)"),
    "ctypes": ("owner = (ctypes.c_float * 3)()", "t = torch.frombuffer(owner, dtype=torch.float32)"),
    "storage": ("t = torch.zeros(3)", "owner = t.storage()"),
    "untyped": ("t = torch.zeros(3)", "owner = t.untyped_storage()"),
}
USES = {
    "write, read": ("t.add_(x)", "r = x * 2, owner[2]"),
    "read, write": ("r = owner[2]", "t.add_(x)", "r = t * 2, r"),
    "change, use": ("owner[2] = k", "r = t * x, t + 1"),
    "use, change": ("r = t * x", "owner[2] = k", "r = r, t + 1"),
    "change, use, restore": ("owner[2] = k", "r = t * x", "owner[2] = 0"),
    "write, list": ("t.copy_(x)", "r = x * 2, list(owner)"),
    "branch": ("t.add_(x)", "r = x + 1 if owner[2] > 3 else x - 1"),
    "take turns": ("t.add_(x)", "s = float(owner[2])", "y = t * s", "owner[2] = k", "r = y + t, owner[2]"),
}


def program(make: tuple[str, ...], use: tuple[str, ...], inside: bool) -> Callable[..., Any]:
    """The function of ``x``, a tensor, and ``k``, a number; ``owner`` and ``t`` are its own or of its closure."""
    body = "".join(f"\n        {line}" for line in ((*make, *use) if inside else use))
    outer = "".join(f"\n    {line}" for line in make if not inside)
    space: dict[str, Any] = {"np": np, "torch": torch, "array": array, "ctypes": ctypes}
    exec(f"def factory():{outer}\n    def program(x, k):{body}\n        return r\n    return program", space)
    return space["factory"]()


@pytest.mark.filterwarnings("ignore:graph break in")
@pytest.mark.sampled(3)
@pytest.mark.parametrize(("owner", "use", "inside"), list(product(OWNERS, USES, (False, True))))
def test_shared_memory_is_as_uncompiled(owner: str, use: str, inside: bool) -> None:
    eager, compiled = (program(OWNERS[owner], USES[use], inside) for _ in range(2))
    compiled = torch.compile(compiled)
    for k in range(5):
        x = torch.tensor([1.0 + k, 2.5 - k, 3.0 + 2 * k])
        assert str(compiled(x, k)) == str(eager(x, k))


def test_a_field_of_a_structure_shares_memory() -> None:
    class Pair(ctypes.Structure):
        _fields_ = (("a", ctypes.c_float), ("b", ctypes.c_float))

    def run(call: Callable[[Any], Any]) -> list[str]:
        pair = Pair()
        t = torch.frombuffer(pair, dtype=torch.float32)  # type: ignore[arg-type]

        def step(x: Any) -> Any:
            t.add_(x)
            return x * 2, pair.b

        return [str(f(torch.tensor([1.0, k]))) for f in [call(step)] for k in range(4)]

    with pytest.warns(UserWarning, match="graph break"):
        compiled = run(torch.compile)
    assert compiled == run(copy.copy)


def test_tensors_over_arrays_that_are_only_read_are_captured() -> None:
    table = np.arange(3.0)

    @torch.compile(fullgraph=True)
    def program(x: Any) -> Any:
        return x * torch.from_numpy(table) + torch.as_tensor(np.ones(3))

    for k in range(4):
        assert program(torch.full((3,), float(k))).tolist() == [1.0, 1.0 + k, 1.0 + 2 * k]
    assert program.recordings == 1


def test_each_call_returns_another_array() -> None:
    program = torch.compile(lambda x: (np.zeros(2), x * 2))
    arrays = [program(torch.ones(2))[0] for _ in range(5)]
    for a in arrays:
        a += 1
    assert [a.tolist() for a in arrays] == [[1.0, 1.0]] * 5


def test_an_array_from_outside_is_returned_itself() -> None:
    table = np.zeros(2)
    program = torch.compile(lambda x: (table, x * 2))
    assert all(program(torch.ones(2))[0] is table for _ in range(4))


@pytest.mark.filterwarnings("ignore:graph break in")
@pytest.mark.parametrize(
    "results",
    [
        "a, torch.from_numpy(a)",
        "a, a[1:]",
        "a, a",
        "torch.from_numpy(a), torch.from_numpy(a)",
        "a, table[1:]",
        "a, torch.from_numpy(table)",
    ],
)
def test_results_that_share_memory_still_do(results: str) -> None:
    space: dict[str, Any] = {"np": np, "torch": torch, "table": np.zeros(3)}
    exec(f"def program(x):\n    a = np.zeros(3)\n    return x * 2, {results}", space)
    program = torch.compile(space["program"])
    for _ in range(4):
        _, a, b = program(torch.ones(1))
        other = space["table"] if "table" in results else np.asarray(a)
        assert np.shares_memory(np.asarray(b), other)
