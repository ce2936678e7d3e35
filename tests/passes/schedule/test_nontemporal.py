"""Stores past the caches: what they leave in memory, which ones there are, and which results the scheduler streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracecomp as tc
from tests.codegen.kernels.test_kernels import data, kernel
from tests.codegen.programs import program
from tracecomp.codegen.kernels.address import NONTEMPORAL
from tracecomp.codegen.kernels.program import emit_program
from tracecomp.codegen.text.native import host_target
from tracecomp.codegen.threads.entry import ENTRY
from tracecomp.ir.arrays import SMALL_BYTES
from tracecomp.ir.index import Var, index
from tracecomp.ir.loop_interp import interpret_program
from tracecomp.ir.loop_printer import print_program
from tracecomp.ir.loop_verify import verify_program
from tracecomp.ir.loops import Buffer, Load, Loop, Store, Stream
from tracecomp.ir.program import Program
from tracecomp.ir.types import DType, float32, float64
from tracecomp.passes.building import build, lower
from tracecomp.passes.cost.machine import Machine
from tracecomp.runtime.aligned import maker
from tracecomp.runtime.executable import Executable
from tracecomp.runtime.malloc import aligned_bytes

Array = np.ndarray[Any, Any]
x86 = pytest.mark.skipif(not host_target().is_x86, reason="stores past the caches are spelled for x86 only")


def placed(like: Array, shift: int) -> tuple[Array, Array]:
    """An array of zeros that begins ``shift`` bytes behind a line, and the memory with guards around it."""
    memory = aligned_bytes(like.nbytes + 256)
    memory[:] = 77
    array = memory[64 + shift : 64 + shift + like.nbytes].view(like.dtype).reshape(like.shape)
    array[...] = 0
    return array, memory


def same_wherever_it_lies(p: Program, source: Array, like: Array) -> None:
    verify_program(p)
    expected = np.zeros_like(like)
    interpret_program(p, [source], [expected])
    executable = Executable(p)
    for shift in (0, 16, 32, 4 * like.itemsize):
        for threads in (1, 2):
            result, around = placed(like, shift)
            executable.run([source], [result], threads=threads)
            np.testing.assert_array_equal(result, expected)
            assert (around[: 64 + shift] == 77).all() and (around[64 + shift + like.nbytes :] == 77).all()


def copying(rows: int, columns: int, dtype: DType, stream: Stream = "always") -> Program:
    x, y = (Buffer(name, dtype, rows * columns) for name in "xy")
    i, v = Var("i", rows), Var("v", columns)
    at = index(i) * columns + index(v)
    return program(
        kernel([x, y], "y", Loop("parallel", i, (Loop("vector", v, (Store(y, at, Load(x, at), None, stream),)),))), 1
    )


def transposing(rows: int, columns: int, height: int, width: int, dtype: DType) -> Program:
    """Return tiles of ``height`` along the output's rows, with lanes along the input's."""
    x, y = (Buffer(name, dtype, rows * columns) for name in "xy")
    i, j, t, v = Var("i", rows // height), Var("j", columns // width), Var("t", height), Var("v", width)
    row, column = index(i) * height + index(t), index(j) * width + index(v)
    store = Store(y, column * rows + row, Load(x, row * columns + column), None, "always")
    tile = Loop("tile", t, (Loop("vector", v, (store,)),))
    return program(kernel([x, y], "y", Loop("parallel", i, (Loop("serial", j, (tile,)),))), 1)


@pytest.mark.parametrize("dtype", [float32, float64])
@pytest.mark.parametrize("columns", [16, 48, 37, 5])
@pytest.mark.parametrize("stream", ["always", "alone"])
def test_copies(stream: Stream, columns: int, dtype: DType) -> None:
    a = data(6, columns, dtype=dtype.numpy)
    same_wherever_it_lies(copying(6, columns, dtype, stream), a, a)


@x86
def test_only_one_thread_streams_alone() -> None:
    def asks(stream: Stream) -> bool:
        text = emit_program(copying(6, 32, float32, stream), host_target()).text
        entry = text[text.index(f"@{ENTRY}(") :]
        return "icmp eq ptr %team, null" in entry

    assert asks("alone") and not asks("always") and not asks("")


@pytest.mark.parametrize("dtype", [float32, float64])
@pytest.mark.parametrize(
    "rows, columns, height, width", [(32, 48, 16, 16), (32, 33, 16, 11), (24, 32, 8, 16), (35, 32, 7, 8)]
)
def test_transposes(rows: int, columns: int, height: int, width: int, dtype: DType) -> None:
    p = transposing(rows, columns, height, width, dtype)
    same_wherever_it_lies(p, data(rows, columns, dtype=dtype.numpy), np.zeros((columns, rows), dtype.numpy))


@x86
def test_whole_aligned_vectors_only() -> None:
    def streams(p: Program) -> int:
        return emit_program(p, host_target()).text.count(NONTEMPORAL)

    assert streams(copying(6, 32, float32)) == 32 * 32 // host_target().vector_bits
    assert streams(copying(6, 40, float32)) == 0  # rows begin within lines
    assert streams(transposing(32, 48, 16, 16, float32)) > 0
    assert streams(transposing(35, 32, 7, 8, float32)) == 0
    text = emit_program(copying(6, 32, float32), host_target()).text
    assert text.count("call void @llvm.x86.sse.sfence()") == 2  # of the loop's part, and of the kernel


def printed(function: Callable[..., Any], *shapes: tuple[int, ...]) -> str:
    """The loops of ``function`` for a machine whose last cache is small."""
    compiled = tc.compile(function)
    args = [tc.ones(*shape) for shape in shapes]
    for _ in range(2):
        compiled(*args)
    recording = compiled.entries[0].plan.recording
    aliases = dict(compiled.entries[0].plan._aliases)
    return print_program(
        lower(build(recording.graph).graph, aliases, machine=Machine(64, 32, l3_bytes=4 * 8192)).program
    )


LARGE = (64, 64)


def test_large_results_are_streamed_and_small_ones_are_not() -> None:
    assert "stream " in printed(lambda x: x * x + x, LARGE)
    assert "stream " in printed(lambda x: x.clone(), LARGE)
    assert "stream " in printed(lambda x: x.t().contiguous(), LARGE)
    assert "stream " not in printed(lambda x: x * x + x, (32, 32))


def test_results_that_just_fit_are_streamed_by_one_thread() -> None:
    assert "stream alone " in printed(lambda x: x.clone(), LARGE)
    assert "stream alone " not in printed(lambda x: x.clone(), (64, 80))
    assert "stream alone " not in printed(lambda x: x.t().contiguous(), LARGE)


def test_results_that_fit_beside_their_operands_are_streamed_only_when_turned() -> None:
    fitting = (64, 48)
    assert "stream " not in printed(lambda x: x.clone(), fitting)
    assert "stream " not in printed(lambda x: x.relu(), fitting)
    assert "stream " in printed(lambda x: x.t().contiguous(), fitting)


def test_rows_that_begin_within_lines_are_not_streamed() -> None:
    assert "stream " not in printed(lambda x: x.t().contiguous(), (65, 64))


def test_what_a_kernel_reads_is_not_streamed() -> None:
    assert "stream " not in printed(lambda x: x.softmax(1), LARGE)
    text = printed(lambda x: ((y := (x + 1).exp()), y @ y), LARGE)
    assert all("stream " not in line or "exp" not in line for line in text.splitlines())
    assert "stream " not in printed(lambda x: x.add_(1), LARGE)


@pytest.mark.parametrize("shape", [(SMALL_BYTES + 8,), (3, SMALL_BYTES)])
def test_large_arrays_begin_at_lines(shape: tuple[int, ...]) -> None:
    make, name = maker(SMALL_BYTES + 8), vars(np)["_core"].multiarray.get_handler_name
    arrays = [make(shape, np.dtype(np.uint8)) for _ in range(5)]
    assert all(a.ctypes.data % 64 == 0 and a.flags.owndata and a.flags.writeable and a.shape == shape for a in arrays)
    for nbytes in (2 * SMALL_BYTES, 40 * SMALL_BYTES, 5):
        before = arrays[0].ravel().copy()
        arrays[0].resize((nbytes,), refcheck=False)
        kept = min(nbytes, before.size)
        assert arrays[0].ctypes.data % 64 == 0 and (arrays[0][:kept] == before[:kept]).all()
        arrays[0][:] = np.arange(nbytes) % 251
    assert (name(arrays[1]), name(np.empty(3)), name()) == ("cache_lines", "default_allocator", "default_allocator")


def test_results_are_streamed_to() -> None:
    compiled, x = tc.compile(lambda x: x.t().contiguous()), tc.tensor(data(2000, 1600))
    for _ in range(4):
        y = compiled(x)
    assert y.numpy().ctypes.data % 64 == 0
    np.testing.assert_array_equal(y.numpy(), x.numpy().T)
