"""Fourier transforms: their roots of unity, and sizes with a large prime factor."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from tracecomp.ir.graph import Graph, Value
from tracecomp.ir.op import Pair
from tracecomp.ir.types import TensorType
from tracecomp.ops.autodiff import Sym
from tracecomp.ops.fourier.dft import plan_of, whole
from tracecomp.ops.fourier.dft_plan import fast_size, radices
from tracecomp.ops.fourier.roots import roots_of_unity, spectrum
from tracecomp.ops.parts import packed, product, unpacked
from tracecomp.ops.prim import prim
from tracecomp.passes.graph.rewrite import Application, Replacement, Rewriter, Rules

SMALL_FACTORS = Rules()


@SMALL_FACTORS.on("dft")
def transform_as_convolution(g: Rewriter, a: Application) -> Replacement:
    """dft(x) of n points with a large prime factor -> chirp * idft(dft(chirp * x) * spectrum), of 2n points and more

    Bluestein 1970: ``j * k = (j**2 + k**2 - (k - j)**2) / 2``.
    """
    # Complex transforms only; ``radices`` returns None for a large prime factor.
    if a.attrs["form"] != "c2c" or radices(_operand(a).shape[-3]) is not None:
        return None
    shape = _operand(a).shape[:-1]
    n, forward = shape[-2], a.attrs["forward"]
    # Long enough that wrap-around reaches only zeros, and with small factors.
    size = fast_size(2 * n - 1)
    # k squared modulo 2n, before it becomes an angle: exact at any size.
    cos, sin = roots_of_unity(np.arange(n) ** 2, 2 * n)
    chirp = cos + 1j * (sin if forward else -sin)
    around = np.zeros(size, complex)
    # The chirp around 0, to both sides.
    around[:n] = chirp.conj()
    around[size - n + 1 :] = chirp[:0:-1].conj()
    graph = cast(Graph, g)  # has a graph's interface, and simplifies
    given = [Sym(graph, v) for v in a.inputs]
    # The filter's spectrum is a constant of the program, computed in double.
    weight, filtering = (_constant(g, c, a.inputs[0]) for c in (chirp, spectrum(around)))
    times = product(prim.mul)
    low = (0,) * len(shape)
    high = (*low[:-2], size - n, 0)
    # The product with the chirp turns the transform into a convolution, computed by two transforms of the longer size.
    turned = times(Pair(*given) if a.attrs["apart_in"] else unpacked(*given), weight)
    padded = (prim.pad(p, low=low, high=high, interior=low, value=0.0) for p in (turned.re, turned.im))
    found = times(_apart(*padded, forward=True, scale=1.0), filtering)
    found = _apart(found.re, found.im, forward=False, scale=a.attrs["scale"] / size)
    kept = (prim.slice(p, starts=low, stops=shape, steps=(1,) * len(low)) for p in (found.re, found.im))
    result = times(Pair(*kept), weight)
    return (result.re.value, result.im.value) if a.attrs["apart_out"] else cast(Value, packed(result).value)


def _apart(re: Sym, im: Sym, **attrs: Any) -> Pair:
    return Pair(*prim.dft(re, im, form="c2c", apart_in=True, apart_out=True, **attrs))


def _operand(a: Application) -> TensorType:
    return whole([v.type for v in a.inputs], a.attrs["apart_in"])


def _constant(g: Rewriter, values: np.ndarray, like: Value) -> Pair:
    """Complex constants along the axis of points."""
    dtype = like.dtype
    type = TensorType(dtype, (len(values), 1))
    graph = cast(Graph, g)
    parts = (np.asarray(part, dtype.numpy).reshape(type.shape) for part in (values.real, values.imag))
    return Pair(*(Sym(graph, g.constant(part, type)) for part in parts))


RULES = Rules(SMALL_FACTORS)


@RULES.on("dft")
def roots_of_transform(g: Rewriter, a: Application) -> Replacement:
    """dft(x) -> dft(x, roots of unity)"""
    # Already applied.
    if len(a.inputs) > 1 + a.attrs["apart_in"]:
        return None
    x = _operand(a)
    # In float64, rounded once to the element type (docs/numerics.md, Fourier transforms).
    table = np.asarray(plan_of(x, a.attrs["form"]).table.array(), x.dtype.numpy)
    return g.add(a.op, (*a.inputs, g.constant(table, TensorType(x.dtype, table.shape))), a.attrs)
