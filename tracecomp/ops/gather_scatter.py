"""Reading and writing at computed indices: ``take``/``put`` by one index tensor along an axis, ``gather``/``scatter``
element by element. Indices are int64 and non-negative (callers normalise negative ones); an invalid one raises
IndexError."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tracecomp.ir.arrays import Array
from tracecomp.ir.loops import Expr, index_from
from tracecomp.ir.op import (
    BadInput,
    Imperative,
    Indexed,
    Op,
    Operand,
    Operands,
    Position,
    Reads,
    Sample,
    Types,
    register,
)
from tracecomp.ir.types import Shape, TensorType, int64
from tracecomp.ops.define import bad, check_axes, of, require
from tracecomp.ops.parts import each
from tracecomp.ops.prim import Primitive, prim
from tracecomp.ops.statements import put_statements, scatter_statements
from tracecomp.ops.view import SAMPLE_DTYPES

MODES = ("set", "add", "mul", "max", "min")


def _check_index(name: str, index_type: TensorType) -> None:
    require(index_type.dtype is int64, IndexError, f"{name}(): Expected dtype int64 for index, got {index_type}")


def _check_range(name: str, places: Array, size: int, axis: int) -> None:
    if places.size and (places.min() < 0 or places.max() >= size):
        bad = places[(places < 0) | (places >= size)].flat[0]
        require(False, IndexError, f"{name}: index {bad} is out of bounds for dimension {axis} with size {size}")


def _take_infer(x: TensorType, at: TensorType, *, axis: int) -> TensorType:
    _check_index("take", at)
    check_axes("take", (axis,), x.ndim)
    return TensorType(x.dtype, (*x.shape[:axis], *at.shape, *x.shape[axis + 1 :]))


def _take_impl(x: Array, at: Array, *, axis: int) -> Any:
    _check_range("take", np.asarray(at), x.shape[axis], axis)
    return np.take(x, at, axis=axis)


def _take_loop(at: Position, out: TensorType, reads: Reads, in_types: Types, *, axis: int) -> Expr:
    rank = in_types[1].ndim
    place = index_from(reads[1](tuple(at[axis : axis + rank])), in_types[0].shape[axis])
    found: Expr = reads[0]((*at[:axis], place, *at[axis + rank :]))
    return found


def _zeros(like: Operand, shape: Shape) -> Any:
    return prim.full(like=like, value=0.0, shape=tuple(shape), dtype=like.dtype)


def _take_vjp(grads: Operands, outs: Operands, ins: Operands, *, axis: int) -> Any:
    return prim.put(_zeros(grads[0], ins[0].shape), ins[1], grads[0], axis=axis, mode="add"), None


_TAKES: tuple[tuple[Shape, Shape, int], ...] = (
    ((5,), (3,), 0), ((5, 3), (2, 2), 0), ((2, 5, 3), (4,), 1), ((2, 5), (), 1), ((4, 2), (0,), 0), ((0, 3), (0,), 0),
)  # fmt: skip

register(
    Op(
        name="take", kind="gather", doc="x at index along axis; index's axes replace axis",
        infer=_take_infer, impl=_take_impl, vjp=_take_vjp, saves=(1,), loop=Indexed(_take_loop),
        parts=each("take"), attrs={"axis": int},
        samples=tuple(
            Sample(((x, d, "any"), (i, "i64", f"index:{x[axis]}")), {"axis": axis})
            for d in SAMPLE_DTYPES for x, i, axis in _TAKES
        ),
        errors=(
            bad(IndexError, "int64", of("f32", 3), of("i32", 2, domain="index:3"), axis=0),
            bad(IndexError, "out of range", of("f32", 3), of("i64", 2, domain="index:3"), axis=1),
            bad(IndexError, "out of bounds", of("f32", 3), of("i64", 2, domain="outside:3"), axis=0),
        ),
    )
)  # fmt: skip


def _check_elementwise(name: str, x: TensorType, at: TensorType, axis: int) -> None:
    _check_index(name, at)
    check_axes(name, (axis,), max(x.ndim, 1))
    require(
        x.ndim == at.ndim,
        RuntimeError,
        f"{name}: Index tensor must have the same number of dimensions as input tensor: {at}, {x}",
    )
    fits = all(i == axis or n <= m for i, (n, m) in enumerate(zip(at.shape, x.shape, strict=True)))
    require(fits, RuntimeError, f"{name}: Size does not match: index {at} is larger than {x} apart from axis {axis}")


def _gather_infer(x: TensorType, at: TensorType, *, axis: int) -> TensorType:
    _check_elementwise("gather", x, at, axis)
    return TensorType(x.dtype, at.shape)


def _corner(shape: Shape, axis: int) -> tuple[slice, ...]:
    """The part of an operand that an index of ``shape`` reaches."""
    return tuple(slice(None) if i == axis else slice(n) for i, n in enumerate(shape))


def _gather_impl(x: Array, at: Array, *, axis: int) -> Any:
    if x.ndim == 0:
        _check_range("gather", np.asarray(at), 1, axis)
        return np.array(x)
    at = np.array(at)  # another thread may change the index after the check
    _check_range("gather", at, x.shape[axis], axis)
    return np.take_along_axis(x[_corner(at.shape, axis)], at, axis)


def _gather_loop(at: Position, out: TensorType, reads: Reads, in_types: Types, *, axis: int) -> Expr:
    if not at:
        found: Expr = reads[0](())
        return found
    place = index_from(reads[1](tuple(at)), in_types[0].shape[axis])
    found = reads[0]((*at[:axis], place, *at[axis + 1 :]))
    return found


def _gather_vjp(grads: Operands, outs: Operands, ins: Operands, *, axis: int) -> Any:
    return prim.scatter(_zeros(grads[0], ins[0].shape), ins[1], grads[0], axis=axis, mode="add"), None


_GATHERS: tuple[tuple[Shape, Shape, int], ...] = (
    ((5,), (3,), 0), ((4, 3), (2, 3), 0), ((4, 3), (2, 7), 1), ((3, 4, 2), (2, 5, 1), 1), ((4, 2), (0, 2), 0),
)  # fmt: skip

register(
    Op(
        name="gather", kind="gather", doc="x at index[p] along axis, and at p along the others, for every place p",
        infer=_gather_infer, impl=_gather_impl, vjp=_gather_vjp, saves=(1,), loop=Indexed(_gather_loop),
        parts=each("gather"), attrs={"axis": int},
        samples=tuple(
            Sample(((x, d, "any"), (i, "i64", f"index:{x[axis]}")), {"axis": axis})
            for d in SAMPLE_DTYPES for x, i, axis in _GATHERS
        ),
        errors=(
            bad(IndexError, "int64", of("f32", 3), of("i32", 2, domain="index:3"), axis=0),
            bad(RuntimeError, "same number", of("f32", 3, 2), of("i64", 2, domain="index:2"), axis=0),
            bad(RuntimeError, "Size does", of("f32", 3, 2), of("i64", 2, 3, domain="index:2"), axis=0),
            bad(IndexError, "out of bounds", of("f32", 3), of("i64", 2, domain="outside:3"), axis=0),
        ),
    )
)  # fmt: skip


_UFUNCS: dict[str, Any] = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


IndexKey = Array | tuple[Array | slice, ...]


def _write(result: Array, key: IndexKey, src: Array, mode: str) -> Any:
    """Later elements of ``src`` (row-major) win, or are combined after earlier ones."""
    if mode == "set":
        result[key] = src
    else:
        _UFUNCS[mode].at(result, key, src)
    return result


def _check_write(name: str, base: TensorType, src: TensorType, mode: str) -> None:
    require(mode in MODES, RuntimeError, f"{name}: reduce argument must be one of {MODES}, got {mode!r}")
    same = base.dtype is src.dtype
    require(same, RuntimeError, f"{name}(): Expected self.dtype to be equal to src.dtype: {base}, {src}")
    linear = mode in ("set", "add") or not base.dtype.is_complex
    require(linear, NotImplementedError, f"{name}: mode {mode!r} is not implemented for complex operands: {base}")


def _scatter_infer(base: TensorType, at: TensorType, src: TensorType, *, axis: int, mode: str) -> TensorType:
    _check_elementwise("scatter", base, at, axis)
    _check_write("scatter", base, src, mode)
    require(at.shape == src.shape, RuntimeError, f"scatter: Expected index {at} to have the shape of src {src}")
    return base


def _scatter_impl(base: Array, at: Array, src: Array, *, axis: int, mode: str) -> Any:
    if base.ndim == 0:
        _check_range("scatter", np.asarray(at), 1, axis)
        return _write(np.array(base), (), src, mode)
    at = np.array(at)  # as in ``_gather_impl``
    _check_range("scatter", at, base.shape[axis], axis)
    grid = list(np.ogrid[tuple(map(slice, at.shape))])
    grid[axis] = at
    return _write(np.array(base), tuple(grid), src, mode)


def _put_infer(base: TensorType, at: TensorType, src: TensorType, *, axis: int, mode: str) -> TensorType:
    _check_index("put", at)
    check_axes("put", (axis,), base.ndim)
    _check_write("put", base, src, mode)
    want = (*base.shape[:axis], *at.shape, *base.shape[axis + 1 :])
    fits = src.shape == want
    require(fits, RuntimeError, f"put: Expected src of shape {list(want)} for {base} and index {at}, got {src}")
    return base


def _put_impl(base: Array, at: Array, src: Array, *, axis: int, mode: str) -> Any:
    at = np.array(at)  # as in ``_gather_impl``
    _check_range("put", at, base.shape[axis], axis)
    result = np.array(base)
    moved = np.moveaxis(result, axis, 0)
    rank = at.ndim
    source = np.moveaxis(src, range(axis, axis + rank), range(rank)) if rank else src
    _write(moved, at, source, mode)
    return result


def _write_vjp(write: str, read: str) -> Callable[..., Any]:
    """The rule shared by ``put`` (with ``take``) and ``scatter`` (with ``gather``), following PyTorch's."""

    def vjp(grads: Operands, outs: Operands, ins: Operands, *, axis: int, mode: str) -> Any:
        scatter, gather = getattr(prim, write), getattr(prim, read)
        g, (base, at, src) = grads[0], ins
        if mode == "add":
            return g, None, gather(g, at, axis=axis)
        if mode == "set":
            return scatter(g, at, _zeros(g, src.shape), axis=axis, mode="set"), None, gather(g, at, axis=axis)
        rule = _product_vjp if mode == "mul" else _extreme_vjp
        return rule(scatter, gather, g, outs[0], base, at, src, axis)

    return vjp


