"""Fourier transforms: one row has the same bits eagerly and compiled, alone, with other rows, and along any axis."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracecomp as tc
from tests.references import by_numpy
from tracecomp.ops.fourier.roots import roots_of_unity, spectrum

FORMS = ("fftn", "ifftn", "rfftn", "irfftn", "hfftn", "ihfftn")


def compiled(fn: Any, x: tc.Tensor) -> tc.Tensor:
    """Return the result of the second call, which is native."""
    program = tc.compile(fn)
    program(x)
    found: tc.Tensor = program(x)
    return found


def drawn(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Any:
    return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)


def near(found: Any, want: Any) -> bool:
    """Whether two transforms are equal but for rounding, in the Euclidean norm."""
    return bool(np.linalg.norm((found - want).ravel()) <= 10 * np.finfo(want.dtype).eps * np.linalg.norm(want.ravel()))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(2))
def test_eager_transforms_have_the_bits_of_compiled_ones(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for name in rng.permutation(FORMS)[:2]:
        shape = tuple(int(rng.choice([2, 4, 5, 9, 12, 16, 18, 23, 37, 40])) for _ in range(3))
        axes = tuple(int(a) for a in rng.permutation(3)[: rng.integers(1, 4)])
        norm, dtype = str(rng.choice(["backward", "ortho", "forward"])), str(rng.choice(["complex64", "complex128"]))
        x = drawn(rng, shape, dtype)
        given = tc.from_numpy(x.real.copy() if name in ("rfftn", "ihfftn") else x)
        given = given.transpose(0, -1) if seed % 2 else given

        def program(x: tc.Tensor, name: str = name, axes: Any = axes, norm: str = norm) -> Any:
            return getattr(tc.fft, name)(x, dim=axes, norm=norm)

        eager, native = program(given), compiled(program, given)
        assert eager.dtype == native.dtype and eager.numpy().tobytes() == native.numpy().tobytes(), (name, shape, axes)
        assert near(eager.numpy(), by_numpy(program)(given).numpy()), (name, shape, axes)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("points", "dtype"), [(20, "complex64"), (60, "complex128")])
def test_a_row_has_its_bits_beside_any_others(points: int, dtype: str) -> None:
    """One row uses vectors of its elements, nine rows use vectors of rows, columns use vectors of columns."""
    x = drawn(np.random.default_rng(points), (9, points), dtype)

    def program(x: tc.Tensor, dim: int = -1) -> tuple[tc.Tensor, ...]:
        half = tc.fft.rfft(x.real, dim=dim)
        return tc.fft.fft(x, dim=dim), half, tc.fft.irfft(x, dim=dim)

    def down(x: tc.Tensor) -> tuple[tc.Tensor, ...]:
        return program(x, 0)

    want = [r.numpy() for r in program(tc.from_numpy(x))]
    assert all(map(near, want, [np.fft.fft(x), np.fft.rfft(x.real), np.fft.irfft(x)]))
    for run in (lambda fn, x: fn(x), compiled):
        for rows in (1, 9):
            beside = run(program, tc.from_numpy(x[:rows].copy()))
            columns = run(down, tc.from_numpy(np.ascontiguousarray(x[:rows].T)))
            for w, a, b in zip(want, beside, columns, strict=True):
                assert a.numpy().tobytes() == w[:rows].tobytes(), f"{rows} rows of {points}"
                assert np.ascontiguousarray(b.numpy().T).tobytes() == w[:rows].tobytes(), f"{rows} columns"


def test_roots_are_rounded_correctly_and_spectra_follow() -> None:
    """Exact where the circle says so; else against sines of numbers of two float64, as numpy's longdouble has them."""
    for n in (1, 3, 8, 100, 4095, 5000):
        k = np.arange(n)
        cos, sin = roots_of_unity(k, n)
        angle = -2 * np.longdouble("3.14159265358979323846264338327950288") * k / n
        assert np.abs(cos - np.cos(angle)).max() <= 2**-53 and np.abs(sin - np.sin(angle)).max() <= 2**-53
        assert not sin[0] and (n % 8 or (cos[n // 4] == 0 and cos[n // 8] == -sin[n // 8]))
    for n in (1, 8, 48, 80, 512):
        x = drawn(np.random.default_rng(n), (n,), "complex128")
        assert np.allclose(spectrum(x), np.fft.fft(x), rtol=0, atol=1e-14 * n)
