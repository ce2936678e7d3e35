"""Fourier transforms: the roots of unity that they read, and numbers of points with a large prime factor."""

from __future__ import annotations

from typing import cast

import numpy as np

from tracecomp.ir.graph import Graph, Value
from tracecomp.ir.op import Pair
from tracecomp.ir.types import TensorType
from tracecomp.ops.autodiff import Sym
from tracecomp.ops.butterflies import exact_roots
from tracecomp.ops.dft import plan_of
from tracecomp.ops.dft_plan import fast_size, radices
from tracecomp.ops.parts import packed, product, unpacked
from tracecomp.ops.prim import prim
from tracecomp.passes.rewrite import Application, Replacement, Rewriter, Rules

RULES = Rules()


@RULES.on("dft")
def transform_as_convolution(g: Rewriter, a: Application) -> Replacement:
    """dft(x) of n points with a large prime factor -> chirp * idft(dft(chirp * x) * spectrum), of 2n points and more

    Bluestein 1970: ``j * k = (j**2 + k**2 - (k - j)**2) / 2``.
    """
    x = a.inputs[0]
    if a.attrs["form"] != "c2c" or radices(x.shape[-3]) is not None:
        return None
    n, forward = x.shape[-3], a.attrs["forward"]
    size = fast_size(2 * n - 1)
    cos, sin = exact_roots(np.arange(n) ** 2, 2 * n)
    chirp = cos + 1j * (sin if forward else -sin)
    around = np.zeros(size, complex)
    around[:n] = chirp.conj()
    around[size - n + 1 :] = chirp[:0:-1].conj()
    graph = cast(Graph, g)  # builds as a graph does, and simplifies on the way
    weight, spectrum = (_constant(g, c, x) for c in (chirp, np.fft.fft(around)))
    times = product(prim.mul)
    low = (0,) * (x.ndim - 1)
    high = (*low[:-2], size - n, 0)
    turned = times(unpacked(Sym(graph, x)), weight)
    padded = Pair(*(prim.pad(p, low=low, high=high, interior=low, value=0.0) for p in (turned.re, turned.im)))
    found = unpacked(prim.dft(packed(padded), form="c2c", forward=True, scale=1.0))
    found = unpacked(prim.dft(packed(times(found, spectrum)), form="c2c", forward=False, scale=a.attrs["scale"] / size))
    kept = (prim.slice(p, starts=low, stops=x.shape[:-1], steps=(1,) * len(low)) for p in (found.re, found.im))
    result: Value = packed(times(Pair(*kept), weight)).value
    return result


def _constant(g: Rewriter, values: np.ndarray, like: Value) -> Pair:
    """Complex constants along the axis of points."""
    dtype = like.dtype
    type = TensorType(dtype, (len(values), 1))
    graph = cast(Graph, g)
    parts = (np.asarray(part, dtype.numpy).reshape(type.shape) for part in (values.real, values.imag))
    return Pair(*(Sym(graph, g.constant(part, type)) for part in parts))


@RULES.on("dft")
def roots_of_transform(g: Rewriter, a: Application) -> Replacement:
    """dft(x) -> dft(x, roots of unity)"""
    if len(a.inputs) > 1:
        return None
    x = a.inputs[0]
    table = np.asarray(plan_of(x.type, a.attrs["form"]).table.array(), x.dtype.numpy)
    return g.add(a.op, (x, g.constant(table, TensorType(x.dtype, table.shape))), a.attrs)
