"""The memory that describes a call to native code: tables of guards, operands and results, and where objects hold what.

A record is a header of words and then the rows of each table, words as well. All are written once, when a call is made
ready; native code (``codegen/calls/call_stub.py``) reads them and keeps what it found in the rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

TABLES: Mapping[str, tuple[str, ...]] = {
    "arguments": ("type", "object"),
    "pairs": ("first", "second", "same"),
    "names": ("mapping", "key", "value", "version"),
    "fields": ("object", "offset", "value"),
    "elements": ("list", "offset", "value"),
    "modes": ("key", "value", "default"),
    "items": ("mapping", "key", "value"),
    "hosts": ("owner", "key", "attribute", "number"),
    "sources": (
        "kind",
        "reference",
        "requires_grad",
        "layout",
        "slot",
        "exclusive",
        "place",
        "owned",
        "tensor",
        "array",
    ),
    "absent_grads": ("tensor", "absent"),
    "fresh": ("make", "shape", "dtype", "layout", "slot", "kept", "memory", "array", "tensor", "history"),
    "in_place": ("source", "slot", "apart"),
    "written": ("source", "writes"),
    "frozen": ("source", "seen"),
    "apart": ("argument", "written"),
    "cleared": ("tensor",),
    "results": ("address",),
}
"""Rows by table. Addresses unless said otherwise. ``arguments``: exact type of a tensor, else the object it must be.
``pairs``: byte offsets of two arguments, and whether they are one object. ``names``: entries of dictionaries, with
the version of the dictionary when it was seen last. ``fields``: words of objects, as the version of a dictionary or
the length of a list, which is looked at before its ``elements``. ``sources``: a tensor that the call looks at, by
kind ARGUMENT (byte offset), OBJECT, or GRADIENT (of an object); ``requires_grad`` 0, 1, or 2 for either;
``exclusive`` asks that nobody else holds it, ``place`` is where its memory has to be (0: anywhere; anywhere too if
``owned`` is set and it has memory of its own). ``fresh``: outputs in new memory, which ``make`` gives, ``memory`` is
where a list holds two arrays that may be used again. ``in_place``: outputs in a source's memory, ``apart`` when no
other source may overlap. ``written``: how many writes autograd counts. ``apart``: an argument and what is written,
which must share no byte. ``frozen``: sources that a preparation reads; ``seen`` is where a list holds the memory of
each and the count of its writes, as they were when the preparation was made. ``results``: where the address of each
stands when it has been made."""

HEADER = (
    "objects", "thread_version", "modes", "modes_version", "count", "entry", "table", "arena", "step", "busy", "calls",
    "unlocked", "pool", "threads", "numbers", "failed", "finish", "prepared",
    *[f"{name}.{end}" for name in TABLES for end in ("first", "end")],
)  # fmt: skip
"""The words at the start of a record. ``step`` is where the entry tells the number of a failed step, with which
``failed`` is then called; ``unlocked`` asks to release the interpreter lock, and to take the ``pool`` if there are
several ``threads``; ``numbers`` is the count of results (-1: one, returned by itself); ``finish`` builds the return
value from their tuple, when it is not null; ``prepared`` is the address of the byte that tells whether the preparation
may be used, null if there is none. ``thread_version`` is the version of the dictionary of the thread that called last,
``modes`` what it held; ``modes_version`` the version of the modes that fitted last. No two dictionaries, whenever they
live, are of one version."""

ARGUMENT, OBJECT, GRADIENT = 0, 1, 2
"""Kinds of ``sources``."""
LAYOUT_ND, LAYOUT_BYTES, LAYOUT_DIMS = 8, 16, 24
"""Offsets in the words of an array's layout: its descr, nd, bytes, dimensions."""

GLOBALS = (
    "none", "false", "true", "zero", "array_type", "tensor_type", "new_object", "modes_key",
    "storage_type", "memory_type", "int_type",
)  # fmt: skip
"""The words of the table of objects that all records refer to."""

# Of CPython's 64-bit builds; ``runtime/object_layout.py`` tries each on real objects first.
# Offsets in CPython's and numpy's objects, which the runtime checks before it uses this code.
REFERENCES, TYPE, LIST_SIZE, LIST_ITEMS, CELL_CONTENTS = 0, 8, 16, 24, 16
ARRAY_DATA, ARRAY_ND, ARRAY_DIMS, ARRAY_DESCR, ARRAY_FLAGS, ARRAY_WEAK = 16, 24, 32, 56, 64, 72
DICT_SIZE, DICT_VERSION, DICT_KEYS, DICT_VALUES = 16, 24, 32, 40
KEYS_KIND, KEYS_COUNT, KEYS_ENTRIES = 8, 24, 32
C_CONTIGUOUS, OWNED, ALIGNED, WRITEABLE = 0x1, 0x4, 0x100, 0x400


class Interpreter(NamedTuple):
    """What is not alike in all versions of CPython."""

    tuple_items: int
    """Where a tuple's items begin."""
    versions: bool
    """Whether a dictionary has a version, which every change makes another one."""


def row(table: str, word: str) -> int:
    """Offset of a word in a row of ``table``."""
    return 8 * TABLES[table].index(word)


def header(word: str) -> int:
    """Offset of a word in a record's header."""
    return 8 * HEADER.index(word)
