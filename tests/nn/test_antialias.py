"""Antialiased interpolation: PyTorch's values for all sizes, and one recording for sizes that vary."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import tracecomp
from tracecomp.nn.functional import interpolate

SIZES = [(8, 9), (10, 12), (11, 13), (16, 15), (20, 17), (23, 19), (40, 31)]


def image(height: int, width: int) -> Any:
    return np.random.default_rng(height * width).standard_normal((1, 2, height, width)).astype(np.float32)


@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_values(mode: str, corners: bool) -> None:
    torch = pytest.importorskip("torch")
    options: Any = {"mode": mode, "antialias": True, "align_corners": corners}
    for have, want in itertools.product((1, 2, 3, 7, 16, 29), repeat=2):
        x = image(have, 5)
        wanted = torch.nn.functional.interpolate(torch.tensor(x), size=(want, 4), **options)
        np.testing.assert_allclose(interpolate(tracecomp.tensor(x), size=(want, 4), **options), wanted, atol=1e-5)


@pytest.mark.parametrize("kept", [{"size": (5, 6)}, {"scale_factor": 0.5}, {"scale_factor": (2.0, 0.75)}])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_sizes_are_followed_with_the_bits_of_eager_mode(mode: str, kept: Any) -> None:
    def run(antialias: bool) -> int:
        def resized(x: Any) -> Any:
            return interpolate(x, mode=mode, antialias=antialias, **kept)

        compiled = tracecomp.compile(resized)
        for size in SIZES:
            x = tracecomp.tensor(image(*size))
            np.testing.assert_array_equal(compiled(x), resized(x))
        return compiled.recordings

    assert run(antialias=True) == run(antialias=False) < len(SIZES) - 3
