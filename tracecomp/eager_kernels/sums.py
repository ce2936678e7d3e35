"""Sums and products of floats in the order in which compiled programs add (``docs/numerics.md``), for any shape.

The order is that of a graph of the one operator, for any layout. Sums along rows are a native routine; down columns
numpy adds row by row too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, reduce
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

from tracecomp.base.errors import CompileError
from tracecomp.codegen.kernels.lane_sums import lane_sums_text
from tracecomp.ir.arrays import row_major_copy
from tracecomp.ir.sum_order import COLUMN_BLOCK, ROW_BLOCK, SPLIT, is_order_kept, lanes_for, runs_of
from tracecomp.ir.sum_order import stage as first_stage
from tracecomp.ir.types import DType, compute_dtype, float32, float64, from_numpy_dtype
from tracecomp.runtime import compiler
from tracecomp.runtime.image import Image
from tracecomp.runtime.loaded import Loaded
from tracecomp_runtime.open_sizes import block_length

Array = np.ndarray[Any, Any]
Shape: TypeAlias = tuple[int, ...]
_COMBINE = {"sum": np.add, "prod": np.multiply}


@dataclass(frozen=True, slots=True)
class _Stage:
    """One stage of a reduction: of an array of ``shape`` over the axes ``over``, with result shape ``kept``.

    With ``lanes``, the innermost axis is reduced, or comes before a single column. ``order`` moves reduced axes to the
    end, and ``sizes`` are rows, segments of a row, and elements of a segment.
    """

    shape: Shape
    over: Shape
    kept: Shape
    lanes: int = 0
    order: Shape = ()
    sizes: Array | None = None

    @staticmethod
    def of(shape: Shape, over: Shape) -> _Stage:
        rest = tuple(d for d in range(len(shape)) if d not in over)
        kept = tuple(shape[d] for d in rest)
        columns = math.prod(shape[over[-1] + 1 :]) if over else 1
        if not over or columns > 1:
            return _Stage(shape, over, kept)
        innermost = over[-1] == len(shape) - 1
        sizes = np.array([math.prod(kept), math.prod(shape[d] for d in over[:-1]), shape[over[-1]]], np.int64)
        # numpy takes a single column for a row, which has another order of summation.
        return _Stage(shape, over, kept, lanes_for(shape[-1]) if innermost else 1, rest + over, sizes)

    def run(self, name: str, x: Array) -> Array:
        """``x`` reduced in the computing type, rounded to its dtype."""
        dtype = from_numpy_dtype(x.dtype)
        wide = compute_dtype(dtype)
        x = x if wide is dtype else x.astype(wide.numpy)
        found = self._across(_COMBINE[name], x)
        if found is None:
            found = self._wide(name, _reshaped(x, self.shape), wide)
        return found if wide is dtype else found.astype(dtype.numpy)

    def _wide(self, name: str, x: Array, dtype: DType) -> Array:
        combine = _COMBINE[name]
        start = x.dtype.type(combine.identity)
        if not self.lanes:
            found: Array = combine.reduce(x, axis=self.over, initial=start)
            return found
        rows = x.transpose(self.order)
        routine = _lane_sums(dtype, self.lanes, name == "prod") if dtype in (float32, float64) else None
        if routine is None:
            return self._by_numpy(combine, rows, start)
        assert self.sizes is not None
        out: Array = np.empty(self.kept, x.dtype)
        routine.run((np.ascontiguousarray(rows), out, self.sizes), 1)
        return out

    def _across(self, combine: np.ufunc, x: Array) -> Array | None:
        """The same of an array whose rows are strided, all of them at once; None if they are not.

        A row of the stage is a part of a row along the last axis of ``x``, or several of those.
        """
        lanes = self.lanes
        if not lanes or self.over != (len(self.shape) - 1,) or not _lies_across(x):
            return None
        inner, extent = self.shape[-1], x.shape[-1]
        if extent % inner == 0:
            rows = x.reshape(*x.shape[:-1], -1, 1, inner)
        elif inner % extent == 0 and extent % lanes == 0 and x.shape[-2] % (inner // extent) == 0:
            rows = x.reshape(*x.shape[:-2], -1, inner // extent, extent)
        else:
            return None
        rows = np.moveaxis(rows, (-2, -1), (0, 1))
        partial = np.full((lanes, *rows.shape[2:]), combine.identity, x.dtype)
        for row in rows:
            for k in range(0, len(row), lanes):
                step = row[k : k + lanes]
                combine(partial[: len(step)], step, out=partial[: len(step)])
        while lanes > 1:
            lanes //= 2
            partial = combine(partial[:lanes], partial[lanes:])
        return np.ascontiguousarray(partial).reshape(self.kept)

    def _by_numpy(self, combine: np.ufunc, rows: Array, start: object) -> Array:
        """The same, lane by lane: numpy combines the rows of partial sums one after the other."""
        lanes, inner = self.lanes, rows.shape[-1]
        steps = -(-inner // lanes)
        if steps * lanes > inner:
            filled = np.full((*rows.shape[:-1], steps * lanes), start, rows.dtype)
            filled[..., :inner] = rows
            rows = filled
        table = np.moveaxis(rows.reshape(math.prod(self.kept), -1, lanes), 1, 0)
        partial = combine(start, reduce(combine, table))
        while lanes > 1:
            lanes //= 2
            partial = combine(partial[:, :lanes], partial[:, lanes:])
        result: Array = partial.reshape(self.kept)
        return result


@cache
def _lane_sums(dtype: DType, lanes: int, product: bool) -> Loaded | None:
    """The native routine; None if this Python and numpy do not support it."""
    target = compiler.host_target()
    objects = (compiler.object_code(lane_sums_text(dtype, lanes, target, product), target),)
    try:
        return Loaded(Image(objects, 2, 3, 0, 0, ("sum",), False))
    except CompileError:
        return None


def reduce_in_order(name: str, x: Array, axes: Shape) -> Array:
    """``x`` without ``axes``, in the element type of ``x``: half types are rounded after every stage."""
    x = np.asarray(x)
    if not x.size:
        return np.full(_without(x.shape, axes), _COMBINE[name].identity, x.dtype)
    if x.dtype.kind == "c":  # sums: products of complex numbers are not primitive
        total = np.empty(_without(x.shape, axes), x.dtype)
        total.real, total.imag = reduce_in_order(name, x.real, axes), reduce_in_order(name, x.imag, axes)
        return total
    if in_order(x):
        return _in_stages(name, x, axes)
    order = sorted(range(x.ndim), key=lambda axis: -x.strides[axis])
    turned = x.transpose(order)
    if not (in_order(turned) and is_order_kept(x.shape, axes, [order.index(axis) for axis in range(x.ndim)])):
        # numpy adds in the order of memory.
        down = x.ndim - 1 in axes and _lies_across(x)
        return _in_stages(name, x if down else row_major_copy(x), axes)
    inside = tuple(d for d, axis in enumerate(order) if axis in axes)
    kept = [axis for axis in order if axis not in axes]
    return _in_stages(name, turned, inside).transpose([kept.index(axis) for axis in sorted(kept)])


def _lies_across(x: Array) -> bool:
    """Whether elements along the last axis are farther apart than those along another axis."""
    if x.ndim < 2 or x.flags.c_contiguous or not x.flags.aligned or x.shape[-1] < 2:
        return False
    steps = [s for s, n in zip(x.strides, x.shape, strict=True) if n > 1]
    return min(steps) > 0 and min(steps) < steps[-1]


def _reshaped(x: Array, shape: Shape) -> Array:
    """``x`` in another shape, row-major: numpy adds in the order of memory."""
    return (x if in_order(x) else row_major_copy(x)).reshape(shape)


def _without(shape: Sequence[int], axes: Shape) -> Shape:
    return tuple(n for axis, n in enumerate(shape) if axis not in axes)


def in_order(x: Array) -> bool:
    """Whether the axes of ``x`` are in memory order, without overlaps."""
    if x.flags.c_contiguous:
        return True
    moving = [(s, n) for s, n in zip(x.strides, x.shape, strict=True) if n > 1]
    return all(a >= b * n for (a, _), (b, n) in pairwise([*moving, (x.itemsize, 1)]))


def _in_stages(name: str, x: Array, axes: Shape) -> Array:
    shape = _without(x.shape, axes)
    for stage in _stages(x.shape, axes, name in SPLIT):
        x = stage.run(name, x)
    return x.reshape(shape)


@dataclass(frozen=True, slots=True)
class _Blocks:
    """Blocks of axis ``axis`` of an array of ``shape``, and the shorter remainder, each reduced."""

    shape: Shape
    axis: int
    parts: tuple[tuple[slice, _Stage], ...]

    def run(self, name: str, x: Array) -> Array:
        x, before = x if x.shape == self.shape else _reshaped(x, self.shape), (slice(None),) * self.axis
        return np.concatenate([stage.run(name, x[(*before, part)]) for part, stage in self.parts], self.axis)


@lru_cache(4096)
def _stages(shape: Shape, axes: Shape, split: bool) -> tuple[_Stage | _Blocks, ...]:
    """The stages of a reduction, as in ``passes/graph/split_reductions.py``.

    A long result of a stage is reduced in further stages.
    """
    runs = runs_of(shape, axes)
    flat = tuple(r.extent for r in runs)
    over = tuple(d for d, r in enumerate(runs) if r.reduced)
    at = first_stage(runs) if split else None
    if at is None:
        return (_Stage.of(flat, over),)
    before, extent, behind = flat[:at], flat[at], flat[at + 1 :]
    if len(over) > 1:
        rest = tuple(d - (d > at) for d in over if d != at)
        return (*_stages(flat, (at,), True), *_stages(before + behind, rest, True))
    block = block_length(extent, COLUMN_BLOCK if behind else ROW_BLOCK)
    whole, left = extent // block, extent % block
    main = _Stage.of((*before, whole, block, *behind), (at + 1,))
    last = _stages((*before, whole + (left > 0), *behind), (at,), True)
    if not left:
        return main, *last
    tail = _Stage.of((*before, 1, left, *behind), (at + 1,))
    cut = whole * block
    return _Blocks(flat, at, ((slice(cut), main), (slice(cut, None), tail))), *last
