"""LDL' of symmetric matrices, and LDL* of Hermitian ones, for indefinite matrices, run by the host.

The method is that of Bunch and Kaufman, "Some stable methods for calculating inertia and solving symmetric linear
systems" (1977). Pivots and compact form are those of LAPACK's ``sytrf`` and ``hetrf``. D has blocks of one or two rows.
``pivots`` lists the swapped rows, counted from 1; a block of two rows has two negative entries.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tracecomp.ir.arrays import Array
from tracecomp.ir.op import Sample
from tracecomp.ir.types import TensorType, int32
from tracecomp.ops.define import of, require
from tracecomp.ops.linalg.matrix import SQUARES, WIDE, decomposition, magnitude, matrices, square

_GROWTH = (1 + 17**0.5) / 8
"""Least ratio of a single-row pivot to the largest element of its column; it bounds the growth of both kinds alike."""


def _ldl_infer(x: TensorType, *, hermitian: bool) -> tuple[TensorType, ...]:
    shape = square("ldl_factor")(x).shape
    return x, TensorType(int32, shape[:-1]), TensorType(int32, shape[:-2])


def _ldl_impl(x: Array, *, hermitian: bool) -> Any:
    factors, n = np.tril(x), x.shape[-1]
    pivots, info = np.zeros(x.shape[:-1], np.int32), np.zeros(x.shape[:-2], np.int32)
    for place in np.ndindex(info.shape):
        info[place] = _factorize(factors[place], pivots[place], hermitian) if n else 0
    return factors, pivots, info


def _turned(x: Array, hermitian: bool) -> Array:
    return x.T.conj() if hermitian else x.T


def _factorize(a: Array, pivots: Array, hermitian: bool) -> int:
    """L and D in the memory of the lower triangle ``a``; the first (from 1) zero block of D, or 0."""
    k = singular = 0
    if hermitian:
        np.fill_diagonal(a, a.diagonal().real)
    while k < len(a):
        chosen, height = _pivot(a, k)
        _swap(a, k, k + height - 1, chosen, hermitian)
        below = slice(k + height, None)
        if height == 1 and a[k, k] == 0:
            singular = singular or k + 1
        else:
            block = slice(k, k + height)
            left = a[below, block].copy()
            a[below, block] = left @ _inverse(a[block, block], hermitian)
            a[below, below] -= np.tril(a[below, block] @ _turned(left, hermitian))
            if hermitian:
                np.fill_diagonal(a[below, below], a[below, below].diagonal().real)
        pivots[k : k + height] = chosen + 1 if height == 1 else -chosen - 1
        k += height
    return singular


def _inverse(block: Array, hermitian: bool) -> Any:
    """The inverse of a block of D, given below its diagonal; scaled so that its determinant does not overflow."""
    if len(block) == 1:
        return 1 / block
    scale = abs(block[1, 0]) if hermitian else block[1, 0]
    first, second, beside = block[0, 0] / scale, block[1, 1] / scale, block[1, 0] / scale
    above = beside.conj() if hermitian else beside
    return np.array([[second, -above], [-beside, first]], block.dtype) / (scale * (first * second - 1))


def _pivot(a: Array, k: int) -> tuple[int, int]:
    """The row that the next block of D swaps in as its last one, and the rows of the block."""
    column = magnitude(a[k + 1 :, k])
    own, largest = magnitude(a[k, k]), column.max(initial=0)
    if own >= _GROWTH * largest:
        return k, 1
    r = k + 1 + int(column.argmax())
    beside = max(magnitude(a[r, k:r]).max(initial=0), magnitude(a[r + 1 :, r]).max(initial=0))
    if own >= _GROWTH * largest * (largest / beside):
        return k, 1
    return r, 1 if magnitude(a[r, r]) >= _GROWTH * beside else 2


def _swap(a: Array, first: int, i: int, j: int, hermitian: bool) -> None:
    """Rows and columns ``i`` and ``j`` of the lower triangle that begins at ``first``."""
    if i == j:
        return
    a[j + 1 :, [i, j]] = a[j + 1 :, [j, i]]
    between = a[i + 1 : j, i].copy()
    a[i + 1 : j, i], a[j, i + 1 : j] = _turned(a[j, i + 1 : j], hermitian), _turned(between, hermitian)
    a[j, i] = _turned(a[j, i], hermitian)
    a[[i, j], [i, j]] = a[[j, i], [j, i]]
    a[[i, j], first:i] = a[[j, i], first:i]


decomposition("ldl_factor", "L and D in one matrix, row swaps, and the first zero block of D (0: none)", _ldl_infer,
              _ldl_impl, None, attrs={"hermitian": bool},
              samples=(*matrices(*SQUARES, domain="definite", hermitian=False),
                       *matrices((4, 4), domain="definite", hermitian=True)))  # fmt: skip


def _ldl_solve_infer(ld: TensorType, b: TensorType, pivots: TensorType, *, hermitian: bool) -> TensorType:
    fits = square("ldl_solve")(ld).shape[:-1] == b.shape[:-1] == pivots.shape
    require(
        fits,
        RuntimeError,
        f"linalg.ldl_solve: Incompatible shapes of LD, pivots and B: {ld}, {pivots} and {b}",
    )
    return b


def _ldl_solve_impl(ld: Array, b: Array, pivots: Array, *, hermitian: bool) -> Any:
    result = b.copy()
    for place in np.ndindex(ld.shape[:-2]):
        _substitute(ld[place], pivots[place], result[place], hermitian)
    return result


def _substitute(a: Array, pivots: Array, x: Array, hermitian: bool) -> None:
    """The solution in the memory of the right-hand side ``x``."""
    blocks = list(_blocks(pivots))
    for k, height, last, other in blocks:
        x[[last, other]] = x[[other, last]]
        rows, below = slice(k, k + height), slice(k + height, None)
        x[below] -= a[below, rows] @ x[rows]
        x[rows] = _inverse(a[rows, rows], hermitian) @ x[rows]
    for k, height, last, other in reversed(blocks):
        rows, below = slice(k, k + height), slice(k + height, None)
        x[rows] -= _turned(a[below, rows], hermitian) @ x[below]
        x[[last, other]] = x[[other, last]]


def _blocks(pivots: Array) -> Iterator[tuple[int, int, int, int]]:
    """Yield the start of each block of D, its rows, and the two rows swapped before it."""
    k = 0
    while k < len(pivots):
        height = 1 if pivots[k] > 0 else 2
        yield k, height, k + height - 1, abs(int(pivots[k])) - 1
        k += height


decomposition("ldl_solve", "X with A X = B from ldl_factor of A, batches of equal leading axes", _ldl_solve_infer,
              _ldl_solve_impl, None, attrs={"hermitian": bool},
              samples=tuple(Sample((of(d, *lead, 3, 3, domain="definite"), of(d, *lead, 3, 2),
                                    of("i32", *lead, 3, domain="outside:1")),
                                   {"hermitian": False})
                            for d in WIDE for lead in ((), (2,), (0,))))  # fmt: skip
