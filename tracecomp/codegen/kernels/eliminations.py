"""Steps of triangular solves, LU, Cholesky and QR for batches of matrices of any sizes, for eager mode.

``ops/linalg`` defines every element: its terms are subtracted one after the other, one fused multiply-add each, then it
is divided. The bits are therefore those of compiled loops, for any panels. Columns beyond a panel are products
(``products.py``). Matrices are parts of whole arrays and start at a byte offset; strides are in bytes. Reflections come
in panels of as many columns as ``ops/linalg`` says, because the order of their sums depends on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tracecomp.codegen.kernels.product_parts import Words, spread, words_of
from tracecomp.codegen.text.assembler import Assembler
from tracecomp.codegen.text.modules import ModuleText
from tracecomp.codegen.text.target import Target
from tracecomp.codegen.threads import sync
from tracecomp.codegen.threads.entry import HEAD
from tracecomp.ir.types import DType

STRIP_VECTORS = 4
"""Vectors of columns that are computed together. A multiply-add takes four cycles, so four independent sums keep a unit
busy, and every processor has registers for them."""

_SOLVE_SIZES = (
    "t_start", "t_matrix", "t_row", "t_column", "d_start", "d_matrix", "d_step",
    "x_start", "x_matrix", "x_row", "rows", "columns", "strips", "jobs",
)  # fmt: skip
SIZES = {
    "solve_ones": _SOLVE_SIZES,
    "solve_divided": _SOLVE_SIZES,
    "solve_scaled": _SOLVE_SIZES,
    "lu": (
        "p_start", "p_matrix", "p_row", "w_start", "w_matrix", "w_row", "width", "pivots_start", "pivots_matrix",
        "rows", "columns", "steps", "first", "jobs",
    ),
    "swap": ("x_start", "x_matrix", "x_row", "width", "pivots_start", "pivots_matrix", "steps", "jobs"),
    "cholesky": ("x_start", "x_matrix", "x_row", "rows", "first", "jobs"),
    "reflections": ("rows", "steps", "tau_start", "tau_matrix", "jobs"),
}  # fmt: skip
"""By the kind of step, the numbers in its last array: starts (``_start``), the bytes from one matrix, row, column or
diagonal element (``d_step``) to the next, counts, and how many ``jobs`` threads share."""
ARRAYS = {"solve_ones": 3, "solve_divided": 3, "solve_scaled": 3, "lu": 3, "swap": 2, "cholesky": 2, "reflections": 2}
"""Number of arrays before them."""


def elimination_text(kind: str, dtype: DType, target: Target, panel: int) -> str:
    """The module of one of ``SIZES``, for elements of ``dtype`` and ``panel`` columns of reflections."""
    w = words_of(dtype, target)
    write = {"lu": _lu, "swap": _swap, "cholesky": _cholesky}.get(kind)
    if write is not None:
        parts = write(w)
    else:
        parts = _reflections(w, panel) if kind == "reflections" else _solve(w, kind.removeprefix("solve_"))
    functions = (*parts, _jobs(), _entry(kind))
    declared = w.declared | _scalars(w) | {sync.PARALLEL: sync.PARALLEL_DECLARATION}
    return str(ModuleText(target, functions, declared))


def _scalars(w: Words) -> dict[str, str]:
    e, s = w.element, f"f{8 * w.bytes}"
    return {
        "fma1": f"declare {e} @llvm.fma.{s}({e}, {e}, {e})",
        "sqrt": f"declare {e} @llvm.sqrt.{s}({e})",
        "fabs": f"declare {e} @llvm.fabs.{s}({e})",
        "copysign": f"declare {e} @llvm.copysign.{s}({e}, {e})",
    }


class _Code(Assembler):
    """A function on elements of one type, with the numbers of a kind of step by name."""

    def __init__(self, w: Words) -> None:
        super().__init__()
        self.w = w
        self.sizes: dict[str, str] = {}

    def read_sizes(self, kind: str) -> None:
        """Read the numbers from the last array of ``%table``."""
        sizes = self.load("ptr", "%table", 8 * ARRAYS[kind])
        self.sizes = {name: self.load("i64", sizes, 8 * n) for n, name in enumerate(SIZES[kind])}

    def array(self, number: int, *steps: tuple[str, str], start: str = "0") -> str:
        """The address in an array: byte ``start``, plus steps of given numbers of bytes."""
        return self.moved(self.at(self.load("ptr", "%table", 8 * number), start), *steps)

    def moved(self, base: str, *steps: tuple[str, str | int]) -> str:
        for count, step in steps:
            base = self.at(base, self.mul(count, step))
        return base

    def mul(self, x: str, y: str | int) -> str:
        return self.let(f"mul i64 {x}, {y}")

    def add(self, x: str, y: str | int) -> str:
        return self.let(f"add i64 {x}, {y}")

    def sub(self, x: str, y: str | int) -> str:
        return self.let(f"sub i64 {x}, {y}")

    def less(self, x: str, y: str) -> str:
        return self.let(f"icmp ult i64 {x}, {y}")

    def element(self, place: str) -> str:
        return self.let(f"load {self.w.element}, ptr {place}, align {self.w.bytes}")

    def put(self, value: str, place: str) -> None:
        self.do(f"store {self.w.element} {value}, ptr {place}, align {self.w.bytes}")

    def scalar(self, name: str, *operands: str) -> str:
        """A function of single elements."""
        given = ", ".join(f"{self.w.element} {x}" for x in operands)
        return self.let(f"call {self.w.element} @llvm.{name}.f{8 * self.w.bytes}({given})")

    def real(self, word: str, *operands: str) -> str:
        """An instruction on single elements."""
        return self.let(f"{word} {self.w.element} {', '.join(operands)}")

    def vectors(self, word: str, *operands: str) -> str:
        return self.let(f"{word} {self.w.vector} {', '.join(operands)}")

    def fma(self, x: str, y: str, z: str) -> str:
        v = self.w.vector
        return self.let(f"call {v} @llvm.fma.{self.w.suffix}({v} {x}, {v} {y}, {v} {z})")

    def choice(self, condition: str, yes: str, no: str, kind: str = "") -> str:
        kind = kind or self.w.element
        return self.let(f"select i1 {condition}, {kind} {yes}, {kind} {no}")

    def lanes(self, condition: str, yes: str, no: str) -> str:
        w = self.w
        return self.let(f"select {w.mask} {condition}, {w.vector} {yes}, {w.vector} {no}")

    def negative_spread(self, value: str) -> str:
        return spread(self, self.w, self.real("fneg", value))

    def sides(self, start: str, column: str) -> tuple[str, str]:
        """Masks of the lanes from ``start``: those after ``column``, and ``column`` itself."""
        kind = f"<{self.w.lanes} x i64>"
        one = self.let(f"insertelement {kind} poison, i64 {self.sub(column, start)}, i64 0")
        limit = self.let(f"shufflevector {kind} {one}, {kind} poison, <{self.w.lanes} x i32> zeroinitializer")
        places = f"<{', '.join(f'i64 {n}' for n in range(self.w.lanes))}>"
        return self.let(f"icmp sgt {kind} {places}, {limit}"), self.let(f"icmp eq {kind} {places}, {limit}")

    def summed(
        self, begin: str, end: str, start: Sequence[str], terms: Callable[[str], tuple[str, Iterable[str]]]
    ) -> list[str]:
        """Sums that begin with ``start``: for each number from ``begin`` to ``end``, in order, a fused multiply-add of
        its factor and vectors, which ``terms`` returns."""
        w, before = self.w, self.current
        head, body, done = (self.name(stem) for stem in ("head", "body", "done"))
        self.go(head)
        self.block(head)
        k = self.phi("i64", {before: begin, body: f"%{body}.k"})
        totals = [self.phi(w.vector, {before: x, body: f"%{body}.t{v}"}) for v, x in enumerate(start)]
        self.choose(self.less(k, end), body, done)
        self.block(body)
        factor, vectors = terms(k)
        for v, (x, total) in enumerate(zip(vectors, totals, strict=True)):
            given = f"{w.vector} {factor}, {w.vector} {x}, {w.vector} {total}"
            self.let(f"call {w.vector} @llvm.fma.{w.suffix}({given})", f"{body}.t{v}")
        self.let(f"add i64 {k}, 1", f"{body}.k")
        self.go(head)
        self.block(done)
        return totals

    def row(self, begin: str, end: str, body: Callable[[str, str], None]) -> None:
        """``body(first column, mask)`` for each vector from ``begin``, a multiple of the lanes, on."""
        lanes = self.w.lanes
        whole = self.let(f"and i64 {end}, {-lanes}")
        with self.count(begin, whole, lanes) as column:
            body(column, "")
        with self.when(self.less(whole, end)):
            body(whole, self.w.first_lanes(self, self.sub(end, whole)))


def _jobs() -> str:
    """The jobs from ``%start`` to ``%stop``."""
    a = Assembler()
    table = a.load("ptr", "%args")
    with a.count("%start", "%stop") as number:
        a.run("@job", f"ptr {table}", f"i64 {number}")
    a.do("ret void")
    return a.text("define internal void @jobs(ptr %args, i64 %thread, i64 %start, i64 %stop) #0")


def _entry(kind: str) -> str:
    a = Assembler()
    args = a.let("alloca [1 x i64], align 8")
    a.store("ptr", "%table", args)
    jobs = a.load("i64", a.load("ptr", "%table", 8 * ARRAYS[kind]), 8 * SIZES[kind].index("jobs"))
    a.run(f"@{sync.PARALLEL}", "ptr %team", "ptr @jobs", f"ptr {args}", f"i64 {jobs}", "i1 0")
    a.do("ret void")
    return a.text(HEAD)


_JOB = "define internal void @job(ptr %table, i64 %number) #0"


# ---- triangular systems

_STRIP = "ptr %t, i64 %t_row, i64 %t_column, ptr %d, i64 %d_step, ptr %x, i64 %x_row, i64 %rows, i64 %rest"


def _solve(w: Words, ending: str) -> Sequence[str]:
    """Solve row by row of x: subtract the previous rows times elements of t; then apply the ``ending``."""
    a = _Code(w)
    a.read_sizes(f"solve_{ending}")
    s = a.sizes
    matrix, strip = (a.let(f"{word} i64 %number, {s['strips']}") for word in ("udiv", "urem"))
    first = a.mul(strip, STRIP_VECTORS * w.lanes)
    t = a.array(0, (matrix, s["t_matrix"]), start=s["t_start"])
    d = a.array(1, (matrix, s["d_matrix"]), start=s["d_start"])
    x = a.array(2, (matrix, s["x_matrix"]), (first, str(w.bytes)), start=s["x_start"])
    given = f"ptr {t}, i64 {s['t_row']}, i64 {s['t_column']}, ptr {d}, i64 {s['d_step']}"
    more = f"i64 {s['x_row']}, i64 {s['rows']}, i64 "
    left = a.sub(s["columns"], first)
    a.choose(a.less(left, str(STRIP_VECTORS * w.lanes)), "part", "whole")
    a.block("whole")
    a.run(f"@strip{STRIP_VECTORS}", given, f"ptr {x}", f"{more}{w.lanes}")
    a.do("ret void")
    a.block("part")

    def vector(column: str, mask: str) -> None:
        place = a.at(x, a.mul(column, w.bytes))
        a.run("@some" if mask else "@strip1", given, f"ptr {place}", more + (a.sub(left, column) if mask else "0"))

    a.row("0", left, vector)
    a.do("ret void")
    strips = [
        _strip(w, ending, n, name) for n, name in ((STRIP_VECTORS, f"strip{STRIP_VECTORS}"), (1, "strip1"), (1, "some"))
    ]
    return (*strips, a.text(_JOB))


def _strip(w: Words, ending: str, vectors: int, name: str) -> str:
    """``vectors`` vectors of columns; ``some`` means only the first ``%rest`` lanes."""
    a = _Code(w)
    mask = w.first_lanes(a, "%rest") if name == "some" else ""
    with a.count("0", "%rows") as r:
        place, line = a.moved("%x", (r, "%x_row")), a.moved("%t", (r, "%t_row"))
        start = [w.load(a, a.at(place, v * w.width), mask) for v in range(vectors)]

        def terms(k: str, line: str = line) -> tuple[str, Iterable[str]]:
            factor = a.negative_spread(a.element(a.moved(line, (k, "%t_column"))))
            other = a.moved("%x", (k, "%x_row"))
            return factor, (w.load(a, a.at(other, v * w.width), mask) for v in range(vectors))

        totals = a.summed("0", r, start, terms)
        if ending != "ones":
            by = spread(a, w, a.element(a.moved("%d", (r, "%d_step"))))
            totals = [a.vectors("fdiv", x, by) if ending == "divided" else a.vectors("fmul", by, x) for x in totals]
        for v, total in enumerate(totals):
            w.store(a, total, a.at(place, v * w.width), mask)
    a.do("ret void")
    return a.text(f"define internal void @{name}({_STRIP}) #0")


# ---- LU


def _exchange(w: Words) -> str:
    """Swap two rows of ``%width`` elements."""
    a = _Code(w)

    def vector(column: str, mask: str) -> None:
        places = [a.at(p, a.mul(column, w.bytes)) for p in ("%a", "%b")]
        first, second = (w.load(a, p, mask) for p in places)
        w.store(a, second, places[0], mask)
        w.store(a, first, places[1], mask)

    a.row("0", "%width", vector)
    a.do("ret void")
    return a.text("define internal void @exchange(ptr %a, ptr %b, i64 %width) #0")


def _largest(w: Words) -> str:
    """Find the first row from ``%step`` on with the largest absolute value of a column, or NaN."""
    a = _Code(w)
    a.go("head")
    a.block("head")
    i = a.phi("i64", {"entry": "%step", "body": "%i.next"})
    best = a.phi(w.element, {"entry": "-1.0", "body": "%best.next"})
    place = a.phi("i64", {"entry": "%step", "body": "%place.next"})
    a.choose(a.less(i, "%rows"), "body", "end")
    a.block("body")
    value = a.scalar("fabs", a.element(a.moved("%column", (i, "%row"))))
    nan = a.both(a.real("fcmp uno", value, value), a.real("fcmp ord", best, best))
    more = a.either(a.real("fcmp ogt", value, best), nan)
    a.let(f"select i1 {more}, {w.element} {value}, {w.element} {best}", "best.next")
    a.let(f"select i1 {more}, i64 {i}, i64 {place}", "place.next")
    a.let(f"add i64 {i}, 1", "i.next")
    a.go("head")
    a.block("end")
    a.do(f"ret i64 {place}")
    return a.text("define internal i64 @largest(ptr %column, i64 %row, i64 %step, i64 %rows) #0")


def _lu(w: Words) -> Sequence[str]:
    """Eliminate a panel: swap a row with the largest element to the top, and subtract its multiples from the rows
    below. Rows are swapped in the panel and in the ``width`` columns of another array."""
    a = _Code(w)
    a.read_sizes("lu")
    s = a.sizes
    p = a.array(0, ("%number", s["p_matrix"]), start=s["p_start"])
    whole = a.array(1, ("%number", s["w_matrix"]), start=s["w_start"])
    pivots = a.array(2, ("%number", s["pivots_matrix"]), start=s["pivots_start"])
    with a.count("0", s["steps"]) as c:
        column, top = a.moved(p, (c, w.bytes)), a.moved(p, (c, s["p_row"]))
        given = (f"ptr {column}", f"i64 {s['p_row']}", f"i64 {c}", f"i64 {s['rows']}")
        best = a.call("i64", "@largest", *given)
        named = a.let(f"trunc i64 {a.add(a.add(best, s['first']), 1)} to i32")
        a.do(f"store i32 {named}, ptr {a.moved(pivots, (c, 4))}, align 4")
        with a.when(a.let(f"icmp ne i64 {best}, {c}")):
            for base, row, width in ((p, s["p_row"], s["columns"]), (whole, s["w_row"], s["width"])):
                a.run("@exchange", *(f"ptr {a.moved(base, (n, row))}" for n in (c, best)), f"i64 {width}")
        pivot = a.element(a.moved(top, (c, w.bytes)))
        divisor = a.choice(a.real("fcmp oeq", pivot, "0.0"), "1.0", pivot)
        begin = a.let(f"and i64 {c}, {-w.lanes}")
        with a.count(a.add(c, 1), s["rows"]) as i:
            line = a.moved(p, (i, s["p_row"]))
            factor = a.real("fdiv", a.element(a.moved(line, (c, w.bytes))), divisor)
            _row_less(a, line, top, factor, (begin, s["columns"], c))
    a.do("ret void")
    return _exchange(w), _largest(w), a.text(_JOB)


def _row_less(a: _Code, line: str, top: str, factor: str, columns: tuple[str, str, str]) -> None:
    """Store the factor at column c, and after it the row minus that multiple of the ``top`` row."""
    (begin, end, c), w = columns, a.w
    kept, less = spread(a, w, factor), a.negative_spread(factor)

    def vector(column: str, mask: str) -> None:
        place, above = (a.at(base, a.mul(column, w.bytes)) for base in (line, top))
        have = w.load(a, place, mask)
        behind, here = a.sides(column, c)
        value = a.lanes(behind, a.fma(less, w.load(a, above, mask), have), a.lanes(here, kept, have))
        w.store(a, value, place, mask)

    a.row(begin, end, vector)


def _swap(w: Words) -> Sequence[str]:
    """Apply the row exchanges of the pivots, row by row."""
    a = _Code(w)
    a.read_sizes("swap")
    s = a.sizes
    x = a.array(0, ("%number", s["x_matrix"]), start=s["x_start"])
    pivots = a.array(1, ("%number", s["pivots_matrix"]), start=s["pivots_start"])
    with a.count("0", s["steps"]) as c:
        named = a.let(f"load i32, ptr {a.moved(pivots, (c, 4))}, align 4")
        other = a.sub(a.let(f"sext i32 {named} to i64"), 1)
        with a.when(a.let(f"icmp ne i64 {other}, {c}")):
            a.run("@exchange", *(f"ptr {a.moved(x, (n, s['x_row']))}" for n in (c, other)), f"i64 {s['width']}")
    a.do("ret void")
    return _exchange(w), a.text(_JOB)


# ---- Cholesky


def _cholesky(w: Words) -> Sequence[str]:
    """The rows of U, with U'U = A, of a block on the diagonal. The lower triangle is undefined."""
    a = _Code(w)
    a.read_sizes("cholesky")
    s = a.sizes
    x = a.array(0, ("%number", s["x_matrix"]), start=s["x_start"])
    info = a.array(1, ("%number", "4"))
    step = a.add(s["x_row"], w.bytes)
    with a.count("0", s["rows"]) as r:
        line, column = a.moved(x, (r, s["x_row"])), a.moved(x, (r, w.bytes))
        begin = a.let(f"and i64 {r}, {-w.lanes}")
        _row_reduced(a, x, line, column, (begin, s["rows"], r))
        pivot = a.element(a.moved(x, (r, step)))
        before = a.let(f"load i32, ptr {info}, align 4")
        fine = a.either(a.real("fcmp ogt", pivot, "0.0"), a.let(f"icmp ne i32 {before}, 0"))
        named = a.let(f"trunc i64 {a.add(a.add(r, s['first']), 1)} to i32")
        a.do(f"store i32 {a.choice(fine, before, named, 'i32')}, ptr {info}, align 4")
        root = spread(a, w, a.scalar("sqrt", pivot))

        def divided(column: str, mask: str, line: str = line, root: str = root, r: str = r) -> None:
            place = a.at(line, a.mul(column, w.bytes))
            _, here = a.sides(column, r)
            w.store(a, a.lanes(here, root, a.vectors("fdiv", w.load(a, place, mask), root)), place, mask)

        a.row(begin, s["rows"], divided)
    a.do("ret void")
    return (a.text(_JOB),)