def _extreme_vjp(
    scatter: Primitive, gather: Primitive, g: Operand, out: Operand, base: Operand, at: Operand, src: Operand, axis: int
) -> Any:
    """Base and sources that equal the extreme share its gradient evenly."""
    from_base = prim.cast(prim.eq(base, out), dtype=g.dtype)
    from_src = prim.cast(prim.eq(src, gather(out, at, axis=axis)), dtype=g.dtype)
    share = prim.div(g, scatter(from_base, at, from_src, axis=axis, mode="add"))
    return prim.mul(from_base, share), None, prim.mul(from_src, gather(share, at, axis=axis))


def _product_vjp(
    scatter: Primitive, gather: Primitive, g: Operand, out: Operand, base: Operand, at: Operand, src: Operand, axis: int
) -> Any:
    """The product of the other factors; a single zero factor among the sources is skipped, not divided by."""
    ones = prim.expand(prim.full(like=g, value=1.0, shape=(), dtype=g.dtype), shape=tuple(base.shape))
    of_base = prim.mul(g, scatter(ones, at, src, axis=axis, mode="mul"))
    zero = prim.eq(src, 0.0)
    zeros = scatter(_zeros(g, base.shape), at, prim.cast(zero, dtype=g.dtype), axis=axis, mode="add")
    single = prim.bitwise_and(zero, prim.eq(gather(zeros, at, axis=axis), 1.0))
    others = scatter(base, at, prim.where(single, 1.0, src), axis=axis, mode="mul")
    divided = prim.div(gather(prim.mul(g, out), at, axis=axis), prim.where(zero, 1.0, src))
    return of_base, None, prim.where(single, gather(prim.mul(g, others), at, axis=axis), divided)


