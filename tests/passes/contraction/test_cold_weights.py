"""Weights of a model that exceeds the last cache: products of few rows read them as they are, without a packed copy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tracecomp as tc
from tests.codegen.running import same_bits
from tracecomp import nn
from tracecomp.compiled.dynamic_shapes import SizedBackend
from tracecomp.passes.cost.machine import host, on

SMALL = replace(host(), l2_bytes=1 << 13, l3_bytes=1 << 14).tuned(parallel_work=1, parallel_products=1)
"""A machine whose caches hold none of the weights below."""
F: Any = nn.functional
HALVES = (tc.float32, tc.bfloat16, tc.float16)


def labels(compiled: Any) -> list[str]:
    found: list[str] = []
    for forward in (entry.plan.forward for entry in compiled.entries if entry.plan is not None):
        programs = [m.inner for m in forward.made] if isinstance(forward, SizedBackend) else [forward]
        found += [label for p in programs for label in p.executable.image.labels]
    return found


def packs(compiled: Any) -> bool:
    return any("prepare" in label for label in labels(compiled))


def bits(x: tc.Tensor) -> np.ndarray[Any, Any]:
    return x.view(tc.int16 if x.element_size() == 2 else tc.int32).numpy()


@pytest.mark.sampled(6)
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("rows", [1, 3, 8])
@pytest.mark.parametrize(("out", "terms"), [(64, 96), (50, 100), (129, 64), (17, 33), (40, 20)])
def test_few_rows_have_eagers_bits_without_a_copy(dtype: Any, rows: int, out: int, terms: int) -> None:
    tc.manual_seed(rows)
    w, b = tc.randn(out, terms).to(dtype), tc.randn(out).to(dtype)
    w[3, 5], w[7, 0], w[out - 1, terms - 1] = float("inf"), float("-inf"), float("nan")
    xs = [tc.randn(rows, terms).to(dtype) for _ in range(3)]
    with on(SMALL):
        compiled = tc.compile(lambda x: F.linear(x, w, b))
        for count in (1, 2):
            tc.set_num_threads(count)
            for x in xs:
                assert same_bits(bits(compiled(x)), bits(F.linear(x, w, b)))
    assert not packs(compiled) or w.nbytes <= SMALL.l3_bytes


@pytest.fixture(autouse=True)
def _threads() -> Any:
    before = tc.get_num_threads()
    yield
    tc.set_num_threads(before)


@pytest.mark.parametrize(("rows", "packed"), [(1, False), (8, False), (48, True), (160, False)])
def test_who_packs(rows: int, packed: bool) -> None:
    """Few rows read rows of the weight; many rows pack panels as they go."""
    w, x = tc.randn(128, 96), tc.randn(rows, 96)
    with on(SMALL):
        compiled = tc.compile(lambda x: F.linear(x, w))
        for _ in range(3):
            found = compiled(x)
    assert packs(compiled) is packed
    assert same_bits(found.numpy(), F.linear(x, w).numpy())


def test_weights_that_a_cache_holds_are_packed() -> None:
    w, x = tc.randn(128, 96), tc.randn(1, 96)
    with on(replace(SMALL, l3_bytes=1 << 20)):
        compiled = tc.compile(lambda x: F.linear(x, w))
        for _ in range(2):
            compiled(x)
    assert packs(compiled)


def test_programs_of_a_range_of_sizes_keep_no_copies() -> None:
    w = tc.randn(128, 96)
    with on(SMALL):
        compiled = tc.compile(lambda x: F.linear(x, w), dynamic=True)
        for n in (30, 31, 32, 40, 60, 90, 31):
            x = tc.randn(n, 96)
            assert same_bits(compiled(x).numpy(), F.linear(x, w).numpy())
    assert any(entry.is_sized() for entry in compiled.entries) and not packs(compiled)


def test_weights_over_memory_of_numpy_are_not_packed() -> None:
    array = np.ones((128, 96), np.float32)
    w, x = tc.from_numpy(array), tc.randn(48, 96)
    compiled = tc.compile(lambda x: F.linear(x, w))
    for value in (1, 2, 3):
        array[:] = value
        assert same_bits(compiled(x).numpy(), F.linear(x, w).numpy())
    assert not packs(compiled)
