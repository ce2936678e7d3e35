"""Batches of matrix products for any sizes and strides, for eager mode.

Every result is a sum from 0.0 of its terms in order, one fused multiply-add each, as in compiled programs
(``docs/numerics.md``). Tiles, panels and blocks of terms change the speed, never a bit. The entry's arrays are x
(batch, m, k), y (batch, k, n) and the results (batch, m, n). ``SIZES`` follow as int64, then the addresses of ``PARTS``
(``product_parts.py``). Those that ``parts_of`` names must be present.

A block of results is computed column by column of ``width`` vectors. For each column, all rows accumulate ``TERMS``
terms at a time; the results hold the totals in between. These terms are first packed in the lanes' order if y is
contiguous along the sum, or if many rows read them. With few rows, contiguous sums need no panel: blocks of y are
transposed and used in registers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tracecomp.codegen.kernels.product_parts import FEW, HEIGHTS, NARROW, PACK, PARTS, TILE, WIDE, Words, words_of
from tracecomp.codegen.text.assembler import Assembler
from tracecomp.codegen.text.modules import ModuleText
from tracecomp.codegen.text.target import Target
from tracecomp.codegen.threads import sync
from tracecomp.codegen.threads.entry import HEAD
from tracecomp.ir.types import DType

SIZES = (
    "inner", "m", "n", "k", "x_outer", "x_inner", "x_m", "x_k", "y_outer", "y_inner", "y_k", "y_n",
    "rows", "row_blocks", "columns", "column_blocks", "packed", "goes_on", "jobs",
    "y_start", "out_start", "out_matrix", "out_m",
)  # fmt: skip
"""Matrices are numbered by two indices; ``inner`` is the extent of the second. Steps (``x_outer`` to ``y_n``) are in
bytes. ``goes_on``: sums start from the stored results. A job is ``rows`` by ``columns`` results; a matrix has the given
numbers of such blocks. y and the results start at a byte of their arrays. Results may be parts of larger matrices:
``out_matrix`` and ``out_m`` are the bytes from one matrix and row to the next."""

TERMS = 128
"""Terms at a time: a packed panel of so many rows of three 64-byte vectors, 24 KB, stays in a first cache of 32 KB."""


def products_text(dtype: DType, target: Target) -> str:
    """The entry's module for elements of ``dtype``."""
    w = words_of(dtype, target)
    parts = (_column(w), _pack(w), _panel(w), _job(w), _run(), _entry(panel_bytes(target)))
    return str(ModuleText(target, parts, w.declared | {sync.PARALLEL: sync.PARALLEL_DECLARATION}))


def panel_bytes(target: Target) -> int:
    """Scratch memory of a thread: the widest panel."""
    return TERMS * WIDE * target.vector_bits // 8


def _column(w: Words) -> str:
    """All rows of a column, with tiles whose addresses are at ``%tiles``, the tallest first."""
    a = Assembler()
    begin = "0"
    for number, height in enumerate(HEIGHTS):
        left = a.let(f"sub i64 %rows, {begin}")
        end = a.let(f"add i64 {begin}, {a.let(f'and i64 {left}, {-height}')}")
        with a.count(begin, end, height) as row:
            x, out = a.at("%x", a.let(f"mul i64 {row}, %x_m")), a.at("%out", a.let(f"mul i64 {row}, %out_m"))
            where = f"ptr {x}, i64 %x_m, i64 %x_k, ptr %y, i64 %y_k, ptr {out}, i64 %out_m, i64 %terms"
            a.run(a.load("ptr", "%tiles", 8 * number), where, "i64 %rest", "i1 %first")
        begin = end
    a.do("ret void")
    return a.text(f"define internal void @column({TILE}, i64 %rest, i1 %first, i64 %rows, ptr %tiles) #0")


def _pack(w: Words) -> str:
    """``%width`` elements of each of ``%terms`` terms into the panel, whose rows are ``%step`` bytes apart."""
    a = Assembler()
    given = "ptr %y, i64 %y_k, i64 %y_n, ptr %panel, i64 %step, i64 %terms, i64 %width"
    rows, transposed, apart = (f"i64 {_at(f'pack_{kind}')}" for kind in ("rows", "transposed", "apart"))
    other = a.let(f"select i1 {a.same('%y_k', str(w.bytes), 'i64')}, {transposed}, {apart}")
    place = a.let(f"select i1 {a.same('%y_n', str(w.bytes), 'i64')}, {rows}, i64 {other}")
    a.run(a.load("ptr", "%parts", place), given)
    a.do("ret void")
    return a.text(f"define internal void @pack({PACK}, ptr %parts) #0")


def _at(part: str) -> int:
    """The place of its address among those of all parts, in bytes."""
    return 8 * PARTS.index(part)


