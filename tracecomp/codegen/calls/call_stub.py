"""LLVM text of the call of a compiled function: guards, arguments, memory of results, the entry, results.

``tc_fast`` is the body of a builtin whose self is the tuple ``(general, chain)``: ``chain`` lists records as tuples
that begin with the record's memory. It runs the first record that fits the call; when none does, it calls ``general``
with the same arguments. Reading numbers and making arrays may run Python code: the addresses are collected, and the
guards checked, again. The tables of a record are rows of the words named below. ``tc_same`` is a builtin that only
tells whether the state outside is as in a record.

Signals are checked first: loops in C, such as that of ``map``, never check them, and would not react to Ctrl-C.
"""

from __future__ import annotations

from collections.abc import Mapping

from tracecomp.codegen.calls.call_tables import (
    ALIGNED,
    ARRAY_DATA,
    ARRAY_WEAK,
    C_CONTIGUOUS,
    GLOBALS,
    LIST_ITEMS,
    LIST_SIZE,
    OWNED,
    REFERENCES,
    WRITEABLE,
    Interpreter,
    header,
    row,
)
from tracecomp.codegen.calls.fit_stub import FitStub
from tracecomp.codegen.text.assembler import Assembler
from tracecomp.codegen.threads import sync
from tracecomp.codegen.threads.entry import run_entry, run_unlocked

FAST = "tc_fast"
SAME = "tc_same"

SYMBOLS = (
    "Py_IncRef", "Py_DecRef", "PyThreadState_GetDict", "PyDict_GetItem", "PyObject_GetItem", "PyObject_GetAttr",
    "PyErr_Clear", "PyErr_Occurred", "PyFloat_AsDouble", "PyObject_Vectorcall", "PyLong_FromLongLong",
    "PyLong_AsLongLong", "PyTuple_New", "PyEval_SaveThread", "PyEval_RestoreThread", "PyErr_CheckSignals",
    "PyObject_SetAttr",
)  # fmt: skip

_DECLARATIONS = f"""
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare ptr @PyThreadState_GetDict()
declare ptr @PyDict_GetItem(ptr, ptr)
declare ptr @PyObject_GetItem(ptr, ptr)
declare ptr @PyObject_GetAttr(ptr, ptr)
declare void @PyErr_Clear()
declare ptr @PyErr_Occurred()
declare double @PyFloat_AsDouble(ptr)
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
declare ptr @PyLong_FromLongLong(i64)
declare i64 @PyLong_AsLongLong(ptr)
declare ptr @PyTuple_New(i64)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare i32 @PyErr_CheckSignals()
declare i32 @PyObject_SetAttr(ptr, ptr, ptr)
declare ptr @{sync.TAKE}(ptr, i64)
declare void @{sync.RELEASE}(ptr)
"""


