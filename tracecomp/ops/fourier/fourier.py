"""Discrete Fourier transforms. numpy defines their meaning; compiled, they consist of ``dft`` (``ops/fourier/dft.py``).

Three primitives, each of which is the derivative of another: complex to complex, real to half spectrum, and half
spectrum to real. The last of ``axes`` is the halved one. ``norm`` is numpy's and PyTorch's: "backward" divides inverse
transforms by the number of points, "forward" the others, "ortho" both by its root.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from tracecomp.ir.arrays import Array
from tracecomp.ir.op import ComplexOperand, Interleaved, Op, Operand, Operands, Pair, Sample, register
from tracecomp.ir.types import TensorType, from_numpy_dtype, int64
from tracecomp.ops.autodiff import zeros_like
from tracecomp.ops.define import bad, check_dtype, of, require
from tracecomp.ops.fourier.dft_plan import radices
from tracecomp.ops.parts import unpacked
from tracecomp.ops.prim import prim

Axes: TypeAlias = tuple[int, ...]
NORMS = ("backward", "ortho", "forward")
FEW_LANES = 8
"""Inner elements below which an axis is moved to the end first, as fewer fill no vector."""
ADJOINT = {"backward": "forward", "ortho": "ortho", "forward": "backward"}


def _check(name: str, x: TensorType, axes: Axes, norm: str) -> None:
    distinct = len(axes) > 0 and len(set(axes)) == len(axes) and all(0 <= a < x.ndim for a in axes)
    require(distinct, IndexError, f"{name}: Dimension out of range: axes {axes} of {x}")
    require(norm in NORMS, RuntimeError, f'{name}: Invalid normalization mode: "{norm}"')
    points = min(x.shape[a] for a in axes)
    require(points > 0, RuntimeError, f"{name}: Invalid number of data points ({points}) specified, operand {x}")


def _factor(sizes: Sequence[int], norm: str, forward: bool) -> float:
    points = math.prod(sizes)
    return 1.0 / math.sqrt(points) if norm == "ortho" else 1.0 / points if (norm == "forward") == forward else 1.0


Norm = Literal["ortho", "forward", "backward"]


def _each(x: ComplexOperand, fn: Callable[[Operand], Operand]) -> Any:
    return Pair(fn(x.re), fn(x.im)) if isinstance(x, Pair) else fn(x)


def _along(x: ComplexOperand, axis: int, form: str, forward: bool, apart: bool, scale: float = 1.0) -> Any:
    """``dft`` along one axis, which is moved to the end if its inner elements fill few lanes.

    Complex operands and, with ``apart``, results are a ``Pair``, else values in memory.
    """
    given = (x.re, x.im) if isinstance(x, Pair) else (x,)
    shape = tuple(given[0].shape)
    ndim = len(shape) - (len(given) == 1 and form != "r2c")
    if form == "c2c" and shape[axis] == 1:
        return x if scale == 1.0 else _each(x, lambda part: prim.mul(part, scale))
    if 1 < math.prod(shape[axis + 1 : ndim]) < FEW_LANES:
        last = (*range(axis), *range(axis + 1, ndim), axis)
        back = (*range(axis), ndim - 1, *range(axis, ndim - 1))
        found = _along(_each(x, lambda part: _moved(part, last)), ndim - 1, form, forward, apart, scale)
        return _each(found, lambda part: _moved(part, back))
    flat = (*shape[: axis + 1], math.prod(shape[axis + 1 : ndim]), *shape[ndim:])
    made = prim.dft(
        *(prim.reshape(part, shape=flat) for part in given), form=form, forward=forward, scale=scale,
        apart_in=len(given) == 2, apart_out=apart and form != "c2r",
    )  # fmt: skip
    return _each(Pair(*made) if isinstance(made, tuple) else made, lambda part: prim.reshape(
        part, shape=(*part.shape[: axis + 1], *shape[axis + 1 : ndim], *part.shape[axis + 2 :])))  # fmt: skip


def _moved(x: Operand, order: Sequence[int]) -> Any:
    """The first axes in another order."""
    return prim.permute(x, dims=(*order, *range(len(order), len(x.shape))))


def _cut(x: Operand, axis: int, start: int, stop: int) -> Any:
    """The positions from ``start`` to ``stop`` of one axis."""
    ends = tuple(x.shape)
    return prim.slice(
        x, starts=tuple(start if i == axis else 0 for i in range(len(ends))),
        stops=tuple(stop if i == axis else n for i, n in enumerate(ends)), steps=(1,) * len(ends),
    )  # fmt: skip


def _halves(n: int) -> bool:
    """Whether a row of ``n`` real numbers is transformed as one of half as many complex ones."""
    return n > 2 and n % 2 == 0 and radices(n // 2) is not None


def _c2c_loop(x: ComplexOperand, apart: bool, *, axes: Axes, forward: bool, norm: str) -> Any:
    scale = _factor([_sizes(x)[a] for a in axes], norm, forward)
    for axis in axes[:-1]:
        x = _along(x, axis, "c2c", forward, True)
    return _along(x, axes[-1], "c2c", forward, apart, scale)


def _sizes(x: ComplexOperand) -> Sequence[int]:
    found: Sequence[int] = x.re.shape if isinstance(x, Pair) else x.shape
    return found


def _c2c_infer(x: TensorType, *, axes: Axes, forward: bool, norm: str) -> TensorType:
    check_dtype("fft_c2c", (x,), "complex")
    _check("fft_c2c", x, axes, norm)
    return x


def _c2c_impl(x: Array, *, axes: Axes, forward: bool, norm: Norm) -> Any:
    transform = np.fft.fftn if forward else np.fft.ifftn
    return _dense(transform(x, axes=axes, norm=norm), x.dtype)


def _dense(x: Array, dtype: np.dtype[Any]) -> Any:
    return np.ascontiguousarray(x, dtype).reshape(x.shape)


def _c2c_vjp(grads: Operands, outs: Operands, ins: Operands, *, axes: Axes, forward: bool, norm: str) -> Any:
    return (prim.fft_c2c(grads[0], axes=axes, forward=not forward, norm=ADJOINT[norm]),)


_ATTRS = {"axes": tuple, "norm": str}
_CASES: tuple[tuple[tuple[int, ...], Axes], ...] = (
    ((5,), (0,)), ((4, 3), (0,)), ((2, 4, 6), (1, 2)), ((3, 4), (1, 0)), ((0, 4), (1,)), ((1,), (0,)), ((2, 2), (0, 1)),
)  # fmt: skip

register(
    Op(
        name="fft_c2c", kind="transform", doc="Fourier transform of complex numbers, or its inverse", infer=_c2c_infer,
        impl=_c2c_impl, vjp=_c2c_vjp, saves=(), loop=Interleaved(_c2c_loop), attrs={**_ATTRS, "forward": bool},
        samples=tuple(
            Sample((of(d, *s),), {"axes": axes, "forward": forward, "norm": norm})
            for d in ("c64", "c128") for s, axes in _CASES
            for forward, norm in ((True, "backward"), (False, "backward"), (True, "ortho"), (False, "forward"))
        ),
        errors=(
            bad(NotImplementedError, "not implemented for 'Float'", of("f32", 3), axes=(0,), forward=True,
                norm="ortho"),
            bad(IndexError, "out of range", of("c64", 3), axes=(1,), forward=True, norm="ortho"),
            bad(RuntimeError, "Invalid normalization", of("c64", 3), axes=(0,), forward=True, norm="half"),
            bad(RuntimeError, "number of data points", of("c64", 0), axes=(0,), forward=True, norm="ortho"),
        ),
    )
)  # fmt: skip


def _replaced(shape: tuple[int, ...], axis: int, size: int) -> tuple[int, ...]:
    return (*shape[:axis], size, *shape[axis + 1 :])


def _r2c_infer(x: TensorType, *, axes: Axes, norm: str) -> TensorType:
    dtype = check_dtype("fft_r2c", (x,), "wide")
    _check("fft_r2c", x, axes, norm)
    return TensorType(dtype.to_complex(), _replaced(x.shape, axes[-1], x.shape[axes[-1]] // 2 + 1))


def _r2c_impl(x: Array, *, axes: Axes, norm: Norm) -> Any:
    return _dense(np.fft.rfftn(x, axes=axes, norm=norm), from_numpy_dtype(x.dtype).to_complex().numpy)


def _r2c_loop(x: Operand, apart: bool, *, axes: Axes, norm: str) -> Any:
    *others, last = axes
    n = x.shape[last]
    scale = _factor([x.shape[a] for a in axes], norm, True)
    if _halves(n):
        found = _along(x, last, "r2c", True, apart or bool(others), scale)
    else:
        found = _along(Pair(x, zeros_like(x)), last, "c2c", True, apart or bool(others), scale)
        found = _each(found, lambda part: _cut(part, last, 0, n // 2 + 1))
    for axis in others:
        found = _along(found, axis, "c2c", True, apart or axis != others[-1])
    return found


def _interior_weight(like: Operand, axis: int, n: int, weight: float) -> Any:
    """``weight`` for frequencies whose negative counterpart a half spectrum omits, 1 for the others."""
    half = n // 2 + 1
    shape = tuple(half if i == axis else 1 for i in range(len(like.shape)))
    place = prim.iota(like=like, shape=shape, axis=axis, dtype=int64)
    inside = prim.bitwise_and(prim.gt(place, 0), prim.lt(place, (n + 1) // 2))
    one = prim.full(like=like, value=1.0, shape=(), dtype=like.dtype)
    return prim.where(inside, prim.mul(one, weight), one)


def _r2c_vjp(grads: Operands, outs: Operands, ins: Operands, *, axes: Axes, norm: str) -> Any:
    last, g = axes[-1], grads[0]
    n = ins[0].shape[last]
    halved = prim.mul(g, _interior_weight(g, last, n, 0.5))
    return (prim.fft_c2r(halved, axes=axes, size=n, norm=ADJOINT[norm]),)


register(
    Op(
        name="fft_r2c", kind="transform", doc="Fourier transform of real numbers: the half spectrum", infer=_r2c_infer,
        impl=_r2c_impl, vjp=_r2c_vjp, saves=(), loop=Interleaved(_r2c_loop), attrs=_ATTRS,
        samples=tuple(
            Sample((of(d, *s),), {"axes": axes, "norm": norm})
            for d in ("f32", "f64") for s, axes in _CASES for norm in NORMS
        ),
        errors=(
            bad(NotImplementedError, "not implemented for 'Half'", of("f16", 3), axes=(0,), norm="ortho"),
            bad(IndexError, "out of range", of("f32", 3), axes=(1,), norm="ortho"),
            bad(RuntimeError, "number of data points", of("f32", 0), axes=(0,), norm="ortho"),
        ),
    )
)  # fmt: skip


def _c2r_infer(x: TensorType, *, axes: Axes, size: int, norm: str) -> TensorType:
    dtype = check_dtype("fft_c2r", (x,), "complex")
    _check("fft_c2r", x, axes, norm)
    half = x.shape[axes[-1]] == size // 2 + 1 and size > 0
    require(half, RuntimeError, f"fft_c2r: Invalid number of data points ({size}) specified, operand {x}")
    return TensorType(dtype.to_real(), _replaced(x.shape, axes[-1], size))


def _c2r_impl(x: Array, *, axes: Axes, size: int, norm: Norm) -> Any:
    """Transform axis by axis, so that only the real parts of the first and the last frequency count."""
    for axis in axes[:-1]:
        x = np.fft.ifft(x, axis=axis, norm=norm)
    return _dense(np.fft.irfft(x, size, axis=axes[-1], norm=norm), from_numpy_dtype(x.dtype).to_real().numpy)


def _c2r_loop(x: ComplexOperand, apart: bool, *, axes: Axes, size: int, norm: str) -> Any:
    *others, last = axes
    scale = _factor([*(_sizes(x)[a] for a in others), size], norm, False)
    for axis in others:
        x = _along(x, axis, "c2c", False, True)
    if _halves(size):
        return _along(x, last, "c2r", False, False, scale)
    half = x if isinstance(x, Pair) else unpacked(x)
    re, im = (prim.flip(_cut(part, last, 1, (size + 1) // 2), axes=(last,)) for part in (half.re, half.im))
    whole = Pair(prim.concat(half.re, re, axis=last), prim.concat(half.im, prim.neg(im), axis=last))
    found = _along(whole, last, "c2c", False, True, scale)
    return found.re


def _c2r_vjp(grads: Operands, outs: Operands, ins: Operands, *, axes: Axes, size: int, norm: str) -> Any:
    found = prim.fft_r2c(grads[0], axes=axes, norm=ADJOINT[norm])
    return (prim.mul(found, _interior_weight(found, axes[-1], size, 2.0)),)


register(
    Op(
        name="fft_c2r", kind="transform", doc="real numbers of which ``axes`` hold the half spectrum, ``size`` of them",
        infer=_c2r_infer, impl=_c2r_impl, vjp=_c2r_vjp, saves=(), loop=Interleaved(_c2r_loop),
        attrs={**_ATTRS, "size": int},
        samples=tuple(
            Sample((of(d, *_replaced(s, axes[-1], s[axes[-1]] // 2 + 1)),),
                   {"axes": axes, "size": s[axes[-1]], "norm": norm})
            for d in ("c64", "c128") for s, axes in _CASES for norm in NORMS
        ),
        errors=(
            bad(NotImplementedError, "not implemented for 'Float'", of("f32", 3), axes=(0,), size=4, norm="ortho"),
            bad(RuntimeError, "number of data points", of("c64", 3), axes=(0,), size=7, norm="ortho"),
        ),
    )
)  # fmt: skip
