"""The loop IR's printer, verifier and interpreter as tools: what they say, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest

from tests.codegen.programs import elementwise, program, scalar_op
from tracecomp.base.errors import VerifyError
from tracecomp.ir.index import Index, Var, computed, index
from tracecomp.ir.loop_interp import interpret_program
from tracecomp.ir.loop_printer import kernel_key, print_kernel, print_program
from tracecomp.ir.loop_verify import kernel_problems, verify_program
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
    in_range,
)
from tracecomp.ir.program import Kernel
from tracecomp.ir.scalars import call
from tracecomp.ir.types import float32, int64

X, Y = Buffer("x", float32, 12), Buffer("y", float32, 12)
ROW, COL = Var("i", 3), Var("v", 4)
AT = index(ROW) * 4 + index(COL)
ZERO = Const(0.0, float32)


def kernel(*body: Stmt, writes: str = "y", params: tuple[Buffer, ...] = (X, Y)) -> Kernel:
    return Kernel("k", params, frozenset(writes.split()), body)


def copying(offset: Index = AT) -> Stmt:
    return Loop("parallel", ROW, (Loop("vector", COL, (Store(Y, AT, Load(X, offset)),)),))


def test_printed_kernel() -> None:
    shared = call("exp", Load(X, AT))
    body = Loop("parallel", ROW, (
        Accumulate((Acc("s", "add", float32, ZERO, 4),), (
            Loop("vector", COL, (Update("s", (call("mul", shared, shared),)),)),)),
        Local(Buffer("t", float32, 1)),
        If(call("gt", Read("s", float32), ZERO), (Store(Y, index(ROW), Read("s", float32)),)),
        Check(call("lt", IndexValue(index(ROW) // 2), Const(7, int64))),
        Prefetch(X, index(ROW) * 4 + 40),
        Let("m", ToLine(X)),
        Store(Y, index(ROW), ZERO, stream="always"),
    ))  # fmt: skip
    assert print_kernel(kernel(body)) == (
        "kernel k(x: f32[12], y: f32[12] written):\n"
        "  parallel i < 3:\n"
        "    accumulate s: add f32 from 0.0:f32 in 4 lanes:\n"
        "      vector v < 4:\n"
        "        %1 = exp(x[4*i + v])\n"
        "        update s, (%1 * %1)\n"
        "    local t: f32[1]\n"
        "    if (s > 0.0:f32):\n"
        "      store y[i] = s\n"
        "    check (index((i // 2)) < 7:i64)\n"
        "    prefetch x[4*i + 40]\n"
        "    let m = to_line(x)\n"
        "    stream y[i] = 0.0:f32"
    )


def test_printed_program_names_slots_and_steps() -> None:
    text = print_program(elementwise(scalar_op("exp", float32), [float32], float32, 40))
    assert "input x0: 160 bytes" in text and "call elementwise(x0, y)  # step" in text and "exp(x0[" in text


def test_key_ignores_names_but_not_meaning() -> None:
    a, b, w = Buffer("p", float32, 12), Buffer("q", float32, 12), Var("w", 4)
    j = Var("j", 3)
    at = index(j) * 4 + index(w)
    renamed = Kernel("other", (a, b), frozenset("q"), (
        Loop("parallel", j, (Loop("vector", w, (Store(b, at, Load(a, at)),)),)),))  # fmt: skip
    assert kernel_key(kernel(copying())) == kernel_key(renamed)
    assert kernel_key(kernel(copying())) != kernel_key(kernel(copying(AT * -1 + 11)))
    assert kernel_key(kernel(copying())) != kernel_key(kernel(copying(), writes="x y"))


BAD: list[tuple[str, Kernel]] = [
    ("may be", kernel(copying(AT + 1))),
    ("may be anything", kernel(copying(computed(Call("cast", (Load(X, AT),), int64))))),
    ("is bound twice", kernel(Let("a", ZERO), Let("a", ZERO))),
    ("but is None", kernel(Store(Y, Index(), Read("a", float32)))),
    ("store of i64", kernel(Store(Y, Index(), Const(1, int64)))),
    ("not among the written", kernel(Store(X, Index(), ZERO))),
    ("not declared here", kernel(Store(Buffer("z", float32, 3), Index(), ZERO))),
    ("not in scope", kernel(Store(Y, index(COL), ZERO))),
    ("is nested in another", kernel(Loop("vector", ROW, (Loop("vector", COL, ()),)))),
    ("unknown loop kind", kernel(Loop("fast", ROW, ()))),
    ("outside its accumulate", kernel(Update("s", (ZERO,)))),
    ("not a power of two", kernel(Accumulate((Acc("s", "add", float32, ZERO, 3),), ()))),
    ("unknown op", kernel(Accumulate((Acc("s", "sub", float32, ZERO),), ()))),
    ("with 1 operands", kernel(Accumulate((Acc("s", "fma", float32, ZERO),), (Update("s", (ZERO,)),)))),
    ("gives f32", kernel(Let("a", Call("lt", (ZERO, ZERO), float32)))),
    ("add of", kernel(Let("a", Call("add", (ZERO, Const(1, int64)), int64)))),
    ("not a scalar operation", kernel(Let("a", Call("frobnicate", (ZERO,), float32)))),
    ("a condition has type", kernel(If(ZERO, ()))),
    ("one name", kernel(params=(X, X))),
    ("varies over a tile or vector loop", kernel(Loop("vector", COL, (Prefetch(X, index(COL)),)))),
    ("not declared", kernel(Prefetch(Buffer("other", float32, 3), index(ROW)), params=())),
    ("not declared", kernel(Let("m", ToLine(Buffer("other", float32, 3))))),
]


@pytest.mark.parametrize("words,bad", BAD, ids=[words for words, _ in BAD])
def test_verifier_says_what_is_wrong(words: str, bad: Kernel) -> None:
    assert any(words in problem for problem in kernel_problems(bad)), kernel_problems(bad)


def test_verifier_accepts_guards() -> None:
    at = AT + 1
    guarded = Store(Y, AT, Load(X, at, in_range(at, 12)))
    assert kernel_problems(kernel(Loop("parallel", ROW, (Loop("vector", COL, (guarded,)),)))) == []
    unknown = computed(IndexValue(index(ROW)))
    condition = in_range(unknown, 12)
    assert condition is not None
    assert kernel_problems(kernel(Loop("serial", ROW, (Check(condition), Store(Y, unknown, ZERO))))) == []


def test_program_is_verified_as_a_whole() -> None:
    p = program(kernel(copying(AT + 1)), 1)
    with pytest.raises(VerifyError, match="may be"):
        verify_program(p)


def interpret(k: Kernel) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    out = np.zeros(12, np.float32)
    interpret_program(program(k, 1), [np.arange(12, dtype=np.float32)], [out])
    return out


def test_interpreter_refuses_what_native_code_cannot_see() -> None:
    with pytest.raises(VerifyError, match=r"x\[1\.\.4\] of 12|of 12 elements"):
        interpret(kernel(copying(AT + 9)))
    scratch = Buffer("t", float32, 4)
    with pytest.raises(VerifyError, match="before it is written"):
        interpret(kernel(Local(scratch), Loop("vector", COL, (Store(Y, index(COL), Load(scratch, index(COL))),))))
    with pytest.raises(VerifyError, match="before it is written"):
        interpret(kernel(Loop("vector", COL, (Store(Y, index(COL), Load(Y, index(COL) + 4)),))))
    varying = call("lt", IndexValue(index(COL)), Const(2, int64))
    with pytest.raises(VerifyError, match="varies"):
        interpret(kernel(Loop("tile", COL, (If(varying, (Store(Y, index(COL), ZERO),)),))))
    with pytest.raises(VerifyError, match="does not declare"):
        interpret(kernel(Store(X, Index(), ZERO)))


def test_interpreter_does_tile_statements_for_all_elements_before_the_next() -> None:
    swap = Loop("tile", COL, (
        Let("a", Load(Y, index(COL))),
        Store(Y, index(COL) * -1 + 3, Read("a", float32, frozenset([COL]))),
    ))  # fmt: skip
    fill = Loop("vector", Var("f", 12), (Store(Y, index(Var("f", 12)), Load(X, index(Var("f", 12)))),))
    assert interpret(kernel(fill, swap))[:4].tolist() == [3.0, 2.0, 1.0, 0.0]
