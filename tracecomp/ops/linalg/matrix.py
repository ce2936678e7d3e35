"""Batches of matrices in the last two axes: helpers for derivative rules, and the form of records run by the host."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from tracecomp.base.errors import failure, in_batch, matrix_weight
from tracecomp.ir.arrays import Array
from tracecomp.ir.op import BadInput, External, Hosted, Impl, Infer, LoopMeaning, Op, Operand, Sample, Vjp, register
from tracecomp.ir.types import TensorType, int32, int64
from tracecomp.ops.define import check_dtype, of, require
from tracecomp.ops.parts import conj
from tracecomp.ops.prim import prim

_LETTERS = "abcdefgh"


def mm(a: Operand, b: Operand) -> Any:
    """Product of two batches of matrices with the same leading axes."""
    batch = _LETTERS[: len(a.shape) - 2]
    return prim.contract(a, b, spec=f"{batch}mk,{batch}kn->{batch}mn")


def turned(x: Operand) -> Any:
    """The last two axes swapped."""
    n = len(x.shape)
    return prim.permute(x, dims=(*range(n - 2), n - 1, n - 2))


def adjoint(x: Operand) -> Any:
    """The last two axes swapped, complex numbers conjugated."""
    return turned(conj(x))


def as_type(s: Operand, x: Operand) -> Any:
    """Real numbers ``s`` as complex ones if ``x`` is complex."""
    return s if s.dtype is x.dtype else prim.cast(s, dtype=x.dtype)


def rows_minus_columns(x: Operand) -> Any:
    shape, n = tuple(x.shape), len(x.shape)
    row = prim.iota(like=x, shape=shape, axis=n - 2, dtype=int64)
    return prim.sub(row, prim.iota(like=x, shape=shape, axis=n - 1, dtype=int64))


def lower(x: Operand, below: int = 0) -> Any:
    """The lower triangle, from ``below`` diagonals under the main one."""
    return prim.where(prim.ge(rows_minus_columns(x), below), x, 0.0)


def upper(x: Operand, above: int = 0) -> Any:
    """The upper triangle, from ``above`` diagonals over the main one."""
    return prim.where(prim.le(rows_minus_columns(x), -above), x, 0.0)


def scale_columns(x: Operand, s: Operand) -> Any:
    return prim.mul(x, prim.reshape(as_type(s, x), shape=(*s.shape[:-1], 1, s.shape[-1])))


def scale_rows(x: Operand, s: Operand) -> Any:
    return prim.mul(x, prim.reshape(as_type(s, x), shape=(*s.shape, 1)))


def unit(like: Operand) -> Any:
    """Identity matrices of the shape of ``like``."""
    return prim.cast(prim.eq(rows_minus_columns(like), 0), dtype=like.dtype)


def columns(x: Operand, start: int, stop: int) -> Any:
    return _cut(x, len(x.shape) - 1, start, stop)


def rows(x: Operand, start: int, stop: int) -> Any:
    return _cut(x, len(x.shape) - 2, start, stop)


def _cut(x: Operand, axis: int, start: int, stop: int) -> Any:
    n = len(x.shape)
    return prim.slice(
        x,
        starts=tuple(start if i == axis else 0 for i in range(n)),
        stops=tuple(stop if i == axis else x.shape[i] for i in range(n)),
        steps=(1,) * n,
    )


def decomposition(
    name: str,
    doc: str,
    infer: Infer,
    impl: Impl,
    vjp: Vjp | None,
    saves: tuple[int | str, ...] = ("ins", "outs"),
    *,
    samples: Sequence[Sample],
    attrs: Mapping[str, type] = MappingProxyType({}),
    loop: LoopMeaning | None = None,
) -> Op:
    """Register an operator on batches of matrices; the host runs it unless it has a ``loop`` meaning, and always on
    complex ones.

    Operands of int32 are pivots.
    """

    def run(*arrays: Array, **attrs: Any) -> Any:
        # numpy chooses the order of products by strides, which differ in a program.
        result = impl(*map(_dense, arrays), **attrs)
        return tuple(map(_dense, result)) if isinstance(result, tuple) else _dense(result)

    def checked(*types: TensorType, **attrs: Any) -> Any:
        check_dtype(name, [t for t in types if t.dtype is not int32] or types, "wide field")
        at_least_two = types[0].ndim >= 2
        require(
            at_least_two,
            RuntimeError,
            f"linalg.{name}: The input tensor must have at least 2 dimensions, got {', '.join(map(str, types))}",
        )
        return infer(*types, **attrs)

    vector = Sample((of("f32", 3), *samples[0].args[1:]), samples[0].attrs)
    return register(
        Op(
            name=name, kind="elimination" if loop else "external", doc=doc, infer=checked, impl=run, vjp=vjp,
            saves=saves, loop=loop or External(), parts=Hosted(), attrs=dict(attrs), samples=tuple(samples),
            errors=(BadInput(vector, RuntimeError, "must have at least 2 dimensions"),),
        )
    )  # fmt: skip


def square(name: str) -> Callable[[TensorType], TensorType]:
    """The type of one square operand; RuntimeError for other shapes."""

    def infer(x: TensorType) -> TensorType:
        require(
            x.shape[-1] == x.shape[-2],
            RuntimeError,
            f"linalg.{name}: A must be batches of square matrices, but they are {x.shape[-2]} by {x.shape[-1]} "
            "matrices",
        )
        return x

    return infer


def matrices(*shapes: tuple[int, ...], domain: str = "regular", **attrs: Any) -> tuple[Sample, ...]:
    return tuple(Sample((of(d, *s, domain=domain),), attrs) for d in WIDE for s in shapes)


WIDE = ("f32", "f64", "c64", "c128")
"""Types of samples of decompositions."""
SQUARES = ((3, 3), (2, 4, 4), (1, 1), (0, 2, 2))
OBLONG = ((3, 3), (2, 4, 3), (3, 5), (0, 2, 2))


def _dense(x: Array) -> Any:
    return np.ascontiguousarray(x).reshape(np.shape(x))


def magnitude(x: Array) -> Any:
    """The magnitude by which LAPACK compares pivots."""
    return np.abs(x.real) + np.abs(x.imag) if np.iscomplexobj(x) else np.abs(x)


def zero_pivot(lu: Array, kind: str, lead: tuple[int, ...]) -> Exception | None:
    """The failure ``kind`` for the first zero on the diagonals of matrices; None without zeros."""
    zeros = np.diagonal(lu, axis1=-2, axis2=-1) == 0
    if not zeros.any():
        return None
    matrix, element = np.argwhere(zeros.reshape(-1, zeros.shape[-1]))[0]
    name = in_batch(kind, lead, zeros.shape[-1])
    return failure(name, detail=int(matrix) * matrix_weight(name) + int(element) + 1)


def given(g: Operand | None, like: Operand) -> Any:
    """Return a gradient, or zeros if the result was not used."""
    return prim.mul(like, 0.0) if g is None else g
