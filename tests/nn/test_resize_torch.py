"""Images of bytes resized as torch and Pillow do it: in fixed point, rounded to bytes along each axis."""

from __future__ import annotations

import numpy as np
import pytest

import tracecomp

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("size", [(5, 7), (20, 30), (9, 40), (11, 13)])
@pytest.mark.parametrize("antialias, align_corners", [(False, False), (False, True), (True, False)])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_bytes_are_equal(mode: str, antialias: bool, align_corners: bool, size: tuple[int, int]) -> None:
    x = np.random.default_rng(0).integers(0, 256, (2, 3, 11, 13), np.uint8)
    got, want = (
        lib.nn.functional.interpolate(
            lib.tensor(x), size=size, mode=mode, antialias=antialias, align_corners=align_corners
        ).numpy()
        for lib in (tracecomp, torch)
    )
    assert got.dtype == np.uint8
    assert np.array_equal(got, want)


@pytest.mark.parametrize("mode, rank", [("linear", 1), ("trilinear", 3), ("area", 2)])
def test_modes_that_torch_has_not_for_bytes_are_refused(mode: str, rank: int) -> None:
    x = np.zeros((1, 2, *[4] * rank), np.uint8)
    for lib in (tracecomp, torch):
        with pytest.raises(NotImplementedError):
            lib.nn.functional.interpolate(lib.tensor(x), size=[3] * rank, mode=mode)
