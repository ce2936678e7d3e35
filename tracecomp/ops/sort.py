"""``sort`` and ``topk``: stable, with NaN as the greatest value, as in PyTorch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from tracecomp.ir.index import Index, Var, computed, index
from tracecomp.ir.loops import (
    Acc,
    Accumulate,
    Buffer,
    Call,
    Expr,
    If,
    IndexValue,
    Let,
    Load,
    Local,
    Loop,
    Read,
    Stmt,
    Store,
    Update,
    both,
    cast,
    in_range,
)
from tracecomp.ir.op import Imperative, Op, Operands, Sample, Types, register
from tracecomp.ir.scalars import call, const
from tracecomp.ir.types import Shape, TensorType, bool_, compute_dtype, int32, int64
from tracecomp.ops.define import bad, check_axes, of, require
from tracecomp.ops.order import first_ordered, ordered
from tracecomp.ops.prim import prim
from tracecomp.ops.statements import Names, in_pieces, vectors


def _infer(x: TensorType, *, axis: int, descending: bool) -> tuple[TensorType, TensorType]:
    check_axes("sort", (axis,), x.ndim)
    return x, TensorType(int64, x.shape)


def _top_infer(x: TensorType, *, axis: int, count: int, descending: bool) -> tuple[TensorType, TensorType]:
    check_axes("topk", (axis,), x.ndim)
    require(0 <= count <= x.shape[axis], RuntimeError, "selected index k out of range")
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    return TensorType(x.dtype, shape), TensorType(int64, shape)


def _vjp(grads: Operands, outs: Operands, ins: Operands, *, axis: int, **attrs: Any) -> Any:
    g = grads[0]
    zeros = prim.full(like=g, value=0.0, shape=tuple(ins[0].shape), dtype=g.dtype)
    return (prim.scatter(zeros, outs[1], g, axis=axis, mode="set"),)


# Largest number of first elements that are kept in order while the line is read; for more, the line is sorted.
_KEPT = 128
# Elements of a line that are compared together.
_SCANNED = 16
# Lines run in adjacent lanes if there are many and finding their first elements takes few steps.
_BESIDE = 32
_STEPS = 2048
"""Most comparisons of a line for which lines run in lanes."""
# Lines up to this length are sorted by counting, for each element, its predecessors; longer ones by radix.
_BY_RANK = 256
_DIGIT = 256
"""Values of a digit of the radix sort: a byte."""
_BYTES = {"bool": 1, "uint8": 1, "int8": 1, "int16": 2, "int32": 4, "float16": 4, "bfloat16": 4, "float32": 4}


class _Line:
    """One line to sort: integer keys in the wanted order, and a writer of the first ``count`` elements.

    Keys of up to 32 bits share an int64 with the element's position, so that all are different and one move carries
    both.
    """

    def __init__(
        self, names: Names, source: Buffer, outs: Sequence[Buffer], size: int, count: int, descending: bool
    ) -> None:
        self.names, self.source, self.outs, self.size, self.count = names, source, outs, size, count
        self.descending = descending
        self.digits = _BYTES.get(source.dtype.name, 8)
        self.packed = self.digits <= 4
        self.start = self.out = Index()
        self.inner = 1

    def at(self, number: Index) -> None:
        """Select line ``number``."""
        outer, rest = number // self.inner, number % self.inner
        self.start, self.out = outer * (self.size * self.inner) + rest, outer * (self.count * self.inner) + rest

    def let(self, value: Expr, over: Iterable[Var]) -> tuple[Let, Read]:
        name = self.names.let()
        return Let(name, value), Read(name, value.dtype, frozenset(over))

    def order(self, i: Index, over: Iterable[Var]) -> tuple[list[Stmt], Expr]:
        """Statements for, and the order of, element ``i``: small before large; int32 for elements of up to 32 bits."""
        first, x = self.let(Load(self.source, self.start + i * self.inner), over)
        value: Expr = cast(x, compute_dtype(x.dtype))
        if value.dtype.kind == "float":
            value = _ordered_bits(value)
        value = cast(value, int32 if self.packed else int64)
        second, order = self.let(call("not", value) if self.descending else value, over)
        return [first, second], order

    def key(self, i: Index, over: Iterable[Var]) -> tuple[list[Stmt], Expr]:
        """Statements for, and the key of, element ``i``: int64, small before large."""
        over = frozenset(over)
        stmts, order = self.order(i, over)
        value = cast(order, int64)
        if self.packed:
            value = call("or", call("shl", value, const(32, int64)), IndexValue(i))
        last, key = self.let(value, over)
        return [*stmts, last], key

    def digit(self, key: Expr, number: int) -> Expr:
        """Digit ``number`` of a key, the last one biased so that negative keys come first."""
        shifted = call("shr", key, const(8 * number + (32 if self.packed else 0), int64))
        if number == self.digits - 1 and self.source.dtype.signed:
            shifted = call("add", shifted, const(_DIGIT // 2, int64))
        return call("and", shifted, const(_DIGIT - 1, int64))

    def write(self, at: Index, place: Expr, over: Iterable[Var]) -> list[Stmt]:
        """Write the element from ``place`` to position ``at`` of the result."""
        name, where = self.let(cast(place, int64), over)
        value = Load(self.source, self.start + computed(where, (0, self.size - 1)) * self.inner)
        to = self.out + at * self.inner
        wanted = in_range(at, self.count)
        return [name, Store(self.outs[0], to, value, wanted), Store(self.outs[1], to, where, wanted)]


def _ordered_bits(x: Expr) -> Expr:
    """Integers in the order of floats: -0.0 equals 0.0, NaN is the greatest."""
    integer = int32 if x.dtype.itemsize == 4 else int64
    top = 2 ** (8 * x.dtype.itemsize - 1) - 1
    bits: Expr = Call("bitcast", (call("add", x, const(0.0, x.dtype)),), integer)
    sign = call("shr", bits, const(8 * x.dtype.itemsize - 1, integer))
    ordered = call("xor", bits, call("and", sign, const(top, integer)))
    return call("select", call("isnan", x), const(top, integer), ordered)


def _beside(line: _Line, outer: Index, lane: Var) -> list[Stmt]:
    """Sort lines in lanes: every element is compared with those kept so far, and swapped with each that follows it."""
    names, kept = line.names, Buffer("kept", int64, line.count * _BESIDE)
    lanes = frozenset((*outer.vars(), lane))

    def slot(s: Var) -> Index:
        return index(s) * _BESIDE + index(lane)

    first, s, k, last = (names.var(n) for n in (line.count, line.count, line.size, line.count))
    fill = Loop("serial", first, (Store(kept, slot(first), const(2**63 - 1, int64)),))
    stmts, key = line.key(index(k), {k, *lanes})
    passing, have = names.let(), names.let()
    mine, its = Read(passing, int64, lanes | {k}), Read(have, int64, lanes | {k, s})
    step = (
        Let(have, Load(kept, slot(s))), Store(kept, slot(s), call("min", its, mine)),
        Update(passing, (call("max", its, mine),)),
    )  # fmt: skip
    compare = Accumulate((Acc(passing, "set", int64, key),), (Loop("serial", s, step),))
    found = call("and", Load(kept, slot(last)), const(2**32 - 1, int64))
    write = Loop("serial", last, tuple(line.write(index(last), found, {*lanes, last})))
    return [Local(kept), Loop("vector", lane, (fill, Loop("serial", k, (*stmts, compare)), write))]


def _groups(line: _Line, lines: int) -> list[Stmt]:
    """Emit all lines, as many at once as there are lanes."""
    found: list[Stmt] = []
    for number, width, first in ((lines // _BESIDE, _BESIDE, 0), (1, lines % _BESIDE, lines - lines % _BESIDE)):
        if number and width:
            group, lane = line.names.var(number), line.names.var(width)
            outer = index(group) * _BESIDE + first
            line.at(outer + index(lane))
            found.append(Loop("parallel", group, tuple(_beside(line, outer, lane))))
    return found


def _by_rank(line: _Line) -> list[Stmt]:
    """Move each element to the position that is the number of its predecessors."""
    names, size = line.names, line.size
    keys = Buffer("keys", int64, size)
    body: list[Stmt] = [Local(keys)]

    def fill(i: Index) -> list[Stmt]:
        stmts, key = line.key(i, i.vars())
        return [*stmts, Store(keys, i, key)]

    def place(i: Index) -> list[Stmt]:
        j, rank = names.var(size), names.let()
        mine, key = line.let(Load(keys, i), i.vars())
        other, its = line.let(Load(keys, index(j)), (j,))
        before = call("lt", its, key)
        if not line.packed:
            sooner = call("lt", IndexValue(index(j)), IndexValue(i))
            before = call("or", before, call("and", call("eq", its, key), sooner))
        one = call("select", before, const(1, int64), const(0, int64))
        loop = Loop("serial", j, (other, Update(rank, (one,))))
        count = Accumulate((Acc(rank, "add", int64, const(0, int64)),), (loop,))
        at = computed(Read(rank, int64, frozenset(i.vars())), (0, size - 1))
        return [mine, count, *line.write(at, IndexValue(i), i.vars())]

    body += vectors(names, size, fill)
    body += vectors(names, size, place)
    return body


def _by_radix(line: _Line) -> list[Stmt]:
    """Sort digit by digit from the last: count, convert counts to positions, move."""
    names, size, digits = line.names, line.size, line.digits
    counts = Buffer("counts", int64, digits * _DIGIT)
    keys = [Buffer(f"keys{n}", int64, size) for n in range(2)]
    places = [] if line.packed else [Buffer(f"places{n}", int64, size) for n in range(2)]
    body: list[Stmt] = [Local(counts), *map(Local, keys), *map(Local, places)]
    body += vectors(names, counts.size, lambda i: [Store(counts, i, const(0, int64))])
    k = names.var(size)
    stmts, key = line.key(index(k), (k,))
    filling: list[Stmt] = [*stmts, Store(keys[0], index(k), key)]
    filling += [Store(p, index(k), IndexValue(index(k))) for p in places[:1]]
    for d in range(digits):
        filling += _counted(line, counts, d, key, k)[0]
    body.append(Loop("serial", k, tuple(filling)))
    for d in range(digits):
        body.append(_running_places(line, counts, d))
        k = names.var(size)
        first, key = line.let(Load(keys[d % 2], index(k)), (k,))
        counting, to = _counted(line, counts, d, key, k)
        moves: list[Stmt] = [first, *counting, Store(keys[1 - d % 2], to, key)]
        if places:
            moves.append(Store(places[1 - d % 2], to, Load(places[d % 2], index(k))))
        body.append(Loop("serial", k, tuple(moves)))
    last = (places or keys)[digits % 2]
    mask = const(2**32 - 1, int64)

    def write(i: Index) -> list[Stmt]:
        found: Expr = Load(last, i)
        return line.write(i, call("and", found, mask) if line.packed else found, i.vars())

    return [*body, *vectors(names, line.count, write)]


def _counted(line: _Line, counts: Buffer, number: int, key: Expr, k: Var) -> tuple[list[Stmt], Index]:
    """Statements that raise the count of the key's digit by one, and the previous count as an index."""
    digit, at = line.let(line.digit(key, number), (k,))
    place = computed(at, (0, _DIGIT - 1)) + number * _DIGIT
    have, count = line.let(Load(counts, place), (k,))
    raised = Store(counts, place, call("add", count, const(1, int64)))
    return [digit, have, raised], computed(count, (0, line.size - 1))