def _row_reduced(a: _Code, x: str, line: str, column: str, columns: tuple[str, str, str]) -> None:
    """Subtract from the row at ``line`` multiples of the rows before it; the factors are in ``column``."""
    (begin, end, r), w, row = columns, a.w, a.sizes["x_row"]
    wide = STRIP_VECTORS * w.lanes
    many = a.add(begin, a.mul(a.let(f"udiv i64 {a.sub(end, begin)}, {wide}"), wide))

    def reduced(first: str, vectors: int, mask: str) -> None:
        place, others = (a.at(base, a.mul(first, w.bytes)) for base in (line, x))
        start = [w.load(a, a.at(place, v * w.width), mask) for v in range(vectors)]

        def terms(k: str) -> tuple[str, Iterable[str]]:
            factor = a.negative_spread(a.element(a.moved(column, (k, row))))
            other = a.moved(others, (k, row))
            return factor, (w.load(a, a.at(other, v * w.width), mask) for v in range(vectors))

        for v, total in enumerate(a.summed("0", r, start, terms)):
            w.store(a, total, a.at(place, v * w.width), mask)

    with a.count(begin, many, wide) as first:
        reduced(first, STRIP_VECTORS, "")
    a.row(many, end, lambda first, mask: reduced(first, 1, mask))


