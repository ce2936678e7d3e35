"""Images of any size in one recording: what divides, scales and resizes them follows the size."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tests.references import by_numpy
from tracecomp.nn import functional as F

SIZES = ((2, 20, 26), (2, 23, 31), (3, 37, 29), (5, 26, 22), (2, 34, 40))
"""Batch, height and width: none is a multiple of 3."""

PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "mean over a grid": lambda x: F.adaptive_avg_pool2d(x, 3),
    "mean over a column": lambda x: F.adaptive_avg_pool2d(x, (3, 1)),
    "mean over a line": lambda x: F.adaptive_avg_pool1d(x[:, :, 0], 3),
    "maximum over a grid": lambda x: F.adaptive_max_pool2d(x, 3, return_indices=True),
    "area": lambda x: F.interpolate(x, size=(7, 9), mode="area"),
}


def with_gradient(program: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        x = x.detach().requires_grad_()
        found = program(x)
        results = found if isinstance(found, tuple) else (found,)
        (results[0] * results[0]).sum().backward()
        return (*(r.detach() for r in results), x.grad)

    return run


def check(program: Callable[[Any], Any], most: int) -> None:
    """Two calls at each size have the bits of eager ones, and are near the interpreter's."""
    compiled = torch.compile(program)
    generator = np.random.default_rng(0)
    for batch, height, width in SIZES:
        x = torch.tensor(generator.standard_normal((batch, 3, height, width)).astype(np.float32))
        compiled(x)
        for found, wanted, near in zip(compiled(x), program(x), by_numpy(program)(x), strict=True):
            np.testing.assert_array_equal(found.numpy(), wanted.numpy())
            np.testing.assert_allclose(found.numpy(), near.numpy(), rtol=1e-4, atol=1e-5)
    assert compiled.recordings <= most, compiled.misses
    assert any(e.is_sized() for e in compiled.entries)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", PROGRAMS)
def test_one_recording_serves_images_of_all_sizes(name: str) -> None:
    # At the first size, at those in which the second image differs, and once more where the batch differs too.
    check(with_gradient(PROGRAMS[name]), 4)


COMPUTED: dict[str, Callable[[Any], Any]] = {
    "int of a half": lambda x: F.interpolate(x, size=(int(x.shape[2] * 0.5), int(0.5 * x.shape[3])), mode="bilinear"),
    "int of a quotient": lambda x: x[:, :, : int(x.shape[2] / 3), int(x.shape[3] / 2) :],
    "int of more": lambda x: F.pad(x, (0, int(x.shape[3] * 1.25), 0, 1)),
    "int of an int": lambda x: x[:, :, : int(x.shape[2]) - 3] * int(x.shape[3] // 2),
    "floor": lambda x: x[:, :, : math.floor(x.shape[2] * 0.25)],
    "ceil": lambda x: x[:, :, : math.ceil(x.shape[2] / 7)] * math.ceil(x.shape[3] * 0.75),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", COMPUTED)
def test_sizes_through_floats_are_sizes(name: str) -> None:
    check(with_gradient(COMPUTED[name]), 4)


def test_a_factor_that_rounds_takes_a_recording_for_each_value() -> None:
    """10 * 0.3 is 3.0, but 0.3 is less than three tenths: no quotient of whole numbers says what int() gives."""

    def program(x: Any) -> Any:
        return x[: int(x.shape[0] * 0.3)]

    compiled = torch.compile(program)
    for n in (7, 9, 10, 19, 20, 30, 10, 11):
        assert compiled(torch.arange(float(n))).shape == program(torch.arange(float(n))).shape
