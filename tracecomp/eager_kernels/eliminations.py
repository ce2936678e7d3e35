"""Linear algebra of real matrices with the bits of compiled programs, for any sizes.

Every element is a sum of terms in order, so panels change the speed, never a bit. If shapes of small matrices recur, a
program of the single operator takes over (``programs.py``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, TypeAlias

import numpy as np

from tracecomp.base.errors import CompileError
from tracecomp.eager_kernels.panels import Block, less_product, run, solve_rows, stack
from tracecomp.eager_kernels.programs import served
from tracecomp.eager_kernels.reflections import geqrf, qr, reflect, reflections
from tracecomp.ir.interpret import Evaluate
from tracecomp.ir.op import OPS, Attrs, Op
from tracecomp.ir.types import TensorType, from_numpy_dtype
from tracecomp.ops.linalg.cholesky import not_definite
from tracecomp.ops.linalg.matrix import zero_pivot

Array = np.ndarray[Any, Any]
Kinds: TypeAlias = tuple[tuple[np.dtype[Any], tuple[int, ...]], ...]

_PANEL = 64
"""Rows of a panel of Cholesky's factorization; the rest are products, as in solves (``panels.py``)."""
_WHOLE, _LEAF = 64, 16
"""Most columns for which LU is a single panel; columns of a panel in wider matrices."""
_SERVED_TO = 64
"""Most rows and columns for which a separate program pays."""


def eliminate(op: Op, arrays: Sequence[Array], attrs: Attrs, evaluate: Evaluate) -> Any:
    """Apply ``op`` to real matrices; ``evaluate`` runs operators on the elements of triangles."""
    if not _has_elements(op, tuple([(x.dtype, x.shape) for x in arrays]), tuple(attrs.items())):
        return op.impl(*arrays, **attrs)

    def eager(given: Sequence[Array]) -> tuple[Array, ...]:
        try:
            run = _NATIVE.get(op.name) or partial(_COMPOSED[op.name], evaluate)
            return run(*given, **attrs)
        except CompileError:  # no native code for this Python and numpy
            found = op.impl(*given, **attrs)
            return found if isinstance(found, tuple) else (found,)

    small = max(arrays[0].shape[-2:]) <= _SERVED_TO
    found = (served(op, arrays, attrs, eager) if small else None) or eager(arrays)
    return found if len(found) > 1 else found[0]


@lru_cache(1024)
def _has_elements(op: Op, kinds: Kinds, attrs: tuple[tuple[str, object], ...]) -> bool:
    """Whether all operands have elements; raises the operator's error if operands do not fit."""
    types = [TensorType(from_numpy_dtype(dtype), shape) for dtype, shape in kinds]
    op.result_types(types, dict(attrs))
    return all(t.numel for t in types)


# ---- triangular systems


def _triangular_solve(a: Array, b: Array, *, above: bool, ones: bool, turn: bool) -> tuple[Array]:
    n = a.shape[-1]
    x = stack(b)
    if not a.flags.c_contiguous and (other := np.swapaxes(a, -1, -2)).flags.c_contiguous:
        t = other.reshape(-1, n, n)
        block = Block.of(t).turned()
    else:
        t = np.ascontiguousarray(a).reshape(-1, n, n)
        block = Block.of(t)
    block, x_block = block.turned() if turn else block, Block.of(x)
    if above != turn:
        block, x_block = block.reversed(n, n), x_block.reversed(n, 1)
    solve_rows(t, block, x, x_block, (n, x.shape[-1]), "ones" if ones else "divided")
    return (x.reshape(b.shape),)


# ---- LU


def _lu_factor(x: Array, *, fails: str) -> tuple[Array, Array]:
    lu, pivots = _factored(x, fails)
    return lu.reshape(x.shape), pivots.reshape(*x.shape[:-2], pivots.shape[1])


def _factored(x: Array, fails: str) -> tuple[Array, Array]:
    """The factors and the pivots, with one axis of matrices."""
    lu = stack(x)
    batch, m, n = lu.shape
    k = min(m, n)
    pivots = np.zeros((batch, k), np.int32)
    if n <= _WHOLE:
        _lu_panel(lu, lu, pivots, 0, 0)
    else:
        _lu_columns(lu, pivots, 0, k)
        if n > k:
            all_of = Block.of(lu)
            solve_rows(lu, all_of, lu, all_of.at(0, k), (k, n - k), "ones")
    error = zero_pivot(lu, fails, x.shape[:-2]) if fails else None
    if error is not None:
        raise error
    return lu, pivots


def _lu_panel(panel: Array, whole: Array, pivots: Array, first: int, width: int) -> None:
    """Factor a panel; the first ``width`` columns of the whole follow the panel's row exchanges."""
    batch, rows, columns = panel.shape
    steps = min(rows, columns)
    row = whole.shape[2] * whole.itemsize
    sizes = (
        0, *panel.strides[:2], first * row, whole.strides[0], row, width, 4 * first, 4 * pivots.shape[1],
        rows, columns, steps, first, batch,
    )  # fmt: skip
    run("lu", (panel, whole, pivots), sizes, batch * rows * columns * steps)


