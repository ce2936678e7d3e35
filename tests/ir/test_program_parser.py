"""Loop programs read back from their text."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ir.test_loops import AT, ROW, ZERO, X, Y, copying, kernel
from tracecomp.ir.index import Var, computed, index
from tracecomp.ir.loop_interp import interpret_program
from tracecomp.ir.loop_parser import parse_kernel
from tracecomp.ir.loop_printer import print_kernel, print_program
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
)
from tracecomp.ir.program import CallStep, Kernel, Program, Ref, RepeatStep, Slot, WhenStep, WhileStep
from tracecomp.ir.program_parser import parse_program
from tracecomp.ir.scalars import call
from tracecomp.ir.types import bool_, float32, float64, int32, int64

LANE = Var("v", 4)
SHARED = call("exp", Load(X, AT))
NEVER = call("eq", Const(True, bool_), Const(False, bool_))
TOTAL = Read("s", float32, frozenset((ROW,)))

STATEMENTS: list[Stmt] = [
    copying(),
    Loop("opportunistic", ROW, (
        Accumulate((Acc("s", "add", float32, ZERO, 4), Acc("m", "set", int64, Const(-3, int64))), (
            Loop("vector", LANE, (Update("s", (call("mul", SHARED, SHARED),)),)),)),
        Store(Y, index(ROW), TOTAL),
    )),
    Loop("serial", ROW, (
        Local(Buffer("t", float32, 1)),
        If(call("gt", Load(X, index(ROW)), ZERO), (Store(Y, index(ROW), ZERO, stream="always"),)),
        Check(call("lt", IndexValue(index(ROW) // 2), Const(7, int64))),
        Check(call("ge", IndexValue(index(ROW) % 2 * -3 + 4), Const(7, int64)), "definite", IndexValue(index(ROW))),
        Prefetch(X, index(ROW) * 4 + 40),
        Let("m", ToLine(X)),
        Store(Y, index(ROW), Const(float("-inf"), float32), NEVER, "alone"),
    )),
    Let("u", Call("bitcast", (Call("cast", (Const(1e-300, float64),), float32),), int32)),
    Store(Y, computed(Call("cast", (Load(X, index(3)),), int64), (0, 3)), Load(X, index(1), Const(True, bool_))),
]  # fmt: skip


@pytest.mark.parametrize("stmt", STATEMENTS, ids=range(len(STATEMENTS)))
def test_a_kernel_reads_back_equal(stmt: Stmt) -> None:
    k = kernel(stmt)
    again = parse_kernel(print_kernel(k))
    assert again == k and print_kernel(again) == print_kernel(k)


def test_what_is_shared_in_a_statement_is_one_object_again() -> None:
    k = kernel(Loop("parallel", ROW, (Loop("vector", LANE, (Store(Y, AT, call("mul", SHARED, SHARED)),)),)))
    [outer] = parse_kernel(print_kernel(k)).body
    assert isinstance(outer, Loop) and isinstance(outer.body[0], Loop)
    store = outer.body[0].body[0]
    assert isinstance(store, Store) and isinstance(store.value, Call)
    assert store.value.args[0] is store.value.args[1]


def whole() -> Program:
    """Every kind of step; slots whose names are one, or have no visible end; a state that is updated in place."""
    flag = Buffer("f", bool_, 1)
    again = Kernel("again", (flag,), frozenset("f"), (Store(flag, index(0), Const(False, bool_)),))
    inputs = (Slot("x", "input", 0, 48), Slot("x", "input", 1, 48), Slot('a (b), "c" + 8', "input", 2, 1))
    out = Slot("x", "output", 0, 144)
    flags, row = Slot("flag", "arena", 0, 1), Var("n", 3)
    copy = kernel(copying())
    steps = (
        CallStep(again, (Ref(flags),), "test of x[0] (again)"),
        WhenStep(Ref(inputs[2]), (CallStep(copy, (Ref(inputs[0]), Ref(inputs[1]))),), ()),
        WhileStep((CallStep(again, (Ref(flags),)),), Ref(flags), (CallStep(again, (Ref(flags),)),)),
        RepeatStep(row, (CallStep(copy, (Ref(inputs[0]), Ref(out, index(row) * 48))),)),
    )
    return Program("all steps", inputs, (out, inputs[1]), 64, steps, Slot("prepared", "arena", 8, 1), True)


def test_a_program_reads_back_and_computes_the_same() -> None:
    text = print_program(whole())
    again = parse_program(text)
    assert print_program(again) == text
    assert (again.fast_math, again.arena_bytes, again.name) == (True, 64, "all steps")
    found = []
    for program in (whole(), again):
        state = np.zeros(12, np.float32)
        outputs = [np.zeros(36, np.float32), state]
        interpret_program(program, [np.arange(12, dtype=np.float32), state, np.array([True])], outputs)
        found.append(outputs)
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)
    assert found[0][1].tolist() == list(range(12)) and found[0][0].tolist() == list(range(12)) * 3


TEXT = print_program(whole())

BROKEN = [
    ("call k(", "call q(", "there is no kernel q", "call q("),
    ("x, x')", "x, z)", "there is no slot z", "x, z)"),
    ("repeat n <", "repaet n <", "expected 'while '", "repaet"),
    ("store y[4*i + v]", "store y[4*j + v]", "there is no loop over j", "store y[4*j"),
    ("= x[4*i + v]", "= x[4*i + v] else", "text after the statement: ' else'", "else"),
    ("= x[4*i", "= z[4*i", "there is no buffer z", "z[4*i"),
    ("f32[12]", "f31[12]", "unknown element type 'f31'", "f31"),
]


@pytest.mark.parametrize(("old", "new", "what", "line"), BROKEN, ids=[b[2] for b in BROKEN])
def test_a_text_that_is_not_in_the_language_is_refused_with_its_line(old: str, new: str, what: str, line: str) -> None:
    assert old in TEXT
    broken = TEXT.replace(old, new, 1)
    number = next(n for n, text in enumerate(broken.splitlines(), 1) if line in text)
    with pytest.raises(ValueError) as caught:
        parse_program(broken)
    assert str(caught.value).startswith(f"line {number}: {what}")
