"""Hand-written kernels: native code and the interpreter agree bit for bit, and both with numpy."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.codegen.programs import program
from tracecomp.codegen import emit_program
from tracecomp.codegen.kernels.starts import from_starts
from tracecomp.ir.index import Index, Var, computed, index
from tracecomp.ir.loop_interp import interpret_program
from tracecomp.ir.loop_verify import verify_program
from tracecomp.ir.loops import (
    Acc,
    Accumulate,
    Buffer,
    Call,
    Check,
    Const,
    If,
    IndexValue,
    Let,
    Load,
    Local,
    Loop,
    Prefetch,
    Read,
    Stmt,
    Store,
    ToLine,
    Update,
    both,
    in_range,
)
from tracecomp.ir.program import CallStep, Kernel, Program, Ref, RepeatStep, Slot
from tracecomp.ir.scalars import call
from tracecomp.ir.types import DType, bool_, float32, float64, int64
from tracecomp.runtime.compiler import host_target
from tracecomp.runtime.executable import Executable

Array = np.ndarray[Any, Any]


def run(p: Program, inputs: list[Array], outputs: list[Array], verify: bool = True) -> list[Array]:
    """The outputs of native code, after comparing them with the interpreter's and with two threads'."""
    if verify:
        verify_program(p)
    executable = Executable(p)
    results = []
    for threads in (1, 2):
        arrays = [o.copy() for o in outputs]
        executable.run(inputs, arrays, threads=threads)
        results.append(arrays)
    expected = [o.copy() for o in outputs]
    interpret_program(p, inputs, expected)
    for one, two, wanted in zip(*results, expected, strict=True):
        np.testing.assert_array_equal(one, wanted)
        np.testing.assert_array_equal(two, wanted)
    return results[0]


def kernel(params: list[Buffer], writes: str, *body: Stmt) -> Kernel:
    return Kernel("k", tuple(params), frozenset(writes.split()), body)


def zero(dtype: DType) -> Const:
    return Const(0, dtype)


def data(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("extent", [1, 3, 8, 16, 37, 64, 100])
def test_vector_extents_of_any_size(extent: int) -> None:
    x, y = Buffer("x", float32, 3 * extent), Buffer("y", float32, 3 * extent)
    i, v = Var("i", 3), Var("v", extent)
    at = index(i) * extent + index(v)
    k = kernel(
        [x, y], "y", Loop("parallel", i, (Loop("vector", v, (Store(y, at, call("mul", Load(x, at), Load(x, at))),)),))
    )
    a = data(3 * extent)
    assert np.array_equal(run(program(k, 1), [a], [np.zeros_like(a)])[0], a * a)


@pytest.mark.parametrize(
    "stride,shift", [(2, 0), (3, 1), (-1, 39), (0, 5), (2, 51), (3, 12), (-3, 117), (-2, 129), (-2, 78)]
)
def test_strided_reversed_and_broadcast_loads(stride: int, shift: int) -> None:
    x, y = Buffer("x", float64, 130), Buffer("y", float64, 40)
    v = Var("v", 40)
    k = kernel([x, y], "y", Loop("vector", v, (Store(y, index(v), Load(x, index(v) * stride + shift)),)))
    a = data(130, dtype=np.float64)
    got = run(program(k, 1), [a], [np.zeros(40)])[0]
    assert np.array_equal(got, a[np.arange(40) * stride + shift])


@pytest.mark.parametrize("stride", [2, -3])
def test_strided_stores(stride: int) -> None:
    x, y = Buffer("x", float32, 20), Buffer("y", float32, 60)
    v = Var("v", 20)
    at = index(v) * stride + (0 if stride > 0 else 59)
    k = kernel([x, y], "y", Loop("vector", v, (Store(y, at, Load(x, index(v))),)))
    a = data(20)
    expected = np.zeros(60, np.float32)
    expected[np.arange(20) * stride + (0 if stride > 0 else 59)] = a
    assert np.array_equal(run(program(k, 1), [a], [np.zeros(60, np.float32)])[0], expected)


def test_store_to_one_place_keeps_the_last() -> None:
    x, y = Buffer("x", float32, 37), Buffer("y", float32, 1)
    v = Var("v", 37)
    k = kernel([x, y], "y", Loop("vector", v, (Store(y, Index(), Load(x, index(v))),)))
    a = data(37)
    assert run(program(k, 1), [a], [np.zeros(1, np.float32)])[0][0] == a[-1]


def test_division_and_remainder_in_indices() -> None:
    x, y = Buffer("x", float32, 35), Buffer("y", float32, 70)
    v = Var("v", 70)
    at = (index(v) // 3) % 7 * 5 + (index(v) * 3 + 1) % 5
    k = kernel([x, y], "y", Loop("vector", v, (Store(y, index(v), Load(x, at)),)))
    a, n = data(35), np.arange(70)
    got = run(program(k, 1), [a], [np.zeros(70, np.float32)])[0]
    assert np.array_equal(got, a[(n // 3) % 7 * 5 + (n * 3 + 1) % 5])


def test_divisions_of_whole_vectors_are_of_scalars() -> None:
    """A vector never crosses a multiple of 48: its lanes divide alike, and their remainders follow each other."""
    x, y, i, v = Buffer("x", float32, 12), Buffer("y", float32, 192), Var("i", 6), Var("v", 32)
    place = index(i) * 32 + index(v)
    scaled = call("mul", Load(x, place // 48), Load(y, place % 48 + 48))
    z = Buffer("z", float32, 192)
    p = program(kernel([x, y, z], "z", Loop("serial", i, (Loop("vector", v, (Store(z, place, scaled),)),))), 2)
    a, b, n = data(12), data(192), np.arange(192)
    assert np.array_equal(run(p, [a, b], [np.zeros(192, np.float32)])[0], a[n // 48] * b[n % 48 + 48])
    assert not re.search(r"(div|rem) <", Executable(p).llvm_ir)


def test_gather_by_loaded_index_and_scatter() -> None:
    x, n = Buffer("x", float32, 50), Buffer("n", int64, 20)
    y, z = Buffer("y", float32, 20), Buffer("z", float32, 50)
    v = Var("v", 20)
    at = computed(Load(n, index(v)), (0, 49))
    k = kernel(
        [x, n, y, z], "y z", Loop("vector", v, (Store(y, index(v), Load(x, at)), Store(z, at, Load(x, index(v)))))
    )
    a, where = data(50), np.random.default_rng(1).integers(0, 50, 20)
    y_, z_ = run(program(k, 2), [a, where], [np.zeros(20, np.float32), np.zeros(50, np.float32)])
    expected = np.zeros(50, np.float32)
    expected[where] = a[:20]
    assert np.array_equal(y_, a[where]) and np.array_equal(z_, expected)


def test_guarded_loads_are_padding() -> None:
    x, y = Buffer("x", float32, 30), Buffer("y", float32, 40)
    v, i = Var("v", 40), Var("i", 40)
    for loop, var in (("vector", v), ("serial", i)):
        at = index(var) - 5
        k = kernel([x, y], "y", Loop(loop, var, (Store(y, index(var), Load(x, at, in_range(at, 30))),)))
        a = data(30)
        got = run(program(k, 1), [a], [np.zeros(40, np.float32)])[0]
        assert np.array_equal(got, np.pad(a, 5))


def test_guarded_stores() -> None:
    x, y = Buffer("x", float32, 40), Buffer("y", float32, 30)
    for kind in ("vector", "serial"):
        v = Var("v", 40)
        at = index(v) - 5
        body = Store(y, at, Load(x, index(v)), in_range(at, 30))
        a = data(40)
        got = run(program(kernel([x, y], "y", Loop(kind, v, (body,))), 1), [a], [np.zeros(30, np.float32)])[0]
        assert np.array_equal(got, a[5:35])


def reduced_rows(rows: int, cols: int, lanes: int, chunk: int, op: str, dtype: DType, fused: bool) -> Program:
    """Row sums (or others) by partial accumulators, in chunks and a rest, optionally of squares by fma."""
    x, y = Buffer("x", dtype, rows * cols), Buffer("y", dtype, rows)
    r, c, v, t = Var("r", rows), Var("c", cols // chunk), Var("v", chunk), Var("t", cols % chunk)
    row = index(r) * cols

    def update(at: Index) -> Update:
        value = Load(x, row + at)
        return Update("s", (value, value) if fused else (value,))

    init = Const(float("-inf"), dtype) if op == "max" else zero(dtype)
    acc = Acc("s", "fma" if fused else op, dtype, init, lanes)
    loops: list[Stmt] = []
    if c.extent:
        loops.append(Loop("serial", c, (Loop("vector", v, (update(index(c) * chunk + index(v)),)),)))
    if t.extent:
        loops.append(Loop("vector", t, (update(index(t) + c.extent * chunk),)))
    return program(
        kernel(
            [x, y], "y", Loop("parallel", r, (Accumulate((acc,), tuple(loops)), Store(y, index(r), Read("s", dtype))))
        ),
        1,
    )


@pytest.mark.parametrize("lanes,chunk", [(64, 64), (16, 64), (32, 32), (4, 16), (1, 8), (8, 64)])
@pytest.mark.parametrize("cols", [5, 64, 200, 131])
def test_lanes_decide_the_order_of_a_sum(lanes: int, chunk: int, cols: int) -> None:
    a = data(9, cols)
    got = run(reduced_rows(9, cols, lanes, chunk, "add", float32, False), [a], [np.zeros(9, np.float32)])[0]
    partial = np.zeros((9, lanes), np.float32)
    for i in range(cols):
        partial[:, i % lanes] += a[:, i]
    while partial.shape[1] > 1:
        half = partial.shape[1] // 2
        partial = partial[:, :half] + partial[:, half:]
    assert np.array_equal(got, partial[:, 0])


@pytest.mark.parametrize("op,fused,dtype", [("max", False, float32), ("add", True, float64), ("max", False, float64)])
def test_other_reductions(op: str, fused: bool, dtype: DType) -> None:
    a = data(7, 150, dtype=dtype.numpy)
    if op == "max":
        a[2, 77] = np.nan
    got = run(reduced_rows(7, 150, 32, 64, op, dtype, fused), [a], [np.zeros(7, dtype.numpy)])[0]
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(got, a.max(1) if op == "max" else (a * a).sum(1), rtol=1e-6)


def test_column_sums_keep_order() -> None:
    rows, cols = 50, 45
    x, y = Buffer("x", float32, rows * cols), Buffer("y", float32, cols)
    r, v = Var("r", rows), Var("v", cols)
    k = kernel(
        [x, y],
        "y",
        Loop(
            "vector",
            v,
            (
                Accumulate(
                    (Acc("s", "add", float32, zero(float32)),),
                    (Loop("serial", r, (Update("s", (Load(x, index(r) * cols + index(v)),)),)),),
                ),
                Store(y, index(v), Read("s", float32)),
            ),
        ),
    )
    a = data(rows, cols)
    expected = np.zeros(cols, np.float32)
    for row in a:
        expected += row
    assert np.array_equal(run(program(k, 1), [a], [np.zeros(cols, np.float32)])[0], expected)


def test_row_softmax_with_scratch() -> None:
    rows, cols = 11, 70
    x, y, s = Buffer("x", float32, rows * cols), Buffer("y", float32, rows * cols), Buffer("scratch", float32, cols)
    r, a, b, c = Var("r", rows), Var("a", cols), Var("b", cols), Var("c", cols)
    row = index(r) * cols
    k = kernel(
        [x, y],
        "y",
        Loop(
            "parallel",
            r,
            (
                Local(s),
                Accumulate(
                    (Acc("m", "max", float32, Const(-np.inf, float32), 16),),
                    (Loop("vector", a, (Update("m", (Load(x, row + index(a)),)),)),),
                ),
                Accumulate(
                    (Acc("t", "add", float32, zero(float32), 16),),
                    (
                        Loop(
                            "vector",
                            b,
                            (
                                Let("e", call("sub", Load(x, row + index(b)), Read("m", float32))),
                                Store(s, index(b), Read("e", float32, frozenset([r, b]))),
                                Update("t", (Read("e", float32, frozenset([r, b])),)),
                            ),
                        ),
                    ),
                ),
                Loop("vector", c, (Store(y, row + index(c), call("div", Load(s, index(c)), Read("t", float32))),)),
            ),
        ),
    )
    x_ = data(rows, cols)
    got = run(program(k, 1), [x_], [np.zeros_like(x_)])[0]
    shifted = x_ - x_.max(1, keepdims=True)
    np.testing.assert_allclose(got, shifted / shifted.sum(1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize("m,n,k", [(6, 64, 40), (13, 64, 7), (5, 37, 33)])
def test_contraction_tiles(m: int, n: int, k: int) -> None:
    a, b, c = Buffer("a", float32, m * k), Buffer("b", float32, k * n), Buffer("c", float32, m * n)

    def block(start: int, rows: int) -> Stmt:
        i, j, t = Var(f"i{start}", rows), Var(f"j{start}", n), Var(f"t{start}", k)
        row = index(i) + start
        name = f"s{start}"
        body = Update(name, (Load(a, row * k + index(t)), Load(b, index(t) * n + index(j))))
        return Loop(
            "tile",
            i,
            (
                Loop(
                    "vector",
                    j,
                    (
                        Accumulate((Acc(name, "fma", float32, zero(float32)),), (Loop("serial", t, (body,)),)),
                        Store(c, row * n + index(j), call("max", Read(name, float32), zero(float32))),
                    ),
                ),
            ),
        )

    p = program(kernel([a, b, c], "c", *[block(s, min(6, m - s)) for s in range(0, m, 6)]), 2)
    x, w = data(m, k), data(k, n, seed=1)
    got = run(p, [x, w], [np.zeros((m, n), np.float32)])[0]
    np.testing.assert_allclose(got, np.maximum(x.astype(np.float64) @ w, 0), rtol=1e-4, atol=1e-5)


def test_loop_carried_values() -> None:
    """The position of the first maximum, by two accumulators that are set together; one per row of a tile."""
    rows, cols = 4, 29
    x, y = Buffer("x", float32, rows * cols), Buffer("y", int64, rows)
    i, j = Var("i", rows), Var("j", cols)
    value = Load(x, index(i) * cols + index(j))
    better = call("gt", value, Read("best", float32))
    k = kernel(
        [x, y],
        "y",
        Loop(
            "tile",
            i,
            (
                Accumulate(
                    (Acc("best", "set", float32, Const(-np.inf, float32)), Acc("at", "set", int64, zero(int64))),
                    (
                        Loop(
                            "serial",
                            j,
                            (
                                Update(
                                    "at", (Call("select", (better, IndexValue(index(j)), Read("at", int64)), int64),)
                                ),
                                Update("best", (Call("select", (better, value, Read("best", float32)), float32),)),
                            ),
                        ),
                    ),
                ),
                Store(y, index(i), Read("at", int64)),
            ),
        ),
    )
    a = data(rows, cols)
    assert np.array_equal(run(program(k, 1), [a], [np.zeros(rows, np.int64)])[0], a.argmax(1))


def test_conditional_updates_and_stores() -> None:
    x, y = Buffer("x", float32, 40), Buffer("y", float32, 41)
    i = Var("i", 40)
    positive = call("gt", Load(x, index(i)), zero(float32))
    k = kernel(
        [x, y],
        "y",
        Accumulate(
            (Acc("s", "add", float32, zero(float32)),),
            (
                Loop(
                    "serial",
                    i,
                    (
                        Store(y, index(i), zero(float32)),
                        If(positive, (Update("s", (Load(x, index(i)),)), Store(y, index(i), Load(x, index(i))))),
                    ),
                ),
            ),
        ),
        Store(y, Index((), 40), Read("s", float32)),
    )
    a = data(40)
    got = run(program(k, 1), [a], [np.zeros(41, np.float32)])[0]
    assert np.array_equal(got[:40], np.maximum(a, 0))


def test_in_place_updates_see_earlier_stores() -> None:
    """Running sums in the output itself: each step reads what the one before has written."""
    x, y = Buffer("x", float32, 33), Buffer("y", float32, 34)
    i = Var("i", 33)
    k = kernel(
        [x, y],
        "y",
        Store(y, Index(), zero(float32)),
        Loop("serial", i, (Store(y, index(i) + 1, call("add", Load(y, index(i)), Load(x, index(i)))),)),
    )
    a = data(33)
    got = run(program(k, 1), [a], [np.zeros(34, np.float32)])[0]
    assert np.array_equal(got[1:], np.cumsum(a, dtype=np.float32))


def merge_kernel(size: int) -> Kernel:
    """Merge two sorted halves through scratch memory with run-time positions."""
    x, y, s = Buffer("x", int64, size), Buffer("y", int64, size), Buffer("scratch", int64, size)
    half = size // 2
    i, j, c = Var("i", size), Var("j", size), Var("c", size)
    left, right = Read("left", int64), Read("right", int64)
    at_left, at_right = computed(left, (0, half)), computed(right, (half, size))
    left_in, right_in = call("lt", left, Const(half, int64)), call("lt", right, Const(size, int64))
    a, b = Load(s, at_left, left_in), Load(s, at_right, right_in)
    take = call("and", left_in, call("or", call("not", right_in), call("le", a, b)))
    one = Const(1, int64)
    return kernel(
        [x, y],
        "y",
        Loop(
            "parallel",
            Var("once", 1),
            (
                Local(s),
                Loop("vector", c, (Store(s, index(c), Load(x, index(c))),)),
                Accumulate(
                    (Acc("left", "set", int64, zero(int64)), Acc("right", "set", int64, Const(half, int64))),
                    (
                        Loop(
                            "serial",
                            i,
                            (
                                Let("take", take),
                                Store(y, index(i), Call("select", (Read("take", bool_), a, b), int64)),
                                Update(
                                    "left",
                                    (Call("select", (Read("take", bool_), call("add", left, one), left), int64),),
                                ),
                                Update(
                                    "right",
                                    (Call("select", (Read("take", bool_), right, call("add", right, one)), int64),),
                                ),
                            ),
                        ),
                    ),
                ),
            ),
        ),
        *([] if size else [Loop("serial", j, ())]),
    )


@pytest.mark.parametrize("size", [8, 50])
def test_merge_of_sorted_halves(size: int) -> None:
    values = np.random.default_rng(0).integers(0, 30, size)
    x = np.concatenate([np.sort(values[: size // 2]), np.sort(values[size // 2 :])])
    assert np.array_equal(run(program(merge_kernel(size), 1), [x], [np.zeros(size, np.int64)])[0], np.sort(x))


def test_prefetch_has_no_effect_wherever_it_points() -> None:
    x, y = Buffer("x", float32, 40), Buffer("y", float32, 40)
    row, v = Var("i", 4), Var("v", 10)
    copy = Loop("vector", v, (Store(y, index(row) * 10 + index(v), Load(x, index(row) * 10 + index(v))),))
    hints = (Prefetch(x, index(row) * 2**40 - 2**42), Prefetch(y, index(row)))
    k = kernel([x, y], "y", Loop("serial", row, (*hints, copy)))
    a = data(40)
    assert np.array_equal(run(program(k, 1), [a], [np.zeros(40, np.float32)])[0], a)


@pytest.mark.parametrize("dtype", [float32, int64])
def test_elements_before_a_line(dtype: DType) -> None:
    size = dtype.itemsize
    x, y = Buffer("x", dtype, 40), Buffer("y", int64, 1)
    p = program(kernel([x, y], "y", Store(y, Index(), ToLine(x))), 1)
    memory = np.zeros(1024, np.uint8)
    for start in range(-memory.ctypes.data % size, 128, size):
        given = memory[start : start + 40 * size].view(dtype.numpy)
        assert run(p, [given], [np.zeros(1, np.int64)])[0] * size == -given.ctypes.data % 64


def test_failed_check_is_an_index_error() -> None:
    x, n, y = Buffer("x", float32, 10), Buffer("n", int64, 20), Buffer("y", float32, 20)
    v = Var("v", 20)
    loaded = Load(n, index(v))
    at = computed(loaded)
    k = kernel(
        [x, n, y],
        "y",
        Loop("vector", v, (Check(both(in_range(at, 10)) or zero(bool_)), Store(y, index(v), Load(x, at)))),
    )
    p = program(k, 2)
    a, good = data(10), np.arange(20) % 10
    assert np.array_equal(run(p, [a, good], [np.zeros(20, np.float32)])[0], a[good])
    for bad in (10, -1, 2**62):
        wrong = good.copy()
        wrong[17] = bad
        with pytest.raises(IndexError, match="step"):
            Executable(p).run([a, wrong], [np.zeros(20, np.float32)])
        with pytest.raises(IndexError, match="step"):
            interpret_program(p, [a, wrong], [np.zeros(20, np.float32)])


@pytest.mark.slow
def test_statements_of_a_kernel_meet() -> None:
    """A parallel loop, a serial statement that needs all of it, and a parallel loop that needs that."""
    n = 1000
    x, t, y = Buffer("x", float32, n), Buffer("t", float32, n + 1), Buffer("y", float32, n)
    i, j, k_ = Var("i", n), Var("j", n), Var("k", n)
    k = kernel(
        [x, t, y],
        "t y",
        Loop("parallel", i, (Store(t, index(i), call("mul", Load(x, index(i)), Const(2.0, float32))),)),
        Accumulate(
            (Acc("s", "add", float32, zero(float32)),), (Loop("serial", j, (Update("s", (Load(t, index(j)),)),)),)
        ),
        Store(t, Index((), n), Read("s", float32)),
        Loop("parallel", k_, (Store(y, index(k_), call("add", Load(t, Index((), n)), Load(t, index(k_)))),)),
    )
    a = data(n)
    for _ in range(20):
        run(program(k, 1), [a], [np.zeros(n + 1, np.float32), np.zeros(n, np.float32)])


def test_repeated_steps_and_offsets_in_the_arena() -> None:
    """h[t + 1] = h[t] + x[t], each step a call on slices of the slots."""
    steps, width = 9, 40
    x, h, g = Buffer("x", float32, width), Buffer("h", float32, width), Buffer("g", float32, width)
    v, t = Var("v", width), Var("t", steps)
    add = kernel(
        [x, h, g],
        "g",
        Loop(
            "parallel",
            Var("once", 1),
            (Loop("vector", v, (Store(g, index(v), call("add", Load(h, index(v)), Load(x, index(v)))),)),),
        ),
    )
    clear = kernel([g], "g", Loop("vector", v, (Store(g, index(v), zero(float32)),)))
    copy = kernel([x, g], "g", Loop("vector", v, (Store(g, index(v), Load(x, index(v))),)))
    row = width * 4
    xs, out = Slot("xs", "input", 0, steps * row), Slot("out", "output", 0, row)
    states = Slot("h", "arena", 64, (steps + 1) * row)
    p = Program(
        "scan",
        (xs,),
        (out,),
        64 + (steps + 1) * row,
        (
            CallStep(clear, (Ref(states),)),
            RepeatStep(
                t,
                (
                    CallStep(
                        add, (Ref(xs, index(t) * row), Ref(states, index(t) * row), Ref(states, index(t) * row + row))
                    ),
                ),
            ),
            CallStep(copy, (Ref(states, Index((), steps * row)), Ref(out))),
        ),
    )
    a = data(steps, width)
    expected = np.zeros(width, np.float32)
    for part in a:
        expected += part
    assert np.array_equal(run(p, [a], [np.zeros(width, np.float32)])[0], expected)


def test_kernel_in_place_on_one_slot() -> None:
    x, y = Buffer("x", float32, 64), Buffer("y", float32, 64)
    i, v = Var("i", 4), Var("v", 16)
    at = index(i) * 16 + index(v)
    k = kernel(
        [x, y], "y", Loop("parallel", i, (Loop("vector", v, (Store(y, at, call("add", Load(x, at), Load(x, at))),)),))
    )
    state, out = Slot("state", "input", 0, 256), Slot("out", "output", 0, 256)
    copy = kernel([x, y], "y", Loop("parallel", i, (Loop("vector", v, (Store(y, at, Load(x, at)),)),)))
    p = Program(
        "state",
        (state,),
        (out,),
        0,
        (
            CallStep(k, (Ref(state), Ref(state))),
            CallStep(k, (Ref(state), Ref(state))),
            CallStep(copy, (Ref(state), Ref(out))),
        ),
    )
    a = data(64)
    memory, result = a.copy(), np.zeros(64, np.float32)
    Executable(p).run([memory], [result], threads=2)
    assert np.array_equal(memory, 4 * a) and np.array_equal(result, 4 * a)


def test_equal_kernels_are_compiled_once() -> None:
    def double(x: str, y: str, v: str) -> Kernel:
        a, b, var = Buffer(x, float32, 16), Buffer(y, float32, 16), Var(v, 16)
        return Kernel(
            x + y,
            (a, b),
            frozenset([y]),
            (Loop("vector", var, (Store(b, index(var), call("add", Load(a, index(var)), Load(a, index(var)))),)),),
        )

    a, b = Slot("a", "input", 0, 64), Slot("b", "output", 0, 64)
    middle = Slot("m", "arena", 0, 64)
    p = Program(
        "two",
        (a,),
        (b,),
        64,
        (
            CallStep(double("x", "y", "v"), (Ref(a), Ref(middle))),
            CallStep(double("p", "q", "w"), (Ref(middle), Ref(b))),
        ),
    )
    x = data(16)
    assert np.array_equal(run(p, [x], [np.zeros(16, np.float32)])[0], 4 * x)
    assert Executable(p).llvm_ir.count("define void @k") == 1


def test_empty_loops_and_buffers() -> None:
    x, y = Buffer("x", float32, 0), Buffer("y", float32, 0)
    v = Var("v", 0)
    k = kernel([x, y], "y", Loop("vector", v, (Store(y, index(v), Load(x, index(v))),)))
    empty = np.zeros(0, np.float32)
    run(program(k, 1), [empty], [empty], verify=False)


def test_several_updates_in_one_body_keep_their_order() -> None:
    """Three taps of a window, unrolled: later taps read what earlier ones have read for other elements of the tile."""
    rows, lanes, depth = 4, 20, 9
    x, w = Buffer("x", float32, depth * (rows + 2)), Buffer("w", float32, depth * 3 * lanes)
    y = Buffer("y", float32, rows * lanes)
    i, j, t = Var("i", rows), Var("j", lanes), Var("t", depth)
    taps: list[Stmt] = []
    for tap in range(3):
        weight = Load(w, (index(t) * 3 + tap) * lanes + index(j))
        taps += [
            Let(f"w{tap}", weight),
            Let(f"x{tap}", Load(x, index(t) * (rows + 2) + index(i) + tap)),
            Update("s", (Read(f"w{tap}", float32), Read(f"x{tap}", float32))),
        ]
    total = Accumulate((Acc("s", "fma", float32, zero(float32)),), (Loop("serial", t, tuple(taps)),))
    store = Store(y, index(i) * lanes + index(j), Read("s", float32))
    k = kernel([x, w, y], "y", Loop("tile", i, (Loop("vector", j, (total, store)),)))
    a, b = data(depth, rows + 2), data(depth, 3, lanes, seed=1)
    got = run(program(k, 2), [a, b], [np.zeros((rows, lanes), np.float32)])[0]
    windows = np.stack([a[:, tap : tap + rows] for tap in range(3)], axis=1)
    np.testing.assert_allclose(got, np.einsum("dtr,dtl->rl", windows, b), rtol=1e-4, atol=1e-5)


def test_a_store_once_for_many_elements_that_were_read() -> None:
    """Every element of a row reads what one store for the whole row then overwrites."""
    b, a, y = Buffer("b", float32, 6), Buffer("a", float32, 6), Buffer("y", float32, 6 * 64)
    first, i, v = Var("first", 6), Var("i", 6), Var("v", 64)
    copied = Loop("serial", first, (Store(a, index(first), Load(b, index(first))),))
    double = call("add", Load(a, index(i)), Load(b, index(i)))
    row = (Store(y, index(i) * 64 + index(v), double), Store(a, index(i), double))
    k = kernel([b, a, y], "a y", copied, Loop("tile", i, (Loop("vector", v, row),)))
    x = data(6)
    found = run(program(k, 1), [x], [np.zeros(6, np.float32), np.zeros(6 * 64, np.float32)])
    np.testing.assert_array_equal(found[1], np.repeat(x + x, 64))


def _slices(starts: list[int], sizes: int = 96) -> Program:
    """``y[n] = x[starts[n]:][:16] * 2``, each as a kernel, which takes all of ``x``."""
    x, i = Buffer("x", float32, sizes), Var("i", 16)
    steps, outputs = [], []
    for n, start in enumerate(starts):
        y = Buffer("y", float32, 16)
        double = call("mul", Load(x, index(i) + start), Const(2.0, float32))
        kernel = Kernel(f"k{n}", (x, y), frozenset({"y"}), (Loop("vector", i, (Store(y, index(i), double),)),))
        outputs.append(Slot(f"y{n}", "output", n, 64))
        steps.append(CallStep(kernel, (Ref(Slot("x", "input", 0, 4 * sizes)), Ref(outputs[-1]))))
    return Program("slices", (Slot("x", "input", 0, 4 * sizes),), tuple(outputs), 0, tuple(steps))


def test_kernels_that_differ_in_where_they_begin_share_a_function() -> None:
    starts = [0, 16, 3, 80, 41]
    p, x = _slices(starts), np.arange(96, dtype=np.float32)
    found = run(p, [x], [np.zeros(16, np.float32) for _ in starts])
    for start, y in zip(starts, found, strict=True):
        np.testing.assert_array_equal(y, x[start : start + 16] * 2)
    assert set(emit_program(p, host_target()).functions) == {"k0"}


def test_a_parameter_read_at_positions_from_memory_keeps_its_start() -> None:
    """Positions outside the memory read its element 0."""
    x, at, y, i = Buffer("x", float32, 8), Buffer("at", int64, 4), Buffer("y", float32, 4), Var("i", 4)
    gathered = Load(x, computed(Load(at, index(i))))
    kernel = Kernel(
        "gather", (x, at, y), frozenset({"y"}), (Loop("serial", i, (Store(y, index(i), gathered),)),)
    )  # fmt: skip
    assert from_starts(kernel) == (kernel, (0, 0, 0))
    moved, starts = from_starts(
        replace(kernel, body=(Loop("serial", i, (Store(y, index(i), Load(x, index(i) + 4)),)),))
    )
    assert starts == (4, 0, 0)
    assert moved.params[0].size == 4
