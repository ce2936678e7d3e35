"""Stores of parts of a vector write only those elements, narrowed or not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.codegen.programs import program
from tracecomp.ir.index import Var, index
from tracecomp.ir.loops import Buffer, Call, Const, Expr, IndexValue, Load, Loop, Store, cast
from tracecomp.ir.program import Kernel
from tracecomp.ir.types import DType, bfloat16, bool_, float16, float32, float64, int8, int16, int32, int64
from tracecomp.runtime.executable import Executable

BESIDE = 64
"""Bytes before and behind."""

CASTS = [
    (int64, int32), (int64, int16), (int64, int8), (int32, int16), (int32, int8), (int16, int8), (float32, bfloat16),
    (float32, float16), (float64, float32), (int32, int64), (int32, int32),
]  # fmt: skip


def stored(size: int, source: DType, target: DType, where: Callable[[Var], Expr] | None = None) -> tuple[bytes, ...]:
    """The bytes before, of, and behind an output that a vector loop of ``size`` steps has written."""
    x, y, v = Buffer("x", source, size), Buffer("y", target, size), Var("v", size)
    store = Store(y, index(v), cast(Load(x, index(v)), target), where(v) if where else None)
    kernel = Kernel("tail", (x, y), frozenset(["y"]), (Loop("vector", v, (store,)),))
    memory = np.full(2 * BESIDE + size * target.itemsize, 0xA5, np.uint8)
    given = np.arange(1, size + 1).astype(source.numpy)
    Executable(program(kernel, 1)).run([given], [memory[BESIDE:-BESIDE].view(target.numpy)])
    return memory[:BESIDE].tobytes(), memory[BESIDE:-BESIDE].tobytes(), memory[-BESIDE:].tobytes()


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("source", "target"), CASTS, ids=[f"{a.name}-{b.name}" for a, b in CASTS])
def test_the_rest_of_a_loop_writes_nothing_behind_it(source: DType, target: DType) -> None:
    for size in (1, 2, 5, 6, 7, 8, 9, 12, 15, 16, 17, 18, 25, 31, 33, 34):
        before, found, behind = stored(size, source, target)
        assert before == behind == b"\xa5" * BESIDE, size
        assert found == np.arange(1, size + 1).astype(source.numpy).astype(target.numpy).tobytes(), size


@pytest.mark.parametrize(("source", "target"), [(int64, int32), (int64, int8), (int32, int16)])
@pytest.mark.parametrize("at", [0, 1, 3, 7])
def test_a_condition_on_the_place_writes_that_place_alone(source: DType, target: DType, at: int) -> None:
    def here(v: Var) -> Expr:
        return Call("eq", (IndexValue(index(v)), Const(at, int64)), bool_)

    before, found, behind = stored(8, source, target, here)
    expected = bytearray(b"\xa5" * 8 * target.itemsize)
    expected[at * target.itemsize : (at + 1) * target.itemsize] = np.array([at + 1], target.numpy).tobytes()
    assert (before, found, behind) == (b"\xa5" * BESIDE, bytes(expected), b"\xa5" * BESIDE)
