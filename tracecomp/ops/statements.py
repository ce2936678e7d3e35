"""Loop IR statements for operators that no index form describes, and the small helpers they are built with."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count

from tracecomp.ir.index import Index, Var, computed, index, linear, unravel
from tracecomp.ir.loops import (
    Acc,
    Accumulate,
    Buffer,
    Check,
    Const,
    Expr,
    If,
    Let,
    Load,
    Loop,
    Read,
    Stmt,
    Store,
    Update,
)
from tracecomp.ir.pieces import pieces
from tracecomp.ir.scalars import call
from tracecomp.ir.types import Shape, TensorType, bool_, int64

# Elements per vector loop in hand-written statements: a few SIMD registers of the widest target.
CHUNK = 64

_SCALAR = {"add": "add", "mul": "mul", "max": "max", "min": "min"}
_ON_BOOL = {"add": "or", "mul": "and", "max": "or", "min": "and"}


class Names:
    """Fresh names for the loop variables and lets of one kernel."""

    def __init__(self) -> None:
        self._numbers = count()

    def var(self, extent: int) -> Var:
        return Var(f"i{next(self._numbers)}", extent)

    def let(self) -> str:
        return f"t{next(self._numbers)}"


def nest(
    names: Names, shape: Shape, body: Callable[[tuple[Index, ...]], Sequence[Stmt]], shared: int = 0
) -> list[Stmt]:
    """Loops over ``shape``, outermost first, around ``body(position)``; threads share the first ``shared``, joined into
    one loop."""
    count, variables = names.var(math.prod(shape[:shared])), tuple(names.var(n) for n in shape[shared:])
    first = unravel(index(count), shape[:shared]) if shared else ()
    inner = tuple(body((*first, *map(index, variables))))
    for v in reversed(variables):
        inner = (Loop("serial", v, inner),)
    return [Loop("parallel", count, inner)] if shared else list(inner)


def repeated(
    names: Names, extent: int, length: int, kind: str = "serial", first: int = 0
) -> Iterator[tuple[Index, int, Callable[[Sequence[Stmt]], list[Stmt]]]]:
    """Yield (start, length, repetition): the full pieces of an extent that begins at ``first``, in a loop of ``kind``;
    then the remainder."""
    for p in pieces(extent, length, first):
        if p.length < length:
            yield Index(const=p.first), p.length, list
        else:
            number = names.var(p.count)
            yield p.start(index(number)), length, partial(_looped, kind, number)


def _looped(kind: str, var: Var, body: Sequence[Stmt]) -> list[Stmt]:
    return [Loop(kind, var, tuple(body))]


def in_pieces(
    names: Names, extent: int, length: int, body: Callable[[Index, int], Sequence[Stmt]], kind: str = "serial",
    first: int = 0,
) -> list[Stmt]:  # fmt: skip
    """Emit ``body(start, length)`` for all pieces of an extent that begins at ``first``."""
    return [s for start, n, repeat in repeated(names, extent, length, kind, first) for s in repeat(body(start, n))]


def vectors(
    names: Names, size: int, body: Callable[[Index], Sequence[Stmt]], kind: str = "serial", chunk: int = CHUNK
) -> list[Stmt]:
    """Emit ``body(i)`` for i below ``size``: full chunks by vector loops, then the remainder by one shorter vector
    loop."""

    def part(start: Index, count: int) -> list[Stmt]:
        lane = names.var(count)
        return [Loop("vector", lane, tuple(body(start + index(lane))))]

    return in_pieces(names, size, chunk, part, kind)


def copy(names: Names, source: Buffer, target: Buffer) -> list[Stmt]:
    """``target = source``, element by element, split among threads."""
    return vectors(names, target.size, lambda i: [Store(target, i, Load(source, i))], kind="parallel")


def combine(mode: str, have: Expr, new: Expr) -> Expr:
    """``have`` combined with ``new`` as the scatter mode says."""
    if mode == "set":
        return new
    return call((_ON_BOOL if have.dtype is bool_ else _SCALAR)[mode], have, new)


def indexed(
    names: Names, size: int, at: Callable[[Index], Load], limit: int, body: Callable[[Index, Index], Sequence[Stmt]]
) -> list[Stmt]:
    """Emit ``body(i, index at i)`` for i below ``size``, in order.

    Vectors check the indices of each chunk first. A chunk with an index outside ``range(limit)`` is skipped, since the
    call has failed.
    """

    def chunk(start: Index, count: int) -> list[Stmt]:
        lane, i = names.var(count), names.var(count)
        given, raw, place, good = names.let(), names.let(), names.let(), names.let()
        loaded = at(start + index(lane))
        value = Read(given, int64, frozenset(loaded.vars()))
        inside = call("and", call("ge", value, Const(0, int64)), call("lt", value, Const(limit, int64)))
        test = Loop("vector", lane, (Let(given, loaded), Update(good, (inside,))))
        lanes = 1 << (count - 1).bit_length()
        fine = Read(good, bool_, frozenset(loaded.vars()) - {lane})
        here = start + index(i)
        # another thread may have changed the index since the check
        again, last = Read(raw, int64, frozenset(at(here).vars())), Const(max(limit - 1, 0), int64)
        near = call("min", call("max", again, Const(0, int64)), last)
        known = computed(Read(place, int64, frozenset(at(here).vars())), (0, max(limit - 1, 0)))
        each = Loop("serial", i, (Let(raw, at(here)), Let(place, near), *body(here, known)))
        return [
            Accumulate((Acc(good, "and", bool_, Const(True, bool_), lanes),), (test,)),
            Check(fine),
            If(fine, (each,)),
        ]

    return in_pieces(names, size, CHUNK, chunk)


def written(
    names: Names, base: Buffer, at: Buffer, out: Buffer, limit: int, shape: Shape, axis: int,
    row: Callable[[tuple[Index, ...]], Sequence[Stmt]],
) -> list[Stmt]:  # fmt: skip
    """Compute ``out`` from ``base`` by ``row(position)`` for each of ``shape``, in order, at the positions ``at``.

    In the memory of ``base`` only if all are in range. Rows that differ before ``axis`` are disjoint.
    """
    if base != out:
        return [*copy(names, base, out), *nest(names, shape, row, min(axis, len(shape)))]
    good = names.let()

    def test(i: Index) -> list[Stmt]:
        given = names.let()  # separate in whole chunks and in the remainder
        value = Read(given, int64, frozenset(i.vars()))
        inside = call("and", call("ge", value, Const(0, int64)), call("lt", value, Const(limit, int64)))
        return [Let(given, Load(at, i)), Update(good, (inside,))]

    lanes = min(CHUNK, 1 << (at.size - 1).bit_length()) if at.size else 1
    fine = Read(good, bool_, frozenset())
    tests = tuple(vectors(names, at.size, test))
    acc = Acc(good, "and", bool_, Const(True, bool_), lanes)
    return [Accumulate((acc,), tests), Check(fine), If(fine, tuple(nest(names, shape, row)))]


def scatter_statements(
    ins: Sequence[Buffer], outs: Sequence[Buffer], in_types: Sequence[TensorType], out_types: Sequence[TensorType],
    *, axis: int, mode: str,
) -> list[Stmt]:  # fmt: skip
    """Copy the base; then, source element by source element in row-major order, combine it in."""
    names, (base, at, src), out = Names(), ins, outs[0]
    whole, shape = in_types[0].shape or (1,), in_types[1].shape or (1,)

    def row(lead: tuple[Index, ...]) -> list[Stmt]:
        start = linear((*lead, Index()), shape)

        def element(i: Index, place: Index) -> list[Stmt]:
            position = (*lead, i)
            target = linear((*position[:axis], place, *position[axis + 1 :]), whole)
            return [Store(out, target, combine(mode, Load(out, target), Load(src, start + i)))]

        return indexed(names, shape[-1], lambda i: Load(at, start + i), whole[axis], element)

    return written(names, base, at, out, whole[axis], shape[:-1], axis, row)


def put_statements(
    ins: Sequence[Buffer], outs: Sequence[Buffer], in_types: Sequence[TensorType], out_types: Sequence[TensorType],
    *, axis: int, mode: str,
) -> list[Stmt]:  # fmt: skip
    """Copy the base; then combine whole slices of the source, in order of the index, by vectors along the last axes."""
    names, (base, at, src), out = Names(), ins, outs[0]
    whole, shape = in_types[0].shape, in_types[1].shape
    inner = 1
    for n in whole[axis + 1 :]:
        inner *= n

    listed = shape or (1,)

    def row(position: tuple[Index, ...]) -> list[Stmt]:
        lead, where = position[:axis], position[axis:]
        start = linear((*where, Index()), listed)

        def slice_at(i: Index, place: Index) -> list[Stmt]:
            source = linear((*position, i), (*whole[:axis], *listed)) * inner
            target = linear((*lead, place), whole[: axis + 1]) * inner

            def element(k: Index) -> list[Stmt]:
                return [Store(out, target + k, combine(mode, Load(out, target + k), Load(src, source + k)))]

            return vectors(names, inner, element)

        return indexed(names, listed[-1], lambda i: Load(at, start + i), whole[axis], slice_at)

    return written(names, base, at, out, whole[axis], (*whole[:axis], *listed[:-1]), axis, row)
