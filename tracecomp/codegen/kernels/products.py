"""Batches of matrix products for any sizes and strides: what eager mode calls.

Every result is a sum from 0.0 of its terms in order, one fused multiply-add each, as in compiled programs
(``docs/numerics.md``); tiles, panels and blocks of terms decide how fast that goes, never a bit. The entry's arrays are
x (batch, m, k), y (batch, k, n), the results (batch, m, n), and ``SIZES`` as int64.

A block of results goes column by column of ``width`` vectors. Of each, ``TERMS`` terms at a time are done for all rows;
totals wait in the results. Where elements of y that lie side by side belong to one sum, or where many rows read them,
these terms are packed first, in the lanes' order. Of few rows the former case needs no panel: squares of y are turned
in registers, and used from there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tracecomp.codegen.kernels.squares import turned_square
from tracecomp.codegen.text.assembler import Assembler
from tracecomp.codegen.text.modules import ModuleText
from tracecomp.codegen.text.target import Target
from tracecomp.codegen.threads import sync
from tracecomp.codegen.threads.entry import HEAD
from tracecomp.ir.types import DType

SIZES = (
    "inner", "m", "n", "k", "x_outer", "x_inner", "x_m", "x_k", "y_outer", "y_inner", "y_k", "y_n",
    "rows", "row_blocks", "columns", "column_blocks", "packed", "goes_on", "jobs",
)  # fmt: skip
"""Matrices are numbered by two indices, of which ``inner`` is the extent of the second. Steps (``x_outer`` to ``y_n``)
are in bytes. ``goes_on``: sums begin with what the results hold. A job is ``rows`` by ``columns`` results, of which
there are so many blocks in a matrix."""

TERMS = 128
"""Terms at a time: a packed panel of so many rows of three 64-byte vectors, 24 KB, stays in a first cache of 32 KB."""

_TALL, _FLAT = (8, 4, 2, 1), (4, 2, 1)
"""Rows of tiles in a narrow column, and in a wide one, which is for few rows."""
FEW = 4
"""Rows up to which squares of y are turned for every use, and not packed."""
NARROW, WIDE = 3, 6
"""Vectors of the two kinds of columns: 8 rows of 3 vectors, or 4 of 6, are 24 totals in registers."""


@dataclass(frozen=True)
class _Words:
    """How a processor and an element type are spelled."""

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
            sync.PARALLEL: sync.PARALLEL_DECLARATION,
        }

    def first_lanes(self, a: Assembler, count: str) -> str:
        """The mask of ``count`` lanes."""
        kind = f"<{self.lanes} x i64>"
        one = a.let(f"insertelement {kind} poison, i64 {count}, i64 0")
        limit = a.let(f"shufflevector {kind} {one}, {kind} poison, <{self.lanes} x i32> zeroinitializer")
        return a.let(f"icmp ult {kind} <{', '.join(f'i64 {n}' for n in range(self.lanes))}>, {limit}")

    def load(self, a: Assembler, place: str, mask: str = "") -> str:
        """A vector, or those of its lanes that ``mask`` has, with zeros beside."""
        if not mask:
            return a.let(f"load {self.vector}, ptr {place}, align {self.bytes}")
        given = f"ptr {place}, i32 {self.bytes}, {self.mask} {mask}, {self.vector} zeroinitializer"
        return a.let(f"call {self.vector} @llvm.masked.load.{self.suffix}.p0({given})")

    def store(self, a: Assembler, value: str, place: str, mask: str = "") -> None:
        """The same to memory."""
        if not mask:
            a.do(f"store {self.vector} {value}, ptr {place}, align {self.bytes}")
            return
        given = f"{self.vector} {value}, ptr {place}, i32 {self.bytes}, {self.mask} {mask}"
        a.run(f"@llvm.masked.store.{self.suffix}.p0", given)


def products_text(dtype: DType, target: Target) -> str:
    """The module for elements of ``dtype``."""
    lanes = target.vector_bits // 8 // dtype.itemsize
    w = _Words({4: "float", 8: "double"}[dtype.itemsize], dtype.itemsize, lanes)
    parts = [_tile(w, rows, n) for n in range(1, NARROW + 1) for rows in _TALL]
    parts += [_tile(w, rows, WIDE) for rows in _FLAT]
    parts += [_column(w, n, _TALL) for n in range(1, NARROW + 1)] + [_column(w, WIDE, _FLAT)]
    parts += [_dots(w, rows) for rows in range(1, FEW + 1)]
    parts += [_pack_rows(w), _pack_turned(w), _pack_apart(w), _pack(w), _panel(w), _job(w), _run()]
    parts += [_entry(panel_bytes(target))]
    return str(ModuleText(target, tuple(parts), w.declared))


def panel_bytes(target: Target) -> int:
    """Scratch memory of a thread: the widest panel."""
    return TERMS * WIDE * target.vector_bits // 8


_TILE = "ptr %x, i64 %x_m, i64 %x_k, ptr %y, i64 %y_k, ptr %out, i64 %out_m, i64 %terms"


def _tile(w: _Words, rows: int, vectors: int) -> str:
    """A register tile's terms; the totals begin at 0.0 with ``%first``. ``%rest``: lanes of the last vector."""
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
        spread = _spread(a, w, one)
        for v in range(vectors):
            given = f"{w.vector} {spread}, {w.vector} {loaded[v]}, {w.vector} {totals[r, v]}"
            a.let(f"call {w.vector} @llvm.fma.{w.suffix}({given})", f"t{r}.{v}")
    a.let(f"getelementptr i8, ptr {x}, i64 %x_k", "x.next")
    a.let(f"getelementptr i8, ptr {y}, i64 %y_k", "y.next")
    a.let(f"add i64 {number}, 1", "number.next")
    a.choose(a.let("icmp ult i64 %number.next, %terms"), "term", "end")
    a.block("end")
    for p in places:
        w.store(a, f"%t{p[0]}.{p[1]}", outs[p], masks[p[1]])
    a.do("ret void")
    return a.text(f"define internal void @tile{rows}x{vectors}({_TILE}, i64 %rest, i1 %first) #0")


