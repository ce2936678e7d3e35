"""Reductions of windows: lanes run along positions, not along the few places of a window."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracecomp
from tracecomp.ir.parser import parse_graph
from tracecomp.passes.fusion.fuse import Fuser

F = tracecomp.nn.functional


def lanes(*nodes: str) -> set[int]:
    lines = ['graph "g" {', '  %x: f32[4,30] = argument "x"', *(f"  {n}" for n in nodes)]
    graph = parse_graph("\n".join([*lines, f'  result "out0" = {nodes[-1].split(" = ")[0]}', "}"]))
    return {g.domain.lanes for g in Fuser(graph).run().groups if g.has_reduction}


def test_lanes() -> None:
    windows = "%0 = windows(%x) {dilations=[1], sizes=[12], strides=[1]} : f32[4,19,12]"
    assert lanes(windows, "%1 = sum(%0) {axes=[2]} : f32[4,19]") == {16}
    assert lanes(windows, "%1 = exp(%0) : f32[4,19,12]", "%2 = sum(%1) {axes=[2]} : f32[4,19]") == {16}
    assert lanes(windows, "%1 = sum(%0) {axes=[1, 2]} : f32[4]") == {64}
    assert lanes("%0 = exp(%x) : f32[4,30]", "%1 = sum(%0) {axes=[1]} : f32[4]") == {16}


@pytest.mark.parametrize("size", [(30, 41), (8, 8)])
@pytest.mark.parametrize("output", [(7, 5), (3, 11)])
def test_regions_of_unequal_extent(size: tuple[int, int], output: tuple[int, int]) -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, *size))
    spans = [[(i * n // m, -(-(i + 1) * n // m)) for i in range(m)] for n, m in zip(size, output, strict=True)]

    def expected(reduce: Any) -> Any:
        return np.stack(
            [np.stack([reduce(x[:, :, a:b, c:d], (2, 3)) for c, d in spans[1]], -1) for a, b in spans[0]], -2
        )

    for pool, reduce in ((F.adaptive_avg_pool2d, np.mean), (F.adaptive_max_pool2d, np.max)):
        program = tracecomp.compile(pool)
        for _ in range(2):
            found = program(tracecomp.from_numpy(x), output).numpy()
        np.testing.assert_allclose(found, expected(reduce), rtol=1e-12)
