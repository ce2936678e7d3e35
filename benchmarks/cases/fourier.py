"""Fourier transforms, with what programs do around them: power spectra, convolutions, images."""

from __future__ import annotations

import math
from typing import Any

from benchmarks.workload import Workload, inputs, normal


def _flops(rows: int, points: int) -> float:
    """Return the operations of real transforms: half of the 5 n log2 n that are usual for complex ones."""
    return rows * 2.5 * points * math.log2(points)


def _power(axis: int) -> Any:
    def of(lib: Any) -> Any:
        def f(x: Any) -> Any:
            y = lib.fft.rfft(x, None, axis)
            return y.real * y.real + y.imag * y.imag

        return f

    return of


def _convolution(lib: Any) -> Any:
    return lambda x, y: lib.fft.irfft(lib.fft.rfft(x) * lib.fft.rfft(y))


def _image(lib: Any) -> Any:
    def f(x: Any) -> Any:
        y = lib.fft.fft2(x)
        return y.real * y.real + y.imag * y.imag

    return f


def _row(name: str, shapes: tuple[tuple[int, ...], ...], make: Any, flops: float) -> Workload:
    """One spelling for all: jax.numpy's transforms have PyTorch's names and order of arguments."""
    return Workload(
        "Fourier transforms", name, inputs(*(normal(*s) for s in shapes)), make, make, flops=flops, export=False,
        tolerance=1e-3,
    )  # fmt: skip


WORKLOADS = [
    _row("power spectrum 1x1024", ((1, 1024),), _power(-1), _flops(1, 1024)),
    _row("power spectrum 64x1024", ((64, 1024),), _power(-1), _flops(64, 1024)),
    _row("power spectrum 100x1000", ((100, 1000),), _power(-1), _flops(100, 1000)),
    _row("power spectrum of columns 1024x64", ((1024, 64),), _power(0), _flops(64, 1024)),
    _row("power spectrum 1x65536", ((1, 65536),), _power(-1), _flops(1, 65536)),
    _row("power spectrum 1x1009", ((1, 1009),), _power(-1), _flops(1, 1009)),
    _row("convolution 32x4096", ((32, 4096), (4096,)), _convolution, _flops(65, 4096)),
    _row("images 8x64x64", ((8, 64, 64),), _image, 2 * _flops(8, 4096)),
    _row("image 256x256", ((256, 256),), _image, 2 * _flops(1, 65536)),
]
