"""``pad``, ``concat`` and ``slice_update``: a result put together from regions of its operands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from tracecomp.ir.arrays import Array, new_array
from tracecomp.ir.index import Index, index
from tracecomp.ir.loops import Call, Const, Expr, IndexValue, both, in_range
from tracecomp.ir.op import Attrs, Indexed, Op, Operands, Pair, Position, ReadElement, Reads, Sample, Types, register
from tracecomp.ir.scalars import call
from tracecomp.ir.types import Shape, TensorType, bool_, int64
from tracecomp.ops.define import bad, check_axes, of, require
from tracecomp.ops.parts import each
from tracecomp.ops.prim import prim
from tracecomp.ops.view import SAMPLE_DTYPES, slice_shape

Ints: TypeAlias = tuple[int, ...]


def spread_size(n: int, interior: int) -> int:
    """Size of an axis after ``interior`` elements are inserted between neighbours."""
    return n + max(n - 1, 0) * interior


def _padded(shape: Shape, low: Ints, high: Ints, interior: Ints) -> Shape:
    return tuple(a + spread_size(n, i) + b for n, a, b, i in zip(shape, low, high, interior, strict=True))


def _pad_infer(x: TensorType, *, low: Ints, high: Ints, interior: Ints, value: float) -> TensorType:
    require(
        len(low) == len(high) == len(interior) == x.ndim and all(i >= 0 for i in interior),
        RuntimeError,
        f"pad: low {low}, high {high} and interior {interior} do not describe the axes of {x}",
    )
    shape = _padded(x.shape, low, high, interior)
    require(
        all(n >= 0 for n in shape),
        RuntimeError,
        f"The input size {list(x.shape)}, plus negative padding {low} and {high}, resulted in a negative output size "
        f"{list(shape)}, which is invalid",
    )
    return TensorType(x.dtype, shape)


def _pad_impl(x: Array, *, low: Ints, high: Ints, interior: Ints, value: float) -> Any:
    spread = tuple(spread_size(n, i) for n, i in zip(x.shape, interior, strict=True))
    whole = np.full(tuple(max(a, 0) + n + max(b, 0) for n, a, b in zip(spread, low, high, strict=True)), value, x.dtype)
    whole[tuple(slice(max(a, 0), max(a, 0) + n, i + 1) for n, a, i in zip(spread, low, interior, strict=True))] = x
    return whole[tuple(slice(max(-a, 0), n - max(-b, 0)) for n, a, b in zip(whole.shape, low, high, strict=True))]


def regular(at: Index, start: int, step: int, size: int) -> tuple[Index, Expr | None]:
    """Return the position of ``at`` in ``start + step * range(size)``, and the condition that it is one."""
    moved = index(at) - start
    place = moved // step
    inside = in_range(place, size)
    if step == 1:
        return place, inside
    on_grid = Call("eq", (IndexValue(moved % step), Const(0, int64)), bool_)
    return place, both(on_grid, inside)


def inside_or(read: ReadElement, place: list[Index], condition: Expr | None, otherwise: Expr) -> Expr:
    """The operand's element if the condition holds; a position outside the operand is not read."""
    found: Expr = read(tuple(place))
    return found if condition is None else call("select", condition, found, otherwise)


def _pad_loop(
    at: Position, out: TensorType, reads: Reads, in_types: Types, *, low: Ints, high: Ints, interior: Ints, value: float
) -> Expr:
    found = [regular(i, a, s + 1, n) for i, a, s, n in zip(at, low, interior, in_types[0].shape, strict=True)]
    fill = Const(out.dtype.python(value), out.dtype)
    return inside_or(reads[0], [p for p, _ in found], both(*(c for _, c in found)), fill)


def _pad_parts(x: Pair, *, value: complex, **where: Any) -> Pair:
    return Pair(prim.pad(x.re, value=value.real, **where), prim.pad(x.im, value=value.imag, **where))


def _pad_vjp(
    grads: Operands, outs: Operands, ins: Operands, *, low: Ints, high: Ints, interior: Ints, value: float
) -> Any:
    shape = tuple(ins[0].shape)
    zeros = (0,) * len(shape)
    if 0 in shape:
        return (prim.full(like=grads[0], value=0.0, shape=shape, dtype=grads[0].dtype),)
    undo = prim.pad(grads[0], low=tuple(-a for a in low), high=tuple(-b for b in high), interior=zeros, value=0.0)
    return (prim.slice(undo, starts=zeros, stops=tuple(undo.shape), steps=tuple(i + 1 for i in interior)),)


