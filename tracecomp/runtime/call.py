"""Calls of compiled functions without Python: the records that ``tc_fast`` reads, and the builtin that reads them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracecomp.codegen.calls import call_stub, call_tables, fit_stub
from tracecomp.codegen.calls.call_tables import ALIGNED, C_CONTIGUOUS, GLOBALS, HEADER, TABLES
from tracecomp.codegen.text.assembler import module_text
from tracecomp.runtime import compiler
from tracecomp.runtime.entry import METH_FASTCALL, MethodDef, builtin, load
from tracecomp.runtime.library import add_functions
from tracecomp.runtime.malloc import aligned_bytes
from tracecomp.runtime.object_layout import dictionaries_have_versions, entry_place, this_interpreter
from tracecomp.runtime.threadstate import MODES_KEY

_METH_FASTCALL_KEYWORDS = 0x82
"""CPython's flags of a builtin that takes an array of arguments and keywords' names."""
_METH_NOARGS = 0x4
"""CPython's flag of a builtin without arguments."""

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Held:
    """A word of a row that is the address of an object, which the record keeps alive."""

    value: Any


@dataclass(frozen=True, slots=True)
class Place:
    """A word of a row that is the address of a word of another row."""

    table: str
    number: int
    word: str = ""


Word = int | Held | Place


class Code:
    """The native code of calls, for tensors of class ``tensor``, with a ``storage`` that has a ``memory``.

    ``room`` is the class of arrays with room behind their elements, which calls of dynamic sizes take, too.

    Offsets of fields are as in ``CallGuards``.
    """

    def __init__(
        self,
        tensor: type,
        storage: type,
        memory: type,
        room: type,
        fields: Mapping[str, int],
        counts: Mapping[str, int],
    ) -> None:
        add_functions(ctypes.pythonapi, call_stub.SYMBOLS)
        text = module_text(call_stub.call_text(fields, counts, this_interpreter()))
        self._library = load([compiler.object_code(text, compiler.host_target())])
        self._method = MethodDef(b"call", self._library.address(call_stub.FAST), _METH_FASTCALL_KEYWORDS, None)
        self._fits = MethodDef(b"fits", self._library.address(fit_stub.FITS), METH_FASTCALL, None)
        self._comparison = MethodDef(b"same", self._library.address(call_stub.SAME), _METH_NOARGS, None)
        found = {
            "none": None, "false": False, "true": True, "zero": 0, "array_type": np.ndarray,
            "tensor_type": tensor, "new_object": object.__new__, "modes_key": MODES_KEY,
            "storage_type": storage, "memory_type": memory, "int_type": int, "room_type": room,
            "inference_name": "_inference",
        }  # fmt: skip
        self._held = [found[name] for name in GLOBALS]
        self.objects = np.array([id(x) for x in self._held], np.uintp)

    def builtin(self, general: Callable[..., object], chain: Sequence[object]) -> Callable[..., Any]:
        """A function that runs the first of ``chain``'s records that fits a call, or else ``general``."""
        return builtin(self._method, (general, chain))

    def comparison(self, record: tuple[Array, list[Any]]) -> Callable[[], bool]:
        """A function that tells whether the state that a finished ``record`` describes is unchanged."""
        return builtin(self._comparison, record)

    def fits(self, record: tuple[Array, list[Any]]) -> Callable[..., tuple[int, ...] | None]:
        """A function of a call's arguments that returns its sizes, or None if a finished ``record`` does not fit."""
        return builtin(self._fits, record)


