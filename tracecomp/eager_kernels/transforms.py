"""Fourier transforms with the bits of compiled programs, for any shape and axes.

A call runs the operator's composition (``ops/fourier/fourier.py``) node by node: moves by numpy, transforms along an
axis by machine code for a number of points. Machine code exists for a few numbers of rows; other numbers take several
calls, the last of which may repeat some rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from tracecomp import eager_kernels
from tracecomp.base.errors import CompileError
from tracecomp.ir.arrays import in_parts
from tracecomp.ir.graph import Graph
from tracecomp.ir.interpret import Evaluate, Interpreter
from tracecomp.ir.op import OPS, Op
from tracecomp.ir.types import DType, Shape, TensorType, from_numpy_dtype
from tracecomp.ops.fourier.dft import plan_of
from tracecomp.passes.cost.machine import host
from tracecomp.passes.graph.complex_to_real import split_complex
from tracecomp.passes.graph.fourier import SMALL_FACTORS
from tracecomp.passes.graph.rewrite import rewrite
from tracecomp.passes.steps import Log
from tracecomp.runtime import program_cache
from tracecomp.runtime.loaded import Loaded, loaded

Array = np.ndarray[Any, Any]
Attrs: TypeAlias = dict[str, Any]

ROWS = (1024, 64, 8, 1)
"""Numbers of rows with machine code: each is compiled once per number of points, and few calls cover any number of
rows."""
_SHARED_FROM = 1 << 15
"""Least numbers in a call for which threads share it."""


def transform(op: Op, arrays: Sequence[Array], attrs: Attrs, evaluate: Evaluate) -> Any:
    """Run ``op`` on ``arrays``; None without machine code for this Python and numpy."""
    try:
        if op.name == "dft":
            return _along_axis(arrays, **attrs)
        (x,) = arrays
        composed = _composed(op, from_numpy_dtype(x.dtype), x.shape, tuple(attrs.items()))
        (found,) = composed.run([in_parts(x)], evaluate=evaluate)
    except CompileError:
        return None
    if op.name == "fft_c2r":
        return found
    return np.ascontiguousarray(found).view(from_numpy_dtype(found.dtype).to_complex().numpy)[..., 0]


@lru_cache(256)
def _composed(op: Op, dtype: DType, shape: Shape, attrs: tuple[tuple[str, object], ...]) -> Interpreter:
    """The composition of ``op``, on real and imaginary parts; numbers of points have small factors only."""
    graph, log = Graph(op.name), Log()
    graph.add_output(graph.apply(op.name, graph.add_input(TensorType(dtype, shape), "x"), **dict(attrs)))
    return Interpreter(rewrite(split_complex(graph, log), SMALL_FACTORS, log, "decompose"))


def _along_axis(
    arrays: Sequence[Array], *, form: str, forward: bool, scale: float, apart_in: bool, apart_out: bool
) -> Any:
    """``dft`` with its axis moved to the end."""
    x = np.stack(arrays[:2], -1) if apart_in else arrays[0]
    turned = x.swapaxes(-1, -2) if form == "r2c" else x.swapaxes(-2, -3)
    lead, one = turned.shape[: -1 if form == "r2c" else -2], turned.shape[-1 if form == "r2c" else -2 :]
    found = _rows(np.ascontiguousarray(turned).reshape(-1, *one), form, forward)
    # Machine code scales last, by one product too. It halves half spectra in the same product: hence its 2 below.
    factor = scale / 2 if form == "r2c" else scale
    if factor != 1.0:
        found *= found.dtype.type(factor)
    found = found.reshape(*lead, *found.shape[1:])
    if form == "c2r":
        return np.ascontiguousarray(found.swapaxes(-1, -2))
    found = found.swapaxes(-2, -3)
    if apart_out:
        return tuple(np.ascontiguousarray(found[..., part]) for part in range(2))
    return np.ascontiguousarray(found)


def _rows(x: Array, form: str, forward: bool) -> Array:
    """Transforms of the rows of ``x``, which are (points,) for "r2c", else (points, 2); half spectra are doubled."""
    count = len(x)
    step = next((rows for rows in ROWS if rows <= count), 1)
    kernel = _kernel(form, x.shape[1:], from_numpy_dtype(x.dtype), forward, step)
    out = np.empty((count, *kernel.row), x.dtype)
    threads = None if step * math.prod(kernel.row) >= _SHARED_FROM else 1
    for start in range(0, count, step):
        first = min(start, count - step)
        kernel.code.run((x[first : first + step], kernel.table, out[first : first + step]), threads)
    return out


class _Kernel:
    """Machine code for transforms of ``rows`` rows, the roots that it reads, and the shape of a row of results."""

    def __init__(self, form: str, one: Shape, dtype: DType, forward: bool, rows: int) -> None:
        op, graph = OPS["dft"], Graph("dft")
        x = TensorType(dtype, (rows, one[0], 1, *one[1:]))
        self.table = np.asarray(plan_of(x, form).table.array(), dtype.numpy)
        given = (graph.add_input(x, "x"), graph.add_input(TensorType(dtype, self.table.shape), "roots"))
        scale = 2.0 if form == "r2c" else 1.0
        attrs = {"form": form, "forward": forward, "scale": scale, "apart_in": False, "apart_out": False}
        (result,) = graph.add(op, given, attrs)
        graph.add_output(result)
        _, points, _, *parts = result.type.shape
        self.row: Shape = (points, *parts)
        made = program_cache.image_of(graph, host(), lambda: eager_kernels.program_image(graph))
        self.code: Loaded = loaded(made)


@lru_cache(512)
def _kernel(form: str, one: Shape, dtype: DType, forward: bool, rows: int) -> _Kernel:
    return _Kernel(form, one, dtype, forward, rows)
