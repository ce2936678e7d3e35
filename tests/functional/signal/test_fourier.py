"""``fft``, ``stft`` and ``istft`` against torch: values, dtypes, gradients of two orders, errors."""

from __future__ import annotations

import warnings
from itertools import product
from typing import Any

import numpy as np
import pytest

import tracecomp as tc
from tests.functional.reference import same, torch

pytestmark = pytest.mark.filterwarnings("ignore:A window was not provided")
NAMES = ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"]
DIMENSIONS: list[tuple[str, dict[str, Any]]] = [
    ("", {}), ("", {"n": 3}), ("", {"n": 8, "dim": 0}), ("2", {}), ("2", {"s": (3, 8), "dim": (0, 2)}),
    ("n", {}), ("n", {"s": (5,)}), ("n", {"dim": (2, 0)}), ("n", {"s": (-1, 3)}),
]  # fmt: skip
BAD: list[tuple[str, dict[str, Any]]] = [
    ("", {"n": 0}), ("", {"n": -1}), ("", {"dim": 3}), ("", {"dim": (0, 1)}), ("", {"norm": "half"}),
    ("2", {"dim": (1, 1)}), ("n", {"s": (1, 2, 3, 4)}), ("n", {"s": (1, 2), "dim": (0,)}), ("n", {"s": (0,)}),
]  # fmt: skip


def operand(name: str, dtype: str) -> Any:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 4, 6))
    return (x + 1j * rng.standard_normal(x.shape) if dtype.startswith("c") else x * 3).astype(dtype)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "complex64", "complex128"])
def test_values(name: str, dtype: str) -> None:
    x = operand(name, dtype)
    for (suffix, options), norm in product(DIMENSIONS, (None, "ortho", "forward", "backward")):
        given = {**options, "norm": norm}
        same(lambda T, f=name + suffix, kw=given: getattr(T.fft, f)(T.tensor(x), **kw), 2e-5)  # type: ignore[misc]


@pytest.mark.parametrize("name", NAMES)
def test_errors(name: str) -> None:
    x = operand(name, "float64")
    for suffix, options in BAD:
        same(lambda T, f=name + suffix, kw=options: getattr(T.fft, f)(T.tensor(x), **kw))  # type: ignore[misc]
    same(lambda T: getattr(T.fft, name)(T.ones(3, dtype=T.float16)))
    same(lambda T: getattr(T.fft, name)(T.tensor(1.0)))
    same(lambda T: getattr(T.fft, name + "n")(T.ones(3), dim=()))


@pytest.mark.parametrize("name", NAMES)
def test_gradients_of_two_orders(name: str) -> None:
    """The second one along a direction that is not real."""
    real = name in ("rfft", "ihfft")
    array = operand(name, "float64" if real else "complex128")

    def program(T: Any, suffix: str, options: dict[str, Any]) -> Any:
        x = T.tensor(array, requires_grad=True)
        y = getattr(T.fft, name + suffix)(x, **options)
        weight = T.tensor(np.cos(np.arange(y.numel())).reshape(tuple(y.shape)))
        (first,) = T.autograd.grad(((y * weight).abs() ** 3).sum(), x, create_graph=True)
        (second,) = T.autograd.grad((first.abs() ** 2).sum() if real else (first * first).imag.sum(), x)
        return first.detach(), second

    for suffix, options in DIMENSIONS:
        same(lambda T, s=suffix, kw=options: program(T, s, kw))  # type: ignore[misc]


def test_frequencies_and_shifts() -> None:
    same(lambda T: T.fft.fftfreq(7, 0.5))
    same(lambda T: T.fft.rfftfreq(8))
    same(lambda T: T.fft.fftshift(T.arange(12.0).reshape(3, 4).to(T.cfloat) * 1j))
    same(lambda T: T.fft.ifftshift(T.arange(12.0).reshape(3, 4), dim=0))


SIGNALS: list[dict[str, Any]] = [
    {}, {"hop_length": 3}, {"win_length": 6}, {"window": 8}, {"window": 6, "win_length": 6}, {"center": False},
    {"pad_mode": "constant"}, {"pad_mode": "circular"}, {"pad_mode": "replicate"}, {"normalized": True},
    {"onesided": False}, {"window": 8, "onesided": False, "normalized": True},
]  # fmt: skip


def _options(T: Any, options: dict[str, Any], dtype: Any) -> dict[str, Any]:
    if "window" not in options:
        return options
    return {**options, "window": T.hann_window(options["window"], dtype=dtype) + 0.1}


@pytest.mark.parametrize("options", SIGNALS, ids=str)
def test_stft_and_back(options: dict[str, Any]) -> None:
    array = np.random.default_rng(1).standard_normal((2, 40))
    inverse = {k: v for k, v in options.items() if k != "pad_mode"} | {"center": True}

    def program(T: Any) -> Any:
        x = T.tensor(array, requires_grad=True)
        spectrum = T.stft(x, 8, return_complex=True, **_options(T, options, x.dtype))
        signal = T.istft(spectrum, 8, **_options(T, inverse, x.dtype))
        (spectrum.abs().sum() + signal.pow(2).sum()).backward()
        return spectrum, signal, x.grad, T.istft(spectrum.detach(), 8, length=30, **_options(T, inverse, x.dtype))

    same(program)


@pytest.mark.filterwarnings("ignore:stft with return_complex=False")
def test_other_forms_and_errors_of_stft() -> None:
    same(lambda T: T.stft(T.arange(20.0), 8, return_complex=False))
    same(lambda T: T.arange(20.0).stft(8, return_complex=True))
    same(lambda T: T.stft(T.arange(20.0).to(T.cfloat), 8))
    same(lambda T: T.stft(T.arange(20.0), 8, window=T.ones(8).to(T.cfloat)))
    same(lambda T: T.istft(T.stft(T.arange(20.0).to(T.cfloat), 8), 8, return_complex=True))
    for call in (
        "T.stft(T.arange(20.0), 8)", "T.stft(T.arange(20), 8, return_complex=True)", "T.stft(T.ones(2, 2, 20), 8)",
        "T.stft(T.arange(20.0), 50, center=False, return_complex=True)",
        "T.stft(T.arange(20.0), 8, 0, return_complex=True)", "T.stft(T.arange(20.0), 8, window=T.ones(7))",
        "T.stft(T.arange(3.0), 8, return_complex=True)", "T.istft(T.ones(5, 4), 8)",
        "T.istft(T.ones(6, 4).to(T.cfloat), 8)", "T.istft(T.ones(5, 4).to(T.cfloat), 8, window=T.zeros(8))",
        "T.istft(T.ones(5, 4).to(T.cfloat), 8, return_complex=True, onesided=True)",
    ):  # fmt: skip
        same(lambda T, call=call: eval(call, {"T": T}))  # type: ignore[misc]


def test_transforms_keep_single_precision() -> None:
    found = torch.fft.fft(torch.ones(4)).dtype
    same(lambda T: T.fft.fft(T.ones(4)).dtype)
    assert found is torch.complex64


def test_a_transform_without_a_window_warns() -> None:
    x = tc.ones(32)
    with pytest.warns(UserWarning, match="window was not provided"):
        found = tc.stft(x, 8, return_complex=True)
    with pytest.warns(UserWarning, match="lossless"):
        tc.istft(found, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tc.istft(tc.stft(x, 8, return_complex=True, window=tc.ones(8)), 8, window=tc.ones(8))
