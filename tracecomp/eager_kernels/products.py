"""Products of floats summed over shared labels, with the bits of compiled programs, for any shape.

A matrix product is a native routine that sums terms in order (``codegen/kernels/products.py``). Only the parts of the
routine that a product needs are compiled and loaded. If every label of one operand is shared, the contraction is a
product and a sum; without a summed label it is a product.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

from tracecomp.base.errors import CompileError
from tracecomp.base.locks import Lock
from tracecomp.codegen.kernels.product_parts import PARTS, part_text, parts_of
from tracecomp.codegen.kernels.products import SIZES, panel_bytes, products_text
from tracecomp.eager_kernels.sums import reduce_in_order
from tracecomp.ir.types import DType, compute_dtype, from_numpy_dtype
from tracecomp.ops.contraction import parse_spec
from tracecomp.runtime import compiler
from tracecomp.runtime.aligned import maker
from tracecomp.runtime.image import Image
from tracecomp.runtime.library import Library
from tracecomp.runtime.loaded import Loaded

Array = np.ndarray[Any, Any]
Shape: TypeAlias = tuple[int, ...]
Place: TypeAlias = tuple[int, int, int]

_SHARED_FROM = 1 << 22
"""Least multiply-adds for which threads share the work."""
_JOBS = 16
"""Blocks that threads should find."""
_COLUMNS, _ROWS, _TILE = 96, 64, 8
"""Least columns of a block, a multiple of a panel's; least rows, as fewer would not justify packing a panel; rows of a
tile."""
_PACKED_ROWS, _NEAR_BYTES = 24, 512
"""Least rows for which a panel is packed, if its terms are at least this many bytes apart."""
_FEW_COLUMNS = 4
"""Most columns that would leave most lanes empty: then rows are the lanes."""


class _Routine:
    """The native routine for one type, with the addresses of the parts loaded so far."""

    def __init__(self, dtype: DType) -> None:
        target = compiler.host_target()
        objects = (compiler.object_code(products_text(dtype, target), target),)
        self._entry = Loaded(Image(objects, 5, 5, 0, panel_bytes(target), ("contract",), parallel=True))
        self._dtype = dtype
        self._addresses = np.zeros(len(PARTS), np.int64)
        self._ready: frozenset[str] = frozenset()
        self._libraries: list[Library] = []  # they keep the parts' code in memory
        self._loading = Lock()

    def run(self, x: Array, y: Array, out: Array, sizes: Array, parts: frozenset[str], threads: int | None) -> None:
        """Compute ``out``; ``sizes`` are ``SIZES``, and ``parts`` what they need."""
        if not parts <= self._ready:
            with self._loading:
                self._load(parts - self._ready)
        self._entry.run((x, y, out, sizes, self._addresses), threads)

    def _load(self, parts: frozenset[str]) -> None:
        if not parts:
            return
        target = compiler.host_target()
        objects = [compiler.object_code(part_text(name, self._dtype, target), target) for name in sorted(parts)]
        library = Library(objects)
        for name in parts:
            self._addresses[PARTS.index(name)] = library.address(name)
        self._libraries.append(library)
        self._ready |= parts


@cache
def _routine(dtype: DType) -> _Routine | None:
    """The native routine; None if this Python and numpy do not support it."""
    try:
        return _Routine(dtype)
    except CompileError:
        return None


def contract(x: Array, y: Array, spec: str) -> Array | None:
    """``spec`` of two arrays of floats, or of complex numbers, of one type; None if numpy has to compute it."""
    if x.dtype.kind == "c":
        return _of_complex(x, y, spec)
    dtype = from_numpy_dtype(x.dtype)
    kind, wide = _kind(spec), compute_dtype(dtype)
    if wide is not dtype:
        x, y = x.astype(wide.numpy), y.astype(wide.numpy)
        found = _product(x, y, spec) if kind == "product" else _of_matrices(x, y, spec, wide)
        return None if found is None else found.astype(dtype.numpy)
    if kind == "product":
        return _product(x, y, spec)
    return _with_vector(x, y, spec) if kind == "vector" else _of_matrices(x, y, spec, dtype)


def _of_complex(x: Array, y: Array, spec: str) -> Array | None:
    """Four products of real parts, as in ``ops/parts.py``."""
    found = [contract(a, b, spec) for a in (x.real, x.imag) for b in (y.real, y.imag)]
    parts = [p for p in found if p is not None]
    if len(parts) < len(found):
        return None
    out = np.empty(parts[0].shape, x.dtype)
    out.real, out.imag = parts[0] - parts[3], parts[1] + parts[2]
    return out


def _product(x: Array, y: Array, spec: str) -> Array:
    """The product, if no label is summed."""
    a, b, out = parse_spec(spec)
    return np.asarray(_aligned(x, a, out) * _aligned(y, b, out))


@lru_cache(4096)
def _kind(spec: str) -> str:
    a, b, out = parse_spec(spec)
    if set(a) | set(b) == set(out):
        return "product"
    return "matrices" if set(a) - set(b) and set(b) - set(a) else "vector"


def _aligned(x: Array, labels: str, target: str) -> Array:
    """``x`` with its axes in the order of ``target``, and axes of size 1 for labels it lacks."""
    order = sorted(range(len(labels)), key=lambda d: target.index(labels[d]))
    sizes = dict(zip(labels, x.shape, strict=True))
    return x.transpose(order).reshape([sizes.get(c, 1) for c in target])


def _with_vector(x: Array, y: Array, spec: str) -> Array:
    """A product and a sum, as in ``passes/graph/contractions.py``."""
    a, b, out = parse_spec(spec)
    matrix, labels, vector, few = (x, a, y, b) if set(a) - set(b) else (y, b, x, a)
    axes = tuple(d for d, c in enumerate(labels) if c not in out)
    total = reduce_in_order("sum", matrix * _aligned(vector, few, labels), axes)
    return _aligned(total, "".join(c for c in labels if c in out), out)


@dataclass(frozen=True, slots=True)
class _Plan:
    """A matrix product's arguments for the routine; ``sizes`` for sums that begin, and for those that continue.

    ``x_order`` and ``y_order`` are axes of operands that have to be copied in this order. ``swapped``: y is the
    routine's left operand. ``out`` is the result's shape in memory, ``back`` the permutation to the wanted axes.
    ``parts`` are the parts of the routine that are called.
    """

    x_order: Shape | None
    y_order: Shape | None
    swapped: bool
    out: Shape
    back: Shape | None
    bytes: int
    empty: bool
    sizes: tuple[Array, Array]
    parts: frozenset[str]
    threads: int | None

    def add(self, x: Array, y: Array, routine: _Routine, out: Array, goes_on: bool) -> None:
        """Compute into ``out``."""
        sizes = self.sizes[goes_on]
        if self.x_order is not None:
            x = np.ascontiguousarray(x.transpose(self.x_order))
        if self.y_order is not None:
            y = np.ascontiguousarray(y.transpose(self.y_order))
        left, right = (y, x) if self.swapped else (x, y)
        routine.run(left, right, out, sizes, self.parts, self.threads)

    def run(self, x: Array, y: Array, routine: _Routine) -> Array:
        if self.empty:
            out = np.zeros(self.out, x.dtype)
        else:
            out = maker(self.bytes)(self.out, x.dtype)
            self.add(x, y, routine, out, False)
        if self.back is None:
            return out
        out = out.transpose(self.back)
        return np.ascontiguousarray(out) if self.swapped else out


def _of_matrices(x: Array, y: Array, spec: str, dtype: DType) -> Array | None:
    routine = _routine(dtype)
    if routine is None:
        return None
    a, b, out = parse_spec(spec)
    if not x.flags.c_contiguous:
        x, a = _lying(x, a)
    if not y.flags.c_contiguous:
        y, b = _lying(y, b)
    return _plan(a, x.shape, b, y.shape, out, x.itemsize, False).run(x, y, routine)


def add_products(x: Array, y: Array, spec: str, out: Array, goes_on: bool = False) -> None:
    """Compute ``spec`` of two arrays into ``out``, which is contiguous; ``goes_on``: continue the sums in ``out``.

    Its labels are in the order of a matrix product: those of both operands, of the left, of the right one.
    """
    routine = _routine(from_numpy_dtype(x.dtype))
    if routine is None:
        found = np.einsum(spec, x, y)
        out += found if goes_on else found - out
        return
    a, b, labels = parse_spec(spec)
    x, a = (x, a) if x.flags.c_contiguous else _lying(x, a)
    y, b = (y, b) if y.flags.c_contiguous else _lying(y, b)
    plan = _plan(a, x.shape, b, y.shape, labels, x.itemsize, True)
    assert plan.back is None and plan.out == out.shape
    plan.add(x, y, routine, out, goes_on)


def rows_by_matrices(x: Array, y: Array, groups: Iterable[tuple[int, int, int]], out: Array) -> None:
    """Compute rows of ``out`` from those of ``x`` and matrix ``number`` of ``y``, for each (number, start, end)."""
    routine, x = _routine(from_numpy_dtype(x.dtype)), np.ascontiguousarray(x)
    # Matrices as they are in memory, so that none is copied; those of another type are converted one at a time.
    transposed = not y.flags.c_contiguous and y.transpose(0, 2, 1).flags.c_contiguous
    labels, stored = ("nk", y.transpose(0, 2, 1)) if transposed else ("kn", y)
    for number, start, end in groups:
        left, right, into = x[start:end], np.asarray(stored[number], x.dtype, order="C"), out[start:end]
        if routine is None:
            into[...] = np.einsum(f"mk,{labels}->mn", left, right)
        else:
            plan = _plan("mk", left.shape, labels, right.shape, "mn", x.itemsize, True)
            plan.add(left, right, routine, into, False)


def add_to_block(x: Array, y: Array, lying: Place, out: Array, into: Place, n: int) -> None:
    """Continue the sums in parts of ``out`` by products of ``x`` (batch, m, k) with parts of y, k by n.

    A part starts at a byte of a contiguous array, with steps in bytes between matrices and between rows.
    """
    table, parts, threads = _block_plan(x.shape, n, x.itemsize, lying, into)
    routine = _routine(from_numpy_dtype(x.dtype))
    assert routine is not None  # callers with native steps have these
    routine.run(x, y, out, table, parts, threads)


@lru_cache(8192)
def _block_plan(
    shape: Shape, n: int, itemsize: int, lying: Place, into: Place
) -> tuple[Array, frozenset[str], int | None]:
    batch, m, k = shape
    shared = batch * m * n * k >= _SHARED_FROM
    steps = (0, m * k * itemsize, k * itemsize, itemsize, 0, *lying[1:], itemsize)
    sizes = _sizes((1, batch), (m, n, k), steps, itemsize, shared)
    sizes |= {"goes_on": 1, "y_start": lying[0], "out_start": into[0], "out_matrix": into[1], "out_m": into[2]}
    return _table(sizes), parts_of(sizes, itemsize, compiler.host_target()), None if shared else 1


def _lying(x: Array, labels: str) -> tuple[Array, str]:
    """Return ``x`` and its labels in memory order if it is dense; else a copy."""
    order = sorted(range(x.ndim), key=lambda axis: -x.strides[axis])
    turned = x.transpose(order)
    return (turned, "".join(labels[d] for d in order)) if turned.flags.c_contiguous else (x.copy(order="C"), labels)


@dataclass(frozen=True, slots=True)
class _Side:
    """An operand: the step of each label, in bytes."""

    labels: str
    steps: dict[str, int]

    @staticmethod
    def of(labels: str, sizes: dict[str, int], itemsize: int) -> _Side:
        """An operand that is dense in the order of its labels."""
        steps, step = {}, itemsize
        for c in reversed(labels):
            steps[c], step = step, step * sizes[c]
        return _Side(labels, steps)

    def even(self, labels: str, sizes: dict[str, int]) -> bool:
        """Whether these labels count as one evenly spaced index."""
        moving = [c for c in labels if sizes[c] != 1]
        return all(self.steps[first] == self.steps[second] * sizes[second] for first, second in pairwise(moving))

    def step(self, labels: str, sizes: dict[str, int]) -> int:
        """The step of that index."""
        moving = [c for c in labels if sizes[c] != 1]
        return self.steps[moving[-1]] if moving else 0

    def arranged(self, groups: Sequence[str], sizes: dict[str, int], itemsize: int) -> tuple[_Side, Shape | None]:
        """Return the operand with each group of labels evenly spaced, and the order of axes in which it is copied for
        that."""
        if all(self.even(group, sizes) for group in groups):
            return self, None
        labels = "".join(groups)
        return _Side.of(labels, sizes, itemsize), tuple(self.labels.index(c) for c in labels)


@lru_cache(8192)
def _plan(a: str, x_shape: Shape, b: str, y_shape: Shape, out: str, itemsize: int, into: bool) -> _Plan:
    """The plan for contiguous operands with these labels; ``into`` existing memory."""
    sizes = dict(zip(a, x_shape, strict=True)) | dict(zip(b, y_shape, strict=True))
    batch = "".join(c for c in out if c in a and c in b)
    rows, columns = ("".join(c for c in out if c in one and c not in other) for one, other in ((a, b), (b, a)))
    summed = "".join(sorted(c for c in a if c not in out))
    m, n, k = (math.prod(sizes[c] for c in labels) for labels in (rows, columns, summed))
    # The kernel keeps lanes along columns: with few columns, the transposed product fills more of them.
    swapped = n <= _FEW_COLUMNS < m and not into
    sides = (_Side.of(a, sizes, itemsize), _Side.of(b, sizes, itemsize))
    outer, inner = _halves(batch, sizes, sides)
    x, x_order = sides[0].arranged((outer, inner, rows, summed), sizes, itemsize)
    y, y_order = sides[1].arranged((outer, inner, summed, columns), sizes, itemsize)
    left, right, own, others = (y, x, columns, rows) if swapped else (x, y, rows, columns)
    written = batch + own + others
    shape = tuple(sizes[c] for c in written)
    back = None if written == out else tuple(written.index(c) for c in out)
    steps = [side.step(g, sizes) for side, groups in ((left, (own, summed)), (right, (summed, others))) for g in groups]
    count = [math.prod(sizes[c] for c in labels) for labels in (outer, inner)]
    work, size = math.prod(count) * m * n * k, math.prod(shape)
    beyond = [side.step(g, sizes) for side in (left, right) for g in (outer, inner)]
    moved = (*beyond[:2], *steps[:2], *beyond[2:], *steps[2:])
    shared = work >= _SHARED_FROM
    given = _sizes(count, (n, m, k) if swapped else (m, n, k), moved, itemsize, shared)
    tables = (_table(given), _table(given | {"goes_on": 1}))
    parts = parts_of(given, itemsize, compiler.host_target()) if work else frozenset()
    return _Plan(
        x_order, y_order, swapped, shape, back, size * itemsize, not work, tables, parts, None if shared else 1
    )


def _halves(batch: str, sizes: dict[str, int], sides: Sequence[_Side]) -> tuple[str, str]:
    """Split the batch labels into two indices that are evenly spaced in both operands, if possible."""
    for cut in range(len(batch), -1, -1):
        if all(side.even(part, sizes) for side in sides for part in (batch[:cut], batch[cut:])):
            return batch[:cut], batch[cut:]
    return batch, ""


def _sizes(count: Sequence[int], size: Shape, steps: Shape, itemsize: int, shared: bool) -> dict[str, int]:
    """``SIZES``, with blocks for threads if these share the work."""
    matrices = math.prod(count)
    m, n, k = size
    rows, columns = max(m, 1), max(n, 1)
    if shared and matrices < _JOBS:
        columns = min(n, max(_COLUMNS, -(-n * matrices // _JOBS // _COLUMNS) * _COLUMNS))
        blocks = matrices * -(-n // columns)
        if blocks < _JOBS:
            rows = min(m, max(_ROWS, -(-m * blocks // _JOBS // _TILE) * _TILE))
    row_blocks, column_blocks = -(-m // rows), -(-n // columns)
    side_by_side = steps[7] == itemsize or n == 1
    packed = not side_by_side or (rows >= _PACKED_ROWS and n * itemsize > _NEAR_BYTES)
    tiling = (rows, row_blocks, columns, column_blocks)
    lying = (0, 0, m * n * itemsize, n * itemsize)
    values = (count[1], m, n, k, *steps, *tiling, int(packed), 0, matrices * row_blocks * column_blocks, *lying)
    return dict(zip(SIZES, values, strict=True))


def _table(sizes: Mapping[str, int]) -> Array:
    """The array of sizes that the routine reads."""
    return np.array([sizes[name] for name in SIZES], np.int64)
