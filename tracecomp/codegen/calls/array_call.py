"""LLVM text of the call of a program on numpy arrays: a Python builtin function, bound to a record of the call.

It reads the arrays' data pointers, releases the interpreter lock, runs the entry and returns the number of the step
whose check failed (0: none), or -1 without doing anything when it is not given the right number of plain C-contiguous
arrays. Calls of whole compiled functions, with guards and tensors, are ``call_stub``. The function is in the module of
``threads.sync``, which defines how a call acquires the workers.
"""

from __future__ import annotations

from tracecomp.codegen.calls.call_tables import ARRAY_DATA, ARRAY_FLAGS, C_CONTIGUOUS, TYPE
from tracecomp.codegen.text.assembler import Assembler
from tracecomp.codegen.threads.entry import run_unlocked

CALL = "tc_call"
SYMBOLS = ("PyEval_SaveThread", "PyEval_RestoreThread", "PyLong_FromLongLong", "PyErr_Occurred")

RECORD = ("entry", "table", "arena", "pool", "threads", "arrays", "type", "failed")
"""The words of a call's record. First the program's entry, its table of data pointers, its arena, the thread pool and
the number of threads. Then the number of arrays, their exact type, and the failed step."""

_SELF_RECORD = ARRAY_DATA
"""The builtin's self is an array over the record."""

_DECLARATIONS = """
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare ptr @PyLong_FromLongLong(i64)
declare ptr @PyErr_Occurred()
"""


def call_text() -> str:
    """The definition of ``tc_call``, a METH_FASTCALL function."""
    a = Assembler()
    record = a.load("ptr", "%self", _SELF_RECORD)

    def word(name: str, kind: str = "ptr") -> str:
        return a.load(kind, record, 8 * RECORD.index(name))

    table, kind = word("table"), word("type")
    a.need(a.same("%count", word("arrays", "i64"), "i64"), "mismatch")
    size = a.let("shl i64 %count, 3")
    # Eight bytes for each argument.
    with a.each("%args", a.at("%args", size), 8) as row:
        array = a.load("ptr", row)
        a.need(a.same(a.load("ptr", array, TYPE), kind), "mismatch")
        flags = a.let(f"and i32 {a.load('i32', array, ARRAY_FLAGS)}, {C_CONTIGUOUS}")
        a.need(a.let(f"icmp ne i32 {flags}, 0"), "mismatch")
        offset = a.let(f"sub i64 {a.let(f'ptrtoint ptr {row} to i64')}, {a.let('ptrtoint ptr %args to i64')}")
        # The argument's index is also its place in the table.
        a.store("ptr", a.load("ptr", array, ARRAY_DATA), table, offset)
    failed = a.at(record, 8 * RECORD.index("failed"))
    a.store("i64", "0", failed)
    run_unlocked(a, word("entry"), table, word("arena"), failed, word("pool"), word("threads", "i64"))
    step = a.load("i64", failed)
    with a.when(a.let(f"icmp ne i64 {step}, 0")):
        # A handler of a signal may have raised (``threads.pauses``).
        a.need(a.same(a.call("ptr", "@PyErr_Occurred"), "null"), "raised")
    a.do(f"ret ptr {a.call('ptr', '@PyLong_FromLongLong', f'i64 {step}')}")
    a.block("raised")
    a.do("ret ptr null")
    a.block("mismatch")
    a.do(f"ret ptr {a.call('ptr', '@PyLong_FromLongLong', 'i64 -1')}")
    return _DECLARATIONS + a.text(f"define ptr @{CALL}(ptr %self, ptr %args, i64 %count) #1")
