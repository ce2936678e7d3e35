"""Native code against the numpy meaning, for every record on its own samples.

Operators without sums agree to the record's ``ulp`` (bit by bit if it is 0). Sums agree to the rounding error of any
order of summation.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ops.samples import Case, native_samples_of
from tests.ops.test_native import agree_complex
from tracecomp.ir.graph import Graph
from tracecomp.ir.op import OPS, Op
from tracecomp.passes.building import build
from tracecomp.runtime.executable import Executable

SUMS = {"sum", "prod", "cumsum", "cumprod", "contract", "conv", "conv_transpose", "conv_weight", "fold", "scan"}


def run_natively(cases: list[Case]) -> list[list[Any]]:
    """Results of all cases, computed by one program."""
    graph = Graph(cases[0].op.name)
    counts: list[int] = []
    arrays: list[Any] = []
    for case in cases:
        operands = []
        for array, type_ in zip(case.arrays, case.types, strict=True):
            operands.append(graph.add_input(type_, f"x{len(arrays)}"))
            arrays.append(np.ascontiguousarray(array))
        values = graph.add(case.op, operands, case.attrs)
        counts.append(len(values))
        for value in values:
            graph.add_output(value)
    built = build(graph)
    outs = [np.full(o.value.shape, 7, o.value.dtype.numpy) for o in graph.outputs]
    given = iter(arrays)
    inputs: list[Any] = [i.data if i.role == "constant" else next(given) for i in built.graph.inputs]
    Executable(built.program).run([*inputs, *built.constants], outs)
    taken = iter(outs)
    return [[next(taken) for _ in range(n)] for n in counts]


def agree(case: Case, native: Any, numpy: Any, slack: Any) -> None:
    """Equal up to ``slack``, with NaN, infinities and signs of zeros in the same places."""
    assert native.dtype == numpy.dtype and native.shape == numpy.shape
    if native.dtype.kind == "c":
        agree_complex(native, numpy, str(case))
        return
    if native.dtype.kind != "f":
        np.testing.assert_array_equal(native, numpy, err_msg=str(case))
        return
    with np.errstate(all="ignore"):
        error = np.abs(native.astype(np.float64) - numpy.astype(np.float64))
        good = (native == numpy) | (np.isnan(native) & np.isnan(numpy)) | (error <= slack)
    assert np.all(good), f"{case}\nnative {native[~good][:5]}\nnumpy  {numpy[~good][:5]}"
    if case.op.name not in SUMS and case.op.kind != "transform":
        zero = (native == 0) & (numpy == 0) & (case.op.name not in ("maximum", "minimum", "max", "min"))
        np.testing.assert_array_equal(np.signbit(native[zero]), np.signbit(numpy[zero]), err_msg=str(case))


def rounding(case: Case, want: Any) -> Any:
    """How far another order of summation may be from ``want``: terms times epsilon times the sum of magnitudes."""
    with np.errstate(all="ignore"):
        absolute = case.op.impl(*(np.abs(a.astype(np.float64)) for a in case.arrays), **case.attrs)
    terms = max(a.size for a in case.arrays) + 2
    return terms * np.finfo(want.dtype).eps * np.nan_to_num(np.abs(absolute), posinf=0) + np.finfo(want.dtype).tiny


def slack_of(case: Case, want: Any) -> Any:
    if want.dtype.kind != "f":
        return 0
    if case.op.name == "scan":
        return 64 * np.finfo(want.dtype).eps
    if case.op.kind == "elimination":
        return 64 * np.finfo(want.dtype).eps * np.max(np.abs(want), initial=0)
    if case.op.name in SUMS:
        return rounding(case, want)
    if case.op.kind == "transform":
        return 4 * np.finfo(want.dtype).eps * np.linalg.norm(want)
    # half types are rounded from float32, where a last place decides at most one of theirs
    ulp = min(case.op.ulp, 1.0) if want.dtype == np.float16 else case.op.ulp
    with np.errstate(all="ignore"):
        return ulp * np.nan_to_num(np.spacing(np.abs(want)).astype(np.float64))


@pytest.mark.sampled(9)
@pytest.mark.parametrize("op", [pytest.param(op, id=op.name) for op in OPS.values() if op.kind != "external"])
def test_native_is_numpy(op: Op) -> None:
    cases = list(native_samples_of(op))
    for case, natives in zip(cases, run_natively(cases), strict=True):
        with np.errstate(all="ignore"):
            found = op.impl(*case.arrays, **case.attrs)
        for native, want in zip(natives, found if isinstance(found, tuple) else (found,), strict=True):
            agree(case, native, np.asarray(want), slack_of(case, np.asarray(want)))