def _running_places(line: _Line, counts: Buffer, number: int) -> Stmt:
    """Convert counts of one digit to the positions where its values start."""
    b, total = line.names.var(_DIGIT), line.names.let()
    sofar = Read(total, int64, frozenset((b,)))
    have, count = line.let(Load(counts, index(b) + number * _DIGIT), (b,))
    before, start = line.let(sofar, (b,))
    store = Store(counts, index(b) + number * _DIGIT, start)
    body = (have, before, store, Update(total, (call("add", start, count),)))
    return Accumulate((Acc(total, "set", int64, const(0, int64)),), (Loop("serial", b, body),))


class _Kept:
    """The first ``count`` elements in order so far: their orders, after a sentinel that precedes all, and positions."""

    def __init__(self, line: _Line) -> None:
        self.line = line
        dtype = int32 if line.packed else int64
        self.orders = Buffer("orders", dtype, line.count + 1)
        self.places = Buffer("places", int32, line.count + 1)
        self.before_all = const(-(2 ** (8 * dtype.itemsize - 1)), dtype)
        self.last = Load(self.orders, Index(const=line.count))

    def declared(self) -> list[Stmt]:
        def fill(i: Index) -> list[Stmt]:
            return [Store(self.orders, i, self.before_all), Store(self.places, i, const(0, int32))]

        return [Local(self.orders), Local(self.places), *vectors(self.line.names, self.orders.size, fill)]

    def insert(self, order: Expr, place: Index, filled: Index | None = None) -> Stmt:
        """Insert an element after those that do not follow it; the others move up, the last one is dropped.

        ``filled``: the number of kept elements; all of them by default.
        """
        slot = self.line.names.var(self.line.count)
        i = index(slot)

        def stays(at: Index) -> Expr:
            known = None if filled is None else call("lt", IndexValue(at - 1), IndexValue(filled))
            found = both(call("le", Load(self.orders, at), order), known)
            assert found is not None
            return found

        first, here = self.line.let(stays(i + 1), (slot,))
        second, below = self.line.let(stays(i), (slot,))
        stmts: list[Stmt] = [first, second]
        for buffer, new in ((self.orders, order), (self.places, cast(IndexValue(place), int32))):
            entering = call("select", below, new, Load(buffer, i))
            moved, value = self.line.let(call("select", here, Load(buffer, i + 1), entering), (slot,))
            stmts += [moved, Store(buffer, i + 1, value)]
        return Loop("vector", slot, tuple(stmts))


