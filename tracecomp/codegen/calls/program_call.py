"""LLVM text of the call of a saved program: a Python builtin function, bound to a record of the call.

It compares its arrays with the types that the program was saved for, makes the results' arrays, releases the
interpreter lock and runs the program. Arguments that do not fit go to a Python function, which raises the error or
copies arrays of another layout. This code relies only on the layouts of array objects, which are checked when a program
is loaded.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tracecomp.codegen.calls.call_tables import (
    ARRAY_DATA,
    ARRAY_DESCR,
    ARRAY_DIMS,
    ARRAY_FLAGS,
    ARRAY_ND,
    TYPE,
)
from tracecomp.codegen.text.assembler import Assembler
from tracecomp.codegen.threads.entry import run_unlocked

CALL = "tc_program"

RECORD = (
    "entry", "table", "arena", "pool", "threads", "failed", "busy", "array_type", "general", "fail", "count",
    "arguments", "arguments_end", "outputs", "outputs_end", "results",
)  # fmt: skip
"""The words of a record. First the program's entry, its table of data pointers, its arena, the pool and the number of
threads. Then the place of a failed step, whether a call is running, ndarray, and the functions for unsuitable arguments
and for a failed step. Last the number of arguments, the first and the end of the rows of arguments and outputs, and the
number of results."""

ARGUMENT = ("descr", "nd", "dims", "flags", "slot")
"""A row for each argument: its dtype, dimensions and their sizes, the flags it must have, its place in the table."""

OUTPUT = ("make", "slot", "array")
"""A row for each result: the function that allocates its array, its place in the table, and the array of the current
call."""

_DECLARATIONS = """
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
declare ptr @PyTuple_New(i64)
declare i32 @PyTuple_SetItem(ptr, i64, ptr)
declare void @Py_DecRef(ptr)
"""


class _ProgramCall:
    """Emit the function; ``array_call`` in the same module declares the rest."""

    def __init__(self) -> None:
        self.a = Assembler()
        self.record = self.a.load("ptr", "%self", ARRAY_DATA)

    def word(self, name: str, kind: str = "ptr") -> str:
        return self.a.load(kind, self.record, 8 * RECORD.index(name))

    def put(self, name: str, value: str) -> None:
        self.a.store("i64", value, self.record, 8 * RECORD.index(name))

    def cell(self, table: tuple[str, ...], row: str, name: str, kind: str = "ptr") -> str:
        return self.a.load(kind, row, 8 * table.index(name))

    @contextmanager
    def rows(self, name: str, table: tuple[str, ...]) -> Iterator[str]:
        with self.a.each(self.word(name), self.word(f"{name}_end"), 8 * len(table)) as row:
            yield row

    def text(self) -> str:
        a = self.a
        # A wrong number of arguments, or a call inside this one (the record is in use), is left to Python.
        a.need(a.same("%count", self.word("count", "i64"), "i64"), "general")
        a.need(a.same(self.word("busy", "i64"), "0", "i64"), "general")
        self._arguments()
        self._outputs()
        self._run()
        a.block("failed")
        # A handler of a signal may have raised (``threads.pauses``).
        a.need(a.same(a.call("ptr", "@PyErr_Occurred"), "null"), "none")
        self._drop()
        word = a.call("ptr", "@PyLong_FromLongLong", "i64 " + self.word("failed", "i64"))
        a.store("ptr", word, "%room")
        given = "ptr %room", "i64 1", "ptr null"
        a.do(f"ret ptr {a.call('ptr', '@PyObject_Vectorcall', 'ptr ' + self.word('fail'), *given)}")
        a.block("none")
        self._drop()
        a.do("ret ptr null")
        a.block("general")
        given = "ptr %args", "i64 %count", "ptr null"
        a.do(f"ret ptr {a.call('ptr', '@PyObject_Vectorcall', 'ptr ' + self.word('general'), *given)}")
        # On the stack of the function, at its beginning, where LLVM merges it into one frame.
        a.lines[1:1] = ["  %room = alloca ptr, align 8", "  %number = alloca i64, align 8"]
        return _DECLARATIONS + a.text(f"define ptr @{CALL}(ptr %self, ptr %args, i64 %count) #1")

    def _arguments(self) -> None:
        """Write the data pointers of arguments into the table, if all types match."""
        a = self.a
        number = "%number"
        a.store("i64", "0", number)
        with self.rows("arguments", ARGUMENT) as row:
            # Rows and arguments are counted together, as a row does not say which argument it is for.
            k = a.load("i64", number)
            array = a.load("ptr", a.let(f"getelementptr ptr, ptr %args, i64 {k}"))
            a.store("i64", a.let(f"add i64 {k}, 1"), number)
            a.need(a.same(a.load("ptr", array, TYPE), self.word("array_type")), "general")
            # By identity; an equal descriptor that is another object takes the general path.
            a.need(a.same(a.load("ptr", array, ARRAY_DESCR), self.cell(ARGUMENT, row, "descr")), "general")
            nd = a.load("i32", array, ARRAY_ND)
            a.need(a.same(nd, a.let(f"trunc i64 {self.cell(ARGUMENT, row, 'nd', 'i64')} to i32"), "i32"), "general")
            # At least these flags: dense, aligned, and writeable where the program writes.
            wanted = a.let(f"trunc i64 {self.cell(ARGUMENT, row, 'flags', 'i64')} to i32")
            has = a.let(f"and i32 {a.load('i32', array, ARRAY_FLAGS)}, {wanted}")
            a.need(a.same(has, wanted, "i32"), "general")
            have, want = a.load("ptr", array, ARRAY_DIMS), self.cell(ARGUMENT, row, "dims")
            size = a.let(f"mul i64 {self.cell(ARGUMENT, row, 'nd', 'i64')}, 8")
            base = a.let(f"ptrtoint ptr {want} to i64")
            with a.each(want, a.at(want, size), 8) as dim:
                offset = a.let(f"sub i64 {a.let(f'ptrtoint ptr {dim} to i64')}, {base}")
                a.need(a.same(a.load("i64", dim), a.load("i64", have, offset), "i64"), "general")
            a.store("ptr", a.load("ptr", array, ARRAY_DATA), self.cell(ARGUMENT, row, "slot"))

    def _outputs(self) -> None:
        """Allocate arrays for the results. The record belongs to this call from here on: allocation may run other
        code."""
        a = self.a
        self.put("busy", "1")
        # All rows are null first, so that a failure in the middle knows which arrays exist.
        with self.rows("outputs", OUTPUT) as row:
            a.store("ptr", "null", row, 8 * OUTPUT.index("array"))
        with self.rows("outputs", OUTPUT) as row:
            make = self.cell(OUTPUT, row, "make")
            made = a.call("ptr", "@PyObject_Vectorcall", f"ptr {make}", "ptr null", "i64 0", "ptr null")
            # An exception is set: nothing has run yet.
            a.need(a.let(f"icmp ne ptr {made}, null"), "none")
            a.store("ptr", made, row, 8 * OUTPUT.index("array"))
            a.store("ptr", a.load("ptr", made, ARRAY_DATA), self.cell(OUTPUT, row, "slot"))

    def _run(self) -> None:
        a = self.a
        failed = a.at(self.record, 8 * RECORD.index("failed"))
        a.store("i64", "0", failed)
        memory = self.word("table"), self.word("arena")
        run_unlocked(a, self.word("entry"), *memory, failed, self.word("pool"), self.word("threads", "i64"))
        # A failed call has written results that are dropped.
        a.need(a.same(a.load("i64", failed), "0", "i64"), "failed")
        a.choose(a.same(self.word("results", "i64"), "1", "i64"), "one", "several")
        a.block("one")
        only = self.cell(OUTPUT, self.word("outputs"), "array")
        # The array's reference goes to the caller.
        self.put("busy", "0")
        a.do(f"ret ptr {only}")
        a.block("several")
        found = a.call("ptr", "@PyTuple_New", "i64 " + self.word("results", "i64"))
        a.need(a.let(f"icmp ne ptr {found}, null"), "none")
        number = "%number"
        a.store("i64", "0", number)
        with self.rows("outputs", OUTPUT) as row:
            k = a.load("i64", number)
            # SetItem takes the reference.
            a.call("i32", "@PyTuple_SetItem", f"ptr {found}", f"i64 {k}", "ptr " + self.cell(OUTPUT, row, "array"))
            a.store("i64", a.let(f"add i64 {k}, 1"), number)
        self.put("busy", "0")
        a.do(f"ret ptr {found}")

    def _drop(self) -> None:
        """Release the allocated arrays."""
        a = self.a
        self.put("busy", "0")
        with self.rows("outputs", OUTPUT) as row:
            array = self.cell(OUTPUT, row, "array")
            with a.when(a.let(f"icmp ne ptr {array}, null")):
                # Only those that exist.
                a.run("@Py_DecRef", f"ptr {array}")


def call_text() -> str:
    """The definition of ``tc_program``, a METH_FASTCALL function."""
    return _ProgramCall().text()
