"""Functions of one number: all numbers of 16 bits, and a part of all float32."""

from __future__ import annotations

import numpy as np
import pytest

from tests.codegen.math.exhaustive import CHUNK, Function, errors, references, sweep
from tracecomp.codegen.math.functions import ULP
from tracecomp.ir.types import DType, bfloat16, float16

ROUNDED = 0.5 + 2.0**-8
"""Computed as float32, whose error is some units in 2**13 or 2**16 of these, and rounded once."""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("op", sorted(references()))
def test_every_float16(op: str) -> None:
    x = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    off = check(op, float16, x)
    assert off.max() <= ROUNDED, (op, x[off.argmax()])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("op", sorted(references()))
def test_every_bfloat16(op: str) -> None:
    x = np.arange(1 << 16, dtype=np.uint16).view(bfloat16.numpy)
    off = check(op, bfloat16, x)
    assert off.max() <= ROUNDED, (op, x[off.argmax()])


def check(op: str, dtype: DType, x: np.ndarray) -> np.ndarray:
    """Errors of every result; the bits are the same for all widths."""
    first, *others = Function(op, dtype, x.size).run(x)
    with np.errstate(all="ignore"):
        nan = np.isnan(first)
        for other in others:
            assert ((first.view(np.uint16) == other.view(np.uint16)) | (nan & np.isnan(other))).all(), op
        exact = np.asarray(references()[op](x.astype(np.float64)), np.float64)
        floor = np.where(x.astype(np.float32) < 0, 1.0, 0.0) if op in ("lgamma", "digamma") else 0.0
    return errors(first, exact, floor)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("op", sorted(references()))
def test_some_of_all_float32(op: str) -> None:
    """Around 1, and where the exponent is as large as the function's name is long."""
    found = sweep(op, references()[op], iter([0x3F800000 - CHUNK // 2, (len(op) + 120) << 23]))
    assert found.sound, found


def test_the_measure_of_errors() -> None:
    one = np.array([1.0, 2.0, np.inf, np.nan, np.inf, 0.0], np.float32)
    exact = np.array([1.0 + 2.0**-24, 2.0 - 2.0**-23, np.inf, np.nan, 1e30, 2.0**-149])
    assert errors(one, exact).tolist() == [0.5, 1.0, 0.0, 0.0, np.inf, 1.0]
    assert set(ULP) >= {"exp", "lgamma"}
