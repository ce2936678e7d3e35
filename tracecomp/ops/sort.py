"""``sort``: stable, with NaN as the greatest value, as in PyTorch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tracecomp.ir.index import Index, Var, computed, index
from tracecomp.ir.loops import (
    Acc,
    Accumulate,
    Buffer,
    Call,
    Expr,
    IndexValue,
    Let,
    Load,
    Local,
    Loop,
    Read,
    Stmt,
    Store,
    Update,
    cast,
)
from tracecomp.ir.op import Imperative, Op, Sample, register
from tracecomp.ir.scalars import call, const
from tracecomp.ir.types import Shape, TensorType, compute_dtype, int32, int64
from tracecomp.ops.define import bad, check_axes, of
from tracecomp.ops.prim import prim
from tracecomp.ops.statements import Names, vectors


def _infer(x: TensorType, *, axis: int, descending: bool) -> tuple[TensorType, TensorType]:
    check_axes("sort", (axis,), x.ndim)
    return x, TensorType(int64, x.shape)


def _impl(x: Any, *, axis: int, descending: bool) -> Any:
    if descending:
        flipped = np.flip(x, axis)
        order = x.shape[axis] - 1 - np.flip(np.argsort(flipped, axis=axis, kind="stable"), axis)
    else:
        order = np.argsort(x, axis=axis, kind="stable")
    return np.take_along_axis(x, order, axis), order.astype(np.int64, copy=False)


def _vjp(grads: Any, outs: Any, ins: Any, *, axis: int, descending: bool) -> Any:
    g = grads[0]
    zeros = prim.full(like=g, value=0.0, shape=tuple(g.shape), dtype=g.dtype)
    return (prim.scatter(zeros, outs[1], g, axis=axis, mode="set"),)


# Lines up to this length are sorted by counting, for each element, those before it; longer ones by radix.
_BY_RANK = 256
_DIGIT = 256
_BYTES = {"bool": 1, "uint8": 1, "int8": 1, "int16": 2, "int32": 4, "float16": 4, "bfloat16": 4, "float32": 4}


class _Line:
    """One line to sort: integer keys that stand in the wanted order, and how to write the result.

    Keys of up to 32 bits share an int64 with the element's place, so that all are different and one move carries both.
    """

    def __init__(self, names: Names, source: Buffer, outs: Sequence[Buffer], size: int, descending: bool) -> None:
        self.names, self.source, self.outs, self.size = names, source, outs, size
        self.descending = descending
        self.digits = _BYTES.get(source.dtype.name, 8)
        self.packed = self.digits <= 4
        self.start = Index()
        self.inner = 1

    def let(self, value: Expr, over: Iterable[Var]) -> tuple[Let, Read]:
        name = self.names.let()
        return Let(name, value), Read(name, value.dtype, frozenset(over))

    def key(self, i: Index, over: Iterable[Var]) -> tuple[list[Stmt], Expr]:
        """Statements for, and the key of, element ``i``: int64, small before large."""
        over = frozenset(over)
        first, x = self.let(Load(self.source, self.start + i * self.inner), over)
        value: Expr = cast(x, compute_dtype(x.dtype))
        if value.dtype.kind == "float":
            value = _ordered_bits(value)
        value = cast(value, int64)
        if self.descending:
            value = call("not", value)
        if self.packed:
            value = call("or", call("shl", value, const(32, int64)), IndexValue(i))
        second, key = self.let(value, over)
        return [first, second], key

    def digit(self, key: Expr, number: int) -> Expr:
        """Digit ``number`` of a key, the last one such that negative keys come first."""
        shifted = call("shr", key, const(8 * number + (32 if self.packed else 0), int64))
        if number == self.digits - 1 and self.source.dtype.signed:
            shifted = call("add", shifted, const(_DIGIT // 2, int64))
        return call("and", shifted, const(_DIGIT - 1, int64))

    def write(self, at: Index, place: Expr, over: Iterable[Var]) -> list[Stmt]:
        """Put the element that stood at ``place`` to position ``at`` of the result."""
        name, where = self.let(place, over)
        value = Load(self.source, self.start + computed(where, (0, self.size - 1)) * self.inner)
        to = self.start + at * self.inner
        return [name, Store(self.outs[0], to, value), Store(self.outs[1], to, where)]


def _ordered_bits(x: Expr) -> Expr:
    """Integers in the order of floats: -0.0 equals 0.0, NaN is the greatest."""
    integer = int32 if x.dtype.itemsize == 4 else int64
    top = 2 ** (8 * x.dtype.itemsize - 1) - 1
    bits: Expr = Call("bitcast", (call("add", x, const(0.0, x.dtype)),), integer)
    sign = call("shr", bits, const(8 * x.dtype.itemsize - 1, integer))
    ordered = call("xor", bits, call("and", sign, const(top, integer)))
    return call("select", call("isnan", x), const(top, integer), ordered)


def _by_rank(line: _Line) -> list[Stmt]:
    """Each element goes to the position that is the number of elements before it."""
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
        to = line.start + at * line.inner
        value = Load(line.source, line.start + i * line.inner)
        return [mine, count, Store(line.outs[0], to, value), Store(line.outs[1], to, IndexValue(i))]

    body += vectors(names, size, fill)
    body += vectors(names, size, place)
    return body


def _by_radix(line: _Line) -> list[Stmt]:
    """Digit by digit from the last: count, turn counts into places, move."""
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

    return [*body, *vectors(names, size, write)]


def _counted(line: _Line, counts: Buffer, number: int, key: Expr, k: Var) -> tuple[list[Stmt], Index]:
    """Statements that raise the count of the key's digit by one, and the count before as an index."""
    digit, at = line.let(line.digit(key, number), (k,))
    place = computed(at, (0, _DIGIT - 1)) + number * _DIGIT
    have, count = line.let(Load(counts, place), (k,))
    raised = Store(counts, place, call("add", count, const(1, int64)))
    return [digit, have, raised], computed(count, (0, line.size - 1))