# ---- reflections


def _reflections(w: Words, columns: int) -> Sequence[str]:
    """Replace a panel's columns by reflections below the diagonal, and R above it; rows have ``columns`` elements."""
    a = _Code(w)
    a.read_sizes("reflections")
    s = a.sizes
    line = columns * w.bytes
    vectors = range(-(-columns // w.lanes))
    x = a.array(0, ("%number", a.mul(s["rows"], line)))
    tau = a.array(1, ("%number", s["tau_matrix"]), start=s["tau_start"])
    kept = a.let(f"alloca [{columns} x {w.element}], align 64")
    with a.count("0", s["steps"]) as c:
        top, below = a.moved(x, (c, line)), a.add(c, 1)
        for v, total in enumerate(_products_below(a, x, c, below, len(vectors), line)):
            w.store(a, total, a.at(kept, v * w.width))
        alpha = a.element(a.moved(top, (c, w.bytes)))
        weight, scale, beta = _factors(a, alpha, a.element(a.moved(kept, (c, w.bytes))))
        a.put(weight, a.moved(tau, (c, w.bytes)))
        by, times, last = (spread(a, w, n) for n in (weight, scale, beta))
        taken = []
        for v in vectors:
            place = a.at(top, v * w.width)
            have = w.load(a, place)
            taken.append(a.vectors("fmul", by, a.fma(w.load(a, a.at(kept, v * w.width)), times, have)))
            behind, here = a.sides(str(v * w.lanes), c)
            value = a.lanes(behind, a.vectors("fsub", have, taken[-1]), a.lanes(here, last, have))
            w.store(a, value, place)
        with a.count(below, s["rows"]) as i:
            row = a.moved(x, (i, line))
            factor = a.real("fmul", a.element(a.moved(row, (c, w.bytes))), scale)
            own, less = spread(a, w, factor), a.negative_spread(factor)
            for v in vectors:
                place = a.at(row, v * w.width)
                have = w.load(a, place)
                behind, here = a.sides(str(v * w.lanes), c)
                w.store(a, a.lanes(behind, a.fma(less, taken[v], have), a.lanes(here, own, have)), place)
    a.do("ret void")
    return (a.text(_JOB),)


def _products_below(a: _Code, x: str, c: str, below: str, vectors: int, line: int) -> list[str]:
    """The products of column c with all columns, over the rows below it, which are ``line`` bytes long."""
    w = a.w

    def terms(i: str) -> tuple[str, Iterable[str]]:
        row = a.moved(x, (i, line))
        factor = spread(a, w, a.element(a.moved(row, (c, w.bytes))))
        return factor, (w.load(a, a.at(row, v * w.width)) for v in range(vectors))

    return a.summed(below, a.sizes["rows"], ["zeroinitializer"] * vectors, terms)


def _factors(a: _Code, alpha: str, rest: str) -> tuple[str, str, str]:
    """Return a reflection's factor, the scale of its vector, and the element of R."""
    none = a.real("fcmp oeq", rest, "0.0")
    norm = a.scalar("sqrt", a.scalar("fma", alpha, alpha, rest))
    beta = a.choice(none, alpha, a.real("fneg", a.scalar("copysign", norm, alpha)))
    weight = a.choice(none, "0.0", a.real("fdiv", a.real("fsub", beta, alpha), beta))
    scale = a.choice(none, "0.0", a.real("fdiv", "1.0", a.real("fsub", alpha, beta)))
    return weight, scale, beta