class Record:
    """Collects the rows of a record."""

    def __init__(self, code: Code, slots: int, arena_bytes: int, borrows: Callable[[object], bool]) -> None:
        """``borrows`` says whether an object is not kept alive, as the record is not used without it."""
        self._borrows = borrows
        self.rows: dict[str, list[tuple[Word, ...]]] = {name: [] for name in TABLES}
        self._code = code
        self._kept: list[Any] = []
        self._layouts: dict[tuple[Any, tuple[int, ...]], int] = {}
        self._spare = slots
        self._arena = -(-8 * (slots + 1) // 64) * 64
        self._work = aligned_bytes(self._arena + arena_bytes)
        self._start = int(self._work.ctypes.data)

    def add(self, table: str, *words: Word) -> int:
        """Append a row; return its number."""
        self.rows[table].append((*words, *(0,) * (len(TABLES[table]) - len(words))))
        return len(self.rows[table]) - 1

    def slot(self, number: int | None) -> int:
        """The address of an entry of the call table; without a number, of an unused one."""
        return self._start + 8 * (self._spare if number is None else number)

    def set_slot(self, number: int, array: Array) -> None:
        """Fix a slot to one array."""
        self._kept.append(array)
        ctypes.c_void_p.from_address(self.slot(number)).value = array.ctypes.data

    def number(self, slot: int) -> int:
        """The address of the float64 in a slot."""
        cell = np.zeros((), np.float64)
        self.set_slot(slot, cell)
        return int(cell.ctypes.data)

    def layout(self, dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> int:
        """The address of the words that describe an array's type and shape."""
        found = self._layouts.get((dtype, shape))
        if found is None:
            nbytes = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
            words = np.array([id(dtype), len(shape), nbytes, *shape], np.int64)
            self._kept += [dtype, words]
            found = self._layouts[dtype, shape] = int(words.ctypes.data)
        return found

    def items(self) -> int:
        """The address of two list items, for objects that calls leave to later ones."""
        items = [None, None]
        self._kept.append(items)
        return ctypes.c_void_p.from_address(id(items) + call_tables.LIST_ITEMS).value or 0

    def arena(self, offset: int) -> int:
        """The address of an offset in the memory of calls."""
        return self._start + self._arena + offset

    def cell(self, value: object) -> int:
        """The address of a word that holds the address of ``value``."""
        word = np.array([id(value)], np.uintp)
        self._kept += [word, value]
        return int(word.ctypes.data)

    def finish(self, **words: Word) -> tuple[Array, list[Any]]:
        """Build the record: its memory, and the objects it keeps alive."""
        if not dictionaries_have_versions():
            self.rows["names"] = [_with_place(*r[:3]) for r in self.rows["names"]]
        sizes = [len(HEADER), *(len(rows) * len(TABLES[name]) for name, rows in self.rows.items())]
        memory = aligned_bytes(8 * sum(sizes)).view(np.uintp)
        start = int(memory.ctypes.data)
        firsts = dict(zip(TABLES, (start + 8 * np.cumsum(sizes)[:-1]).tolist(), strict=True))
        header: dict[str, Word] = {
            "objects": int(self._code.objects.ctypes.data), "table": self.slot(0),
            "arena": self.arena(0), "layout": C_CONTIGUOUS | ALIGNED, **words,
        }  # fmt: skip
        for name, rows in self.rows.items():
            header[f"{name}.first"] = firsts[name]
            header[f"{name}.end"] = firsts[name] + 8 * len(rows) * len(TABLES[name])
        flat = [header.get(word, 0) for word in HEADER]
        flat += [word for rows in self.rows.values() for r in rows for word in r]
        memory[:] = [word if type(word) is int and word >= 0 else self._resolve(word, firsts) for word in flat]
        return memory, [self._code, self._kept, self._work]

    def _resolve(self, word: Word, firsts: Mapping[str, int]) -> int:
        if isinstance(word, Held):
            if not self._borrows(word.value):
                self._kept.append(word.value)
            return id(word.value)
        if isinstance(word, Place):
            offset = call_tables.row(word.table, word.word) if word.word else 0
            return firsts[word.table] + 8 * len(TABLES[word.table]) * word.number + offset
        return word % (1 << 64)


def _with_place(mapping: Word, key: Word, value: Word) -> tuple[Word, ...]:
    """The row of an entry of a dictionary, with the place of its value if it is there."""
    assert isinstance(mapping, Held) and isinstance(key, Held)
    expected = value.value if isinstance(value, Held) else None
    is_present = dict.__contains__(mapping.value, key.value)
    as_expected = is_present == isinstance(value, Held) and dict.get(mapping.value, key.value) is expected
    place = entry_place(mapping.value, key.value) if as_expected else None
    return mapping, key, value, 0, *(place or (0,) * len(call_tables.PLACE))


def take_calls(memory: Array) -> int:
    """Return the number of runs of a record since the last request."""
    at = HEADER.index("calls")
    count, memory[at] = int(memory[at]), 0
    return count
