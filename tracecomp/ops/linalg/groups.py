"""``grouped_mm``: products of adjacent groups of rows with a matrix each, as a layer of experts needs them.

The ends of the groups are data, so the host computes the products, in compiled programs too. Every result is a sum from
0.0 of its terms in order, as in ``contract``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracecomp.base.errors import at_user_line
from tracecomp.ir.arrays import Array
from tracecomp.ir.op import External, Op, Operands, Sample, register
from tracecomp.ir.types import TensorType, compute_dtype, from_numpy_dtype, int32, int64
from tracecomp.ops.define import bad, check_dtype, of, require
from tracecomp.ops.linalg.matrix import turned
from tracecomp.ops.prim import prim

Group = tuple[int, int, int]


def groups_of(ends: Array, size: int) -> list[Group]:
    """Number, start and end of each group that is not empty; RuntimeError unless the ends ascend, up to ``size``."""
    result, start = [], 0
    for number, end in enumerate(ends.tolist()):
        if not start <= end <= size:
            raise RuntimeError(
                at_user_line(f"grouped_mm(): offsets must ascend from 0 to at most {size}, but are {ends.tolist()}")
            )
        if start < end:
            result.append((number, start, end))
        start = end
    return result


def _infer(x: TensorType, y: TensorType, ends: TensorType) -> TensorType:
    dtype = check_dtype("grouped_mm", (x, y), "float")
    require(ends.dtype in (int32, int64) and ends.ndim == 1, RuntimeError, f"grouped_mm: {ends} are not offsets")
    fits = x.ndim == 2 and (
        y.shape[:2] == (*ends.shape, x.shape[1]) if y.ndim == 3 else y.ndim == 2 and y.shape[0] == x.shape[1]
    )
    require(fits, RuntimeError, f"grouped_mm: {x}, {y} and {ends} do not fit")
    shape = (x.shape[0], y.shape[2]) if y.ndim == 3 else (*ends.shape, x.shape[0], y.shape[1])
    return TensorType(dtype, shape)


def _impl(x: Array, y: Array, ends: Array) -> Any:
    dtype = x.dtype
    wide = compute_dtype(from_numpy_dtype(dtype)).numpy
    x = x.astype(wide, copy=False)
    rows = y.ndim == 3
    out = np.zeros((len(x), y.shape[2]) if rows else (len(ends), len(x), y.shape[1]), wide)
    for number, start, end in groups_of(ends, len(x) if rows else len(y)):
        if rows:
            out[start:end] = x[start:end] @ y[number].astype(wide, copy=False)
        else:
            out[number] = x[:, start:end] @ y[start:end].astype(wide, copy=False)
    return out.astype(dtype, copy=False)


def _vjp(grads: Operands, outs: Operands, ins: Operands) -> Any:
    (grad,), (x, y, ends) = grads, ins
    if len(y.shape) == 3:
        return prim.grouped_mm(grad, turned(y), ends), prim.grouped_mm(turned(x), grad, ends), None
    return turned(prim.grouped_mm(y, turned(grad), ends)), prim.grouped_mm(turned(x), grad, ends), None


_SHAPES = (
    ((7, 3), (3, 3, 4)), ((40, 9), (3, 9, 33)), ((7, 0), (3, 0, 4)), ((7, 3), (3, 3, 0)),
    ((4, 7), (7, 5)), ((18, 40), (40, 20)), ((0, 7), (7, 5)),
)  # fmt: skip

register(
    Op(
        name="grouped_mm", kind="external", infer=_infer, impl=_impl, vjp=_vjp, saves=("ins",), loop=External(),
        doc="products of adjacent groups of rows of x (rows, k) with a matrix of y (groups, k, n) each: (rows, n), "
        "zero after the last group; or of groups of columns of x and rows of y: (groups, m, n). The third operand has "
        "the ends of the groups",
        samples=tuple(
            Sample(((x, d, "any"), (y, d, "any"), ((3,), i, f"ascending:{x[0] if len(y) == 3 else y[0]}")))
            for d in ("f32", "f64", "f16") for i in ("i32", "i64") for x, y in _SHAPES
        ),
        errors=(
            bad(RuntimeError, "do not fit", of("f32", 7, 3), of("f32", 3, 2, 4), of("i32", 3)),
            bad(RuntimeError, "do not fit", of("f32", 7, 3), of("f32", 2, 3, 4), of("i32", 3)),
            bad(RuntimeError, "are not offsets", of("f32", 7, 3), of("f32", 3, 3, 4), of("f32", 3)),
            bad(RuntimeError, "one dtype", of("f32", 7, 3), of("f64", 3, 3, 4), of("i32", 3)),
        ),
    )
)  # fmt: skip
