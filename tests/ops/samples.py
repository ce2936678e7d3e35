"""Concrete arrays for the samples that operator records state as data."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracecomp.ir.op import Op, Sample
from tracecomp.ir.types import DType, TensorType, dtype_named

SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 1e-3, -3.7, 1e4, float("inf"), float("-inf"), float("nan"), 6e-8, -7.5)


@dataclass(frozen=True)
class Case:
    """One call of an operator: arrays and attributes."""

    op: Op
    arrays: tuple[Any, ...]
    attrs: dict[str, Any]

    @property
    def types(self) -> tuple[TensorType, ...]:
        return tuple(type_of(a) for a in self.arrays)

    def __str__(self) -> str:
        attrs = ", ".join(f"{k}={v!r}" for k, v in self.attrs.items())
        return f"{self.op.name}({', '.join(map(str, self.types))}; {attrs})"


def type_of(array: Any) -> TensorType:
    return TensorType(dtype_named(array.dtype.name), array.shape)


def samples_of(op: Op) -> Iterator[Case]:
    """Every sample of the record with arrays made up."""
    for number, sample in enumerate(op.samples):
        yield concrete(op, sample, number)


def native_samples_of(op: Op) -> Iterator[Case]:
    """Those that machine code runs."""
    return (case for case in samples_of(op) if not op.run_by_host(case.types))


def concrete(op: Op, sample: Sample, number: int = 0) -> Case:
    rng = np.random.default_rng(zlib.crc32(f"{op.name}{number}".encode()))
    attrs = {name: value() if callable(value) else value for name, value in sample.attrs.items()}
    return Case(op, tuple(draw(rng, *spec) for spec in sample.args), attrs)


def draw(rng: np.random.Generator, shape: tuple[int, ...], short: str, domain: str) -> Any:
    """An array of ``shape`` from ``domain``: any, zero, positive, nonzero, unit, small, special, index:n, ..."""
    dtype = dtype_named(short)
    if ":" in domain:
        return _integers(rng, shape, dtype, domain)
    if dtype.kind == "bool":
        return np.asarray(rng.integers(0, 2, shape)).astype(bool)
    if dtype.kind == "int":
        return _whole(rng, shape, dtype, domain)
    if dtype.is_complex:
        return np.asarray(_complex(rng, shape, domain)).astype(dtype.numpy)
    return np.asarray(_real(rng, shape, domain)).astype(dtype.numpy)


def _integers(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType, domain: str) -> Any:
    name, _, size = domain.partition(":")
    n = int(size)
    if name == "outside":
        return np.full(shape, n, dtype.numpy)
    if name == "ascending":
        return np.sort(rng.integers(0, n + 1, shape)).astype(dtype.numpy)
    if name == "distinct":
        return rng.permutation(n)[: int(np.prod(shape))].reshape(shape).astype(dtype.numpy)
    return np.asarray(rng.integers(0, n, shape)).astype(dtype.numpy) if n else np.zeros(shape, dtype.numpy)


def _whole(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType, domain: str) -> Any:
    if domain == "small":
        return np.asarray(rng.integers(0, 8, shape)).astype(dtype.numpy)
    low = 1 if domain == "positive" else -9 if dtype.signed else 0
    values = np.asarray(rng.integers(low, 10, shape))
    if domain == "nonzero":
        values = np.where(values == 0, 3, values)
    return values.astype(dtype.numpy)


def _complex(rng: np.random.Generator, shape: tuple[int, ...], domain: str) -> Any:
    if domain != "definite":
        return _real(rng, shape, domain) + 1j * _real(rng, shape, domain)
    x = _real(rng, shape, "any") + 1j * _real(rng, shape, "any")
    return x @ np.swapaxes(x.conj(), -1, -2) + _steep(shape)


def _steep(shape: tuple[int, ...]) -> Any:
    return np.eye(shape[-2], shape[-1]) * np.arange(3, 3 + shape[-1]) * 2


def _real(rng: np.random.Generator, shape: tuple[int, ...], domain: str) -> Any:
    if domain == "special":
        return rng.choice(np.array(SPECIAL), shape)
    if domain == "zero":
        return np.zeros(shape)
    x = rng.standard_normal(shape) * 2
    if domain in ("regular", "definite") and len(shape) >= 2:
        square = x @ np.swapaxes(x, -1, -2) if domain == "definite" else x
        return square + _steep(shape)
    if domain == "positive":
        return np.abs(x) + 0.1
    if domain == "nonzero":
        return np.copysign(np.abs(x) + 0.2, x)
    if domain == "unit":
        return np.tanh(x) * 0.95
    if domain == "above_one":
        return np.abs(x) + 1.05
    return x