def _column(w: _Words, vectors: int, heights: Sequence[int]) -> str:
    """All rows of a column of ``vectors`` vectors, by tiles of these heights."""
    a = Assembler()
    begin = "0"
    for height in heights:
        left = a.let(f"sub i64 %rows, {begin}")
        end = a.let(f"add i64 {begin}, {a.let(f'and i64 {left}, {-height}')}")
        with a.count(begin, end, height) as row:
            x, out = a.at("%x", a.let(f"mul i64 {row}, %x_m")), a.at("%out", a.let(f"mul i64 {row}, %out_m"))
            where = f"ptr {x}, i64 %x_m, i64 %x_k, ptr %y, i64 %y_k, ptr {out}, i64 %out_m, i64 %terms"
            a.run(f"@tile{height}x{vectors}", where, "i64 %rest", "i1 %first")
        begin = end
    a.do("ret void")
    return a.text(f"define internal void @column{vectors}({_TILE}, i64 %rest, i1 %first, i64 %rows) #0")


_PACK = "ptr %y, i64 %y_k, i64 %y_n, ptr %panel, i64 %step, i64 %terms, i64 %width"


def _pack_rows(w: _Words) -> str:
    """The panel where a term's elements lie side by side."""
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
    return a.text(f"define internal void @pack_rows({_PACK}) #0")


