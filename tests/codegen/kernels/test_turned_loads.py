"""Lanes that are strided while memory is contiguous along a tile: transposes in registers give each element its value.

Sums are compared bit by bit with numpy's, added one element after the other in the same order.
"""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np
import pytest

import tracecomp as tc
from tests.codegen.programs import program
from tests.codegen.running import same_bits
from tracecomp.ir.graph import Graph
from tracecomp.ir.index import Var, index
from tracecomp.ir.loop_printer import print_program
from tracecomp.ir.loops import Acc, Accumulate, Buffer, Const, Let, Load, Loop, Read, Store, Update, cast
from tracecomp.ir.op import OPS
from tracecomp.ir.program import Kernel, Program
from tracecomp.ir.types import DType, TensorType, bfloat16, compute_dtype, float16, float32, float64, int32, uint8
from tracecomp.passes.building import build
from tracecomp.passes.cost.machine import on
from tracecomp.passes.cost.reference import REFERENCE
from tracecomp.runtime.executable import Executable


def summed(rows: int, terms: int, stride: int, first: int, dtype: DType, kind: str) -> Program:
    """``y[v]`` is the sum of ``terms`` elements of a row, from element ``first``. Rows are ``stride`` elements
    apart."""
    size = max(first, first + stride * (rows - 1)) + terms
    x, y = Buffer("x", dtype, size), Buffer("y", compute_dtype(dtype), rows)
    v, t = Var("v", rows), Var("t", terms)
    load = Load(x, index(v) * stride + index(t) + first)
    total = Acc("a", "add", y.dtype, Const(0, y.dtype), 1)
    body = (Let("e", cast(load, y.dtype)), Update("a", (Read("e", y.dtype, frozenset((v, t))),)))
    store = Store(y, index(v), Read("a", y.dtype, frozenset((v,))))
    inner = (Accumulate((total,), (Loop(kind, t, body),)), store)
    return program(Kernel("sums", (x, y), frozenset(["y"]), (Loop("vector", v, inner),)), 1)


@pytest.mark.sampled(9)
@pytest.mark.parametrize("dtype", [float32, float64, float16, bfloat16, int32, uint8], ids=lambda d: d.name)
@pytest.mark.parametrize("terms", [1, 3, 4, 5, 8, 15, 16, 17, 33])
def test_each_lane_sums_its_own_row_in_order(dtype: DType, terms: int) -> None:
    rng = np.random.default_rng(terms)
    for rows, stride, first in ((2, 7, 0), (5, 1, 0), (15, 40, 3), (16, 64, 1), (17, 5, 0), (37, 48, 2), (9, -41, 400)):
        low = min(first, first + stride * (rows - 1))
        assert low >= 0
        size = max(first, first + stride * (rows - 1)) + terms
        x = (rng.standard_normal(size) * 50).astype(dtype.numpy)
        wide = compute_dtype(dtype).numpy
        want = np.zeros(rows, wide)
        for k in range(terms):
            want += x[[first + stride * r + k for r in range(rows)]].astype(wide)
        found = np.zeros(rows, wide)
        Executable(summed(rows, terms, stride, first, dtype, "tile")).run([x], [found])
        assert same_bits(found, want), (rows, stride)


def test_nothing_behind_the_last_row_is_read() -> None:
    """The buffer ends where memory that may not be read begins."""
    page = mmap.PAGESIZE
    with mmap.mmap(-1, 2 * page) as memory:
        start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        libc = ctypes.CDLL(None)
        assert libc.mprotect(ctypes.c_void_p(start + page), page, 0) == 0
        for terms, rows, stride in ((5, 11, 20), (7, 16, 9), (16, 5, 16), (19, 3, 40)):
            size = stride * (rows - 1) + terms
            x = np.frombuffer(memory, np.float32, size, page - 4 * size)
            x[:] = np.arange(size) % 97
            found = np.zeros(rows, np.float32)
            Executable(summed(rows, terms, stride, 0, float32, "tile")).run([x], [found])
            np.testing.assert_array_equal(
                found, np.lib.stride_tricks.as_strided(x, (rows, terms), (4 * stride, 4)).sum(1)
            )
        assert libc.mprotect(ctypes.c_void_p(start + page), page, mmap.PROT_READ | mmap.PROT_WRITE) == 0
        del x


CASES = [
    ("few rows by rows of weights", lambda x, w: x @ w.mT, lambda r, n, k: ((r, k), (n, k))),
    ("batches", lambda x, w: tc.einsum("bmk,bnk->bmn", x, w), lambda r, n, k: ((3, r, k), (3, n, k))),
    ("one column", lambda x, w: x @ w, lambda r, n, k: ((n, k), (k, r))),
    ("a slice of weights", lambda x, w: x @ w[:, 1:-2].mT, lambda r, n, k: ((r, k), (n, k + 3))),
    ("what follows", lambda x, w: (x @ w.mT).relu() + 1, lambda r, n, k: ((r, k), (n, k))),
    ("sums across memory", lambda x, w: (x.mT.sum(0), w.mT.sum(0)), lambda r, n, k: ((r, k), (n, k))),
    ("two sums", lambda x, w: (w.mT * 2).sum(0) + (w.mT * w.mT).sum(0), lambda r, n, k: ((1,), (n, k))),
    ("the mean of a middle axis", lambda x, w: w.permute(1, 2, 0).mean(1), lambda r, n, k: ((1,), (n, r, k))),
]  # fmt: skip


@pytest.mark.sampled(15)
@pytest.mark.parametrize(("program_of", "shapes"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_bits_are_those_of_eager_calls(program_of: Any, shapes: Any, dtype: str) -> None:
    """Random sizes, most of which no vector divides. Eager products and sums are separate routines."""
    rng = np.random.default_rng(5)
    for _ in range(4):
        r, n, k = int(rng.integers(1, 9)), int(rng.integers(2, 70)), int(rng.integers(3, 90))
        given = [tc.tensor(rng.standard_normal(s)).to(getattr(tc, dtype)) for s in shapes(r, n, k)]
        compiled = tc.compile(lambda *args: program_of(*args))
        eager = compiled(*given)
        compiled(*given)
        for a, b in zip(flat(compiled(*given)), flat(eager), strict=True):
            assert same_bits(a, b), (r, n, k)


def flat(result: Any) -> list[Any]:
    parts = result if isinstance(result, tuple) else (result,)
    return [p.float().numpy() if p.dtype in (tc.bfloat16, tc.float16) else p.numpy() for p in parts]


@pytest.mark.parametrize("rows, panel", [(1, False), (3, False), (8, False), (9, True)])
def test_few_rows_need_no_panel(rows: int, panel: bool) -> None:
    graph = Graph("product")
    x, w = (
        graph.add_input(TensorType(float32, shape), name) for name, shape in (("x", (rows, 200)), ("w", (300, 200)))
    )
    graph.add_output(graph.add(OPS["contract"], [x, w], {"spec": "mk,nk->mn"})[0])
    with on(REFERENCE):
        text = print_program(build(graph).program)
    assert ("panel" in text) is panel
    assert ("tile kt < 16" in text) is not panel
