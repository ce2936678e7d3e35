"""Operators that make tensors from attributes alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tracecomp.ir import loops
from tracecomp.ir.arrays import new_array
from tracecomp.ir.loops import Const, IndexValue
from tracecomp.ir.op import BadInput, Indexed, Number, Op, Position, Reads, Sample, Types, register
from tracecomp.ir.types import DType, Shape, TensorType, dtype_named
from tracecomp.ops.define import check_axes, require


def _check_shape(name: str, shape: Shape) -> None:
    require(
        all(n >= 0 for n in shape), RuntimeError, f"{name}: Trying to create tensor with negative dimension: {shape}"
    )


def _full_infer(*, value: Number, shape: Shape, dtype: DType) -> TensorType:
    _check_shape("full", shape)
    if dtype.kind == "int":
        info = np.iinfo(dtype.numpy)
        assert not isinstance(value, complex)  # rejected above, with PyTorch's message
        fits = math.isfinite(value) and info.min <= int(value) <= info.max
        require(fits, RuntimeError, f"full: value cannot be converted to type {dtype.name} without overflow: {value}")
    return TensorType(dtype, shape)


def _full_impl(*, value: Number, shape: Shape, dtype: DType) -> Any:
    array = new_array(shape, dtype.numpy)
    np.copyto(array, value, casting="unsafe")
    return array


def _full_loop(
    index: Position, out: TensorType, reads: Reads, in_types: Types, *, value: Number, shape: Shape, dtype: DType
) -> Any:
    return Const(dtype.python(value), dtype)


register(
    Op(
        name="full", kind="creation", doc="every element is value", infer=_full_infer, impl=_full_impl,
        loop=Indexed(_full_loop), attrs={"value": object, "shape": tuple, "dtype": DType},
        samples=tuple(
            Sample((), {"value": v, "shape": shape, "dtype": dtype_named(d)})
            for v, d in ((1.5, "f32"), (-0.0, "f64"), (float("inf"), "f16"), (7, "i64"), (True, "b1"), (200, "u8"),
                         (1 - 2j, "c64"), (2.5, "c128"))
            for shape in ((2, 3), (), (0,))
        ),
        errors=(
            BadInput(Sample((), {"value": 1, "shape": (-1,), "dtype": dtype_named("f32")}), RuntimeError, "negative"),
            BadInput(Sample((), {"value": 300, "shape": (1,), "dtype": dtype_named("u8")}), RuntimeError, "overflow"),
        ),
    )
)  # fmt: skip


def _iota_infer(*, shape: Shape, axis: int, dtype: DType) -> TensorType:
    _check_shape("iota", shape)
    check_axes("iota", (axis,), len(shape))
    return TensorType(dtype, shape)


def _iota_impl(*, shape: Shape, axis: int, dtype: DType) -> Any:
    result = new_array(shape, dtype.numpy)  # first, as it fails at once for absurd sizes
    result[...] = np.arange(shape[axis]).reshape([-1 if i == axis else 1 for i in range(len(shape))])
    return result


def _iota_loop(
    index: Position, out: TensorType, reads: Reads, in_types: Types, *, shape: Shape, axis: int, dtype: DType
) -> Any:
    return loops.cast(IndexValue(index[axis]), dtype)


register(
    Op(
        name="iota", kind="creation", doc="every element is its position along axis", infer=_iota_infer,
        impl=_iota_impl, loop=Indexed(_iota_loop), attrs={"shape": tuple, "axis": int, "dtype": DType},
        samples=tuple(
            Sample((), {"shape": shape, "axis": axis, "dtype": dtype_named(d)})
            for d in ("i64", "i32", "f32", "f64")
            for shape, axis in (((5,), 0), ((2, 3), 0), ((2, 3), 1), ((0, 2), 0))
        ),
        errors=(
            BadInput(Sample((), {"shape": (2,), "axis": 1, "dtype": dtype_named("i64")}), IndexError, "out of range"),
        ),
    )
)  # fmt: skip