def _pack_turned(w: _Words) -> str:
    """The panel where a sum's elements lie side by side: squares of them are turned in registers.

    Squares go beyond the panel's last column, where they repeat it, and its last term, where nothing reads them.
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
            for r, row in enumerate(_turned(a, w, rows)):
                w.store(a, row, a.at(to, a.let(f"mul i64 %step, {r}")))
    a.do("ret void")
    return a.text(f"define internal void @pack_turned({_PACK}) #0")


def _dots(w: _Words, rows: int) -> str:
    """A vector of columns of ``rows`` rows, where a sum's elements of y lie side by side: squares stay in registers."""
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
    for k, column in enumerate(_turned(a, w, [w.load(a, a.at(line, place)) for line in lines])):
        names = [f"t{r}" if k == w.lanes - 1 else "" for r in range(rows)]
        found = _with_term(a, w, found, a.at(x, a.let(f"mul i64 %x_k, {k}")), column, names)
    a.let(f"add i64 {term}, {w.lanes}", "term.next")
    a.go("head")
    a.block("rest")
    some = w.first_lanes(a, rest)
    for k, column in enumerate(_turned(a, w, [w.load(a, a.at(line, place), some) for line in lines])):
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
    return a.text(f"define internal void @dots{rows}({_DOTS}) #0")


_DOTS = "ptr %x, i64 %x_m, i64 %x_k, ptr %y, i64 %y_n, ptr %out, i64 %out_m, i64 %terms, i64 %width, i1 %first"


def _with_term(a: Assembler, w: _Words, totals: Sequence[str], x: str, column: str, names: Sequence[str]) -> list[str]:
    """Totals of rows with one more term: an element of x for each row, times a vector of y."""
    found = []
    for r, (total, name) in enumerate(zip(totals, names, strict=True)):
        one = a.let(f"load {w.element}, ptr {a.at(x, a.let(f'mul i64 %x_m, {r}'))}, align {w.bytes}")
        given = f"{w.vector} {_spread(a, w, one)}, {w.vector} {column}, {w.vector} {total}"
        found.append(a.let(f"call {w.vector} @llvm.fma.{w.suffix}({given})", name))
    return found


def _spread(a: Assembler, w: _Words, one: str) -> str:
    """A vector of one element."""
    one = a.let(f"insertelement {w.vector} poison, {w.element} {one}, i64 0")
    return a.let(f"shufflevector {w.vector} {one}, {w.vector} poison, <{w.lanes} x i32> zeroinitializer")


def _turned(a: Assembler, w: _Words, rows: Sequence[str]) -> list[str]:
    """A square of elements by columns."""

    def shuffled(x: str, y: str, order: Sequence[int]) -> str:
        places = ", ".join(f"i32 {n}" for n in order)
        return a.let(f"shufflevector {w.vector} {x}, {w.vector} {y}, <{w.lanes} x i32> <{places}>")

    return turned_square(rows, w.bytes, shuffled)


def _pack_apart(w: _Words) -> str:
    """The panel of elements that lie anyhow."""
    a = Assembler()
    with a.count("0", "%terms") as term:
        row, to = a.at("%y", a.let(f"mul i64 {term}, %y_k")), a.at("%panel", a.let(f"mul i64 {term}, %step"))
        with a.count("0", "%width") as column:
            place = a.at(row, a.let(f"mul i64 {column}, %y_n"))
            value = a.let(f"load {w.element}, ptr {place}, align {w.bytes}")
            place = a.at(to, a.let(f"mul i64 {column}, {w.bytes}"))
            a.do(f"store {w.element} {value}, ptr {place}, align {w.bytes}")
    a.do("ret void")
    return a.text(f"define internal void @pack_apart({_PACK}) #0")


def _pack(w: _Words) -> str:
    """``%width`` elements of each of ``%terms`` terms into the panel, whose rows are ``%step`` bytes apart."""
    a = Assembler()
    given = "ptr %y, i64 %y_k, i64 %y_n, ptr %panel, i64 %step, i64 %terms, i64 %width"
    a.choose(a.same("%y_n", str(w.bytes), "i64"), "rows", "other")
    a.block("other")
    a.choose(a.same("%y_k", str(w.bytes), "i64"), "turned", "apart")
    for name in ("rows", "turned", "apart"):
        a.block(name)
        a.run(f"@pack_{name}", given)
        a.do("ret void")
    return a.text(f"define internal void @pack({_PACK}) #0")


