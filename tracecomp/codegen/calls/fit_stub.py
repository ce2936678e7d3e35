"""LLVM text of the comparison of a call with a record: whether the call fits, and its dynamic sizes.

``tc_fits`` is the body of a builtin whose self begins with a record's memory. Its arguments are those of the call. It
returns the tuple of the call's sizes, or None if the call does not fit.
"""

from __future__ import annotations

from tracecomp.codegen.calls.call_guards import CallGuards
from tracecomp.codegen.calls.call_tables import ARRAY_DATA, ARRAY_DIMS, GLOBALS, header, row
from tracecomp.codegen.text.assembler import Assembler
from tracecomp.ir.types import FOLLOWED_BELOW

FITS = "tc_fits"


class FitStub(CallGuards):
    """Emit the comparison of a call, and the reads of its sizes."""

    def _sizes(self) -> str:
        """Store the sizes of a call in a tuple; false if sizes that must be equal differ."""
        a = Assembler()
        with self._table(a, "numbers") as r:
            given = a.load("ptr", "%args", self._word(a, "numbers", r, "argument", "i64"))
            number = a.let(f"call i64 @PyLong_AsLongLong(ptr {given})")
            # -1 is a number and the sign of an error; only then the error is queried.
            with a.when(a.same(number, "-1", "i64")):
                a.need(a.same(a.let("call ptr @PyErr_Occurred()"), "null"), "error")
            ends = (f"icmp slt i64 {number}, {FOLLOWED_BELOW}", f"icmp sgt i64 {number}, -{FOLLOWED_BELOW}")
            a.need(a.both(*map(a.let, ends)), "no")
            self._keep_size(a, "numbers", r, number)
        with self._table(a, "sizes") as r:
            array = a.load("ptr", self._word(a, "sizes", r, "source"), row("sources", "array"))
            axis = self._word(a, "sizes", r, "axis", "i64")
            self._keep_size(a, "sizes", r, a.load("i64", a.load("ptr", array, ARRAY_DIMS), axis))
        a.do("ret i1 true")
        a.block("error")
        a.do("call void @PyErr_Clear()")
        a.go("no")
        a.block("no")
        a.do("ret i1 false")
        return a.text("define internal i1 @tc.sizes(ptr %record, ptr %args, ptr %found) #1")

    def _keep_size(self, a: Assembler, table: str, r: str, size: str) -> None:
        """Make ``size`` an item of the tuple, or compare it with the size that another row has stored."""
        cell, item = self._word(a, table, r, "cell"), self._word(a, table, r, "item", "i64")
        first, further, done = a.name("first"), a.name("further"), a.name("kept")
        a.choose(a.let(f"icmp sge i64 {item}, 0"), first, further)
        a.block(first)
        a.store("i64", size, cell)
        made = a.let(f"call ptr @PyLong_FromLongLong(i64 {size})")
        a.need(a.let(f"icmp ne ptr {made}, null"), "error")
        a.store("ptr", made, a.at("%found", self.python.tuple_items), item)
        a.go(done)
        a.block(further)
        a.need(a.same(a.load("i64", cell), size, "i64"), "no")
        a.go(done)
        a.block(done)

    def _fits(self) -> str:
        """The builtin."""
        a = Assembler()
        record = a.load("ptr", a.load("ptr", "%self", self.python.tuple_items), ARRAY_DATA)
        objects = a.load("ptr", record, header("objects"))
        # The tuple is made first: an allocation may collect garbage, which runs code that may call this function.
        found = a.let(f"call ptr @PyTuple_New(i64 {a.load('i64', record, header('numbers'))})")
        a.need(a.let(f"icmp ne ptr {found}, null"), "error")
        a.need(a.let(f"call i1 @tc.check(ptr {record}, ptr %args, i64 %count)"), "no")
        a.need(a.let(f"call i1 @tc.fill(ptr {objects}, ptr {record}, ptr %args)"), "no")
        a.need(a.let(f"call i1 @tc.state(ptr {objects}, ptr {record})"), "no")
        a.need(a.let(f"call i1 @tc.sizes(ptr {record}, ptr %args, ptr {found})"), "no")
        a.do(f"ret ptr {found}")
        a.block("no")
        a.do(f"call void @Py_DecRef(ptr {found})")
        none = a.load("ptr", objects, 8 * GLOBALS.index("none"))
        a.do(f"call void @Py_IncRef(ptr {none})")
        a.do(f"ret ptr {none}")
        a.block("error")
        a.do("ret ptr null")
        return a.text(f"define ptr @{FITS}(ptr %self, ptr %args, i64 %count) #1")
