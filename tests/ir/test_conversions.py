"""Floats become integers in one way, whatever numpy does on this processor."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

import tracecomp as torch
from tracecomp.ir import special
from tracecomp.ir.loop_interp import scalar
from tracecomp.ir.types import from_numpy_dtype

SOURCES = [np.dtype(name) for name in ("f2", "f4", "f8", ml_dtypes.bfloat16)]
TARGETS = [np.dtype(name) for name in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8")]
COMPILED = [t for t in TARGETS if t.name in ("int8", "uint8", "int16", "int32", "int64")]


def numbers(source: np.dtype) -> np.ndarray:
    edges = [2.0**bits + d for bits in (7, 8, 15, 16, 31, 32, 52, 63, 64) for d in (-1.5, -1.0, -0.5, 0.0, 0.5, 1.0)]
    values = np.array([s * v for v in (*edges, 0.0, 0.7, 300.0, 1e30, np.inf, np.nan) for s in (1.0, -1.0)])
    with np.errstate(over="ignore"):
        return values.astype(source)


def defined(value: float, target: np.dtype) -> int:
    """The definition, in Python's integers."""
    bits = 64 if target.itemsize == 8 or target == np.uint32 else 32
    offset = 1 << 63 if target == np.uint64 and value >= 2.0**63 else 0
    near = value - offset
    whole = math.trunc(near) if math.isfinite(near) else None
    low = -(1 << bits - 1)
    found = whole if whole is not None and low <= whole < -low else low
    found = (found & (1 << 64) - 1) ^ offset
    size = 8 * target.itemsize
    found &= (1 << size) - 1
    return found - (1 << size) if target.kind == "i" and found >> size - 1 else found


@pytest.mark.parametrize("target", TARGETS, ids=str)
@pytest.mark.parametrize("source", SOURCES, ids=str)
@pytest.mark.parametrize("numpys", [False, True], ids=["any numpy", "this numpy"])
def test_the_definition(source: np.dtype, target: np.dtype, numpys: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also as if numpy converted differently, as it does on AArch64."""
    if not numpys:
        monkeypatch.setattr(special, "_converts_as_defined", lambda *_: False)
    x = numbers(source)
    with np.errstate(all="ignore"):
        wanted = [defined(float(v), target) for v in x]
    assert special.converted(x, target).tolist() == wanted
    assert [special.converted(x[k : k + 1], target).item() for k in range(len(x))] == wanted
    assert special.converted(x.reshape(2, -1).T, target).flags.f_contiguous


def test_other_conversions_are_numpys() -> None:
    x = np.array([[1.5, -2.0, np.nan]])
    np.testing.assert_array_equal(special.converted(x, np.dtype(np.float32)), x.astype(np.float32))
    assert special.converted(np.array([300, -1]), np.dtype(np.uint8)).tolist() == [44, 255]
    assert special.converted(x, np.dtype(np.bool_)).tolist() == [[True, True, True]]


@pytest.mark.parametrize("target", COMPILED, ids=str)
@pytest.mark.parametrize("source", SOURCES, ids=str)
def test_eager_compiled_and_interpreted_conversions(source: np.dtype, target: np.dtype) -> None:
    x, dtype = numbers(source), from_numpy_dtype(target)
    with np.errstate(all="ignore"):
        wanted = [defined(float(v), target) for v in x]
    given = torch.from_numpy(x)
    cast = torch.compile(lambda x: x.to(dtype))
    assert given.to(dtype).tolist() == wanted
    assert [cast(given).tolist() for _ in range(3)] == [wanted] * 3
    assert scalar("cast", [x], [from_numpy_dtype(source)], dtype).tolist() == wanted
    assert torch.tensor(x, dtype=dtype).tolist() == wanted
