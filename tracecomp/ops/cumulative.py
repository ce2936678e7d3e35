"""Running sums, products and extremes along one axis: totals of float32 in float64, of half types in float32."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from tracecomp.ir.arrays import Array
from tracecomp.ir.index import Index, index
from tracecomp.ir.loops import (
    Acc,
    Accumulate,
    Buffer,
    Const,
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
from tracecomp.ir.op import BadInput, Imperative, Op, Operand, Operands, Sample, Types, register
from tracecomp.ir.scalars import call, const
from tracecomp.ir.types import (
    DType,
    Shape,
    TensorType,
    bool_,
    complex64,
    complex128,
    compute_dtype,
    float32,
    float64,
    from_numpy_dtype,
    int64,
)
from tracecomp.ops.define import bad, check_axes, check_dtype, of, require
from tracecomp.ops.parts import each
from tracecomp.ops.prim import prim
from tracecomp.ops.reduction import shift
from tracecomp.ops.statements import CHUNK, Names, in_pieces, vectors

AT_ONCE = 4
"""Lines that run together, unrolled: each waits for its previous addition, and four of them fill that latency."""
# Adjacent lines that run together, if that leaves a few chunks of them to share: memory favours long runs.
WIDE, SHARES = (256, 128), 4
# Elements of a row that one test checks for a new extreme.
EXTREME_BLOCK = 32
# Elements of a row per thread: shorter runs of memory are not prefetched, and more totals leave the cache.
PART = 4096

_SHAPES: tuple[tuple[Shape, int], ...] = (
    ((5,), 0), ((2, 3, 4), 1), ((3, 70), 1), ((4, 3), 0), ((0, 3), 0), ((2, 0), 0), ((3, 1), 1),
)  # fmt: skip


def _samples(domain: str, *more: str) -> tuple[Sample, ...]:
    found = [
        Sample(((shape, short, domain),), {"axis": axis})
        for short in ("f32", "f64", "f16", "i64", "i32", *more)
        for shape, axis in _SHAPES
    ]
    return (*found, *(Sample((((2, 12), s, "special"),), {"axis": 1}) for s in ("f32", "f64")))


def _errors(name: str) -> tuple[BadInput, ...]:
    return (
        BadInput(Sample((((3,), "f32", "any"),), {"axis": 1}), IndexError, "Dimension out of range"),
        BadInput(Sample((((3,), "b1", "any"),), {"axis": 0}), RuntimeError, f'"{name}" not implemented for'),
    )


def lines(
    names: Names, shape: Shape, axis: int, body: Callable[[Callable[[Index], Index]], Sequence[Stmt]]
) -> list[Stmt]:
    """Emit ``body(at)`` for every line along ``axis``, where ``at(k)`` is the flat offset of the line's k-th element.

    Adjacent lines run as SIMD lanes. Other lines run a few at once, because each is a chain of dependent steps. Threads
    share lines.
    """
    outer, size, inner = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
    if inner == 0:
        return []

    def along(block: Index) -> Callable[[Index], Sequence[Stmt]]:
        return lambda lane: body(lambda k: (block * size + k) * inner + lane)

    if outer == 1 and inner > 1:
        chunk = next((c for c in WIDE if inner >= SHARES * c), CHUNK)
        return vectors(names, inner, along(Index()), "parallel", chunk)
    if inner > 1:
        block = names.var(outer)
        return [Loop("parallel", block, tuple(vectors(names, inner, along(index(block)))))]

    def several(start: Index, count: int) -> list[Stmt]:
        one = names.var(count)
        return [Loop("tile", one, tuple(along(start + index(one))(Index())))]

    return in_pieces(names, outer, AT_ONCE, several, "parallel")


def running_dtype(dtype: DType) -> DType:
    """The type of running sums and products, as in PyTorch: float64 for float32, so that the error is one rounding for
    any number of terms; float32 for half types."""
    return {float32: float64, complex64: complex128}.get(dtype) or compute_dtype(dtype)


def _in_rows(names: Names, op: str, x: Buffer, out: Buffer, first: Const, shape: Shape, axis: int) -> list[Stmt]:
    """Run adjacent lines, one step of a stripe of them at a time: memory without gaps."""
    inner = math.prod(shape[axis + 1 :])
    found: list[Stmt] = []
    for stripes, width, offset in ((inner // PART, PART, 0), (1, inner % PART, inner - inner % PART)):
        if stripes and width:
            both = names.var(math.prod(shape[:axis]) * stripes)
            start = index(both) // stripes * (shape[axis] * inner) + index(both) % stripes * width + offset
            found.append(Loop("parallel", both, _stripe(names, op, x, out, first, start, shape[axis], inner, width)))
    return found


def _stripe(
    names: Names, op: str, x: Buffer, out: Buffer, first: Const, start: Index, size: int, inner: int, width: int
) -> tuple[Stmt, ...]:
    """Run the given number of lines that start at ``start``, with ``inner`` elements between steps."""
    totals, k = Buffer(names.let(), first.dtype, width), names.var(size)
    row = start + index(k) * inner

    def step(i: Index) -> list[Stmt]:
        total = call(op, Load(totals, i), cast(Load(x, row + i), first.dtype))
        name = names.let()  # separate in whole chunks and in the remainder
        known = Read(name, first.dtype, frozenset((row + i).vars()))
        return [Let(name, total), Store(totals, i, known), Store(out, row + i, cast(known, out.dtype))]

    fill = vectors(names, width, lambda i: [Store(totals, i, first)])
    return (Local(totals), *fill, Loop("serial", k, tuple(vectors(names, width, step))))


def _running(op: str, identity: Callable[[DType], Const]) -> Imperative:
    """Totals after every step, kept in accumulators for a few lines, in memory for many."""

    def statements(
        ins: Sequence[Buffer], outs: Sequence[Buffer], in_types: Sequence[TensorType], out_types: Types, *, axis: int
    ) -> list[Stmt]:
        names, dtype, shape = Names(), in_types[0].dtype, in_types[0].shape
        wide = running_dtype(dtype)
        if math.prod(shape[axis + 1 :]) > WIDE[0] and in_types[0].numel:
            return _in_rows(names, op, ins[0], outs[0], identity(wide), shape, axis)

        def line(at: Callable[[Index], Index]) -> list[Stmt]:
            k, name = names.var(shape[axis]), names.let()
            place = at(index(k))
            step = (
                Update(name, (cast(Load(ins[0], place), wide),)),
                Store(outs[0], place, cast(Read(name, wide), dtype)),
            )
            return [Accumulate((Acc(name, op, wide, identity(wide)),), (Loop("serial", k, step),))]

        return lines(names, shape, axis, line)

    return Imperative(statements)


def _wide(ufunc: np.ufunc) -> Callable[..., Any]:
    def impl(x: Array, *, axis: int) -> Any:
        wide = running_dtype(from_numpy_dtype(x.dtype)).numpy
        with np.errstate(over="ignore", invalid="ignore"):
            found = ufunc.accumulate(x.astype(wide, copy=False), axis=axis, dtype=wide)
            return found.astype(x.dtype, copy=False)

    return impl


def _infer(name: str, dtypes: str = "number") -> Callable[..., TensorType]:
    def infer(x: TensorType, *, axis: int) -> TensorType:
        check_dtype(name, (x,), dtypes)
        check_axes(name, (axis,), x.ndim)
        return x

    return infer


def _backwards(x: Operand, axis: int) -> Any:
    """Sums of all elements from each position to the end."""
    return prim.flip(prim.cumsum(prim.flip(x, axes=(axis,)), axis=axis), axes=(axis,))


def _recurrence_infer(a: TensorType, b: TensorType, *, axis: int) -> TensorType:
    check_dtype("recurrence", (a, b), "float")
    check_axes("recurrence", (axis,), a.ndim)
    require(a.shape == b.shape, RuntimeError, f"recurrence: {a} and {b} must have one shape")
    return a


def _recurrence_impl(a: Array, b: Array, *, axis: int) -> Any:
    wide = compute_dtype(from_numpy_dtype(a.dtype)).numpy
    factors, terms = (np.moveaxis(x.astype(wide, copy=False), axis, 0) for x in (a, b))
    result, total = np.empty_like(terms), np.zeros(terms.shape[1:], wide)
    for k in range(len(terms)):
        total = result[k] = factors[k] * total + terms[k]
    return np.moveaxis(result, 0, axis).astype(a.dtype, copy=False)


def _recurrence_loop(
    ins: Sequence[Buffer], outs: Sequence[Buffer], in_types: Sequence[TensorType], out_types: Types, *, axis: int
) -> list[Stmt]:
    names, dtype = Names(), in_types[0].dtype
    wide = compute_dtype(dtype)

    def line(at: Callable[[Index], Index]) -> list[Stmt]:
        k, name = names.var(in_types[0].shape[axis]), names.let()
        place = at(index(k))
        a, b = (cast(Load(x, place), wide) for x in ins)
        total = call("add", call("mul", a, Read(name, wide)), b)
        step = (Update(name, (total,)), Store(outs[0], place, cast(Read(name, wide), dtype)))
        return [Accumulate((Acc(name, "set", wide, const(0.0, wide)),), (Loop("serial", k, step),))]

    return lines(names, in_types[0].shape, axis, line) if in_types[0].numel else []


def _recurrence_back(a: Operand, g: Operand, axis: int) -> Any:
    """``s[k] = g[k] + a[k + 1] * s[k + 1]``, zero past the end."""
    turned = (prim.flip(x, axes=(axis,)) for x in (shift(a, -1, 0.0, axis), g))
    return prim.flip(prim.recurrence(*turned, axis=axis), axes=(axis,))


def _recurrence_vjp(grads: Operands, outs: Operands, ins: Operands, *, axis: int) -> Any:
    if 0 in ins[0].shape:
        return grads[0], grads[0]
    reached = _recurrence_back(ins[0], grads[0], axis)
    return prim.mul(reached, shift(outs[0], 1, 0.0, axis)), reached


def _cumprod_vjp(grads: Operands, outs: Operands, ins: Operands, *, axis: int) -> Any:
    """Product of the elements before, times a recurrence over those after; zeros need no division."""
    x = ins[0]
    if 0 in x.shape:
        return (grads[0],)
    before = shift(prim.cumprod(x, axis=axis), 1, 1.0, axis)
    return (prim.mul(before, _recurrence_back(x, grads[0], axis)),)


register(
    Op(
        name="cumsum", kind="cumulative", doc="running sum along axis", infer=_infer("cumsum", "ring"),
        impl=_wide(np.add),
        parts=each("cumsum"),
        vjp=lambda g, o, i, *, axis: (_backwards(g[0], axis),), saves=(),
        loop=_running("add", lambda t: const(-0.0 if t.kind == "float" else 0, t)), attrs={"axis": int},
        samples=_samples("any", "c64", "c128"), errors=_errors("cumsum"),
    )
)  # fmt: skip

register(
    Op(
        name="cumprod", kind="cumulative", doc="running product along axis", infer=_infer("cumprod"),
        impl=_wide(np.multiply), vjp=_cumprod_vjp, saves=(0,),
        loop=_running("mul", lambda t: const(1.0 if t.kind == "float" else 1, t)), attrs={"axis": int},
        samples=_samples("any"), errors=_errors("cumprod"),
    )
)  # fmt: skip


register(
    Op(
        name="recurrence", kind="cumulative", doc="s[k] = a[k] * s[k - 1] + b[k] along axis, from s[-1] = 0",
        infer=_recurrence_infer, impl=_recurrence_impl, vjp=_recurrence_vjp, saves=(0, "outs"),
        loop=Imperative(_recurrence_loop), attrs={"axis": int},
        samples=tuple(
            Sample(((shape, short, "unit"), (shape, short, "any")), {"axis": axis})
            for short in ("f32", "f64", "f16") for shape, axis in _SHAPES
        ),
        errors=(
            bad(IndexError, "Dimension out of range", of("f32", 3), of("f32", 3), axis=1),
            bad(RuntimeError, "must have one shape", of("f32", 3), of("f32", 4), axis=0),
        ),
    )
)  # fmt: skip


def _extreme_infer(name: str) -> Callable[..., tuple[TensorType, TensorType]]:
    def infer(x: TensorType, *, axis: int) -> tuple[TensorType, TensorType]:
        check_dtype(name, (x,), "number")
        check_axes(name, (axis,), x.ndim)
        return x, TensorType(int64, x.shape)

    return infer


def _extreme_impl(ufunc: np.ufunc) -> Callable[..., Any]:
    def impl(x: Array, *, axis: int) -> Any:
        values = ufunc.accumulate(x, axis=axis)
        hit = (x == values) | np.isnan(x)
        place = np.arange(x.shape[axis]).reshape([-1 if i == axis else 1 for i in range(x.ndim)])
        return values, np.maximum.accumulate(np.where(hit, place, 0), axis=axis)

    return impl


class _Extremes:
    """The loops of cummax and cummin. The last of equal extremes is chosen; after a NaN only another NaN is."""

    def __init__(self, better: str, ins: Sequence[Buffer], outs: Sequence[Buffer], dtype: DType) -> None:
        self.better, self.dtype, self.names = better, dtype, Names()
        self.x, (self.values, self.places) = ins[0], outs
        self.name()

    def name(self) -> None:
        """Choose new names for the extreme and its position: lines of full chunks and of the remainder differ."""
        self.value, self.place = self.names.let(), self.names.let()
        self.best, self.found = Read(self.value, self.dtype), Read(self.place, int64)

    def takes(self, x: Expr) -> Expr:
        """Whether ``x`` is a new extreme."""
        take: Expr = call(self.better, x, self.best)
        if self.dtype.kind == "float":
            take = call("or", call("isnan", x), call("and", call("not", call("isnan", self.best)), take))
        return take

    def keep(self, at: Index) -> tuple[Stmt, ...]:
        return Store(self.values, at, self.best), Store(self.places, at, self.found)

    def running(self, first: Index, body: Sequence[Stmt]) -> Accumulate:
        """Run ``body`` with the extreme so far, which starts as the element at ``first``."""
        value = Acc(self.value, "set", self.dtype, Load(self.x, first))
        return Accumulate((value, Acc(self.place, "set", int64, const(0, int64))), tuple(body))

    def line(self, at: Callable[[Index], Index], size: int) -> list[Stmt]:
        """One line, step by step."""
        self.name()
        k = self.names.var(size)
        x = Load(self.x, at(index(k)))
        step = (
            Update(self.place, (call("select", self.takes(x), IndexValue(index(k)), self.found),)),
            Update(self.value, (call("select", self.takes(x), x, self.best),)),
            *self.keep(at(index(k))),
        )
        return [self.running(at(Index()), [Loop("serial", k, step)])]

    def row(self, start: Index, size: int) -> list[Stmt]:
        """Run one line whose elements are contiguous, piece by piece."""
        return [self.running(start, in_pieces(self.names, size, EXTREME_BLOCK, partial(self._piece, start)))]

    def _piece(self, start: Index, first: Index, count: int) -> list[Stmt]:
        """Run elements of a row: skipped if none of them is a new extreme, as usual, else step by step."""
        lane, i, other = (self.names.var(count) for _ in range(3))
        some = self.names.let()
        x = Load(self.x, start + first + index(i))
        test = Loop("vector", lane, (Update(some, (self.takes(Load(self.x, start + first + index(lane))),)),))
        taken = (Update(self.place, (IndexValue(first + index(i)),)), Update(self.value, (x,)))
        steps = Loop("serial", i, (If(self.takes(x), taken), *self.keep(start + first + index(i))))
        lanes = 1 << (count - 1).bit_length()
        same = Loop("vector", other, self.keep(start + first + index(other)))
        return [
            Accumulate((Acc(some, "or", bool_, Const(False, bool_), lanes),), (test,)),
            If(Read(some, bool_), (steps,)),
            If(call("not", Read(some, bool_)), (same,)),
        ]


def _extreme_loop(better: str) -> Imperative:
    def statements(
        ins: Sequence[Buffer], outs: Sequence[Buffer], in_types: Sequence[TensorType], out_types: Types, *, axis: int
    ) -> list[Stmt]:
        shape = in_types[0].shape
        if not in_types[0].numel:
            return []
        loops = _Extremes(better, ins, outs, in_types[0].dtype)
        if math.prod(shape[axis + 1 :]) > 1 or shape[axis] < EXTREME_BLOCK:
            return lines(loops.names, shape, axis, lambda at: loops.line(at, shape[axis]))
        number = loops.names.var(math.prod(shape[:axis]))
        return [Loop("parallel", number, tuple(loops.row(index(number) * shape[axis], shape[axis])))]

    return Imperative(statements)


def _extreme_vjp(grads: Operands, outs: Operands, ins: Operands, *, axis: int) -> Any:
    g = grads[0]
    zeros = prim.full(like=g, value=0.0, shape=tuple(g.shape), dtype=g.dtype)
    return (prim.scatter(zeros, outs[1], g, axis=axis, mode="add"),)


for _name, _doc, _ufunc, _better in (
    ("cummax", "running maximum along axis and where it was last met", np.maximum, "ge"),
    ("cummin", "running minimum along axis and where it was last met", np.minimum, "le"),
):
    register(
        Op(
            name=_name, kind="cumulative", doc=_doc, infer=_extreme_infer(_name), impl=_extreme_impl(_ufunc),
            vjp=_extreme_vjp, saves=("outs",), loop=_extreme_loop(_better), attrs={"axis": int},
            samples=_samples("any"), errors=_errors(_name),
        )
    )  # fmt: skip