_PADS: tuple[tuple[Shape, Ints, Ints, Ints], ...] = (
    ((3,), (1,), (2,), (0,)), ((2, 3), (1, 0), (0, 2), (1, 2)), ((4,), (-1,), (-2,), (0,)), ((3,), (-1,), (2,), (1,)),
    ((), (), (), ()), ((0,), (2,), (1,), (1,)), ((2, 0), (1, 0), (0, 3), (0, 0)),
)  # fmt: skip

register(
    Op(
        name="pad", kind="pad", doc="value around (low, high; negative: cut off) and between (interior) the elements",
        infer=_pad_infer, impl=_pad_impl, vjp=_pad_vjp, saves=(), loop=Indexed(_pad_loop),
        parts=_pad_parts,
        attrs={"low": tuple, "high": tuple, "interior": tuple, "value": object},
        samples=tuple(
            Sample(((s, d, "any"),), {"low": a, "high": b, "interior": i, "value": v})
            for d, v in (("f32", 0.0), ("f64", 2.0), ("f16", -1.5), ("i64", 7), ("b1", True), ("c64", 1.5),
                         ("c128", 1j))
            for s, a, b, i in _PADS
        ),
        errors=(
            bad(RuntimeError, "negative output size", of("f32", 3), low=(-4,), high=(0,), interior=(0,), value=0.0),
            bad(RuntimeError, "do not describe", of("f32", 3), low=(1, 1), high=(0,), interior=(0,), value=0.0),
        ),
    )
)  # fmt: skip


def _concat_infer(*types: TensorType, axis: int) -> TensorType:
    require(bool(types), ValueError, "concat: expected a non-empty list of Tensors")
    first = types[0]
    check_axes("concat", (axis,), first.ndim)
    for k, t in enumerate(types):
        require(t.dtype is first.dtype, RuntimeError, f"concat: expected operands of one dtype, got {first} and {t}")
        require(
            (*t.shape[:axis], *t.shape[axis + 1 :]) == (*first.shape[:axis], *first.shape[axis + 1 :]),
            RuntimeError,
            f"Sizes of tensors must match except in dimension {axis}. Expected {first} but got {t} for tensor number "
            f"{k} in the list.",
        )
    total = sum(t.shape[axis] for t in types)
    return TensorType(first.dtype, (*first.shape[:axis], total, *first.shape[axis + 1 :]))


def _concat_impl(*xs: Array, axis: int) -> Any:
    shape = (*xs[0].shape[:axis], sum(x.shape[axis] for x in xs), *xs[0].shape[axis + 1 :])
    return np.concatenate(xs, axis, out=new_array(shape, xs[0].dtype))


_CHAIN = 32
"""Operands up to which a concatenation selects by a chain; one of 400 exceeded Python's recursion limit."""


def _concat_loop(at: Position, out: TensorType, reads: Reads, in_types: Types, *, axis: int) -> Expr:
    """A chain of selects, in which operand k applies below its end; of many operands, a balanced tree of chains."""
    at = list(at)
    starts = [0]
    for t in in_types:
        starts.append(starts[-1] + t.shape[axis])
    parts = [k for k, t in enumerate(in_types) if t.shape[axis]]

    def value(k: int) -> Expr:
        own = index(at[axis]) - starts[k] if in_types[k].shape[axis] > 1 else Index()
        return reads[k]((*at[:axis], own, *at[axis + 1 :]))

    def choice(parts: Sequence[int]) -> Expr:
        # Expressions are walked recursively: a chain of all operands would be as deep as there are.
        cut = 1 if len(parts) <= _CHAIN else len(parts) // 2
        first, rest = parts[:cut], parts[cut:]
        if not rest:
            return value(first[0])
        below = Call("lt", (IndexValue(index(at[axis])), Const(starts[first[-1] + 1], int64)), bool_)
        return call("select", below, choice(first), choice(rest))

    return choice(parts) if parts else Const(out.dtype.python(0), out.dtype)


def _concat_vjp(grads: Operands, outs: Operands, ins: Operands, *, axis: int) -> Any:
    g = grads[0]
    shape = tuple(g.shape)
    found, start = [], 0
    for x in ins:
        stop = start + x.shape[axis]
        found.append(
            prim.slice(
                g,
                starts=tuple(start if i == axis else 0 for i in range(len(shape))),
                stops=tuple(stop if i == axis else n for i, n in enumerate(shape)),
                steps=(1,) * len(shape),
            )
        )
        start = stop
    return found


