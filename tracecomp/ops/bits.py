"""Bit casts: the bytes of a tensor as another element type."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracecomp.ir.arrays import Array
from tracecomp.ir.loops import Call, Expr
from tracecomp.ir.op import Composed, Indexed, Op, Operand, Position, Reads, Sample, Types, register
from tracecomp.ir.scalars import call, const
from tracecomp.ir.types import DType, TensorType, bool_, dtype_named, int8, int16, int32, int64, uint8
from tracecomp.ops.define import bad, of, require
from tracecomp.ops.prim import prim

_INTEGERS = {1: int8, 2: int16, 4: int32, 8: int64}


def _bitcast_infer(x: TensorType, *, dtype: DType) -> TensorType:
    message = f"bitcast: {x} and {dtype.name} are not real dtypes of one size"
    require(dtype.itemsize == x.dtype.itemsize and not (x.dtype.is_complex or dtype.is_complex), RuntimeError, message)
    return TensorType(dtype, x.shape)


def _bitcast_loop(at: Position, out: TensorType, reads: Reads, in_types: Types, *, dtype: DType) -> Expr:
    x: Expr = reads[0](tuple(at))  # Indexed, because operands of Pointwise are widened
    if x.dtype is dtype:
        return x
    if x.dtype is bool_:
        return Call("cast", (x,), dtype)
    if dtype is bool_:
        return call("ne", x, const(0, x.dtype))
    return Call("bitcast", (x,), dtype)


register(
    Op(
        name="bitcast", kind="elementwise", doc="the bits of x as ``dtype``, which has the same size",
        infer=_bitcast_infer, impl=lambda x, *, dtype: np.asarray(x).view(dtype.numpy).copy(),
        loop=Indexed(_bitcast_loop), attrs={"dtype": DType},
        samples=tuple(
            Sample((of(a, *shape),), {"dtype": dtype_named(b)})
            for a, b in (("f32", "i32"), ("i32", "f32"), ("f64", "i64"), ("i64", "f64"), ("f16", "i16"), ("i16", "f16"),
                         ("u8", "i8"), ("i8", "u8"), ("b1", "u8"))
            for shape in ((2, 3), (), (0, 2))
        ),
        errors=(bad(RuntimeError, "not real dtypes of one size", of("f32", 3), dtype=int64),),
    )
)  # fmt: skip


def _reinterpret_infer(x: TensorType, *, dtype: DType) -> TensorType:
    if x.dtype.is_complex or dtype.is_complex or x.dtype.itemsize == dtype.itemsize:
        return _bitcast_infer(x, dtype=dtype)
    names = f"{x.dtype.name} as {dtype.name} (different element sizes)"
    require(x.ndim > 0, RuntimeError, f"self.dim() cannot be 0 to view {names}")
    size = x.shape[-1] * x.dtype.itemsize
    factor = dtype.itemsize // x.dtype.itemsize
    require(
        size % dtype.itemsize == 0, RuntimeError,
        f"self.size(-1) must be divisible by {factor} to view {names}, but got {x.shape[-1]}",
    )  # fmt: skip
    return TensorType(dtype, (*x.shape[:-1], size // dtype.itemsize))


def _reinterpret_impl(x: Array, *, dtype: DType) -> Any:
    x = np.asarray(x)
    dense = x.ndim == 0 or x.itemsize == dtype.itemsize or x.strides[-1] == x.itemsize
    return (x if dense else np.ascontiguousarray(x)).view(dtype.numpy)


def _reinterpret_composed(x: Operand, *, dtype: DType) -> Any:
    before, after = x.dtype.itemsize, dtype.itemsize
    bits = prim.bitcast(x, dtype=_INTEGERS[before])
    if before > after:
        bits = _apart(bits, before // after, _INTEGERS[after])
    elif before < after:
        bits = _together(bits, after // before, _INTEGERS[after])
    return prim.bitcast(bits, dtype=dtype)


def _places(like: Operand, shape: tuple[int, ...], dtype: DType, width: int) -> Any:
    """Bit offsets of each of the last axis' elements from the lowest."""
    order = prim.iota(like=like, shape=shape, axis=len(shape) - 1, dtype=dtype)
    return prim.mul(order, 8 * width)


def _apart(bits: Operand, count: int, dtype: DType) -> Any:
    shape = tuple(bits.shape)
    wide = prim.expand(prim.reshape(bits, shape=(*shape, 1)), shape=(*shape, count))
    shifted = prim.shift_right(wide, _places(bits, (*shape, count), bits.dtype, dtype.itemsize))
    return prim.reshape(prim.cast(shifted, dtype=dtype), shape=(*shape[:-1], shape[-1] * count))


def _together(bits: Operand, count: int, dtype: DType) -> Any:
    width = bits.dtype.itemsize
    shape = (*bits.shape[:-1], bits.shape[-1] // count, count)
    parts = prim.bitwise_and(prim.cast(prim.reshape(bits, shape=shape), dtype=dtype), 2 ** (8 * width) - 1)
    return prim.sum(prim.shift_left(parts, _places(bits, shape, dtype, width)), axes=(len(shape) - 1,))


register(
    Op(
        name="reinterpret", kind="view", doc="the bytes of x as real ``dtype``; along the last axis if sizes differ",
        infer=_reinterpret_infer, impl=_reinterpret_impl, loop=Composed(_reinterpret_composed), attrs={"dtype": DType},
        write=lambda base, new, *, dtype: prim.reinterpret(new, dtype=base.dtype),
        samples=tuple(
            Sample((of(a, *shape),), {"dtype": dtype_named(b)})
            for a, b in (("f32", "i32"), ("i64", "f64"), ("f64", "i32"), ("f32", "u8"), ("i16", "i64"), ("u8", "f32"),
                         ("i8", "i16"), ("b1", "i32"))
            for shape in ((2, 8), (8,), (0, 8))
        ),
        errors=(
            bad(RuntimeError, "cannot be 0 to view float32 as uint8", of("f32"), dtype=uint8),
            bad(RuntimeError, "must be divisible by 2 to view float32 as int64", of("f32", 3), dtype=int64),
        ),
    )
)  # fmt: skip
