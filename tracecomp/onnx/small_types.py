"""ONNX's types of few bits. Integers of 2 and 4 bits are int8 and uint8 tensors here, float4 is float32."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx

from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.ir import types
from tracecomp.ir.types import DType

Array = np.ndarray[Any, Any]
_P = onnx.TensorProto

_INTEGERS: dict[int, tuple[DType, int, int]] = {
    _P.INT2: (types.int8, -2, 1), _P.UINT2: (types.uint8, 0, 3), _P.INT4: (types.int8, -8, 7),
    _P.UINT4: (types.uint8, 0, 15),
}  # fmt: skip
"""Dtypes of integers of few bits, with their least and greatest value."""

FLOAT4: int = _P.FLOAT4E2M1
SMALL = frozenset((*_INTEGERS, _P.FLOAT4E2M1))
_FLOAT8_MAX = {
    types.float8_e4m3fn: 448.0, types.float8_e4m3fnuz: 240.0, types.float8_e5m2: 57344.0,
    types.float8_e5m2fnuz: 57344.0,
}  # fmt: skip


def dtype_of_small(number: int) -> DType:
    """The dtype of a small type."""
    return _INTEGERS[number][0] if number in _INTEGERS else types.float32


def widened(array: Array) -> Array:
    """An array of a small type as one of the type that it is here; others as they are."""
    name = array.dtype.name
    if name in ("int2", "int4"):
        return array.astype(np.int8)
    if name in ("uint2", "uint4"):
        return array.astype(np.uint8)
    return array.astype(np.float32) if name == "float4_e2m1fn" else array


def bounds(number: int) -> tuple[int, int] | None:
    """The least and greatest value of an integer of few bits."""
    return _INTEGERS[number][1:] if number in _INTEGERS else None


def to_small(x: Tensor, number: int) -> Tensor:
    """``x`` as a small type.

    Integers keep their low bits, floats are cut off first; float4 rounds half to even, has no infinity, and 0 for NaN.
    """
    if number not in _INTEGERS:
        return _float4(x.to(types.float32))
    dtype, low, high = _INTEGERS[number]
    whole = T.trunc(x).to(types.int32) if x.dtype.is_floating_point else x.to(types.int32)
    return ((whole - low) % (high - low + 1) + low).to(dtype)


def _float4(x: Tensor) -> Tensor:
    size = x.abs().clamp(max=6.0)
    step = T.where(size < 2, 0.5, T.where(size < 4, 1.0, 2.0))
    return T.where(T.isnan(x), 0.0, T.copysign(T.round(size / step) * step, x))


def to_float8(x: Tensor, dtype: DType, saturate: bool, round_mode: str) -> Tensor:
    """``x`` as floats of 8 bits: larger values become the greatest value, or without ``saturate`` NaN or infinity.

    A number of E8M0 is a power of two: ``round_mode`` is "up", "down" or "nearest".
    """
    if dtype is types.float8_e8m0fnu:
        return _power(x.to(types.float32), round_mode)
    most = _FLOAT8_MAX[dtype]
    if saturate:
        return T.where(T.isnan(x), x, x.clamp(-most, most)).to(dtype)
    if dtype is types.float8_e5m2:
        return x.to(dtype)
    middle = most + (16 if dtype is not types.float8_e5m2fnuz else 4096)  # halfway to the number that there is not
    size = x.abs()
    held = size <= middle if dtype is types.float8_e4m3fn else size < middle  # to even, which its greatest number is
    return T.where(held, x, float("nan")).to(dtype)


def _power(x: Tensor, round_mode: str) -> Tensor:
    part, exponent = T.frexp(x)  # part is in [0.5, 1)
    up = {"up": part > 0.5, "down": T.zeros_like(part) > 0, "nearest": part >= 0.75}[round_mode]
    power = (exponent - 1 + up.to(exponent.dtype)).clamp(-127, 127)
    power = T.where(x == 0, T.full_like(power, -127), power)
    found = T.exp2(power.to(types.float64)).to(types.float32)
    return T.where(T.isfinite(x) & (x >= 0), found, float("nan")).to(types.float8_e8m0fnu)


def small_values(proto: Any) -> dict[str, int]:
    """The values of a model that are of small types, by name. Types are inferred only where there are such."""
    if not any(kind in SMALL for kind in _kinds(proto.graph)):
        return {}
    inferred = onnx.shape_inference.infer_shapes(proto).graph
    known = {v.name: v.type.tensor_type.elem_type for v in (*inferred.input, *inferred.output, *inferred.value_info)}
    known |= {t.name: t.data_type for t in inferred.initializer}
    return {name: kind for name, kind in known.items() if kind in SMALL}


def _kinds(graph: Any) -> Iterator[int]:
    yield from (t.data_type for t in graph.initializer)
    yield from (v.type.tensor_type.elem_type for v in (*graph.input, *graph.output, *graph.value_info))
    for attribute in (a for node in graph.node for a in node.attribute):
        if attribute.name in ("to", "output_dtype", "dtype") and attribute.type == onnx.AttributeProto.INT:
            yield attribute.i
        yield from (t.data_type for t in (attribute.t, *attribute.tensors))
        for body in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            yield from _kinds(body)
