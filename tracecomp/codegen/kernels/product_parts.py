"""The functions of a matrix product that compute and pack, each in a separate module (``products.py``).

The entry calls them by address: LLVM takes a third of a second for all of them, and a program needs few.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tracecomp.codegen.kernels.squares import transposed_square
from tracecomp.codegen.text.assembler import Assembler
from tracecomp.codegen.text.modules import ModuleText
from tracecomp.codegen.text.target import Target
from tracecomp.ir.types import DType

HEIGHTS = (8, 4, 2, 1)
"""Rows of tiles, by halves, so that every number of rows is a few tiles. A wide column, for fewer than 8 rows, has at
most 4."""
FEW = 4
"""Most rows for which blocks of y are transposed at each use instead of packed: with so few uses, writing the panel
would take longer."""
NARROW, WIDE = 3, 6
"""Vectors of the two kinds of columns: 8 rows of 3 vectors, or 4 of 6, are 24 totals in registers."""
_WIDTHS = (1, 2, NARROW, WIDE)
"""Vectors of columns: the two kinds, and the remainder of a narrow one."""

PARTS = (
    *(f"tile{rows}x{vectors}" for vectors in _WIDTHS for rows in HEIGHTS),
    *(f"dots{rows}" for rows in range(1, FEW + 1)),
    "pack_rows", "pack_transposed", "pack_apart",
)  # fmt: skip
"""Functions that the entry finds by their addresses, in this order: tiles of one width are adjacent, then packing
functions. The tile8x6 is never generated."""

TILE = "ptr %x, i64 %x_m, i64 %x_k, ptr %y, i64 %y_k, ptr %out, i64 %out_m, i64 %terms"
PACK = "ptr %y, i64 %y_k, i64 %y_n, ptr %panel, i64 %step, i64 %terms, i64 %width"
_DOTS = "ptr %x, i64 %x_m, i64 %x_k, ptr %y, i64 %y_n, ptr %out, i64 %out_m, i64 %terms, i64 %width, i1 %first"
"""Parameters of tiles, packing functions and ``dots``."""


@dataclass(frozen=True)
class Words:
    """LLVM's names for a processor and an element type."""

    element: str
    bytes: int
    lanes: int

    @property
    def vector(self) -> str:
        return f"<{self.lanes} x {self.element}>"

    @property
    def mask(self) -> str:
        return f"<{self.lanes} x i1>"

    @property
    def suffix(self) -> str:
        return f"v{self.lanes}f{8 * self.bytes}"

    @property
    def width(self) -> int:
        """Bytes of a vector."""
        return self.lanes * self.bytes

    @property
    def declared(self) -> dict[str, str]:
        v, m, s = self.vector, self.mask, self.suffix
        return {
            "load": f"declare {v} @llvm.masked.load.{s}.p0(ptr, i32, {m}, {v})",
            "store": f"declare void @llvm.masked.store.{s}.p0({v}, ptr, i32, {m})",
            "fma": f"declare {v} @llvm.fma.{s}({v}, {v}, {v})",
        }

    def first_lanes(self, a: Assembler, count: str) -> str:
        """The mask of ``count`` lanes."""
        kind = f"<{self.lanes} x i64>"
        one = a.let(f"insertelement {kind} poison, i64 {count}, i64 0")
        limit = a.let(f"shufflevector {kind} {one}, {kind} poison, <{self.lanes} x i32> zeroinitializer")
        return a.let(f"icmp ult {kind} <{', '.join(f'i64 {n}' for n in range(self.lanes))}>, {limit}")

    def load(self, a: Assembler, place: str, mask: str = "") -> str:
        """Load a vector, or the lanes of ``mask``, with zeros in the others."""
        if not mask:
            return a.let(f"load {self.vector}, ptr {place}, align {self.bytes}")
        given = f"ptr {place}, i32 {self.bytes}, {self.mask} {mask}, {self.vector} zeroinitializer"
        return a.let(f"call {self.vector} @llvm.masked.load.{self.suffix}.p0({given})")

    def store(self, a: Assembler, value: str, place: str, mask: str = "") -> None:
        """Store a vector, or the lanes of ``mask``."""
        if not mask:
            a.do(f"store {self.vector} {value}, ptr {place}, align {self.bytes}")
            return
        given = f"{self.vector} {value}, ptr {place}, i32 {self.bytes}, {self.mask} {mask}"
        a.run(f"@llvm.masked.store.{self.suffix}.p0", given)