def _write_samples(
    cases: Sequence[tuple[Shape, Shape, int]], source: Callable[[Shape, Shape, int], Shape]
) -> tuple[Sample, ...]:
    found = [
        Sample(
            ((base, d, "any"), (i, "i64", f"index:{base[axis]}"), (source(base, i, axis), d, "any")),
            {"axis": axis, "mode": mode},
        )
        for d in ("f32", "f64", "f16", "i64", "c64", "c128")
        for mode in (MODES if d[0] != "c" else ("set", "add"))
        for base, i, axis in cases
    ]
    once = (((6,), "f64", "any"), ((4,), "i64", "distinct:6"), ((4,), "f64", "any"))
    return (*found, Sample(once, {"axis": 0, "mode": "set"}))


def _write_errors(src: Shape) -> tuple[BadInput, ...]:
    base, at, values = of("f32", 3), of("i64", 2, domain="index:3"), of("f32", *src)
    return (
        bad(IndexError, "int64", base, of("i32", 2, domain="index:3"), values, axis=0, mode="set"),
        bad(IndexError, "out of bounds", base, of("i64", 2, domain="outside:3"), values, axis=0, mode="add"),
        bad(RuntimeError, "equal to src.dtype", base, at, of("f64", *src), axis=0, mode="add"),
        bad(RuntimeError, "must be one of", base, at, values, axis=0, mode="mean"),
    )


register(
    Op(
        name="scatter", kind="scatter", doc="base with src[p] put at index[p] along axis, and at p along the others",
        infer=_scatter_infer, impl=_scatter_impl, loop=Imperative(scatter_statements, overwrites=True),
        vjp=_write_vjp("scatter", "gather"), saves=("ins", "outs"), parts=each("scatter"),
        attrs={"axis": int, "mode": str},
        samples=_write_samples(_GATHERS, lambda base, i, axis: i), errors=_write_errors((2,)),
    )
)  # fmt: skip

register(
    Op(
        name="put", kind="scatter", doc="base with the slices of src written at index along axis",
        infer=_put_infer, impl=_put_impl, loop=Imperative(put_statements, overwrites=True),
        vjp=_write_vjp("put", "take"), saves=("ins", "outs"), parts=each("put"),
        attrs={"axis": int, "mode": str},
        samples=_write_samples(_TAKES, lambda base, i, axis: (*base[:axis], *i, *base[axis + 1 :])),
        errors=_write_errors((2,)),
    )
)  # fmt: skip