def _panel(w: _Words) -> str:
    """All rows of up to ``WIDE`` vectors of columns: whole, or by narrow columns."""
    a = Assembler()
    given = "ptr %x, i64 %x_m, i64 %x_k"
    more = "i64 %out_m, i64 %terms"
    a.choose(a.same("%width", str(WIDE * w.lanes), "i64"), "wide", "narrow")
    a.block("wide")
    rest = f"i64 {w.lanes}, i1 %first, i64 %rows"
    a.run(f"@column{WIDE}", f"{given}, ptr %y, i64 %y_k, ptr %out, {more}, {rest}")
    a.do("ret void")
    a.block("narrow")
    with a.count("0", "%width", NARROW * w.lanes) as column:
        place = a.let(f"mul i64 {column}, {w.bytes}")
        y, out = a.at("%y", place), a.at("%out", place)
        left = _least(a, a.let(f"sub i64 %width, {column}"), str(NARROW * w.lanes))
        for n in range(1, NARROW + 1):
            least, most = (n - 1) * w.lanes, n * w.lanes
            with a.when(a.both(a.let(f"icmp ugt i64 {left}, {least}"), a.let(f"icmp ule i64 {left}, {most}"))):
                tail = f"i64 {a.let(f'sub i64 {left}, {least}')}, i1 %first, i64 %rows"
                a.run(f"@column{n}", f"{given}, ptr {y}, i64 %y_k, ptr {out}, {more}, {tail}")
    a.do("ret void")
    return a.text(f"define internal void @panel({_TILE}, i64 %width, i1 %first, i64 %rows) #0")


def _least(a: Assembler, x: str, y: str) -> str:
    return a.let(f"select i1 {a.let(f'icmp ult i64 {x}, {y}')}, i64 {x}, i64 {y}")


def _job(w: _Words) -> str:
    """Job ``%number``: blocks of columns are next to each other, then blocks of rows, then matrices."""
    a = Assembler()
    sizes = a.load("ptr", "%table", 24)
    s = {name: a.load("i64", sizes, 8 * n) for n, name in enumerate(SIZES)}
    blocks, row_blocks = s["column_blocks"], s["row_blocks"]
    upper = a.let(f"udiv i64 %number, {blocks}")
    matrix, r = a.let(f"udiv i64 {upper}, {row_blocks}"), a.let(f"urem i64 {upper}, {row_blocks}")
    row = a.let(f"mul i64 {r}, {s['rows']}")
    column = a.let(f"mul i64 {a.let(f'urem i64 %number, {blocks}')}, {s['columns']}")
    outer, inner = a.let(f"udiv i64 {matrix}, {s['inner']}"), a.let(f"urem i64 {matrix}, {s['inner']}")

    def moved(base: str, *steps: tuple[str, str]) -> str:
        for count, step in steps:
            base = a.at(base, a.let(f"mul i64 {count}, {step}"))
        return base

    x = moved(a.load("ptr", "%table"), (outer, s["x_outer"]), (inner, s["x_inner"]), (row, s["x_m"]))
    y = moved(a.load("ptr", "%table", 8), (outer, s["y_outer"]), (inner, s["y_inner"]), (column, s["y_n"]))
    line = a.let(f"mul i64 {s['n']}, {w.bytes}")
    matrix_bytes = a.let(f"mul i64 {line}, {s['m']}")
    out = moved(a.load("ptr", "%table", 16), (matrix, matrix_bytes), (row, line), (column, str(w.bytes)))
    rows = _least(a, s["rows"], a.let(f"sub i64 {s['m']}, {row}"))
    columns = _least(a, s["columns"], a.let(f"sub i64 {s['n']}, {column}"))
    few = a.let(f"icmp ult i64 {rows}, {_TALL[0]}")
    vectors = a.let(f"select i1 {few}, i64 {WIDE * w.lanes}, i64 {NARROW * w.lanes}")
    step = a.let(f"mul i64 {vectors}, {w.bytes}")
    packed = a.let(f"icmp ne i64 {s['packed']}, 0")
    columns = _few_rows(a, w, s, (x, y, out), (line, rows, columns))
    with a.count("0", columns, vectors) as at:
        width = _least(a, vectors, a.let(f"sub i64 {columns}, {at}"))
        source, to = moved(y, (at, s["y_n"])), moved(out, (at, str(w.bytes)))
        with a.count("0", s["k"], TERMS) as term:
            terms = _least(a, str(TERMS), a.let(f"sub i64 {s['k']}, {term}"))
            here = moved(source, (term, s["y_k"]))
            with a.when(packed):
                given = f"ptr {here}, i64 {s['y_k']}, i64 {s['y_n']}, ptr %panel, i64 {step}, i64 {terms}"
                a.run("@pack", given, f"i64 {width}")
            read = a.let(f"select i1 {packed}, ptr %panel, ptr {here}")
            apart = a.let(f"select i1 {packed}, i64 {step}, i64 {s['y_k']}")
            begun = a.let(f"or i64 {term}, {s['goes_on']}")
            first = a.let(f"icmp eq i64 {begun}, 0")
            given = f"ptr {moved(x, (term, s['x_k']))}, i64 {s['x_m']}, i64 {s['x_k']}, ptr {read}, i64 {apart}"
            a.run("@panel", given, f"ptr {to}, i64 {line}, i64 {terms}, i64 {width}, i1 {first}, i64 {rows}")
    a.do("ret void")
    return a.text("define internal void @job(ptr %table, ptr %panel, i64 %number) #0")


