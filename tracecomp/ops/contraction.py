"""``contract``: products of two operands summed over shared labels, written ``"bmk,bkn->bmn"``.

Summed labels are ordered alphabetically, the last one fastest, for any memory layout of the operands.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from tracecomp.ir.arrays import Array
from tracecomp.ir.op import Bilinear, BilinearForm, Op, Operands, Pair, Sample, Types, register
from tracecomp.ir.types import Shape, TensorType, compute_dtype, from_numpy_dtype
from tracecomp.ops.define import bad, check_dtype, of, require
from tracecomp.ops.parts import conj, product
from tracecomp.ops.prim import prim


@lru_cache(maxsize=4096)
def parse_spec(spec: str) -> tuple[str, str, str]:
    """``(lhs, rhs, out)`` labels; ValueError when the spec is not a contraction of two operands."""
    ins, arrow, out = spec.partition("->")
    lhs, comma, rhs = ins.partition(",")
    labels = (lhs, rhs, out)
    well_formed = bool(arrow and comma) and all(len(set(s)) == len(s) and (s.isalpha() or not s) for s in labels)
    if not well_formed or not set(out) <= set(lhs) | set(rhs):
        raise ValueError(f"contract: {spec!r} is not a contraction of two operands")
    if not (set(lhs) ^ set(rhs)) <= set(out):
        raise ValueError(f"contract: {spec!r} sums a label that only one operand has")
    return labels


def _sizes(spec: str, lhs: tuple[int, ...], rhs: tuple[int, ...]) -> dict[str, int]:
    a, b, _ = parse_spec(spec)
    require(
        len(a) == len(lhs) and len(b) == len(rhs),
        RuntimeError,
        f"contract: {spec!r} does not fit operands of shapes {list(lhs)} and {list(rhs)}",
    )
    sizes = dict(zip(a, lhs, strict=True))
    for label, n in zip(b, rhs, strict=True):
        require(
            sizes.setdefault(label, n) == n,
            RuntimeError,
            f"contract: mat1 and mat2 shapes cannot be multiplied: {list(lhs)} and {list(rhs)} differ in "
            f"{label!r} of {spec!r}",
        )
    return sizes


def _infer(lhs: TensorType, rhs: TensorType, *, spec: str) -> TensorType:
    dtype = check_dtype("contract", (lhs, rhs), "ring")
    sizes = _sizes(spec, lhs.shape, rhs.shape)
    return TensorType(dtype, tuple(sizes[c] for c in parse_spec(spec)[2]))


@lru_cache(maxsize=4096)
def _plan(spec: str) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[str, str, str, str]]:
    """Transposes that bring the operands to batch, m, k and batch, k, n, and the product to the result's order."""
    a, b, out = parse_spec(spec)
    batch = "".join(c for c in out if c in a and c in b)
    m = "".join(c for c in out if c in a and c not in b)
    n = "".join(c for c in out if c in b and c not in a)
    k = "".join(sorted(c for c in a if c in b and c not in out))
    left = tuple(a.index(c) for c in batch + m + k)
    right = tuple(b.index(c) for c in batch + k + n)
    back = tuple((batch + m + n).index(c) for c in out)
    return left, right, back, (batch, m, n, k)


@lru_cache(maxsize=4096)
def _matrix_shapes(spec: str, lhs: Shape, rhs: Shape) -> tuple[Shape, Shape, Shape]:
    """Shapes of the transposed operands as batches of matrices, and of the product before its last transpose."""
    sizes = _sizes(spec, lhs, rhs)
    batch, m, n, k = _plan(spec)[3]
    outer = tuple(sizes[c] for c in batch)
    rows, columns, depth = (math.prod(sizes[c] for c in labels) for labels in (m, n, k))
    return (*outer, rows, depth), (*outer, depth, columns), tuple(sizes[c] for c in batch + m + n)


def _impl(x: Array, y: Array, *, spec: str) -> Any:
    left, right, back, _ = _plan(spec)
    first, second, whole = _matrix_shapes(spec, x.shape, y.shape)
    dtype = x.dtype
    wide = compute_dtype(from_numpy_dtype(dtype)).numpy
    a = x.astype(wide, copy=False).transpose(left).reshape(first)
    b = y.astype(wide, copy=False).transpose(right).reshape(second)
    return np.matmul(a, b).reshape(whole).transpose(back).astype(dtype, copy=False)


def _vjp(grads: Operands, outs: Operands, ins: Operands, *, spec: str) -> Any:
    a, b, out = parse_spec(spec)
    return (
        prim.contract(grads[0], conj(ins[1]), spec=f"{out},{b}->{a}"),
        prim.contract(conj(ins[0]), grads[0], spec=f"{a},{out}->{b}"),
    )


def _parts(a: Pair, b: Pair, *, spec: str) -> Pair:
    return product(lambda x, y: prim.contract(x, y, spec=spec))(a, b)


def _form(in_types: Types, out_type: TensorType, *, spec: str) -> BilinearForm:
    a, b, out = parse_spec(spec)
    summed = tuple(sorted(c for c in a if c not in out))
    return BilinearForm(
        extents=_sizes(spec, in_types[0].shape, in_types[1].shape),
        out=tuple(out),
        reduce=summed,
        lhs=tuple({c: 1} for c in a),
        rhs=tuple({c: 1} for c in b),
    )


_CASES = (
    ("mk,kn->mn", (3, 4), (4, 5)), ("mk,nk->mn", (3, 4), (5, 4)), ("km,kn->nm", (4, 3), (4, 5)),
    ("bmk,bkn->bmn", (2, 3, 4), (2, 4, 5)), ("k,k->", (6,), (6,)), ("mk,k->m", (3, 4), (4,)),
    ("m,n->mn", (3,), (4,)), ("bhqd,bhkd->bhqk", (2, 2, 3, 4), (2, 2, 5, 4)), ("mkl,kln->mn", (2, 3, 4), (3, 4, 2)),
    ("mk,kn->mn", (0, 4), (4, 5)), ("mk,kn->mn", (3, 0), (0, 5)), (",->", (), ()), ("bm,bm->bm", (2, 3), (2, 3)),
)  # fmt: skip

register(
    Op(
        name="contract", kind="contraction", doc="sum over labels absent from the result of products of two operands",
        infer=_infer, impl=_impl, vjp=_vjp, saves=("ins",), loop=Bilinear(_form), parts=_parts, attrs={"spec": str},
        samples=tuple(
            Sample(((s, d, "any"), (t, d, "any")), {"spec": spec})
            for d in ("f32", "f64", "f16", "i64", "c64", "c128") for spec, s, t in _CASES
        ),
        errors=(
            bad(RuntimeError, "cannot be multiplied", of("f32", 2, 3), of("f32", 4, 5), spec="mk,kn->mn"),
            bad(RuntimeError, "does not fit", of("f32", 2), of("f32", 4, 5), spec="mk,kn->mn"),
            bad(RuntimeError, "one dtype", of("f32", 2, 3), of("f64", 3, 5), spec="mk,kn->mn"),
            bad(ValueError, "only one operand", of("f32", 2, 3), of("f32", 5), spec="mk,n->mn"),
        ),
    )
)  # fmt: skip
