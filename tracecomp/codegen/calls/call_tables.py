"""Memory layout of a call to native code: tables of guards, operands and results, and offsets in objects.

A record is a header of words and then the rows of each table, words as well. All are written once, when a call is
prepared. Native code (``codegen/calls/call_stub.py``) reads them and stores its results in the rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

PLACE = ("keys", "kind", "key_at", "key_word", "values", "value_at", "value_word")
"""Words that show where a dictionary has the value of a key (``runtime/object_layout.py``)."""

TABLES: Mapping[str, tuple[str, ...]] = {
    "arguments": ("type", "object"),
    "pairs": ("first", "second", "same"),
    "names": ("mapping", "key", "value", "version", *PLACE),
    "fields": ("object", "offset", "value"),
    "elements": ("list", "offset", "value"),
    "thread": ("mapping", *PLACE),
    "modes": ("key", "value", "default"),
    "modes_words": ("object", "offset", "value"),
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
    "numbers": ("argument", "cell", "item"),
    "sizes": ("source", "axis", "cell", "item"),
    "absent_grads": ("tensor", "absent"),
    "fresh": (
        "make",
        "shape",
        "dtype",
        "layout",
        "slot",
        "kept",
        "memory",
        "array",
        "tensor",
        "history",
        "inference",
    ),
    "in_place": ("source", "slot", "apart"),
    "written": ("source", "writes"),
    "frozen": ("source", "seen"),
    "apart": ("argument", "written"),
    "cleared": ("tensor",),
    "results": ("address",),
}
"""Rows by table. Words are addresses unless stated otherwise.

* ``arguments``: the exact type of a tensor, else the required object.
* ``pairs``: byte offsets of two arguments, and whether they are one object.
* ``names``: entries of dictionaries, with the dictionary's version at the last check, or the place of the value if
  CPython keeps no versions.
* ``fields``: words of objects, such as a dictionary's version or a list's length, which is checked before its
  ``elements``.
* ``thread``: where the dictionary of the thread that prepared the call has its modes, if CPython keeps no versions.
* ``modes_words``: words of the dictionary of modes of the thread that prepared the call, if CPython keeps no versions.
* ``sources``: a tensor that the call reads, by kind ARGUMENT (byte offset), OBJECT, or GRADIENT (of an object).
  ``requires_grad`` is 0, 1, or 2 for either. ``exclusive`` requires that there is no other reference. ``place`` is the
  required address of its memory (0: any; any too if ``owned`` is set and it owns its memory).
* ``numbers``, ``sizes``: an argument that is an integer, by its byte offset, or a source's size along an axis. A row
  with an ``item``, a byte offset in the tuple of sizes, stores its size there and in its ``cell``. One without (-1)
  requires the size that is in its cell.
* ``fresh``: outputs in new memory, which ``make`` allocates; ``memory`` is the address in a list of two reusable
  arrays. ``inference``: whether the tensor was made in inference mode.
* ``in_place``: outputs in a source's memory, ``apart`` if no other source may overlap.
* ``written``: the number of writes that autograd counts.
* ``apart``: an argument and a written tensor, which must not share a byte.
* ``frozen``: sources that a preparation reads; ``seen`` is the address in a list of each one's memory and write count
  at the time of the preparation.
* ``results``: the place of each result's address."""

HEADER = (
    "objects", "thread_version", "modes", "modes_version", "count", "entry", "table", "arena", "step", "busy", "calls",
    "unlocked", "pool", "threads", "numbers", "finish", "prepared", "layout",
    *[f"{name}.{end}" for name in TABLES for end in ("first", "end")],
)  # fmt: skip
"""The words at the start of a record.

* ``step``: where the entry writes the number of a failed step; the call is then left to Python.
* ``unlocked``: whether to release the interpreter lock, and to acquire the ``pool`` if there are several ``threads``.
* ``numbers``: the count of results (-1: a single result that is not in a tuple), or of sizes.
* ``finish``: builds the return value from their tuple, if it is not null.
* ``prepared``: the address of the byte that marks the preparation as valid, null if there is none.
* ``layout``: the flags of numpy that arrays of sources need.
* ``thread_version``, ``modes``: the version and value of the last caller's thread dictionary.
* ``modes_version``: the version of the modes that fitted last. Versions are unique among all dictionaries. If CPython
  keeps no versions, the dictionary that ``modes_words`` describe."""

ANY = -1
"""In the words of an array's layout, a dimension that may have any size."""
ARGUMENT, OBJECT, GRADIENT = 0, 1, 2
"""Kinds of ``sources``."""
LAYOUT_ND, LAYOUT_BYTES, LAYOUT_DIMS = 8, 16, 24
"""Offsets in the words of an array's layout: its descr, nd, bytes, dimensions."""

GLOBALS = (
    "none", "false", "true", "zero", "array_type", "tensor_type", "new_object", "modes_key",
    "storage_type", "memory_type", "int_type", "room_type", "inference_name",
)  # fmt: skip
"""The words of the table of objects that all records refer to."""

# CPython's 64-bit builds. Offsets in CPython's and numpy's objects; ``runtime/object_layout.py`` verifies each on real
# objects before this code is used.
REFERENCES, TYPE, LIST_SIZE, LIST_ITEMS, CELL_CONTENTS = 0, 8, 16, 24, 16
ARRAY_DATA, ARRAY_ND, ARRAY_DIMS, ARRAY_DESCR, ARRAY_FLAGS, ARRAY_WEAK = 16, 24, 32, 56, 64, 72
DICT_SIZE, DICT_VERSION, DICT_KEYS, DICT_VALUES = 16, 24, 32, 40
KEYS_KIND, KEYS_COUNT, KEYS_ENTRIES = 8, 24, 32
DESCRIPTOR_MEMBER, MEMBER_KIND, MEMBER_OFFSET = 40, 8, 16
C_CONTIGUOUS, OWNED, ALIGNED, WRITEABLE = 0x1, 0x4, 0x100, 0x400
ROOM = 0x10000000
"""Not a flag of numpy: arrays with room behind their elements fit, too, whatever their flags."""


class Interpreter(NamedTuple):
    """Layout facts that differ between versions of CPython."""

    tuple_items: int
    """Offset of a tuple's items."""
    versions: bool
    """Whether a dictionary has a version that every change increments."""


def row(table: str, word: str) -> int:
    """Offset of a word in a row of ``table``."""
    return 8 * TABLES[table].index(word)


def header(word: str) -> int:
    """Offset of a word in a record's header."""
    return 8 * HEADER.index(word)