def _few_rows(a: Assembler, w: _Words, s: Mapping[str, str], places: Sequence[str], sizes: tuple[str, str, str]) -> str:
    """All columns of so few rows that a panel would be made for little; the columns that are left."""
    (x, y, out), (line, rows, columns) = places, sizes
    few = a.both(a.let(f"icmp ule i64 {rows}, {FEW}"), a.same(s["y_k"], str(w.bytes), "i64"))
    few = a.both(few, a.let(f"icmp ne i64 {s['y_n']}, {w.bytes}"))
    first = a.same(s["goes_on"], "0", "i64")
    here = a.let(f"select i1 {few}, i64 {columns}, i64 0")
    with a.count("0", here, w.lanes) as at:
        width = _least(a, str(w.lanes), a.let(f"sub i64 {here}, {at}"))
        source, to = a.at(y, a.let(f"mul i64 {at}, {s['y_n']}")), a.at(out, a.let(f"mul i64 {at}, {w.bytes}"))
        for height in range(1, FEW + 1):
            with a.when(a.same(rows, str(height), "i64")):
                given = f"ptr {x}, i64 {s['x_m']}, i64 {s['x_k']}, ptr {source}, i64 {s['y_n']}"
                a.run(f"@dots{height}", given, f"ptr {to}, i64 {line}, i64 {s['k']}, i64 {width}, i1 {first}")
    return a.let(f"select i1 {few}, i64 0, i64 {columns}")


def _run() -> str:
    """The jobs from ``%start`` to ``%stop``."""
    a = Assembler()
    table, arena, each = a.load("ptr", "%args"), a.load("ptr", "%args", 8), a.load("i64", "%args", 16)
    panel = a.at(arena, a.let(f"mul i64 %thread, {each}"))
    with a.count("%start", "%stop") as number:
        a.run("@job", f"ptr {table}", f"ptr {panel}", f"i64 {number}")
    a.do("ret void")
    return a.text("define internal void @jobs(ptr %args, i64 %thread, i64 %start, i64 %stop) #0")


def _entry(panel: int) -> str:
    a = Assembler()
    args = a.let("alloca [3 x i64], align 8")
    a.store("ptr", "%table", args)
    a.store("ptr", "%arena", args, 8)
    a.store("i64", str(panel), args, 16)
    jobs = a.load("i64", a.load("ptr", "%table", 24), 8 * SIZES.index("jobs"))
    a.run(f"@{sync.PARALLEL}", "ptr %team", "ptr @jobs", f"ptr {args}", f"i64 {jobs}", "i1 0")
    a.do("ret void")
    return a.text(HEAD)
