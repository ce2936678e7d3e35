"""``searchsorted``: binary search, with PyTorch's steps, so that unsorted sequences and NaN give the same results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracecomp.ir.arrays import Array
from tracecomp.ir.index import Index, computed
from tracecomp.ir.loops import Acc, Accumulate, Buffer, Const, Expr, Let, Load, Loop, Read, Stmt, Store, Update
from tracecomp.ir.op import Imperative, Op, Sample, Types, register
from tracecomp.ir.scalars import call
from tracecomp.ir.types import Shape, TensorType, bool_, int64
from tracecomp.ops.define import bad, check_dtype, of, require
from tracecomp.ops.statements import Names, vectors


def _infer(sequence: TensorType, values: TensorType, *, right: bool) -> TensorType:
    check_dtype("searchsorted", (sequence, values), "number")
    leads = sequence.shape[:-1], values.shape[:-1]
    require(
        sequence.ndim > 0 and sequence.ndim == values.ndim and leads[0] == leads[1],
        RuntimeError,
        f"searchsorted: the first dimensions of {sequence} and {values} must match",
    )
    return TensorType(int64, values.shape)


def _impl(sequence: Array, values: Array, *, right: bool) -> Any:
    size = sequence.shape[-1]
    start, end = np.zeros(values.shape, np.int64), np.full(values.shape, size, np.int64)
    for _ in range(size.bit_length()):
        middle = (start + end) >> 1
        found = np.take_along_axis(sequence, np.minimum(middle, size - 1), -1)
        after = found > values if right else found >= values
        searching = start < end
        start = np.where(searching & ~after, middle + 1, start)
        end = np.where(searching & after, middle, end)
    return start


def _statements(
    ins: Sequence[Buffer], outs: Sequence[Buffer], in_types: Sequence[TensorType], out_types: Types, *, right: bool
) -> list[Stmt]:
    names, size, count = Names(), in_types[0].shape[-1], in_types[1].shape[-1] if in_types[1].ndim else 1

    def value(i: Index) -> list[Stmt]:
        over = frozenset(i.vars())
        lets = {name: names.let() for name in ("wanted", "start", "end", "middle", "after", "searching")}
        dtypes = {"wanted": in_types[1].dtype, "after": bool_, "searching": bool_}
        wanted, start, end, middle, after, searching = (
            Read(name, dtypes.get(meaning, int64), over) for meaning, name in lets.items()
        )
        one = Const(1, int64)
        place = computed(call("min", middle, Const(max(size - 1, 0), int64)), (0, max(size - 1, 0)))
        step = (
            Let(lets["middle"], call("shr", call("add", start, end), one)),
            Let(lets["after"], call("gt" if right else "ge", Load(ins[0], i // count * size + place), wanted)),
            Let(lets["searching"], call("lt", start, end)),
            Update(lets["start"], (_where(searching, call("not", after), call("add", middle, one), start),)),
            Update(lets["end"], (_where(searching, after, middle, end),)),
        )
        accs = tuple(Acc(lets[n], "set", int64, Const(first, int64)) for n, first in (("start", 0), ("end", size)))
        halving = Loop("serial", names.var(size.bit_length()), step)
        return [Let(lets["wanted"], Load(ins[1], i)), Accumulate(accs, (halving,)), Store(outs[0], i, start)]

    return vectors(names, in_types[1].numel, value, "parallel") if in_types[1].numel else []


def _where(first: Expr, second: Expr, new: Expr, old: Expr) -> Expr:
    return call("select", call("and", first, second), new, old)


_SHAPES: tuple[tuple[Shape, Shape], ...] = (
    ((7,), (5,)), ((1,), (3,)), ((300,), (90,)), ((0,), (3,)), ((4,), (0,)), ((2, 3, 9), (2, 3, 4)), ((2, 16), (2, 70)),
)  # fmt: skip

register(
    Op(
        name="searchsorted", kind="sort", doc="indices where inserted values keep the last axis of a sequence sorted",
        infer=_infer, impl=_impl, loop=Imperative(_statements), attrs={"right": bool},
        samples=tuple(
            Sample(((s, d, domain), (v, d, domain)), {"right": right})
            for d, domain in (("f32", "any"), ("f64", "special"), ("f16", "any"), ("i64", "any"), ("u8", "any"))
            for s, v in _SHAPES for right in (False, True)
        ),
        errors=(
            bad(RuntimeError, "must match", of("f32", 2, 3), of("f32", 3, 3), right=False),
            bad(RuntimeError, "one dtype", of("f32", 3), of("f64", 3), right=False),
        ),
    )
)  # fmt: skip
