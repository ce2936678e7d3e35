"""``fold``: the adjoint of the view ``windows``. Every element is the sum of its values in all windows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product
from types import EllipsisType
from typing import Any, TypeAlias

import numpy as np

from tracecomp.ir.arrays import Array
from tracecomp.ir.index import Index
from tracecomp.ir.loops import Expr, both, cast, in_range
from tracecomp.ir.op import Indexed, Op, Operands, Position, Reads, Sample, Types, register
from tracecomp.ir.scalars import call, const
from tracecomp.ir.types import Shape, TensorType, compute_dtype, from_numpy_dtype
from tracecomp.ops.define import bad, check_dtype, of, require
from tracecomp.ops.pad_concat import inside_or, regular
from tracecomp.ops.parts import each
from tracecomp.ops.prim import prim
from tracecomp.ops.view import windows_shape

Ints: TypeAlias = tuple[int, ...]


def _infer(x: TensorType, *, shape: Shape, sizes: Ints, strides: Ints, dilations: Ints) -> TensorType:
    dtype = check_dtype("fold", (x,), "ring")
    k, lead = len(sizes), len(shape) - len(sizes)
    require(
        lead >= 0 and k == len(strides) == len(dilations) and all(v > 0 for v in (*sizes, *strides, *dilations)),
        RuntimeError,
        f"fold: sizes {sizes}, strides {strides}, dilations {dilations} do not describe the last axes of {list(shape)}",
    )
    want = (*shape[:lead], *windows_shape(sizes, shape[lead:], strides, dilations), *sizes)
    require(
        x.shape == want,
        RuntimeError,
        f"fold: Given output_size={list(shape)}, kernel_size={sizes}, dilation={dilations}, stride={strides}, expected "
        f"windows of shape {list(want)}, but got {x}",
    )
    return TensorType(dtype, shape)


def _impl(x: Array, *, shape: Shape, sizes: Ints, strides: Ints, dilations: Ints) -> Any:
    """Tap by tap of the window, in row-major order, like the loop meaning."""
    k, lead = len(sizes), len(shape) - len(sizes)
    counts = x.shape[lead : lead + k]
    whole: Any = np.zeros(shape, compute_dtype(from_numpy_dtype(x.dtype)).numpy)
    for taps in product(*map(range, sizes)):
        places = tuple(
            slice(t * d, t * d + (n - 1) * s + 1, s)
            for t, d, n, s in zip(taps, dilations, counts, strides, strict=True)
        )
        own: tuple[EllipsisType | int, ...] = (..., *taps)
        whole[(..., *places)] += x[own]
    return whole.astype(x.dtype, copy=False)


def _holding(
    at: Index, size: int, stride: int, dilation: int, count: int
) -> Iterator[tuple[Index, Index, Expr | None]]:
    """Yield the windows that may contain ``at``, by their taps: window, tap, and the condition that both exist.

    ``at == window * stride + tap * dilation`` has solutions if the greatest common divisor of stride and dilation
    divides ``at``; their taps are ``stride / divisor`` apart.
    """
    divisor = math.gcd(stride, dilation)
    step, apart = stride // divisor, dilation // divisor
    grid, on_grid = regular(at, 0, divisor, ((count - 1) * stride + (size - 1) * dilation) // divisor + 1)
    first = grid * pow(apart, -1, step) % step
    last = (grid - first * apart) // step if apart > 1 else grid // step
    for start in range(0, size, step):
        window, tap = last - start // step * apart, first + start
        yield window, tap, both(on_grid, in_range(window, count), in_range(tap, size))


def _loop(
    at: Position,
    out: TensorType,
    reads: Reads,
    in_types: Types,
    *,
    shape: Shape,
    sizes: Ints,
    strides: Ints,
    dilations: Ints,
) -> Expr:
    k, lead = len(sizes), len(shape) - len(sizes)
    counts = in_types[0].shape[lead : lead + k]
    wide = compute_dtype(out.dtype)
    zero = const(0 if out.dtype.kind == "int" else 0.0, out.dtype)
    total: Expr = const(0 if wide.kind == "int" else 0.0, wide)
    axes = [_holding(at[lead + i], sizes[i], strides[i], dilations[i], counts[i]) for i in range(k)]
    for found in product(*axes):
        place = [*at[:lead], *(window for window, _, _ in found), *(tap for _, tap, _ in found)]
        value = inside_or(reads[0], place, both(*(there for _, _, there in found)), zero)
        total = call("add", total, cast(value, wide))
    return cast(total, out.dtype)


def _vjp(
    grads: Operands, outs: Operands, ins: Operands, *, shape: Shape, sizes: Ints, strides: Ints, dilations: Ints
) -> Any:
    return (prim.windows(grads[0], sizes=sizes, strides=strides, dilations=dilations),)


_ATTRS = ("shape", "sizes", "strides", "dilations")
_CASES: tuple[tuple[Shape, Ints, Ints, Ints], ...] = (
    ((6,), (3,), (1,), (1,)), ((2, 7), (2,), (2,), (2,)), ((2, 5, 6), (3, 2), (1, 2), (2, 1)), ((7,), (2,), (3,), (1,)),
    ((0, 4), (2,), (1,), (1,)), ((3, 6, 6), (2, 2), (2, 2), (1, 1)), ((19,), (4,), (4,), (2,)),
    ((18,), (5,), (3,), (2,)), ((14,), (5,), (2,), (1,)), ((19,), (5,), (2,), (3,)), ((2, 17), (4,), (4,), (2,)),
)  # fmt: skip


def _windowed(shape: Shape, sizes: Ints, strides: Ints, dilations: Ints) -> Shape:
    lead = len(shape) - len(sizes)
    return (*shape[:lead], *windows_shape(sizes, shape[lead:], strides, dilations), *sizes)


register(
    Op(
        name="fold", kind="window", doc="sum of overlapping windows: the adjoint of windows",
        infer=_infer, impl=_impl, vjp=_vjp, saves=(), loop=Indexed(_loop), parts=each("fold"),
        attrs=dict.fromkeys(_ATTRS, tuple),
        samples=tuple(
            Sample((of(d, *_windowed(*case)),), dict(zip(_ATTRS, case, strict=True)))
            for d in ("f32", "f64", "f16", "i64", "c64", "c128") for case in _CASES
        ),
        errors=(
            bad(RuntimeError, "expected windows", of("f32", 4, 2), **dict(zip(_ATTRS, _CASES[0], strict=True))),
        ),
    )
)  # fmt: skip