register(
    Op(
        name="concat", kind="concat", doc="operands one after another along axis",
        infer=_concat_infer, impl=_concat_impl, vjp=_concat_vjp, saves=(),
        parts=each("concat"),
        loop=Indexed(_concat_loop), attrs={"axis": int},
        samples=tuple(
            Sample(tuple((s, d, "any") for s in shapes), {"axis": axis})
            for d in SAMPLE_DTYPES
            for axis, shapes in ((0, ((2,), (3,))), (1, ((2, 1), (2, 3), (2, 2))), (0, ((2, 3),)),
                                 (0, ((0, 2), (1, 2))), (1, ((2, 3, 2), (2, 0, 2), (2, 1, 2))), (0, ((0,), (0,))))
        ),
        errors=(
            bad(RuntimeError, "must match except in dimension", of("f32", 2, 3), of("f32", 2, 4), axis=0),
            bad(RuntimeError, "one dtype", of("f32", 2), of("f64", 2), axis=0),
            bad(IndexError, "out of range", of("f32", 2), axis=1),
        ),
    )
)  # fmt: skip


def _update_infer(base: TensorType, new: TensorType, *, starts: Ints, stops: Ints, steps: Ints) -> TensorType:
    require(
        base.dtype is new.dtype, RuntimeError, f"slice_update: expected operands of one dtype, got {base} and {new}"
    )
    inside = len(starts) == len(stops) == len(steps) == base.ndim and all(
        0 <= a <= b <= n and s > 0 for a, b, s, n in zip(starts, stops, steps, base.shape, strict=True)
    )
    require(inside, IndexError, f"slice_update: {starts}, {stops}, {steps} is not a slice of {base}")
    require(
        slice_shape(starts, stops, steps) == new.shape,
        RuntimeError,
        f"slice_update: the slice {starts}, {stops}, {steps} of {base} does not have the shape of {new}",
    )
    return base


def _update_impl(base: Array, new: Array, *, starts: Ints, stops: Ints, steps: Ints) -> Any:
    result: Any = np.array(base)
    result[(*map(slice, starts, stops, steps), ...)] = new
    return result


def _update_loop(
    at: Position, out: TensorType, reads: Reads, in_types: Types, *, starts: Ints, stops: Ints, steps: Ints
) -> Expr:
    found = [regular(i, a, s, n) for i, a, s, n in zip(at, starts, steps, in_types[1].shape, strict=True)]
    condition = both(*(c for _, c in found))
    return inside_or(reads[1], [p for p, _ in found], condition, reads[0](tuple(at)))


def _update_vjp(grads: Operands, outs: Operands, ins: Operands, *, starts: Ints, stops: Ints, steps: Ints) -> Any:
    g = grads[0]
    zeros = prim.full(like=g, value=0.0, shape=tuple(ins[1].shape), dtype=g.dtype)
    where: Attrs = {"starts": starts, "stops": stops, "steps": steps}
    return prim.slice_update(g, zeros, **where), prim.slice(g, **where)


register(
    Op(
        name="slice_update", kind="scatter", doc="base with the elements of a slice replaced by new",
        infer=_update_infer, impl=_update_impl, vjp=_update_vjp, saves=(), loop=Indexed(_update_loop),
        parts=each("slice_update"),
        attrs={"starts": tuple, "stops": tuple, "steps": tuple},
        samples=tuple(
            Sample(((base, d, "any"), (slice_shape(a, b, s), d, "any")), {"starts": a, "stops": b, "steps": s})
            for d in SAMPLE_DTYPES
            for base, a, b, s in (((5,), (1,), (4,), (1,)), ((4, 6), (1, 0), (3, 6), (1, 3)), ((), (), (), ()),
                                  ((3,), (2,), (2,), (1,)), ((2, 3), (0, 0), (2, 3), (1, 1)))
        ),
        errors=(
            bad(RuntimeError, "have the shape", of("f32", 5), of("f32", 2), starts=(0,), stops=(3,), steps=(1,)),
            bad(IndexError, "is not a slice", of("f32", 5), of("f32", 6), starts=(0,), stops=(6,), steps=(1,)),
        ),
    )
)  # fmt: skip
