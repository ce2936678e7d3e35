"""Complex values as pairs of real ones: helpers for ``Op.parts``, and conjugates for derivatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracecomp.ir.arrays import Array
from tracecomp.ir.op import Attrs, Op, Operand, Pair
from tracecomp.ops.prim import prim


def each(name: str) -> Callable[..., Any]:
    """The rule of a linear operator with real coefficients: both parts are treated like a real operand."""

    def parts(*operands: Operand, **attrs: Any) -> Any:
        apply = getattr(prim, name)
        re = apply(*(x.re if isinstance(x, Pair) else x for x in operands), **attrs)
        return Pair(re, apply(*(x.im if isinstance(x, Pair) else x for x in operands), **attrs))

    return parts


def product(apply: Callable[[Operand, Operand], Operand]) -> Callable[[Pair, Pair], Pair]:
    """The rule of a bilinear operator that ``apply`` is for real operands."""

    def parts(a: Pair, b: Pair) -> Pair:
        re = prim.sub(apply(a.re, b.re), apply(a.im, b.im))
        return Pair(re, prim.add(apply(a.re, b.im), apply(a.im, b.re)))

    return parts


def quotient(a: Pair, b: Pair) -> Pair:
    """a / b by Smith's method (1962): scaled by the larger part of b, so that no intermediate overflows."""
    turned = prim.lt(prim.abs(b.re), prim.abs(b.im))
    large, small = prim.where(turned, b.im, b.re), prim.where(turned, b.re, b.im)
    first, second = prim.where(turned, a.im, a.re), prim.where(turned, a.re, a.im)
    ratio = prim.div(small, prim.where(prim.eq(large, 0.0), 1.0, large))
    scale = prim.add(large, prim.mul(small, ratio))
    im = prim.sub(second, prim.mul(first, ratio))
    re = prim.add(first, prim.mul(second, ratio))
    return Pair(prim.div(re, scale), prim.div(prim.where(turned, prim.neg(im), im), scale))


@dataclass(frozen=True, slots=True)
class _OnArray:
    """An array as an operand of primitives, which run by numpy."""

    array: Any

    def __tracecomp_apply__(self, op: Op, operands: Sequence[object], attrs: Attrs) -> _OnArray:
        return _OnArray(op.impl(*(x.array if isinstance(x, _OnArray) else x for x in operands), **attrs))


def on_arrays(parts: Callable[[Pair, Pair], Pair], a: Array, b: Array) -> Array:
    """Apply the rule of a complex binary operator to arrays; one operand may be real or a number."""
    dtype = np.result_type(a, b)
    pairs = [Pair(_OnArray(x.real), _OnArray(x.imag)) for x in (np.asarray(v, dtype) for v in (a, b))]
    result = parts(*pairs)
    found = np.empty(np.broadcast_shapes(np.shape(a), np.shape(b)), dtype)
    found.real, found.imag = result.re.array, result.im.array
    return found


def conj(x: Operand) -> Any:
    """The conjugate of an operand, which may be real or a Python number."""
    if isinstance(x, bool | int | float | complex):
        return x.conjugate()
    return prim.conj(x) if x.dtype.is_complex else x


def imaginary(x: Operand) -> Any:
    """i x for real ``x``."""
    return prim.complex(prim.full(like=x, value=0.0, shape=(), dtype=x.dtype), x)


def packed(x: Pair) -> Any:
    """Both parts in one real value, along a new last axis of size 2: the memory layout of complex numbers."""
    last = len(x.re.shape)
    shape = (*x.re.shape, 1)
    return prim.concat(prim.reshape(x.re, shape=shape), prim.reshape(x.im, shape=shape), axis=last)


def unpacked(x: Operand) -> Pair:
    """The complex value whose parts are along the last axis of ``x``."""
    *lead, _ = x.shape
    starts, steps = (0,) * len(lead), (1,) * (len(lead) + 1)
    re = prim.slice(x, starts=(*starts, 0), stops=(*lead, 1), steps=steps)
    im = prim.slice(x, starts=(*starts, 1), stops=(*lead, 2), steps=steps)
    return Pair(prim.reshape(re, shape=tuple(lead)), prim.reshape(im, shape=tuple(lead)))