def _lu_columns(lu: Array, pivots: Array, start: int, stop: int) -> None:
    """Steps ``start`` to ``stop``: factor one half of the columns, update the other half, and factor it."""
    if stop - start <= _LEAF:
        panel = np.ascontiguousarray(lu[:, start:, start:stop])
        _lu_panel(panel, lu, pivots, start, lu.shape[2])
        lu[:, start:, start:stop] = panel
        return
    middle = start + -(-(stop - start) // (2 * _LEAF)) * _LEAF
    _lu_columns(lu, pivots, start, middle)
    block, count = Block.of(lu), stop - middle
    beside = block.at(start, middle)
    solve_rows(lu, block.at(start, start), lu, beside, (middle - start, count), "ones")
    if middle < lu.shape[1]:
        less_product(lu[:, middle:, start:middle], lu, beside, lu, block.at(middle, middle), count)
    _lu_columns(lu, pivots, middle, stop)


def _pivot_order(pivots: Array, *, size: int) -> tuple[Array]:
    batch, steps = math.prod(pivots.shape[:-1]), pivots.shape[-1]
    if pivots.min() < 1 or pivots.max() > size:
        raise IndexError(f"pivot_order: swaps must name rows from 1 to {size}")
    order = np.empty((batch, size), np.int64)
    order[:] = np.arange(size)
    named = np.ascontiguousarray(pivots)
    run("swap", (order.view(np.float64), named), (0, 8 * size, 8, 1, 0, 4 * steps, steps, batch), batch * steps)
    return (order.reshape(*pivots.shape[:-1], size),)


# ---- operators that use LU


def _substituted(lu: Array, x: Array) -> Array:
    """Replace x by the solution of L U X = x."""
    n, block = lu.shape[-1], Block.of(x)
    factors = Block.of(lu)
    solve_rows(lu, factors, x, block, (n, x.shape[2]), "ones")
    solve_rows(lu, factors.reversed(n, n), x, block.reversed(n, 1), (n, x.shape[2]), "divided")
    return x


def _swapped(x: Array, pivots: Array) -> Array:
    """Exchange the rows of ``x`` by the pivots."""
    steps = pivots.shape[1]
    sizes = (0, *x.strides[:2], x.shape[2], 0, 4 * steps, steps, len(x))
    run("swap", (x, pivots), sizes, len(x) * steps * x.shape[2])
    return x


def _matrix_solve(a: Array, b: Array) -> tuple[Array]:
    lu, pivots = _factored(a, "singular")
    return (_substituted(lu, _swapped(stack(b), pivots)).reshape(b.shape),)


def _matrix_inverse(x: Array) -> tuple[Array]:
    lu, pivots = _factored(x, "inverse")
    unit = np.zeros(lu.shape, lu.dtype)
    unit[:, range(lu.shape[1]), range(lu.shape[1])] = 1
    return (_substituted(lu, _swapped(unit, pivots)).reshape(x.shape),)


def _sign_and_pivots(x: Array) -> tuple[Array, Array]:
    """The sign of LU's row exchanges, and U's diagonal."""
    lu, pivots = _factored(x, "")
    odd = (pivots != np.arange(1, lu.shape[1] + 1, dtype=np.int32)).sum(axis=1) % 2
    lead = x.shape[:-2]
    diagonal = np.ascontiguousarray(np.diagonal(lu, axis1=1, axis2=2)).reshape(x.shape[:-1])
    return (1 - 2 * odd).astype(x.dtype).reshape(lead), diagonal


def _det(evaluate: Evaluate, x: Array) -> tuple[Array]:
    sign, diagonal = _sign_and_pivots(x)
    return (np.asarray(evaluate(OPS["prod"], [diagonal], {"axes": (x.ndim - 2,)}) * sign),)


def _slogdet(evaluate: Evaluate, x: Array) -> tuple[Array, Array]:
    sign, diagonal = _sign_and_pivots(x)
    axes = {"axes": (x.ndim - 2,)}
    signs = evaluate(OPS["prod"], [evaluate(OPS["sign"], [diagonal], {})], axes)
    logs = evaluate(OPS["log"], [np.abs(diagonal)], {})
    return np.asarray(signs * sign), np.asarray(evaluate(OPS["sum"], [logs], axes))


# ---- Cholesky


def _cholesky(x: Array, *, strict: bool, above: bool) -> tuple[Array, Array]:
    """The upper triangle of U with U'U = A, transposed unless the triangle is wanted ``above``."""
    n = x.shape[-1]
    u = stack(x if above else np.swapaxes(x, -1, -2))
    info = np.zeros(len(u), np.int32)
    block = Block.of(u)
    for first in range(0, n, _PANEL):
        end = min(first + _PANEL, n)
        rows, here = end - first, block.at(first, first)
        if first:
            left = np.swapaxes(u[:, :first, first:end], -1, -2)
            less_product(left, u, block.at(0, first), u, here, n - first)
        sizes = (here.start, here.matrix, here.row, rows, first, len(u))
        run("cholesky", (u, info), sizes, len(u) * rows**3)
        if end < n:
            solve_rows(u, here.turned(), u, block.at(first, end), (rows, n - end), "divided")
    if strict and info.any():
        raise not_definite(info.reshape(x.shape[:-2]), n)
    factor = u if above else np.ascontiguousarray(np.swapaxes(u, -1, -2))
    np.copyto(factor, 0, where=_beside(n, above))
    return factor.reshape(x.shape), info.reshape(x.shape[:-2])


@lru_cache(64)
def _beside(n: int, above: bool) -> Array:
    """The elements outside a triangle."""
    return np.tri(n, k=-1, dtype=bool) if above else ~np.tri(n, dtype=bool)


_NATIVE: dict[str, Callable[..., tuple[Array, ...]]] = {
    "triangular_solve": _triangular_solve,
    "lu_factor": _lu_factor,
    "pivot_order": _pivot_order,
    "cholesky": _cholesky,
    "matrix_solve": _matrix_solve,
    "matrix_inverse": _matrix_inverse,
    "reflections": reflections,
    "reflect": reflect,
}
_COMPOSED: dict[str, Callable[..., tuple[Array, ...]]] = {
    "det": _det, "slogdet": _slogdet, "geqrf": geqrf, "qr": qr,
}  # fmt: skip
"""Operators that compute with elements of triangles by other operators."""