def words_of(dtype: DType, target: Target) -> Words:
    return Words({4: "float", 8: "double"}[dtype.itemsize], dtype.itemsize, target.vector_bits // 8 // dtype.itemsize)


def part_text(name: str, dtype: DType, target: Target) -> str:
    """The module of one of ``PARTS``, whose function has its name."""
    w = words_of(dtype, target)
    if name.startswith("tile"):
        rows, vectors = name.removeprefix("tile").split("x")
        text = _tile(w, int(rows), int(vectors))
    elif name.startswith("dots"):
        text = _dots(w, int(name.removeprefix("dots")))
    else:
        text = {"pack_rows": _pack_rows, "pack_transposed": _pack_transposed, "pack_apart": _pack_apart}[name](w)
    return str(ModuleText(target, (text,), w.declared))


def parts_of(sizes: Mapping[str, int], itemsize: int, target: Target) -> frozenset[str]:
    """Those of ``PARTS`` that a product of these ``SIZES`` calls."""
    m, n = sizes["m"], sizes["n"]
    if m <= FEW and sizes["y_k"] == itemsize != sizes["y_n"]:
        return frozenset({f"dots{m}"})
    found = {_packing(sizes["y_k"], sizes["y_n"], itemsize)} if sizes["packed"] else set()
    # The last block of rows or columns may be smaller.
    columns = {sizes["columns"], n - sizes["columns"] * (sizes["column_blocks"] - 1)}
    for rows in {sizes["rows"], m - sizes["rows"] * (sizes["row_blocks"] - 1)}:
        tall = {HEIGHTS[0]} if rows >= HEIGHTS[0] else set()
        heights = tall | {h for h in HEIGHTS[1:] if rows & h}
        widths = {v for c in columns for v in _widths(c, not tall, target.vector_bits // 8 // itemsize)}
        found |= {f"tile{h}x{v}" for h in heights for v in widths}
    return frozenset(found)


def _packing(by_term: int, by_column: int, itemsize: int) -> str:
    """The packing function for elements of y with these strides in bytes."""
    if by_column == itemsize:
        return "pack_rows"
    return "pack_transposed" if by_term == itemsize else "pack_apart"


def _widths(columns: int, wide: bool, lanes: int) -> set[int]:
    """The widths of tiles in these columns: as many of the widest as fit, then the remainder."""
    found = set()
    if wide:
        found |= {WIDE} if columns >= WIDE * lanes else set()
        columns %= WIDE * lanes
    found |= {NARROW} if columns >= NARROW * lanes else set()
    left = -(-(columns % (NARROW * lanes)) // lanes)
    return found | ({left} if left else set())


def _tile(w: Words, rows: int, vectors: int) -> str:
    """A register tile's terms; the totals start from 0.0 with ``%first``. ``%rest``: lanes of the last vector."""
    a = Assembler()
    mask = w.first_lanes(a, "%rest")
    masks = [""] * (vectors - 1) + [mask]
    places = [(r, v) for r in range(rows) for v in range(vectors)]
    lines = [a.at("%out", a.let(f"mul i64 %out_m, {r}")) for r in range(rows)]
    beside = [a.let(f"mul i64 %x_m, {r}") for r in range(rows)]
    outs = {(r, v): a.at(lines[r], v * w.width) for r, v in places}
    a.choose("%first", "fresh", "again")
    a.block("again")
    before = {p: w.load(a, outs[p], masks[p[1]]) for p in places}
    a.go("fresh")
    a.block("fresh")
    start = {p: a.phi(w.vector, {"entry": "zeroinitializer", "again": before[p]}) for p in places}
    a.go("term")
    a.block("term")
    number = a.phi("i64", {"fresh": "0", "term": "%number.next"})
    x = a.phi("ptr", {"fresh": "%x", "term": "%x.next"})
    y = a.phi("ptr", {"fresh": "%y", "term": "%y.next"})
    totals = {p: a.phi(w.vector, {"fresh": start[p], "term": f"%t{p[0]}.{p[1]}"}) for p in places}
    loaded = [w.load(a, a.at(y, v * w.width), masks[v]) for v in range(vectors)]
    for r in range(rows):
        one = a.let(f"load {w.element}, ptr {a.at(x, beside[r])}, align {w.bytes}")
        factor = spread(a, w, one)
        for v in range(vectors):
            given = f"{w.vector} {factor}, {w.vector} {loaded[v]}, {w.vector} {totals[r, v]}"
            a.let(f"call {w.vector} @llvm.fma.{w.suffix}({given})", f"t{r}.{v}")
    a.let(f"getelementptr i8, ptr {x}, i64 %x_k", "x.next")
    a.let(f"getelementptr i8, ptr {y}, i64 %y_k", "y.next")
    a.let(f"add i64 {number}, 1", "number.next")
    a.choose(a.let("icmp ult i64 %number.next, %terms"), "term", "end")
    a.block("end")
    for p in places:
        w.store(a, f"%t{p[0]}.{p[1]}", outs[p], masks[p[1]])
    a.do("ret void")
    return a.text(f"define void @tile{rows}x{vectors}({TILE}, i64 %rest, i1 %first) #0")


def _dots(w: Words, rows: int) -> str:
    """A vector of columns of ``rows`` rows, if y is contiguous along the sum: transposed blocks stay in registers."""
    a = Assembler()
    mask = w.first_lanes(a, "%width")
    last = a.let("sub i64 %width, 1")
    columns = [str(r) for r in range(w.lanes)]
    columns = [a.let(f"select i1 {a.let(f'icmp ult i64 {r}, {last}')}, i64 {r}, i64 {last}") for r in columns]
    lines = [a.at("%y", a.let(f"mul i64 {n}, %y_n")) for n in columns]
    outs = [a.at("%out", a.let(f"mul i64 %out_m, {r}")) for r in range(rows)]
    begun = a.let(f"select i1 %first, {w.mask} zeroinitializer, {w.mask} {mask}")
    before = [w.load(a, out, begun) for out in outs]
    square = a.let(f"alloca [{w.lanes} x {w.vector}], align 64")
    whole = a.let(f"and i64 %terms, {-w.lanes}")
    rest = a.let(f"sub i64 %terms, {whole}")
    a.go("head")
    a.block("head")
    term = a.phi("i64", {"entry": "0", "whole": "%term.next"})
    totals = [a.phi(w.vector, {"entry": start, "whole": f"%t{r}"}) for r, start in enumerate(before)]
    place, x = a.let(f"mul i64 {term}, {w.bytes}"), a.at("%x", a.let(f"mul i64 {term}, %x_k"))
    a.choose(a.let(f"icmp ult i64 {term}, {whole}"), "whole", "rest")
    a.block("whole")
    found = totals
    for k, column in enumerate(_transposed(a, w, [w.load(a, a.at(line, place)) for line in lines])):
        names = [f"t{r}" if k == w.lanes - 1 else "" for r in range(rows)]
        found = _with_term(a, w, found, a.at(x, a.let(f"mul i64 %x_k, {k}")), column, names)
    a.let(f"add i64 {term}, {w.lanes}", "term.next")
    a.go("head")
    a.block("rest")
    some = w.first_lanes(a, rest)
    for k, column in enumerate(_transposed(a, w, [w.load(a, a.at(line, place), some) for line in lines])):
        w.store(a, column, a.at(square, k * w.width))
    for out, total in zip(outs, totals, strict=True):
        w.store(a, total, out, mask)
    with a.count("0", rest) as left:
        kept = [w.load(a, out, mask) for out in outs]
        column = w.load(a, a.at(square, a.let(f"mul i64 {left}, {w.width}")))
        kept = _with_term(a, w, kept, a.at(x, a.let(f"mul i64 {left}, %x_k")), column, [""] * rows)
        for out, total in zip(outs, kept, strict=True):
            w.store(a, total, out, mask)
    a.do("ret void")
    return a.text(f"define void @dots{rows}({_DOTS}) #0")


def _with_term(a: Assembler, w: Words, totals: Sequence[str], x: str, column: str, names: Sequence[str]) -> list[str]:
    """Add one term to the totals of rows: an element of x for each row, times a vector of y."""
    found = []
    for r, (total, name) in enumerate(zip(totals, names, strict=True)):
        one = a.let(f"load {w.element}, ptr {a.at(x, a.let(f'mul i64 %x_m, {r}'))}, align {w.bytes}")
        given = f"{w.vector} {spread(a, w, one)}, {w.vector} {column}, {w.vector} {total}"
        found.append(a.let(f"call {w.vector} @llvm.fma.{w.suffix}({given})", name))
    return found


def spread(a: Assembler, w: Words, one: str) -> str:
    """Broadcast one element to a vector."""
    one = a.let(f"insertelement {w.vector} poison, {w.element} {one}, i64 0")
    return a.let(f"shufflevector {w.vector} {one}, {w.vector} poison, <{w.lanes} x i32> zeroinitializer")


def _transposed(a: Assembler, w: Words, rows: Sequence[str]) -> list[str]:
    """The transpose of a block of elements."""

    def shuffled(x: str, y: str, order: Sequence[int]) -> str:
        places = ", ".join(f"i32 {n}" for n in order)
        return a.let(f"shufflevector {w.vector} {x}, {w.vector} {y}, <{w.lanes} x i32> <{places}>")

    return transposed_square(rows, w.bytes, shuffled)


def _pack_rows(w: Words) -> str:
    """Pack a panel of y that is contiguous along a term."""
    a = Assembler()
    whole = a.let(f"and i64 %width, {-w.lanes}")
    rest = w.first_lanes(a, a.let(f"sub i64 %width, {whole}"))
    behind = a.let(f"mul i64 {whole}, {w.bytes}")
    with a.count("0", "%terms") as term:
        row, to = a.at("%y", a.let(f"mul i64 {term}, %y_k")), a.at("%panel", a.let(f"mul i64 {term}, %step"))
        with a.count("0", behind, w.width) as place:
            w.store(a, w.load(a, a.at(row, place)), a.at(to, place))
        with a.when(a.let(f"icmp ult i64 {whole}, %width")):
            w.store(a, w.load(a, a.at(row, behind), rest), a.at(to, behind))
    a.do("ret void")
    return a.text(f"define void @pack_rows({PACK}) #0")


def _pack_transposed(w: Words) -> str:
    """Pack a panel of y that is contiguous along a sum: blocks are transposed in registers.

    Blocks extend beyond the panel's last column, where they repeat it, and its last term, where their elements are not
    read.
    """
    a = Assembler()
    last = a.let("sub i64 %width, 1")
    with a.count("0", "%terms", w.lanes) as term:
        mask = w.first_lanes(a, a.let(f"sub i64 %terms, {term}"))
        at, line = a.at("%y", a.let(f"mul i64 {term}, {w.bytes}")), a.at("%panel", a.let(f"mul i64 {term}, %step"))
        with a.count("0", "%width", w.lanes) as column:
            rows = []
            for r in range(w.lanes):
                n = a.let(f"add i64 {column}, {r}")
                n = a.let(f"select i1 {a.let(f'icmp ult i64 {n}, {last}')}, i64 {n}, i64 {last}")
                rows.append(w.load(a, a.at(at, a.let(f"mul i64 {n}, %y_n")), mask))
            to = a.at(line, a.let(f"mul i64 {column}, {w.bytes}"))
            for r, row in enumerate(_transposed(a, w, rows)):
                w.store(a, row, a.at(to, a.let(f"mul i64 %step, {r}")))
    a.do("ret void")
    return a.text(f"define void @pack_transposed({PACK}) #0")


def _pack_apart(w: Words) -> str:
    """Pack a panel of y with arbitrary strides."""
    a = Assembler()
    with a.count("0", "%terms") as term:
        row, to = a.at("%y", a.let(f"mul i64 {term}, %y_k")), a.at("%panel", a.let(f"mul i64 {term}, %step"))
        with a.count("0", "%width") as column:
            place = a.at(row, a.let(f"mul i64 {column}, %y_n"))
            value = a.let(f"load {w.element}, ptr {place}, align {w.bytes}")
            place = a.at(to, a.let(f"mul i64 {column}, {w.bytes}"))
            a.do(f"store {w.element} {value}, ptr {place}, align {w.bytes}")
    a.do("ret void")
    return a.text(f"define void @pack_apart({PACK}) #0")
