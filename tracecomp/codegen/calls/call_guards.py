"""LLVM text of the guards of a call: they compare arguments and state with the record, and read the addresses of
memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

from tracecomp.codegen.calls.call_tables import (
    ANY,
    ARGUMENT,
    ARRAY_DATA,
    ARRAY_DESCR,
    ARRAY_DIMS,
    ARRAY_FLAGS,
    ARRAY_ND,
    ARRAY_WEAK,
    DICT_KEYS,
    DICT_VALUES,
    DICT_VERSION,
    GLOBALS,
    GRADIENT,
    KEYS_KIND,
    LAYOUT_BYTES,
    LAYOUT_DIMS,
    LAYOUT_ND,
    LIST_ITEMS,
    OWNED,
    REFERENCES,
    ROOM,
    TABLES,
    TYPE,
    WRITEABLE,
    Interpreter,
    header,
    row,
)
from tracecomp.codegen.text.assembler import Assembler


class CallGuards:
    """Emit the functions that check guards; they write only to the record.

    ``fields`` are the offsets of a tensor's fields, ``counts`` those of its storage's version and memory and of a
    memory's writes. ``python`` is the calling interpreter.
    """

    def __init__(self, fields: Mapping[str, int], counts: Mapping[str, int], python: Interpreter) -> None:
        self.fields = fields
        self.counts = counts
        self.python = python

    def _table(self, a: Assembler, name: str) -> AbstractContextManager[str]:
        first = a.load("ptr", "%record", header(f"{name}.first"))
        end = a.load("ptr", "%record", header(f"{name}.end"))
        return a.each(first, end, 8 * len(TABLES[name]))

    def _word(self, a: Assembler, table: str, at: str, word: str, kind: str = "ptr") -> str:
        return a.load(kind, at, row(table, word))

    def _object(self, a: Assembler, name: str) -> str:
        return a.load("ptr", "%objects", 8 * GLOBALS.index(name))

    # ---- array layout

    def _layout(self) -> str:
        a = Assembler()
        kind = a.load("ptr", "%array", TYPE)
        has_room = a.both(a.same(kind, self._object(a, "room_type")), self._has_flag(a, "%flags", ROOM))
        a.need(a.either(a.same(kind, self._object(a, "array_type")), has_room), "no")
        # Identity of descriptors: numpy has one object for each plain dtype, and the general path handles an equal but
        # different one.
        a.need(a.same(a.load("ptr", "%array", ARRAY_DESCR), a.load("ptr", "%layout")), "no")
        # The lower bits are the flags of numpy, all of which are below this one.
        wanted = a.let(f"select i1 {has_room}, i32 0, i32 {a.let(f'and i32 %flags, {ROOM - 1}')}")
        flags = a.let(f"and i32 {a.load('i32', '%array', ARRAY_FLAGS)}, {wanted}")
        a.need(a.same(flags, wanted, "i32"), "no")
        nd = a.load("i64", "%layout", LAYOUT_ND)
        a.need(a.same(a.let(f"sext i32 {a.load('i32', '%array', ARRAY_ND)} to i64"), nd, "i64"), "no")
        dims = a.load("ptr", "%array", ARRAY_DIMS)
        first = a.at("%layout", LAYOUT_DIMS)
        end = a.at(first, a.let(f"shl i64 {nd}, 3"))
        # Both tables are walked in step: the distance between them is the same for every dimension.
        shift = a.let(f"sub i64 {a.let(f'ptrtoint ptr {dims} to i64')}, {a.let(f'ptrtoint ptr {first} to i64')}")
        with a.each(first, end, 8) as dim:
            wanted = a.load("i64", dim)
            same = a.same(wanted, a.load("i64", dim, shift), "i64")
            a.need(a.either(same, a.same(wanted, str(ANY), "i64")), "no")
        a.do("ret i1 true")
        a.block("no")
        a.do("ret i1 false")
        return a.text("define internal i1 @tc.layout(ptr %objects, ptr %array, ptr %layout, i32 %flags) #1")

    def _has_flag(self, a: Assembler, flags: str, flag: int) -> str:
        return a.let(f"icmp ne i32 {a.let(f'and i32 {flags}, {flag}')}, 0")

    # ---- guards that run no Python code

    def _check(self) -> str:
        a = Assembler()
        # A call inside of this call (from Python code that runs inside it) must not overwrite the record.
        a.need(a.same(a.load("i64", "%record", header("busy")), "0", "i64"), "no")
        a.need(a.same(a.load("i64", "%record", header("count")), "%count", "i64"), "no")
        with self._table(a, "arguments") as r:
            given = a.load("ptr", a.at("%args", self._row_number(a, "arguments", r)))
            kind, wanted = self._word(a, "arguments", r, "type"), self._word(a, "arguments", r, "object")
            # Without a type, the object itself is compared.
            found = a.let(f"select i1 {a.same(kind, 'null')}, ptr {given}, ptr {a.load('ptr', given, TYPE)}")
            a.need(a.same(found, a.let(f"select i1 {a.same(kind, 'null')}, ptr {wanted}, ptr {kind}")), "no")
        # Whether two arguments are one object decides the effect of a write through one of them.
        with self._table(a, "pairs") as r:
            first = a.load("ptr", "%args", self._word(a, "pairs", r, "first", "i64"))
            second = a.load("ptr", "%args", self._word(a, "pairs", r, "second", "i64"))
            same = a.let(f"zext i1 {a.same(first, second)} to i64")
            a.need(a.same(same, self._word(a, "pairs", r, "same", "i64"), "i64"), "no")
        a.do("ret i1 true")
        a.block("no")
        a.do("ret i1 false")
        return a.text("define internal i1 @tc.check(ptr %record, ptr %args, i64 %count) #1")

    def _state(self) -> str:
        a = Assembler()
        self._check_modes(a)
        self._check_names(a)
        a.do("ret i1 true")
        a.block("no")
        a.do("ret i1 false")
        return a.text("define internal i1 @tc.state(ptr %objects, ptr %record) #1")

    def _row_number(self, a: Assembler, table: str, r: str) -> str:
        """Eight times the number of row ``r``."""
        first = a.let(f"ptrtoint ptr {a.load('ptr', '%record', header(f'{table}.first'))} to i64")
        # Rows of one table and words of the arguments are both 8 bytes. The distance divided by the words of a row is
        # the offset.
        distance = a.let(f"sub i64 {a.let(f'ptrtoint ptr {r} to i64')}, {first}")
        return a.let(f"udiv i64 {distance}, {len(TABLES[table])}")

    def _check_modes(self, a: Assembler) -> None:
        thread = a.let("call ptr @PyThreadState_GetDict()")
        a.need(a.let(f"icmp ne ptr {thread}, null"), "no")
        if self.python.versions:
            with self._unless_unchanged(a, "%record", header("thread_version"), thread):
                a.store("ptr", self._modes_of(a, thread), "%record", header("modes"))
            modes = a.load("ptr", "%record", header("modes"))
            with self._unless_unchanged(a, "%record", header("modes_version"), modes):
                self._check_each_mode(a, modes)
        else:
            modes = self._modes_unless_known(a, thread)
            with self._unless_known(a, modes):
                self._check_each_mode(a, modes)

    def _modes_of(self, a: Assembler, thread: str) -> str:
        found = a.let(f"call ptr @PyDict_GetItem(ptr {thread}, ptr {self._object(a, 'modes_key')})")
        a.need(a.let(f"icmp ne ptr {found}, null"), "no")
        return found

    def _modes_unless_known(self, a: Assembler, thread: str) -> str:
        """The modes of a thread: the recorded ones if the thread's dictionary still has them in the same place."""
        look, done = a.name("look"), a.name("modes")
        recorded = a.load("ptr", "%record", header("modes_version"))
        a.need(a.let(f"icmp ne ptr {recorded}, null"), look)  # null: the next table is empty
        with self._table(a, "thread") as r:
            # The address alone does not suffice: a later thread's dictionary can have the address of an ended one's.
            a.need(a.same(thread, self._word(a, "thread", r, "mapping")), look)
            self._need_place(a, thread, "thread", r, look)
        incoming = {a.current: recorded}
        a.go(done)
        a.block(look)
        found = self._modes_of(a, thread)
        incoming[a.current] = found
        a.go(done)
        a.block(done)
        return a.phi("ptr", incoming)

    @contextmanager
    def _unless_unchanged(self, a: Assembler, at: str, offset: int, mapping: str) -> Iterator[None]:
        """Skip a dictionary lookup while the dictionary's version equals the last recorded one.

        A version changes with every write to its dictionary, and no two dictionaries share one.
        """
        version, seen = a.load("i64", mapping, DICT_VERSION), a.load("i64", at, offset)
        with a.when(a.let(f"icmp ne i64 {version}, {seen}")):
            yield
            a.store("i64", version, at, offset)

    @contextmanager
    def _unless_in_place(self, a: Assembler, table: str, r: str, mapping: str) -> Iterator[None]:
        """Skip a dictionary lookup while the value is where it was. It may be in another place, and the same."""
        look, done = a.name("look"), a.name("found")
        self._need_place(a, mapping, table, r, look)
        a.go(done)
        a.block(look)
        yield
        a.go(done)
        a.block(done)

    def _need_place(self, a: Assembler, mapping: str, table: str, r: str, otherwise: str) -> None:
        """Continue if a dictionary has a key's value where it was. Each word exists if the previous ones are as they
        were: the dictionary's own words come first."""
        keys = a.load("ptr", mapping, DICT_KEYS)
        a.need(a.same(keys, self._word(a, table, r, "keys")), otherwise)
        kind = a.same(a.load("i32", keys, KEYS_KIND), self._word(a, table, r, "kind", "i32"), "i32")
        a.need(kind, otherwise)
        key = a.load("ptr", keys, self._word(a, table, r, "key_at", "i64"))
        a.need(a.same(key, self._word(a, table, r, "key_word")), otherwise)
        values = a.load("ptr", mapping, DICT_VALUES)
        a.need(a.same(values, self._word(a, table, r, "values")), otherwise)
        # Without separate values, each one is next to its key.
        base = a.let(f"select i1 {a.same(values, 'null')}, ptr {keys}, ptr {values}")
        value = a.load("ptr", base, self._word(a, table, r, "value_at", "i64"))
        a.need(a.same(value, self._word(a, table, r, "value_word")), otherwise)

    @contextmanager
    def _unless_known(self, a: Assembler, modes: str) -> Iterator[None]:
        """Skip lookups in the dictionary of modes if it is the recorded one, and its words are unchanged."""
        words, look, done = (a.name(n) for n in ("words", "look", "known"))
        a.choose(a.same(modes, a.load("ptr", "%record", header("modes_version"))), words, look)
        a.block(words)
        with self._table(a, "modes_words") as r:
            owner, offset = self._word(a, "modes_words", r, "object"), self._word(a, "modes_words", r, "offset", "i64")
            a.need(a.same(a.load("ptr", owner, offset), self._word(a, "modes_words", r, "value")), look)
        a.go(done)
        a.block(look)
        yield
        a.go(done)
        a.block(done)

    def _check_each_mode(self, a: Assembler, modes: str) -> None:
        with self._table(a, "modes") as r:
            key = self._word(a, "modes", r, "key")
            found = a.let(f"call ptr @PyDict_GetItem(ptr {modes}, ptr {key})")
            default = self._word(a, "modes", r, "default")
            # An unset mode has its default.
            now = a.let(f"select i1 {a.same(found, 'null')}, ptr {default}, ptr {found}")
            a.need(a.same(now, self._word(a, "modes", r, "value")), "no")

    def _check_names(self, a: Assembler) -> None:
        with self._table(a, "names") as r:
            mapping = self._word(a, "names", r, "mapping")
            unchanged = self._unless_unchanged(a, r, row("names", "version"), mapping)
            with unchanged if self.python.versions else self._unless_in_place(a, "names", r, mapping):
                key = self._word(a, "names", r, "key")
                found = a.let(f"call ptr @PyDict_GetItem(ptr {mapping}, ptr {key})")
                a.need(a.same(found, self._word(a, "names", r, "value")), "no")
        with self._table(a, "fields") as r:
            # Words of objects are read directly: a list's length before its elements, which exist only below it.
            found = a.load("ptr", self._word(a, "fields", r, "object"), self._word(a, "fields", r, "offset", "i64"))
            a.need(a.same(found, self._word(a, "fields", r, "value")), "no")
        with self._table(a, "elements") as r:
            items = a.load("ptr", self._word(a, "elements", r, "list"), LIST_ITEMS)
            found = a.load("ptr", items, self._word(a, "elements", r, "offset", "i64"))
            a.need(a.same(found, self._word(a, "elements", r, "value")), "no")
        with self._table(a, "absent_grads") as r:
            grad = a.load("ptr", self._word(a, "absent_grads", r, "tensor"), self.fields["_grad"])
            absent = a.let(f"zext i1 {a.same(grad, self._object(a, 'none'))} to i64")
            a.need(a.same(absent, self._word(a, "absent_grads", r, "absent", "i64"), "i64"), "no")

    # ---- addresses of all operands, and guards of their tensors

    def _fill(self) -> str:
        a = Assembler()
        with self._table(a, "sources") as r:
            self._source(a, r)
        # An argument that shares bytes with a written tensor would see the write.
        with self._table(a, "apart") as r:
            spans = [self._span(a, self._word(a, "apart", r, side)) for side in ("argument", "written")]
            a.need(self._disjoint(a, *spans), "no")
        with self._table(a, "written") as r:
            source = self._word(a, "written", r, "source")
            flags = a.load("i32", a.load("ptr", source, row("sources", "array")), ARRAY_FLAGS)
            # The general path reports a read-only array.
            a.need(self._has_flag(a, flags, WRITEABLE), "no")
            self._counters(a, a.load("ptr", source, row("sources", "tensor")), "no")
        with self._table(a, "in_place") as r:
            self._in_place(a, r)
        a.do("ret i1 true")
        a.block("no")
        a.do("ret i1 false")
        return a.text("define internal i1 @tc.fill(ptr %objects, ptr %record, ptr %args) #1")

    def _source(self, a: Assembler, r: str) -> None:
        tensor = self._resolve(a, r)
        fields = {name: a.load("ptr", tensor, offset) for name, offset in self.fields.items()}
        none, layout = self._object(a, "none"), self._word(a, "sources", r, "layout")
        # A view whose storage has moved has to be derived again, in Python.
        with a.when(a.let(f"icmp ne ptr {fields['_linked']}, {self._object(a, 'false')}")):
            self._need_type(a, fields["_storage"], "storage_type", "no")
            a.need(a.same(a.load("ptr", fields["_storage"], self.counts["version"]), fields["_seen"]), "no")
        leaf = a.same(fields["_grad_fn"], none)
        asks = a.either(a.same(fields["_requires_grad"], self._object(a, "true")), a.let(f"xor i1 {leaf}, true"))
        wanted = self._word(a, "sources", r, "requires_grad", "i64")
        # A tensor that requires gradients has another recording; 2 means either.
        right = a.same(a.let(f"zext i1 {asks} to i64"), wanted, "i64")
        a.need(a.either(right, a.same(wanted, "2", "i64")), "no")
        array = fields["_data"]
        a.need(a.let(f"icmp ne ptr {array}, null"), "no")
        # Kernels take dense, aligned memory.
        flags = a.load("i32", "%record", header("layout"))
        a.need(a.let(f"call i1 @tc.layout(ptr %objects, ptr {array}, ptr {layout}, i32 {flags})"), "no")
        with a.when(a.let(f"icmp ne i64 {self._word(a, 'sources', r, 'exclusive', 'i64')}, 0")):
            # Both counts are 1: there is no other reference to the tensor or its array, so its memory may become a
            # result's.
            held = a.let(f"or i64 {a.load('i64', tensor, REFERENCES)}, {a.load('i64', array, REFERENCES)}")
            own = a.let(f"and i32 {a.load('i32', array, ARRAY_FLAGS)}, {OWNED | WRITEABLE}")
            alone = a.both(a.same(held, "1", "i64"), a.same(own, str(OWNED | WRITEABLE), "i32"))
            a.need(a.both(leaf, a.both(alone, a.same(a.load("ptr", array, ARRAY_WEAK), "null"))), "no")
        data, place = a.load("ptr", array, ARRAY_DATA), self._word(a, "sources", r, "place")
        flags = a.let(f"zext i32 {a.load('i32', array, ARRAY_FLAGS)} to i64")
        enough = a.let(f"and i64 {flags}, {self._word(a, 'sources', r, 'owned', 'i64')}")
        # Memory whose place the program knows must still be there, unless it is the array's own.
        a.need(a.either(a.let(f"icmp ne i64 {enough}, 0"), a.either(a.same(place, "null"), a.same(place, data))), "no")
        a.store("ptr", tensor, r, row("sources", "tensor"))
        a.store("ptr", array, r, row("sources", "array"))
        a.store("ptr", data, self._word(a, "sources", r, "slot"))

    def _need_type(self, a: Assembler, value: str, name: str, otherwise: str) -> None:
        """Continue if ``value`` exists and has exactly that type."""
        a.need(a.let(f"icmp ne ptr {value}, null"), otherwise)
        a.need(a.same(a.load("ptr", value, TYPE), self._object(a, name)), otherwise)

    def _counters(self, a: Assembler, tensor: str, otherwise: str) -> tuple[str, str, str, str]:
        """The storage of ``tensor``, its memory, its version, and the count of writes (or None)."""
        storage = a.load("ptr", tensor, self.fields["_storage"])
        self._need_type(a, storage, "storage_type", otherwise)
        memory, version = (a.load("ptr", storage, self.counts[name]) for name in ("memory", "version"))
        self._need_type(a, memory, "memory_type", otherwise)
        self._need_type(a, version, "int_type", otherwise)
        writes = a.load("ptr", memory, self.counts["writes"])
        with a.when(a.let(f"icmp ne ptr {writes}, {self._object(a, 'none')}")):
            self._need_type(a, writes, "int_type", otherwise)
        return storage, memory, version, writes

    # ---- validity of the preparation

    def _prepared(self) -> str:
        """Set the byte that marks the preparation as valid, and record its sources if it has to be computed."""
        a = Assembler()
        flag = a.load("ptr", "%record", header("prepared"))
        a.need(a.let(f"icmp ne ptr {flag}, null"), "done")
        # First marked valid; one changed source revokes it.
        a.store("i8", "1", flag)
        with self._table(a, "frozen") as r:
            tensor = a.load("ptr", self._word(a, "frozen", r, "source"), row("sources", "tensor"))
            changed, unknown, same = a.name("changed"), a.name("unknown"), a.name("same")
            _, memory, _, writes = self._counters(a, tensor, unknown)
            # Memory that others can write has no count, and is prepared again in each call.
            a.need(a.let(f"icmp ne ptr {writes}, {self._object(a, 'none')}"), unknown)
            seen = self._word(a, "frozen", r, "seen")
            before = [a.load("ptr", seen), a.load("ptr", seen, 8)]
            a.choose(a.both(a.same(before[0], memory), a.same(before[1], writes)), same, changed)
            a.block(changed)
            # New references first: the old object could be the new one's only holder.
            for n, (old, new) in enumerate(zip(before, (memory, writes), strict=True)):
                a.do(f"call void @Py_IncRef(ptr {new})")
                a.store("ptr", new, seen, 8 * n)
                a.do(f"call void @Py_DecRef(ptr {old})")
            a.go(unknown)
            a.block(unknown)
            a.store("i8", "0", flag)
            a.go(same)
            a.block(same)
        a.go("done")
        a.block("done")
        a.do("ret void")
        return a.text("define internal void @tc.prepared(ptr %objects, ptr %record) #1")

    def _resolve(self, a: Assembler, r: str) -> str:
        """Return the tensor of a source."""
        kind, reference = self._word(a, "sources", r, "kind", "i64"), self._word(a, "sources", r, "reference")
        # A source is an argument, a referenced object, or a gradient of one.
        argument, held, gradient, have = (a.name(n) for n in ("argument", "held", "gradient", "have"))
        cases = f"i64 {ARGUMENT}, label %{argument} i64 {GRADIENT}, label %{gradient}"
        a.do(f"switch i64 {kind}, label %{held} [ {cases} ]")
        a.block(argument)
        given = a.load("ptr", "%args", a.let(f"ptrtoint ptr {reference} to i64"))
        a.go(have)
        a.block(held)
        a.go(have)
        a.block(gradient)
        grad = a.load("ptr", reference, self.fields["_grad"])
        present = a.name("present")
        # A missing gradient: the recording had one.
        a.choose(a.same(grad, self._object(a, "none")), "no", present)
        a.block(present)
        self._need_type(a, grad, "tensor_type", "no")
        present = a.current
        a.go(have)
        a.block(have)
        return a.let(f"phi ptr [ {given}, %{argument} ], [ {reference}, %{held} ], [ {grad}, %{present} ]")

    def _in_place(self, a: Assembler, r: str) -> None:
        source = self._word(a, "in_place", r, "source")
        data = a.load("ptr", a.load("ptr", source, row("sources", "array")), ARRAY_DATA)
        a.store("ptr", data, self._word(a, "in_place", r, "slot"))
        with a.when(a.let(f"icmp ne i64 {self._word(a, 'in_place', r, 'apart', 'i64')}, 0")):
            span = self._span(a, source)
            with self._table(a, "sources") as s:
                apart = self._disjoint(a, self._span(a, s), span)
                # Other sources must not overlap a tensor that is written in place; the source itself may.
                a.need(a.either(apart, a.same(s, source)), "no")

    def _span(self, a: Assembler, source: str) -> tuple[str, str]:
        """Return the start and end of a source's memory."""
        start = a.load("ptr", a.load("ptr", source, row("sources", "array")), ARRAY_DATA)
        return start, a.at(start, a.load("i64", self._word(a, "sources", source, "layout"), LAYOUT_BYTES))

    def _disjoint(self, a: Assembler, one: tuple[str, str], other: tuple[str, str]) -> str:
        # The end of one is not beyond the beginning of the other.
        before = a.let(f"icmp ule ptr {one[1]}, {other[0]}")
        return a.either(before, a.let(f"icmp uge ptr {one[0]}, {other[1]}"))
