"""Conversions of half precision by functions: numpy's, bit by bit."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np
import pytest

from tracecomp.codegen.math.half_library import half_text
from tracecomp.codegen.text.assembler import module_text
from tracecomp.compiled.program_files.levels import LEVELS
from tracecomp.runtime import compiler
from tracecomp.runtime.linker import link
from tracecomp_runtime import processor
from tracecomp_runtime.machine_code import placed

pytestmark = pytest.mark.skipif(not processor.levels() or "aarch64" in processor.levels(), reason="code for x86-64")
_EACH = """
define void @each(ptr %given, ptr %made, i64 %n) {
entry:
  br label %loop
loop:
  %k = phi i64 [0, %entry], [%next, %loop]
  %from = getelementptr FROM, ptr %given, i64 %k
  %to = getelementptr TO, ptr %made, i64 %k
  %x = load FROM, ptr %from
  %y = call TO @NAME(FROM %x)
  store TO %y, ptr %to
  %next = add i64 %k, 1
  %more = icmp ult i64 %next, %n
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""


@cache
def _code(name: str, given: str, made: str) -> tuple[Any, int]:
    text = _EACH.replace("FROM", given).replace("TO", made).replace("NAME", name)
    text = f"declare {made} @{name}({given})\n{text}"
    target = LEVELS["x86-64-v2"].target
    linked = link([compiler.object_code(module_text(part), target) for part in (text, half_text())])
    return placed(linked.description(), memoryview(linked.contents)), linked.symbols["each"]


def converted(array: Any, name: str, given: str, made: str, dtype: Any) -> Any:
    code, at = _code(name, given, made)
    found = np.zeros(array.size, dtype)
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)(code.address + at)
    run(array.ctypes.data, found.ctypes.data, array.size)
    return found


def same(found: Any, wanted: Any) -> bool:
    there = ~np.isnan(wanted)
    return bool(np.isnan(found[~there]).all()) and found[there].tobytes() == wanted[there].tobytes()


def test_every_half_is_widened_as_it_is() -> None:
    halves = np.arange(65536, dtype=np.uint16).view(np.float16)
    assert same(converted(halves, "__extendhfsf2", "half", "float", np.float32), halves.astype(np.float32))


def test_floats_are_rounded_as_numpy_rounds_them() -> None:
    with np.errstate(all="ignore"):
        for first in range(0, 7919, 1131):  # every exponent, both signs, all kinds of last bits
            floats = np.arange(first, 2**32, 7919, dtype=np.uint32).view(np.float32)
            found = converted(floats, "__truncsfhf2", "float", "half", np.float16)
            assert same(found, floats.astype(np.float16))


def test_doubles_are_rounded_once() -> None:
    """Values near the midpoint of two halves would be wrong by way of float."""
    halves = np.arange(31744, dtype=np.uint16).view(np.float16).astype(np.float64)
    middle = (halves[:-1] + halves[1:]) / 2
    far = np.array([65519.999999999, 65520, 1e300, 5e-324, np.inf, 2.0**-25, 2.0**-25 * (1 + 1e-15), 3.5e38, np.nan])
    doubles = np.concatenate([halves, middle, np.nextafter(middle, 0), np.nextafter(middle, 1e9), far])
    doubles = np.concatenate([doubles, -doubles])
    with np.errstate(all="ignore"):
        assert same(converted(doubles, "__truncdfhf2", "double", "half", np.float16), doubles.astype(np.float16))
