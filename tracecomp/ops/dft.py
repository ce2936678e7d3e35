"""``dft``: transforms along one axis as they lie in memory, which compiled Fourier transforms are made of.

The operand is (..., points, inner), complex numbers as real and imaginary parts along one more axis of 2. Three
forms: "c2c" from complex to complex numbers, "r2c" from an even number of real ones to the half spectrum, "c2r" back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tracecomp.ir.loops import Buffer, Stmt
from tracecomp.ir.op import Imperative, Op, Sample, register
from tracecomp.ir.types import TensorType
from tracecomp.ops.define import bad, check_dtype, of, require
from tracecomp.ops.dft_plan import Plan, plan
from tracecomp.ops.dft_side import Side
from tracecomp.ops.dft_stages import Stages

FORMS = ("c2c", "r2c", "c2r")


def _infer(x: TensorType, *table: TensorType, form: str, forward: bool, scale: float) -> TensorType:
    dtype = check_dtype("dft", (x, *table), "wide")
    require(form in FORMS and (form == "c2c" or forward == (form == "r2c")), RuntimeError, f"dft: no form {form}")
    least = 2 if form == "r2c" else 3
    whole = x.ndim >= least and (form == "r2c" or x.shape[-1] == 2)
    require(whole, RuntimeError, f"dft: expected (..., points, inner{', 2' * (least - 2)}), got {x}")
    *lead, points, inner = x.shape if form == "r2c" else x.shape[:-1]
    enough = points > 1 if form == "c2c" else points > 2 and points % 2 == 0 if form == "r2c" else points > 2
    require(enough, RuntimeError, f"dft: Invalid number of data points ({points}) for {form}, operand {x}")
    if form == "c2r":
        return TensorType(dtype, (*lead, 2 * (points - 1), inner))
    return TensorType(dtype, (*lead, points if form == "c2c" else points // 2 + 1, inner, 2))


def _impl(x: Any, *table: Any, form: str, forward: bool, scale: float) -> Any:
    """numpy's transforms, without a factor and then with ``scale``."""
    if form == "r2c":
        return _parts(np.fft.rfft(x, axis=-2) * scale, x.dtype)
    whole = x[..., 0] + 1j * x[..., 1]
    if form == "c2r":
        return np.asarray(np.fft.irfft(whole, axis=-2, norm="forward") * scale, x.dtype)
    found = np.fft.fft(whole, axis=-2) if forward else np.fft.ifft(whole, axis=-2, norm="forward")
    return _parts(found * scale, x.dtype)


def _parts(x: Any, dtype: Any) -> Any:
    return np.stack((x.real, x.imag), -1).astype(dtype)


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
    ins: Sequence[Buffer], outs: Sequence[Buffer], in_types: Sequence[TensorType], out_types: Any, *, form: str,
    forward: bool, scale: float,
) -> list[Stmt]:  # fmt: skip
    """Statements over the operand and the table of roots that ``passes/transforms.py`` adds to it."""
    (x, table), [out] = ins, outs
    if x.size == 0:
        return []
    rows, _, inner = rows_of(in_types[0], form)
    p = plan_of(in_types[0], form)
    return (Stages if p.second else Side)(p, x, table, out, rows, inner, form, forward, scale).statements()


_SHAPES = ((1, 8, 1), (2, 12, 3), (3, 6, 1), (0, 4, 2), (2, 64, 1), (1, 34, 5), (9, 30, 1))
_HALF = ((1, 5, 1), (2, 7, 3), (3, 4, 1), (0, 3, 2), (2, 33, 1), (1, 18, 5), (9, 16, 1))


def _samples() -> tuple[Sample, ...]:
    found = []
    for d in ("f32", "f64"):
        for shape, half in zip(_SHAPES, _HALF, strict=True):
            found += [Sample((of(d, *shape, 2),), {"form": "c2c", "forward": f, "scale": 1.0}) for f in (True, False)]
            found.append(Sample((of(d, *shape),), {"form": "r2c", "forward": True, "scale": 0.5}))
            found.append(Sample((of(d, *half, 2),), {"form": "c2r", "forward": False, "scale": 0.125}))
    return tuple(found)


register(
    Op(
        name="dft", kind="transform", doc="transforms along one axis, complex numbers as they lie in memory",
        infer=_infer, impl=_impl, vjp=None, saves=(), loop=Imperative(_loop),
        attrs={"form": str, "forward": bool, "scale": float}, samples=_samples(),
        errors=(
            bad(RuntimeError, "no form", of("f32", 1, 3, 1, 2), form="c2x", forward=True, scale=1.0),
            bad(RuntimeError, "expected", of("f32", 1, 3, 3), form="c2c", forward=True, scale=1.0),
            bad(RuntimeError, "number of data points", of("f32", 1, 3, 2), form="r2c", forward=True, scale=1.0),
            bad(NotImplementedError, "not implemented for 'Half'", of("f16", 1, 4, 2), form="r2c", forward=True,
                scale=1.0),
        ),
    )
)  # fmt: skip