def _by_insertion(line: _Line) -> list[Stmt]:
    """Read a line once; a chunk without a predecessor of the last kept element is skipped.

    An element goes after its equals, so they stay in their old order.
    """
    names, kept = line.names, _Kept(line)
    k = names.var(line.count)
    stmts, order = line.order(index(k), (k,))
    body = [*kept.declared(), Loop("serial", k, (*stmts, kept.insert(order, index(k), index(k))))]
    scan = partial(_scan, line, kept)
    body += in_pieces(names, line.size - line.count, _SCANNED, scan, first=line.count)
    return [*body, *vectors(names, line.count, lambda i: line.write(i, Load(kept.places, i + 1), i.vars()))]


def _scan(line: _Line, kept: _Kept, start: Index, size: int) -> list[Stmt]:
    """Insert those of ``size`` elements that precede the last kept one."""
    lane, one, some = line.names.var(size), line.names.var(size), line.names.let()
    stmts, order = line.order(start + index(lane), (*start.vars(), lane))
    update = Update(some, (call("lt", order, kept.last),))
    loop = Loop("vector", lane, (*stmts, update))
    test = Accumulate((Acc(some, "or", bool_, const(False, bool_), _SCANNED),), (loop,))
    place = start + index(one)
    stmts, order = line.order(place, place.vars())
    insert = If(call("lt", order, kept.last), (kept.insert(order, place),))
    found = Read(some, bool_, frozenset(start.vars()))
    return [test, If(found, (Loop("serial", one, (*stmts, insert)),))]


