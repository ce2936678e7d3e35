"""Where threads must meet between kernels."""

from __future__ import annotations

import pytest

from tracecomp.codegen.barriers import steps_behind_barriers
from tracecomp.ir.loops import Buffer, CallStep, Kernel, Ref, Slot
from tracecomp.ir.types import float32


def call(reads: int, writes: int) -> CallStep:
    params = (Buffer("a", float32, 16), Buffer("b", float32, 16))
    slots = [Slot(f"s{n}", "arena", 64 * n, 64) for n in (reads, writes)]
    return CallStep(Kernel("k", params, frozenset({"b"}), ()), tuple(Ref(s) for s in slots))


@pytest.mark.parametrize(
    ("second", "parallel", "shared", "behind"),
    [
        ((1, 2), [True, True], [0, 0], {1}),
        ((0, 2), [True, True], [0, 0], set()),
        ((1, 2), [False, False], [0, 0], set()),
        ((1, 2), [False, True], [0, 0], {1}),
        ((0, 2), [True, True], [64, 64], {1}),
        ((0, 2), [True, True], [64, 0], set()),
    ],
    ids=["reads the result", "apart", "one thread", "serial then parallel", "both use scratch", "one uses scratch"],
)
def test_second_kernel(second: tuple[int, int], parallel: list[bool], shared: list[int], behind: set[int]) -> None:
    assert steps_behind_barriers([call(0, 1), call(*second)], parallel, shared) == behind