def _panel(w: Words) -> str:
    """All rows of up to ``WIDE`` vectors of columns: whole, or by narrow columns."""
    a = Assembler()
    given = "ptr %x, i64 %x_m, i64 %x_k"
    more = "i64 %out_m, i64 %terms"
    a.choose(a.same("%width", str(WIDE * w.lanes), "i64"), "wide", "narrow")
    a.block("wide")
    tiles = a.at("%parts", _at(f"tile{HEIGHTS[0]}x{WIDE}"))
    rest = f"i64 {w.lanes}, i1 %first, i64 %rows, ptr {tiles}"
    a.run("@column", f"{given}, ptr %y, i64 %y_k, ptr %out, {more}, {rest}")
    a.do("ret void")
    a.block("narrow")
    with a.count("0", "%width", NARROW * w.lanes) as column:
        place = a.let(f"mul i64 {column}, {w.bytes}")
        y, out = a.at("%y", place), a.at("%out", place)
        left = _least(a, a.let(f"sub i64 %width, {column}"), str(NARROW * w.lanes))
        before = a.let(f"udiv i64 {a.let(f'sub i64 {left}, 1')}, {w.lanes}")  # whole vectors before the last one
        rest = a.let(f"sub i64 {left}, {a.let(f'mul i64 {before}, {w.lanes}')}")
        tiles = a.at("%parts", a.let(f"mul i64 {before}, {8 * len(HEIGHTS)}"))
        tail = f"i64 {rest}, i1 %first, i64 %rows, ptr {tiles}"
        a.run("@column", f"{given}, ptr {y}, i64 %y_k, ptr {out}, {more}, {tail}")
    a.do("ret void")
    return a.text(f"define internal void @panel({TILE}, i64 %width, i1 %first, i64 %rows, ptr %parts) #0")


def _least(a: Assembler, x: str, y: str) -> str:
    return a.let(f"select i1 {a.let(f'icmp ult i64 {x}, {y}')}, i64 {x}, i64 {y}")


def _job(w: Words) -> str:
    """Job ``%number``: blocks of columns are next to each other, then blocks of rows, then matrices."""
    a = Assembler()
    sizes, parts = a.load("ptr", "%table", 24), a.load("ptr", "%table", 32)
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
    y = moved(
        a.at(a.load("ptr", "%table", 8), s["y_start"]), (outer, s["y_outer"]), (inner, s["y_inner"]), (column, s["y_n"])
    )
    line, out = s["out_m"], a.at(a.load("ptr", "%table", 16), s["out_start"])
    out = moved(out, (matrix, s["out_matrix"]), (row, line), (column, str(w.bytes)))
    rows = _least(a, s["rows"], a.let(f"sub i64 {s['m']}, {row}"))
    columns = _least(a, s["columns"], a.let(f"sub i64 {s['n']}, {column}"))
    few = a.let(f"icmp ult i64 {rows}, {HEIGHTS[0]}")
    vectors = a.let(f"select i1 {few}, i64 {WIDE * w.lanes}, i64 {NARROW * w.lanes}")
    step = a.let(f"mul i64 {vectors}, {w.bytes}")
    packed = a.let(f"icmp ne i64 {s['packed']}, 0")
    columns = _few_rows(a, w, s, (x, y, out, parts), (line, columns))
    with a.count("0", columns, vectors) as at:
        width = _least(a, vectors, a.let(f"sub i64 {columns}, {at}"))
        source, to = moved(y, (at, s["y_n"])), moved(out, (at, str(w.bytes)))
        with a.count("0", s["k"], TERMS) as term:
            terms = _least(a, str(TERMS), a.let(f"sub i64 {s['k']}, {term}"))
            here = moved(source, (term, s["y_k"]))
            with a.when(packed):
                given = f"ptr {here}, i64 {s['y_k']}, i64 {s['y_n']}, ptr %panel, i64 {step}, i64 {terms}"
                a.run("@pack", given, f"i64 {width}", f"ptr {parts}")
            read = a.let(f"select i1 {packed}, ptr %panel, ptr {here}")
            apart = a.let(f"select i1 {packed}, i64 {step}, i64 {s['y_k']}")
            begun = a.let(f"or i64 {term}, {s['goes_on']}")
            first = a.let(f"icmp eq i64 {begun}, 0")
            given = f"ptr {moved(x, (term, s['x_k']))}, i64 {s['x_m']}, i64 {s['x_k']}, ptr {read}, i64 {apart}"
            done = f"ptr {to}, i64 {line}, i64 {terms}, i64 {width}, i1 {first}, i64 {rows}"
            a.run("@panel", given, done, f"ptr {parts}")
    a.do("ret void")
    return a.text("define internal void @job(ptr %table, ptr %panel, i64 %number) #0")


def _few_rows(a: Assembler, w: Words, s: Mapping[str, str], places: Sequence[str], sizes: tuple[str, str]) -> str:
    """All columns of few rows, without panels; returns the number of remaining columns."""
    (x, y, out, parts), (line, columns) = places, sizes
    few = a.both(a.let(f"icmp ule i64 {s['m']}, {FEW}"), a.same(s["y_k"], str(w.bytes), "i64"))
    few = a.both(few, a.let(f"icmp ne i64 {s['y_n']}, {w.bytes}"))
    first = a.same(s["goes_on"], "0", "i64")
    here = a.let(f"select i1 {few}, i64 {columns}, i64 0")
    # So few rows are one block: its function handles all rows.
    eight = a.let(f"mul i64 {s['m']}, 8")
    dots = a.at(parts, a.let(f"add i64 {_at('dots1') - 8}, {eight}"))
    with a.count("0", here, w.lanes) as at:
        width = _least(a, str(w.lanes), a.let(f"sub i64 {here}, {at}"))
        source, to = a.at(y, a.let(f"mul i64 {at}, {s['y_n']}")), a.at(out, a.let(f"mul i64 {at}, {w.bytes}"))
        given = f"ptr {x}, i64 {s['x_m']}, i64 {s['x_k']}, ptr {source}, i64 {s['y_n']}"
        a.run(a.load("ptr", dots), given, f"ptr {to}, i64 {line}, i64 {s['k']}, i64 {width}, i1 {first}")
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