def _statements(
    ins: Sequence[Buffer], outs: Sequence[Buffer], in_types: Sequence[TensorType], out_types: Types,
    *, axis: int, descending: bool, count: int | None = None,
) -> list[Stmt]:  # fmt: skip
    """Every line along ``axis`` in order, or the first ``count`` elements of it."""
    shape, names = in_types[0].shape, Names()
    if in_types[0].numel == 0 or count == 0:
        return []
    size = shape[axis] if shape else 1
    count = size if count is None else count
    line = _Line(names, ins[0], outs, size, count, descending)
    for n in shape[axis + 1 :]:
        line.inner *= n
    lines = in_types[0].numel // size
    if line.packed and lines >= _BESIDE and size * count <= _STEPS:
        return _groups(line, lines)
    number = names.var(lines)
    line.at(index(number))
    if count < size and count <= _KEPT:
        body = _by_insertion(line)
    else:
        body = _by_rank(line) if size <= _BY_RANK else _by_radix(line)
    return [Loop("parallel", number, tuple(body))]


_SHAPES: tuple[tuple[Shape, int], ...] = (
    ((7,), 0), ((2, 5, 3), 1), ((3, 33), 1), ((0, 3), 0), ((2, 0), 1), ((3, 1), 1), ((2, 300, 2), 1),
)  # fmt: skip
_MANY = (((40, 9), 1), ((3, 6, 13), 1))
_DTYPES = (
    ("f32", "any"), ("f64", "any"), ("f64", "special"), ("f16", "special"), ("i64", "any"), ("u8", "any"),
    ("b1", "any"),
)  # fmt: skip

register(
    Op(
        name="sort", kind="sort", doc="values along axis in order, and where they were; stable, NaN greatest",
        infer=_infer, impl=ordered, vjp=_vjp, saves=("outs",), loop=Imperative(_statements),
        attrs={"axis": int, "descending": bool},
        samples=tuple(
            Sample(((s, d, domain),), {"axis": axis, "descending": down})
            for some, shapes in ((_DTYPES, _SHAPES), (_DTYPES[::3], _MANY))
            for d, domain in some for s, axis in shapes for down in (False, True)
        ),
        errors=(
            bad(IndexError, "out of range", of("f32", 3), axis=1, descending=False),
        ),
    )
)  # fmt: skip

_COUNTS = (((7,), 0, 3), ((2, 5, 3), 1, 5), ((3, 90), 1, 7), ((3, 0), 1, 0), ((2, 300, 2), 1, 40), ((2, 300), 1, 150))

register(
    Op(
        name="topk", kind="sort", doc="the first count of sort's results along axis",
        infer=_top_infer, impl=first_ordered, vjp=_vjp, saves=("outs",), loop=Imperative(_statements),
        attrs={"axis": int, "count": int, "descending": bool},
        samples=tuple(
            Sample(((s, d, domain),), {"axis": axis, "count": count, "descending": down})
            for some, counts in ((_DTYPES, _COUNTS), (_DTYPES[::3], [(s, axis, 4) for s, axis in _MANY]))
            for d, domain in some for s, axis, count in counts for down in (False, True)
        ),
        errors=(
            bad(IndexError, "out of range", of("f32", 3), axis=1, count=1, descending=False),
            bad(RuntimeError, "selected index k out of range", of("f32", 3), axis=0, count=4, descending=False),
        ),
    )
)  # fmt: skip
