"""Every operator record as machine code against its numpy meaning."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.codegen.running import compile_graph, graph_of, run_built, same_bits
from tests.ops.samples import native_samples_of
from tracecomp.ir.op import OPS, Op

EVERY = [pytest.param(op, id=op.name) for op in OPS.values() if op.kind != "external"]
EPSILON = {"float16": 2.0**-10, "float32": 2.0**-23, "float64": 2.0**-52}
# Allowed error of numpy's function, and the most terms that sums of a sample have.
NUMPY_ULP = 4.0
TERMS = 64.0


def agree(op: Op, got: Any, want: Any, label: str) -> None:
    assert got.dtype == want.dtype and got.shape == want.shape, label
    if got.dtype.kind == "c":
        agree_complex(got, want, label)
        return
    if got.dtype.kind != "f":
        assert np.array_equal(got, want), label
        return
    bound = op.ulp + NUMPY_ULP if op.kind == "elementwise" else TERMS
    epsilon = EPSILON[got.dtype.name]
    scale = 0.0 if op.kind == "elementwise" else epsilon * TERMS
    np.testing.assert_allclose(
        got.astype(np.float64), want.astype(np.float64), rtol=bound * epsilon, atol=scale + 1e-300, err_msg=label
    )


def agree_complex(got: Any, want: Any, label: str) -> None:
    """Up to rounding of terms as large as the largest element: real and imaginary parts are differences of products."""
    bound = TERMS * np.finfo(want.dtype).eps
    largest = float(np.max(np.abs(want), initial=0.0))
    np.testing.assert_allclose(got, want, rtol=bound, atol=bound * largest, err_msg=label)


@pytest.mark.sampled(11)
@pytest.mark.parametrize("op", EVERY)
def test_native_agrees_with_numpy_for_any_fusion_and_threads(op: Op) -> None:
    for case in native_samples_of(op):
        graph = graph_of(case)
        with np.errstate(all="ignore"):
            found = op.impl(*case.arrays, **case.attrs)
        want = [np.asarray(a) for a in (found if isinstance(found, tuple) else (found,))]
        built, executable = compile_graph(graph)
        got = run_built(built, executable, graph, case.arrays)
        for a, b in zip(got, want, strict=True):
            agree(op, a, b, str(case))
        again = run_built(built, executable, graph, case.arrays, threads=2)
        assert all(map(same_bits, got, again)), str(case)