class _CallStub(FitStub):
    """Emit all functions."""

    def text(self) -> str:
        """The module's functions."""
        parts = (
            self._layout(), self._check(), self._state(), self._fill(), self._prepared(), self._memory(), self._run(),
            self._result(), self._call(), self._same(), self._sizes(), self._fits(),
        )  # fmt: skip
        return _DECLARATIONS + "\n".join(parts)

    # ---- numbers and memory of results: 0 does not fit, 1 ready, 2 ready but Python code may have run, 3 an exception

    def _hosts(self, a: Assembler, ran: str) -> None:
        with self._table(a, "hosts") as r:
            # Reading a number may run Python code (``__getitem__``, a property), which may invalidate checked guards: 2
            # requests another check.
            a.store("i64", "2", ran)
            owner, key = self._word(a, "hosts", r, "owner"), self._word(a, "hosts", r, "key")
            item, attribute, have = a.name("item"), a.name("attribute"), a.name("have")
            a.choose(a.same(self._word(a, "hosts", r, "attribute", "i64"), "0", "i64"), item, attribute)
            a.block(item)
            x = a.let(f"call ptr @PyObject_GetItem(ptr {owner}, ptr {key})")
            a.go(have)
            a.block(attribute)
            y = a.let(f"call ptr @PyObject_GetAttr(ptr {owner}, ptr {key})")
            a.go(have)
            a.block(have)
            found = a.let(f"phi ptr [ {x}, %{item} ], [ {y}, %{attribute} ]")
            a.need(a.let(f"icmp ne ptr {found}, null"), "error")
            number = a.let(f"call double @PyFloat_AsDouble(ptr {found})")
            a.do(f"call void @Py_DecRef(ptr {found})")
            # -1.0 is a number and the sign of an error; only then the error is queried.
            with a.when(a.let(f"fcmp oeq double {number}, -1.0")):
                a.need(a.same(a.let("call ptr @PyErr_Occurred()"), "null"), "error")
            a.store("double", number, self._word(a, "hosts", r, "number"))
        with self._table(a, "items") as r:
            a.store("i64", "2", ran)
            mapping, key = self._word(a, "items", r, "mapping"), self._word(a, "items", r, "key")
            found = a.let(f"call ptr @PyObject_GetItem(ptr {mapping}, ptr {key})")
            a.need(a.let(f"icmp ne ptr {found}, null"), "error")
            # The mapping still references it, so comparing the address is safe.
            a.do(f"call void @Py_DecRef(ptr {found})")
            a.need(a.same(found, self._word(a, "items", r, "value")), "no")

    def _memory(self) -> str:
        a = Assembler()
        arguments, ran = a.let("alloca [2 x ptr]"), a.let("alloca i64")
        a.store("i64", "1", ran)
        self._hosts(a, ran)
        flags = C_CONTIGUOUS | OWNED | ALIGNED | WRITEABLE
        with self._table(a, "fresh") as r:
            layout, memory = self._word(a, "fresh", r, "layout"), self._word(a, "fresh", r, "memory")
            # Two arrays per result are kept: a loop that keeps the last result alternates between them.
            done, chosen = a.name("done"), []
            for offset in (0, 8):
                other = a.name("other")
                array = a.load("ptr", memory, offset)
                # The only reference is the list's: the array is otherwise unused.
                a.need(a.same(a.load("i64", array, REFERENCES), "1", "i64"), other)
                a.need(a.let(f"call i1 @tc.layout(ptr %objects, ptr {array}, ptr {layout}, i32 {flags})"), other)
                # A weak reference could revive it.
                a.need(a.same(a.load("ptr", array, ARRAY_WEAK), "null"), other)
                a.store("ptr", array, r, row("fresh", "array"))
                a.go(done)
                a.block(other)
                chosen.append(array)
            a.store("ptr", self._word(a, "fresh", r, "shape"), arguments)
            a.store("ptr", self._word(a, "fresh", r, "dtype"), arguments, 8)
            make = self._word(a, "fresh", r, "make")
            made = a.let(f"call ptr @PyObject_Vectorcall(ptr {make}, ptr {arguments}, i64 2, ptr null)")
            a.need(a.let(f"icmp ne ptr {made}, null"), "error")
            a.store("i64", "2", ran)
            # The newest first; the oldest is dropped.
            oldest = a.load("ptr", memory, 8)
            a.store("ptr", a.load("ptr", memory), memory, 8)
            a.store("ptr", made, memory)
            a.store("ptr", made, r, row("fresh", "array"))
            a.do(f"call void @Py_DecRef(ptr {oldest})")
            a.go(done)
            a.block(done)
            data = a.load("ptr", self._word(a, "fresh", r, "array"), ARRAY_DATA)
            a.store("ptr", data, self._word(a, "fresh", r, "slot"))
        a.do(f"ret i64 {a.load('i64', ran)}")
        a.block("error")
        a.do("ret i64 3")
        a.block("no")
        a.do("ret i64 0")
        return a.text("define internal i64 @tc.memory(ptr %objects, ptr %record) #1")

    # ---- the entry

    def _run(self) -> str:
        a = Assembler()
        entry, table, arena = (a.load("ptr", "%record", header(word)) for word in ("entry", "table", "arena"))
        step = a.at("%record", header("step"))
        a.store("i64", "0", step)
        # Short programs keep the interpreter lock: releasing it would double their time.
        unlocked = a.let(f"icmp ne i64 {a.load('i64', '%record', header('unlocked'))}, 0")
        a.choose(unlocked, "release", "keep")
        a.block("keep")
        run_entry(a, entry, table, arena, "null", step)
        a.go("done")
        a.block("release")
        # Another thread may release the tensors during the run: this holds references to their memory.
        self._arrays(a, "Py_IncRef")
        pool, threads = a.load("ptr", "%record", header("pool")), a.load("i64", "%record", header("threads"))
        run_unlocked(a, entry, table, arena, step, pool, threads)
        self._arrays(a, "Py_DecRef")
        a.go("done")
        a.block("done")
        a.do(f"ret i64 {a.load('i64', step)}")
        return a.text("define internal i64 @tc.run(ptr %record) #1")

    def _arrays(self, a: Assembler, change: str) -> None:
        with self._table(a, "sources") as r:
            a.do(f"call void @{change}(ptr {self._word(a, 'sources', r, 'array')})")

    # ---- external state after the run, and the return value

    def _result(self) -> str:
        a = Assembler()
        argument = a.let("alloca ptr")
        none = self._object(a, "none")
        with self._table(a, "written") as r:
            tensor = a.load("ptr", self._word(a, "written", r, "source"), row("sources", "tensor"))
            # A write to a tensor whose storage was replaced during the run is not counted: the written memory is no
            # longer its own.
            replaced = a.name("replaced")  # by another thread
            storage, memory, version, writes = self._counters(a, tensor, replaced)
            following = self._later(a, version, self._word(a, "written", r, "writes", "i64"))
            # Versions are Python ints: the storage takes the new reference, and releases the old one below.
            a.store("ptr", following, storage, self.counts["version"])
            with a.when(a.let(f"icmp ne ptr {writes}, {none}")):
                self._count(a, memory, writes, version, following)
            a.do(f"call void @Py_DecRef(ptr {version})")
            a.go(replaced)
            a.block(replaced)
        with self._table(a, "cleared") as r:
            tensor = self._word(a, "cleared", r, "tensor")
            grad = a.load("ptr", tensor, self.fields["_grad"])
            a.do(f"call void @Py_IncRef(ptr {none})")
            a.store("ptr", none, tensor, self.fields["_grad"])
            a.do(f"call void @Py_DecRef(ptr {grad})")
        with self._table(a, "fresh") as r:
            # All are null at first, so that a failure releases only those that exist.
            a.store("ptr", "null", r, row("fresh", "tensor"))
        with self._table(a, "fresh") as r:
            self._tensor(a, r, argument)
        self._values(a, argument)
        a.block("failed")
        a.go("release")
        a.block("release")
        value = a.let("phi ptr [ null, %failed ], [ %one, %single ], [ %built, %several ], [ %finished, %finish ]")
        with self._table(a, "fresh") as r:
            tensor = self._word(a, "fresh", r, "tensor")
            with a.when(a.let(f"icmp ne ptr {tensor}, null")):
                a.do(f"call void @Py_DecRef(ptr {tensor})")
        a.do(f"ret ptr {value}")
        return a.text("define internal ptr @tc.result(ptr %objects, ptr %record) #1")

    def _later(self, a: Assembler, number: str, times: str = "1") -> str:
        """Return the int that is ``times`` greater than another."""
        more = a.let(f"add i64 {a.let(f'call i64 @PyLong_AsLongLong(ptr {number})')}, {times}")
        return a.let(f"call ptr @PyLong_FromLongLong(i64 {more})")

    def _count(self, a: Assembler, memory: str, writes: str, version: str, following: str) -> None:
        """Increment a memory's write count, which usually is the version object of its only storage."""
        shared, own, done = a.name("shared"), a.name("own"), a.name("done")
        a.choose(a.same(writes, version), shared, own)
        a.block(shared)
        a.do(f"call void @Py_IncRef(ptr {following})")
        a.go(done)
        a.block(own)
        other = self._later(a, writes)
        a.go(done)
        a.block(done)
        a.store("ptr", a.let(f"phi ptr [ {following}, %{shared} ], [ {other}, %{own} ]"), memory, self.counts["writes"])
        a.do(f"call void @Py_DecRef(ptr {writes})")

    def _tensor(self, a: Assembler, r: str, argument: str) -> None:
        """Make the tensor of a fresh output."""
        a.store("ptr", self._object(a, "tensor_type"), argument)
        new = self._object(a, "new_object")
        tensor = a.let(f"call ptr @PyObject_Vectorcall(ptr {new}, ptr {argument}, i64 1, ptr null)")
        a.need(a.let(f"icmp ne ptr {tensor}, null"), "failed")
        a.store("ptr", tensor, r, row("fresh", "tensor"))
        array, none, false = self._word(a, "fresh", r, "array"), self._object(a, "none"), self._object(a, "false")
        values = {"_data": array, "_linked": false, "_requires_grad": false, "_seen": self._object(a, "zero")}
        # A new object's fields are null, so there is nothing to release.
        for name, offset in self.fields.items():
            value = values.get(name, none)
            a.do(f"call void @Py_IncRef(ptr {value})")
            a.store("ptr", value, tensor, offset)
        with a.when(a.let(f"icmp ne i64 {self._word(a, 'fresh', r, 'inference', 'i64')}, 0")):
            name, true = self._object(a, "inference_name"), self._object(a, "true")
            done = a.let(f"call i32 @PyObject_SetAttr(ptr {tensor}, ptr {name}, ptr {true})")
            a.need(a.same(done, "0", "i32"), "failed")
        # A result that is not reused in later calls: only the tensor references it.
        with a.when(a.same(self._word(a, "fresh", r, "kept", "i64"), "0", "i64")):
            memory = self._word(a, "fresh", r, "memory")
            a.do(f"call void @Py_IncRef(ptr {none})")
            a.store("ptr", none, memory)
            a.do(f"call void @Py_DecRef(ptr {array})")
        history = self._word(a, "fresh", r, "history")
        with a.when(a.let(f"icmp ne ptr {history}, null")):
            node = a.let(f"call ptr @PyObject_Vectorcall(ptr {history}, ptr null, i64 0, ptr null)")
            a.need(a.let(f"icmp ne ptr {node}, null"), "failed")
            a.store("ptr", node, tensor, self.fields["_grad_fn"])
            # It was set to None above.
            a.do(f"call void @Py_DecRef(ptr {none})")

    def _values(self, a: Assembler, argument: str) -> None:
        """The return value, from the results one by one."""
        numbers = a.load("i64", "%record", header("numbers"))
        a.choose(a.let(f"icmp slt i64 {numbers}, 0"), "single", "tuple")
        a.block("single")
        first = a.load("ptr", "%record", header("results.first"))
        a.lines.append(f"  %one = load ptr, ptr {a.load('ptr', first)}, align 8")
        a.do("call void @Py_IncRef(ptr %one)")
        a.go("release")
        a.block("tuple")
        a.lines.append(f"  %built = call ptr @PyTuple_New(i64 {numbers})")
        a.need(a.let("icmp ne ptr %built, null"), "failed")
        with self._table(a, "results") as r:
            value = a.load("ptr", self._word(a, "results", r, "address"))
            a.do(f"call void @Py_IncRef(ptr {value})")
            # The tuple takes the reference.
            a.store("ptr", value, a.at("%built", self.python.tuple_items), self._row_number(a, "results", r))
        finish = a.load("ptr", "%record", header("finish"))
        a.choose(a.same(finish, "null"), "several", "finish")
        a.block("several")
        a.go("release")
        a.block("finish")
        a.store("ptr", "%built", argument)
        a.lines.append(f"  %finished = call ptr @PyObject_Vectorcall(ptr {finish}, ptr {argument}, i64 1, ptr null)")
        a.do("call void @Py_DecRef(ptr %built)")
        a.go("release")

    # ---- the builtin

    def _found(self, a: Assembler) -> tuple[str, str, str]:
        """Find the record that fits the call, its owner and its objects, in block ``hit``; ``general`` returns."""
        # Python checks signals between bytecodes, of which a loop in C has none.
        a.need(a.same(a.let("call i32 @PyErr_CheckSignals()"), "0", "i32"), "interrupted")
        # Keyword arguments take the general path, which binds them.
        a.need(a.same("%names", "null"), "general")
        chain = a.load("ptr", "%self", self.python.tuple_items + 8)
        first = a.load("ptr", chain, LIST_ITEMS)
        end = a.at(first, a.let(f"shl i64 {a.load('i64', chain, LIST_SIZE)}, 3"))
        with a.each(first, end, 8) as r:
            holder = a.load("ptr", r)
            record = a.load("ptr", a.load("ptr", holder, self.python.tuple_items), ARRAY_DATA)
            objects = a.load("ptr", record, header("objects"))
            other = a.name("other")
            # The first record that fits is taken. Shapes before state: records of one function differ in them most.
            a.need(a.let(f"call i1 @tc.check(ptr {record}, ptr %args, i64 %count)"), other)
            a.need(a.let(f"call i1 @tc.fill(ptr {objects}, ptr {record}, ptr %args)"), other)
            fits = a.let(f"call i1 @tc.state(ptr {objects}, ptr {record})")
            a.choose(fits, "hit", other)
            a.block(other)
        a.go("general")
        a.block("general")
        general = a.load("ptr", "%self", self.python.tuple_items)
        a.do(f"ret ptr {a.let(f'call ptr @PyObject_Vectorcall(ptr {general}, ptr %args, i64 %count, ptr %names)')}")
        a.block("interrupted")
        a.do("ret ptr null")
        a.block("hit")
        return record, holder, objects

    def _call(self) -> str:
        a = Assembler()
        record, holder, objects = self._found(a)
        # Referenced, as Python code that runs during the call may drop the recording.
        a.do(f"call void @Py_IncRef(ptr {holder})")
        a.store("i64", "1", record, header("busy"))
        ready = a.let(f"call i64 @tc.memory(ptr {objects}, ptr {record})")
        # 0: no longer fits; 1: continue; 3: an exception is set; else check again.
        a.do(f"switch i64 {ready}, label %again [ i64 0, label %miss i64 1, label %run i64 3, label %error ]")
        a.block("again")
        # Python code ran, so addresses and guards are read again.
        fits = a.let(f"call i1 @tc.fill(ptr {objects}, ptr {record}, ptr %args)")
        a.choose(fits, "run", "miss")
        a.block("run")
        a.do(f"call void @tc.prepared(ptr {objects}, ptr {record})")
        step = a.let(f"call i64 @tc.run(ptr {record})")
        # The entry recorded a failed step and wrote no state: Python makes the call again, eagerly.
        a.need(a.same(step, "0", "i64"), "failed")
        value = a.let(f"call ptr @tc.result(ptr {objects}, ptr {record})")
        a.store("i64", a.let(f"add i64 {a.load('i64', record, header('calls'))}, 1"), record, header("calls"))
        succeeded = a.current
        a.go("done")
        a.block("failed")
        # A handler of a signal may have raised (``threads.pauses``).
        a.need(a.same(a.let("call ptr @PyErr_Occurred()"), "null"), "error")
        a.go("miss")
        a.block("error")
        a.go("done")
        a.block("miss")
        # Marked idle before other code runs: the general path may call this function again.
        a.store("i64", "0", record, header("busy"))
        a.do(f"call void @Py_DecRef(ptr {holder})")
        a.go("general")
        a.block("done")
        returned = a.let(f"phi ptr [ {value}, %{succeeded} ], [ null, %error ]")
        a.store("i64", "0", record, header("busy"))
        a.do(f"call void @Py_DecRef(ptr {holder})")
        a.do(f"ret ptr {returned}")
        return a.text(f"define ptr @{FAST}(ptr %self, ptr %args, i64 %count, ptr %names) #1")

    def _same(self) -> str:
        """A builtin without arguments, whose self begins with a record's memory: whether state is as recorded."""
        a = Assembler()
        record = a.load("ptr", a.load("ptr", "%self", self.python.tuple_items), ARRAY_DATA)
        objects = a.load("ptr", record, header("objects"))
        idle = a.let(f"call i1 @tc.check(ptr {record}, ptr null, i64 0)")
        fits = a.both(idle, a.let(f"call i1 @tc.state(ptr {objects}, ptr {record})"))
        yes, no = (a.load("ptr", objects, 8 * GLOBALS.index(name)) for name in ("true", "false"))
        answer = a.let(f"select i1 {fits}, ptr {yes}, ptr {no}")
        a.do(f"call void @Py_IncRef(ptr {answer})")
        a.do(f"ret ptr {answer}")
        return a.text(f"define ptr @{SAME}(ptr %self, ptr %unused) #1")


def call_text(fields: Mapping[str, int], counts: Mapping[str, int], python: Interpreter) -> str:
    """Return the functions behind ``tc_fast``; the arguments are those of ``CallGuards``."""
    return _CallStub(fields, counts, python).text()
