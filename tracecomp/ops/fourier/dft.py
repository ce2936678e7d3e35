"""``dft``: transforms along one axis in memory layout, of which compiled Fourier transforms consist.

The operand is (..., points, inner). Complex numbers are real and imaginary parts along one more axis of 2, or, with
``apart_in``, two operands; the result likewise. Three forms: "c2c" from complex to complex numbers, "r2c" from an even
number of real ones to the half spectrum, "c2r" back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from tracecomp.ir.arrays import Array
from tracecomp.ir.loops import Buffer, Stmt
from tracecomp.ir.op import Imperative, Op, Sample, Types, register
from tracecomp.ir.types import TensorType
from tracecomp.ops.define import bad, check_dtype, of, require
from tracecomp.ops.fourier.dft_plan import Plan, plan
from tracecomp.ops.fourier.dft_side import Side
from tracecomp.ops.fourier.dft_stages import Stages

FORMS = ("c2c", "r2c", "c2r")


def whole(types: Sequence[TensorType], apart: bool) -> TensorType:
    """The type of an operand with both parts in one."""
    first = types[0]
    return TensorType(first.dtype, (*first.shape, 2)) if apart else first


def _infer(
    *types: TensorType, form: str, forward: bool, scale: float, apart_in: bool, apart_out: bool
) -> TensorType | tuple[TensorType, TensorType]:
    """A real end has half as many points, and no separate parts: hence the cases by ``form``."""
    dtype = check_dtype("dft", types, "wide")
    # Real ends have one direction each, and no separate parts.
    right = form == "c2c" or (forward, apart_in and form == "r2c", apart_out and form == "c2r") == (
        form == "r2c", False, False,
    )  # fmt: skip
    require(form in FORMS and right, RuntimeError, f"dft: no form {form}")
    same = not apart_in or (len(types) > 1 and types[0] == types[1])
    require(same, RuntimeError, "dft: expected real and imaginary parts of one type")
    x = whole(types, apart_in)
    least = 2 if form == "r2c" else 3
    fits = x.ndim >= least and (form == "r2c" or x.shape[-1] == 2)
    require(fits, RuntimeError, f"dft: expected (..., points, inner{', 2' * (least - 2)}), got {x}")
    *lead, points, inner = x.shape if form == "r2c" else x.shape[:-1]
    # A real end of n points stores n / 2 + 1: the halves need an even n.
    enough = points > 1 if form == "c2c" else points > 2 and points % 2 == 0 if form == "r2c" else points > 2
    require(enough, RuntimeError, f"dft: Invalid number of data points ({points}) for {form}, operand {x}")
    if form == "c2r":
        return TensorType(dtype, (*lead, 2 * (points - 1), inner))
    shape = (*lead, points if form == "c2c" else points // 2 + 1, inner)
    part = TensorType(dtype, shape)
    return (part, part) if apart_out else TensorType(dtype, (*shape, 2))


def _impl(*xs: Array, form: str, forward: bool, scale: float, apart_in: bool, apart_out: bool) -> Any:
    """numpy's transforms, without a factor and then with ``scale``."""
    x = xs[0]
    if form == "r2c":
        found = np.fft.rfft(x, axis=-2)
    else:
        given = x + 1j * xs[1] if apart_in else x[..., 0] + 1j * x[..., 1]
        if form == "c2r":
            return np.asarray(np.fft.irfft(given, axis=-2, norm="forward") * scale, x.dtype)
        found = np.fft.fft(given, axis=-2) if forward else np.fft.ifft(given, axis=-2, norm="forward")
    parts = [np.ascontiguousarray(part * scale, x.dtype) for part in (found.real, found.imag)]
    return tuple(parts) if apart_out else np.stack(parts, -1)


def rows_of(x: TensorType, form: str) -> tuple[int, int, int]:
    """An operand's sizes as (rows, points, inner)."""
    *lead, points, inner = x.shape if form == "r2c" else x.shape[:-1]
    return math.prod(lead), points, inner


def plan_of(x: TensorType, form: str) -> Plan:
    """The plan of the transform of an operand."""
    rows, points, inner = rows_of(x, form)
    count = points if form == "c2c" else points // 2 if form == "r2c" else points - 1
    return plan(count, rows, inner, x.dtype.itemsize, form != "c2c")


def _loop(
    ins: Sequence[Buffer], outs: Sequence[Buffer], in_types: Sequence[TensorType], out_types: Types, *, form: str,
    forward: bool, scale: float, apart_in: bool, apart_out: bool,
) -> list[Stmt]:  # fmt: skip
    """Statements over the operand and the table of roots that ``passes/graph/fourier.py`` adds to it."""
    *given, table = ins
    if outs[0].size == 0:
        return []
    x = whole(in_types, apart_in)
    rows, _, inner = rows_of(x, form)
    p = plan_of(x, form)
    return (Stages if p.in_row else Side)(p, given, table, outs, rows, inner, form, forward, scale).statements()


_SHAPES = ((1, 8, 1), (2, 12, 3), (3, 6, 1), (0, 4, 2), (2, 64, 1), (1, 34, 5), (9, 30, 1))
_HALF = ((1, 5, 1), (2, 7, 3), (3, 4, 1), (0, 3, 2), (2, 33, 1), (1, 18, 5), (9, 16, 1))


def _samples() -> tuple[Sample, ...]:
    found = []
    for d in ("f32", "f64"):
        for shape, half in zip(_SHAPES, _HALF, strict=True):
            for apart_in, apart_out in product((False, True), repeat=2):
                ends = {"apart_in": apart_in, "apart_out": apart_out}
                args = (of(d, *shape),) * 2 if apart_in else (of(d, *shape, 2),)
                found += [Sample(args, {"form": "c2c", "forward": f, "scale": 1.0, **ends}) for f in (True, False)]
                if not apart_in:
                    found.append(Sample((of(d, *shape),), {"form": "r2c", "forward": True, "scale": 0.5, **ends}))
                if not apart_out:
                    args = (of(d, *half),) * 2 if apart_in else (of(d, *half, 2),)
                    found.append(Sample(args, {"form": "c2r", "forward": False, "scale": 0.125, **ends}))
    return tuple(found)


_WHOLE = {"forward": True, "scale": 1.0, "apart_in": False, "apart_out": False}

register(
    Op(
        name="dft", kind="transform", doc="transforms along one axis, with interleaved complex numbers",
        infer=_infer, impl=_impl, vjp=None, saves=(), loop=Imperative(_loop), samples=_samples(),
        attrs={"form": str, "forward": bool, "scale": float, "apart_in": bool, "apart_out": bool},
        errors=(
            bad(RuntimeError, "no form", of("f32", 1, 3, 1, 2), form="c2x", **_WHOLE),
            bad(RuntimeError, "expected", of("f32", 1, 3, 3), form="c2c", **_WHOLE),
            bad(RuntimeError, "of one type", of("f32", 3, 1), of("f32", 4, 1), form="c2c",
                **{**_WHOLE, "apart_in": True}),
            bad(RuntimeError, "number of data points", of("f32", 1, 3, 2), form="r2c", **_WHOLE),
            bad(NotImplementedError, "not implemented for 'Half'", of("f16", 1, 4, 2), form="r2c", **_WHOLE),
        ),
    )
)  # fmt: skip
