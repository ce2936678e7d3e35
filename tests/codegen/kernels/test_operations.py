"""Arithmetic, comparisons, bits and conversions: native bits against the numpy meaning."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.codegen.programs import elementwise, scalar_op
from tracecomp.codegen.kernels import convert
from tracecomp.codegen.text import native
from tracecomp.codegen.text.emitter import Emitter, Module
from tracecomp.ir.loop_interp import interpret_program
from tracecomp.ir.scalars import SCALARS
from tracecomp.ir.types import (
    DTYPES,
    DType,
    bfloat16,
    bool_,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
)  # fmt: skip
from tracecomp.runtime.executable import Executable

Array = Any
INTS = (uint8, int8, int16, int32, int64)
REAL = [t for t in DTYPES if not t.is_complex]
FLOATS = (float16, bfloat16, float32, float64)
ARITHMETIC = ("add", "sub", "mul", "max", "min", "fma", "neg", "abs", "sign")
FLOAT_OPS = (*ARITHMETIC, "div", "floor", "ceil", "trunc", "round", "sqrt", "copysign", "nextafter", "isnan", "mod",
             "fmod", "eq", "ne", "lt", "le", "gt", "ge")  # fmt: skip
INT_OPS = (*ARITHMETIC, "floordiv", "mod", "fmod", "and", "or", "xor", "not", "shl", "shr", "pow", "eq", "ne", "lt",
           "le", "gt", "ge")  # fmt: skip
BOOL_OPS = ("add", "mul", "and", "or", "xor", "not", "eq", "ne", "max", "min")


def values(dtype: DType, count: int, seed: int) -> Array:
    """Edge values and random ones."""
    rng = np.random.default_rng(seed)
    if dtype is bool_:
        return rng.random(count) < 0.5
    if dtype.kind == "int":
        info = np.iinfo(dtype.numpy)
        edges = np.array([0, 1, 2, 3, 7, info.max, info.min, info.max - 1], dtype.numpy)
        small = rng.integers(0 if not dtype.signed else -9, 10, count - 40)
        wide = rng.integers(info.min, info.max, 40 - edges.size, dtype=np.int64)
        return rng.permutation(np.concatenate([edges, small.astype(dtype.numpy), wide.astype(dtype.numpy)]))
    edges = np.array([0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -2.5, 1e-7, 6e4, np.inf, -np.inf, np.nan])
    wild = rng.standard_normal(count - edges.size) * np.exp(rng.uniform(-9, 9, count - edges.size))
    with np.errstate(all="ignore"):
        return rng.permutation(np.concatenate([edges, wild])).astype(dtype.numpy)


def same_bits(a: Array, b: Array) -> bool:
    """Equal bits, any NaN being equal to any other, and +0 to -0."""
    if a.dtype.kind not in "biu":
        a, b = a.astype(np.float64), b.astype(np.float64)
        return bool(np.array_equal(a, b, equal_nan=True))
    return bool(np.array_equal(a, b))


def check(op: str, types: list[DType], out: DType, size: int = 203) -> None:
    program = elementwise(scalar_op(op, out), types, out, size, chunk=48)
    inputs = [values(t, size, 10 + i) for i, t in enumerate(types)]
    got, expected = np.zeros(size, out.numpy), np.zeros(size, out.numpy)
    Executable(program).run(inputs, [got])
    interpret_program(program, inputs, [expected])
    wrong = np.flatnonzero(~((got == expected) | ((got != got) & (expected != expected))))
    first = wrong[:3]
    assert same_bits(got, expected), (op, [i[first] for i in inputs], got[first], expected[first])


def result_of(op: str, dtype: DType) -> DType:
    return bool_ if SCALARS[op].result == "bool" else dtype


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", FLOATS, ids=lambda t: t.short)
@pytest.mark.parametrize("op", FLOAT_OPS)
def test_float_operations(op: str, dtype: DType) -> None:
    if dtype is bfloat16:
        pytest.importorskip("ml_dtypes")
    check(op, [dtype] * SCALARS[op].arity, result_of(op, dtype))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", INTS, ids=lambda t: t.short)
@pytest.mark.parametrize("op", INT_OPS)
def test_integer_operations(op: str, dtype: DType) -> None:
    check(op, [dtype] * SCALARS[op].arity, result_of(op, dtype))


@pytest.mark.parametrize("op", BOOL_OPS)
def test_bool_operations(op: str) -> None:
    check(op, [bool_] * SCALARS[op].arity, bool_)


@pytest.mark.parametrize("dtype", [float32, int64, bool_, float16], ids=lambda t: t.short)
def test_select(dtype: DType) -> None:
    check("select", [bool_, dtype, dtype], dtype)


def test_mulhi() -> None:
    check("mulhi", [int32, int32], int32)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("source", REAL, ids=lambda t: t.short)
@pytest.mark.parametrize("target", REAL, ids=lambda t: t.short)
def test_cast(source: DType, target: DType) -> None:
    if bfloat16 in (source, target):
        pytest.importorskip("ml_dtypes")
    check("cast", [source], target)


@pytest.mark.parametrize("pair", [(float32, int32), (int64, float64), (float16, int16)], ids=str)
def test_bitcast(pair: tuple[DType, DType]) -> None:
    source, target = pair
    program = elementwise(scalar_op("bitcast", target), [source], target, 64)
    x = values(source, 64, 3)
    got = np.zeros(64, target.numpy)
    Executable(program).run([x], [got])
    assert np.array_equal(got.view(np.uint8), x.view(np.uint8))


def test_bfloat16_constants_are_rounded_as_ml_dtypes_rounds_them() -> None:
    """Halfway between two of them rounds to even; a number next to the midpoint rounds to the nearer one."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    halves = np.arange(0x3F80, 0x3F90, dtype=np.uint32) << 16
    bits = np.concatenate([halves + d for d in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF)])
    e = Emitter(Module(native.host_target()))
    for sign in (1, -1):
        for v in (sign * bits.astype(np.uint32).view(np.float32)).tolist():
            want = np.float32(v).astype(ml_dtypes.bfloat16).view(np.uint16)
            found = convert.constant(e, v, bfloat16).const
            assert found is not None and int(found) & 0xFFFF == int(want), v
