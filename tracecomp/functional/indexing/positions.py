"""Positions of true or nonzero elements: one tensor per dimension, or rows of a matrix."""

from __future__ import annotations

from typing import Literal, overload

import numpy as np

from tracecomp.eager.device import use
from tracecomp.eager.modes import modes
from tracecomp.eager.tensor import Tensor, create, wrap
from tracecomp.functional.dtype_support import ALL
from tracecomp.functional.primitives import prim
from tracecomp.functional.promotion import cast
from tracecomp.functional.publish import function
from tracecomp.functional.shape.shaping import to_shape
from tracecomp.ir.types import bool_, int64


def true_positions(mask: Tensor) -> Tensor:
    """Positions of the true elements of a 1-d mask. In a recording their number is observed, and the positions are
    computed."""
    if modes.recorder is None:
        return wrap(np.flatnonzero(mask._data))
    ones = cast(mask, int64)
    count = int(prim.sum(ones, axes=(0,)))
    running = prim.sub(prim.cumsum(ones, axis=0), 1)
    places = prim.where(mask, running, count)
    total = mask.numel()
    room = create("full", value=0, shape=(count + 1,), dtype=int64)
    filled = prim.put(room, places, create("iota", shape=(total,), axis=0, dtype=int64), axis=0, mode="set")
    return prim.slice(filled, starts=(0,), stops=(count,), steps=(1,))


def mask_positions(mask: Tensor) -> list[Tensor]:
    """One index tensor per dimension of a mask: where it is true."""
    if modes.recorder is None and not use.begun:
        return [wrap(places) for places in np.nonzero(mask._data)]
    flat = true_positions(to_shape(mask, (mask.numel(),)))
    found, rest = [], flat
    for n in reversed(mask.shape):
        found.append(prim.remainder(rest, max(n, 1)) if len(mask.shape) > 1 else rest)
        rest = prim.floor_divide(rest, max(n, 1)) if len(mask.shape) > 1 else rest
    return found[::-1]


def nonzero_mask(x: Tensor) -> Tensor:
    return x if x.dtype is bool_ else prim.ne(x, 0)


@overload
def nonzero(input: Tensor, *, as_tuple: Literal[False] = False) -> Tensor: ...
@overload
def nonzero(input: Tensor, *, as_tuple: Literal[True]) -> tuple[Tensor, ...]: ...
@function(takes=ALL, composite=True)
def nonzero(input: Tensor, *, as_tuple: bool = False) -> Tensor | tuple[Tensor, ...]:
    """Positions of the nonzero elements: rows of a matrix, or one tensor per dimension."""
    if input.ndim == 0:
        flat = true_positions(nonzero_mask(to_shape(input, (1,))))
        return (flat,) if as_tuple else create("full", value=0, shape=(flat.numel(), 0), dtype=int64)
    mask = nonzero_mask(input)
    if modes.recorder is None and not use.begun and not as_tuple:
        return wrap(np.ascontiguousarray(np.argwhere(mask._data)))
    found = mask_positions(mask)
    if as_tuple:
        return tuple(found)
    return prim.concat(*(to_shape(p, (p.numel(), 1)) for p in found), axis=1)


@function(takes=ALL, composite=True)
def argwhere(input: Tensor) -> Tensor:
    """:func:`nonzero` as a matrix."""
    return nonzero(input)


@function(takes=ALL, composite=True)
def nonzero_static(input: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """:func:`nonzero` with exactly ``size`` rows: truncated, or padded."""
    found = nonzero(input)
    count, width = found.shape
    if count >= size:
        return found[:size]
    return (
        prim.pad(found, low=(0, 0), high=(size - count, 0), interior=(0, 0), value=fill_value)
        if width
        else (found.new_zeros((size, 0)))
    )
