"""``sort``: stable, with NaN as the greatest value, as in PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tracecomp.ir.index import Index, computed, index
from tracecomp.ir.loops import (
    Acc,
    Accumulate,
    Buffer,
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
    cast,
)
from tracecomp.ir.op import Imperative, Op, Sample, register
from tracecomp.ir.scalars import call, const
from tracecomp.ir.types import Shape, TensorType, int64
from tracecomp.ops.define import bad, check_axes, of
from tracecomp.ops.prim import prim
from tracecomp.ops.statements import Names


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


def _before(a: Expr, b: Expr, descending: bool) -> Expr:
    """Whether ``a`` must stand before an earlier ``b``."""
    if a.dtype.kind != "float":
        return call("gt" if descending else "lt", a, b)
    first, second = (a, b) if descending else (b, a)
    nan = call("and", call("isnan", first), call("not", call("isnan", second)))
    return call("or", nan, call("gt" if descending else "lt", a, b))


class _MergeSort:
    """Bottom-up merge sort of one line's indices, from one buffer to another and back; keys stay where they are."""

    def __init__(self, names: Names, key: Callable[[Index], Load], size: int, descending: bool) -> None:
        self.names, self.key, self.size, self.descending = names, key, size, descending

    def pass_(self, source: Callable[[Index], Load], store: Callable[[Index, Expr], Stmt], width: int) -> Stmt:
        """Merge neighbouring runs of ``width`` from ``source``."""
        run = self.names.var(-(-self.size // (2 * width)))
        k = self.names.var(2 * width)
        base = index(run) * (2 * width)
        left, right = self.names.let(), self.names.let()
        i, j = Read(left, int64, frozenset((k,))), Read(right, int64, frozenset((k,)))
        middle, end = self._stop(base + width), self._stop(base + 2 * width)
        has_left, has_right = call("lt", i, middle), call("lt", j, end)
        at_left, at_right = (computed(p, (0, self.size - 1)) for p in (i, j))
        first, second = self._named(source(at_left), has_left), self._named(source(at_right), has_right)
        keys = [self.key(computed(named[1], (0, self.size - 1))) for named in (first, second)]
        sooner = _before(keys[1], keys[0], self.descending)
        take = self.names.let()
        from_right = Read(take, sooner.dtype, frozenset((run, k)))
        body: tuple[Stmt, ...] = (
            first[0],
            second[0],
            Let(take, call("and", has_right, call("or", call("not", has_left), sooner))),
            store(base + index(k), call("select", from_right, second[1], first[1])),
            Update(left, (call("add", i, call("select", from_right, const(0, int64), const(1, int64))),)),
            Update(right, (call("add", j, call("select", from_right, const(1, int64), const(0, int64))),)),
        )
        inside = call("lt", IndexValue(base + index(k)), const(self.size, int64))
        accs = (
            Acc(left, "set", int64, IndexValue(base)),
            Acc(right, "set", int64, IndexValue(base + width)),
        )
        return Loop("serial", run, (Accumulate(accs, (Loop("serial", k, (If(inside, body),)),)),))

    def _stop(self, end: Index) -> Expr:
        return call("min", IndexValue(end), const(self.size, int64))

    def _named(self, load: Load, where: Expr) -> tuple[Let, Read]:
        name = self.names.let()
        return Let(name, Load(load.buffer, load.offset, where)), Read(name, int64, frozenset(load.vars()))


def _statements(
    ins: Sequence[Buffer], outs: Sequence[Buffer], in_types: Sequence[TensorType], out_types: Any,
    *, axis: int, descending: bool,
) -> list[Stmt]:  # fmt: skip
    shape, names = in_types[0].shape, Names()
    if in_types[0].numel == 0:
        return []
    size = shape[axis]
    inner = 1
    for n in shape[axis + 1 :]:
        inner *= n
    line = names.var(in_types[0].numel // size)
    start = index(line) // inner * (size * inner) + index(line) % inner
    scratch = Buffer("scratch", int64, size)
    sort = _MergeSort(names, lambda i: Load(ins[0], start + i * inner), size, descending)
    # places 0 and 1 of a ping-pong; after the last pass the order must be in the result, place 0
    reads: list[Callable[[Index], Load]] = [lambda i: Load(outs[1], start + i * inner), lambda i: Load(scratch, i)]
    writes: list[Callable[[Index, Expr], Stmt]] = [
        lambda i, v: Store(outs[1], start + i * inner, v),
        lambda i, v: Store(scratch, i, v),
    ]
    widths = [1 << p for p in range((size - 1).bit_length())]
    at = len(widths) % 2
    k = names.var(size)
    body: list[Stmt] = [Local(scratch), Loop("serial", k, (writes[at](index(k), IndexValue(index(k))),))]
    for width in widths:
        body.append(sort.pass_(reads[at], writes[1 - at], width))
        at = 1 - at
    k = names.var(size)
    order = computed(cast(reads[0](index(k)), int64), (0, size - 1))
    body.append(Loop("serial", k, (Store(outs[0], start + index(k) * inner, Load(ins[0], start + order * inner)),)))
    return [Loop("parallel", line, tuple(body))]


_SHAPES: tuple[tuple[Shape, int], ...] = (
    ((7,), 0), ((2, 5, 3), 1), ((3, 33), 1), ((0, 3), 0), ((2, 0), 1), ((3, 1), 1),
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