def _running_places(line: _Line, counts: Buffer, number: int) -> Stmt:
    """Counts of one digit become the places where its values start."""
    b, total = line.names.var(_DIGIT), line.names.let()
    sofar = Read(total, int64, frozenset((b,)))
    have, count = line.let(Load(counts, index(b) + number * _DIGIT), (b,))
    before, start = line.let(sofar, (b,))
    store = Store(counts, index(b) + number * _DIGIT, start)
    body = (have, before, store, Update(total, (call("add", start, count),)))
    return Accumulate((Acc(total, "set", int64, const(0, int64)),), (Loop("serial", b, body),))


def _statements(
    ins: Sequence[Buffer], outs: Sequence[Buffer], in_types: Sequence[TensorType], out_types: Any,
    *, axis: int, descending: bool,
) -> list[Stmt]:  # fmt: skip
    shape, names = in_types[0].shape, Names()
    if in_types[0].numel == 0:
        return []
    size = shape[axis] if shape else 1
    line = _Line(names, ins[0], outs, size, descending)
    for n in shape[axis + 1 :]:
        line.inner *= n
    number = names.var(in_types[0].numel // size)
    line.start = index(number) // line.inner * (size * line.inner) + index(number) % line.inner
    body = _by_rank(line) if size <= _BY_RANK else _by_radix(line)
    return [Loop("parallel", number, tuple(body))]


_SHAPES: tuple[tuple[Shape, int], ...] = (
    ((7,), 0), ((2, 5, 3), 1), ((3, 33), 1), ((0, 3), 0), ((2, 0), 1), ((3, 1), 1), ((2, 300, 2), 1),
)  # fmt: skip
_DTYPES = (
    ("f32", "any"), ("f64", "any"), ("f64", "special"), ("f16", "special"), ("i64", "any"), ("u8", "any"),
    ("b1", "any"),
)  # fmt: skip

register(
    Op(
        name="sort", kind="sort", doc="values along axis in order, and where they were; stable, NaN greatest",
        infer=_infer, impl=_impl, vjp=_vjp, saves=("outs",), loop=Imperative(_statements),
        attrs={"axis": int, "descending": bool},
        samples=tuple(
            Sample(((s, d, domain),), {"axis": axis, "descending": down})
            for d, domain in _DTYPES for s, axis in _SHAPES for down in (False, True)
        ),
        errors=(
            bad(IndexError, "out of range", of("f32", 3), axis=1, descending=False),
        ),
    )
)  # fmt: skip
