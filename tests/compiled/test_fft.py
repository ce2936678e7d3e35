"""Compiled Fourier transforms against numpy's in double precision: sizes, axes, types, layouts, gradients, threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracecomp
from tests.references import by_numpy
from tracecomp.ops.fourier.butterflies import LARGEST
from tracecomp.ops.fourier.dft_plan import blocks, fast_size, plan, radices
from tracecomp.ops.fourier.roots import roots_of_unity
from tracecomp.passes.building import build
from tracecomp.passes.graph.complex_to_real import split_complex
from tracecomp.passes.graph.host_segments import has_external
from tracecomp.passes.steps import Log

Array = np.ndarray[Any, Any]
SINGLE, DOUBLE = 1.2e-7, 2.3e-16


def drawn(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape) + 1j * rng.standard_normal(shape)


def compiled(fn: Callable[..., Any], *arrays: Array, **options: Any) -> Array:
    """Return the result of the second call, which is native."""
    program = tracecomp.compile(fn, **options)
    tensors = [tracecomp.from_numpy(a) for a in arrays]
    program(*tensors)
    found: Array = program(*tensors).numpy()
    return found


def assert_close(found: Array, want: Array, points: int, note: str = "") -> None:
    """Relative error in the Euclidean norm, which grows with the logarithm of the number of points."""
    assert found.shape == want.shape, note
    unit = SINGLE if found.dtype in (np.float32, np.complex64) else DOUBLE
    error = np.linalg.norm((found - want).ravel()) / max(float(np.linalg.norm(want.ravel())), 1e-300)
    assert error <= unit * (1 + np.log2(points)), f"{note}: {error}"


SIZES = [1, 2, 3, 4, 7, 8, 13, 16, 30, 31, 37, 60, 64, 74, 100, 127, 243, 256, 343, 510, 1000, 1009, 2048]


@pytest.mark.sampled(31)
@pytest.mark.parametrize(("n", "dtype"), [*((n, "complex64") for n in SIZES), *((n, "complex128") for n in SIZES[::3])])
def test_sizes(n: int, dtype: str) -> None:
    rng = np.random.default_rng(n)
    for rows in (1, 3, 17):
        x = drawn(rng, rows, n).astype(dtype)
        half = x[:, : n // 2 + 1].copy()
        wide, real = x.astype(complex), x.real.copy()

        def program(T: Any, z: Any, r: Any, h: Any, turned: Any) -> list[Any]:
            return [
                T.fft.fft(z), T.fft.ifft(z, norm="ortho"), T.fft.rfft(r, norm="forward"), T.fft.irfft(h, n),
                T.fft.fft(turned, dim=0), T.fft.irfft(T.fft.rfft(turned.real, dim=0), n, dim=0),
            ]  # fmt: skip

        given = [x, real, half, np.ascontiguousarray(x.T)]
        run = tracecomp.compile(lambda *a: tuple(program(tracecomp, *a)))
        for _ in range(2):
            found = run(*map(tracecomp.from_numpy, given))
        want = [
            np.fft.fft(wide), np.fft.ifft(wide, norm="ortho"), np.fft.rfft(wide.real, norm="forward"),
            np.fft.irfft(half.astype(complex), n), np.fft.fft(wide.T, axis=0), wide.real.T,
        ]  # fmt: skip
        for k, (a, b) in enumerate(zip(found, want, strict=True)):
            assert_close(a.numpy(), b, n + 1, f"{rows} rows of {n}, transform {k}")


@pytest.mark.sampled(12)
@pytest.mark.parametrize("seed", range(12))
def test_random_shapes(seed: int) -> None:
    """Several axes of a strided operand, any norm; the real forms too."""
    rng = np.random.default_rng(seed)
    shape = tuple(int(rng.integers(1, 40)) for _ in range(int(rng.integers(1, 5))))
    axes = tuple(int(a) for a in rng.permutation(len(shape))[: rng.integers(1, len(shape) + 1)])
    norm: Any = str(rng.choice(["backward", "ortho", "forward"]))
    dtype = str(rng.choice(["complex64", "complex128"]))
    order = rng.permutation(len(shape))
    stored = drawn(rng, *(shape[a] for a in order)).astype(dtype)
    x = stored.transpose(np.argsort(order))
    assert x.shape == shape
    points = int(np.prod([shape[a] for a in axes]))
    wide, size = x.astype(complex), [shape[a] for a in axes]
    note = f"{shape} {axes} {norm} {dtype}"
    found = compiled(lambda z: tracecomp.fft.fftn(z, dim=axes, norm=norm), x)
    assert_close(found, np.fft.fftn(wide, axes=axes, norm=norm), points + 1, note)
    found = compiled(lambda z: tracecomp.fft.rfftn(z, dim=axes, norm=norm), np.asarray(x.real))
    assert_close(found, np.fft.rfftn(wide.real, axes=axes, norm=norm), points + 1, note)
    back = compiled(lambda z: tracecomp.fft.irfftn(z, s=size, dim=axes, norm=norm), found)
    assert_close(back, wide.real, points + 1, note)


@pytest.mark.parametrize("n", [6, 9, 37, 64])
def test_only_real_parts_of_the_ends_count(n: int) -> None:
    x = drawn(np.random.default_rng(0), 2, n // 2 + 1)
    assert_close(compiled(lambda z: tracecomp.fft.irfft(z, n), x), np.fft.irfft(x, n), n)


LONG = {
    "fft": (lambda x: tracecomp.fft.fft(x), np.fft.fft, (2, 1 << 16)),
    "ifft": (lambda x: tracecomp.fft.ifft(x), np.fft.ifft, (1 << 17,)),
    "rfft": (lambda x: tracecomp.fft.rfft(x.real), lambda x: np.fft.rfft(x.real), (3, 1 << 15)),
    "irfft": (lambda x: tracecomp.fft.irfft(x, 1 << 17), lambda x: np.fft.irfft(x, 1 << 17), ((1 << 16) + 1,)),
    "rows": (lambda x: tracecomp.fft.fft(x), np.fft.fft, (3001, 60)),
    "columns": (lambda x: tracecomp.fft.fft(x, dim=0), lambda x: np.fft.fft(x, axis=0), (1024, 100)),
    "convolution": (lambda x: tracecomp.fft.fft(x), np.fft.fft, (20, 4099)),
}  # fmt: skip


@pytest.mark.sampled(9)
@pytest.mark.parametrize("name", LONG)
def test_bits_do_not_depend_on_threads(name: str) -> None:
    program, reference, shape = LONG[name]
    x = drawn(np.random.default_rng(0), *shape).astype(np.complex64)
    one, several = (compiled(program, x, threads=t) for t in (1, 3))
    np.testing.assert_array_equal(one.view(np.uint32), several.view(np.uint32))
    assert_close(one, reference(x.astype(complex)), 1 << 17)


def test_gradients() -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((3, 20)), drawn(rng, 3, 11), rng.standard_normal((4, 37))]

    def gradients(*leaves: Any) -> tuple[Any, ...]:
        x, h, odd = leaves
        y = tracecomp.fft.irfft(tracecomp.fft.rfft(x) * h, 20)
        (y.pow(2).sum() + (tracecomp.fft.fft2(odd).abs() ** 3).sum()).backward()
        return tuple(leaf.grad for leaf in leaves)

    def leaves() -> list[Any]:
        return [tracecomp.tensor(a, requires_grad=True) for a in arrays]

    want = by_numpy(gradients)(*leaves())
    program = tracecomp.compile(gradients)
    for _ in range(3):
        for a, b in zip(program(*leaves()), want, strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-9, atol=1e-9)


def test_gradients_of_long_windows_that_overlap() -> None:
    """Each sample adds up the few windows that hold it; a term for each place of the window would not compile."""

    def overlapped(x: Any) -> Any:
        return (x.unfold(0, 600, 150) ** 2).sum() + (tracecomp.stft(x, 512, 128, return_complex=True).abs() ** 2).sum()

    def gradient(x: Any) -> Any:
        return tracecomp.func.grad(overlapped)(x)

    x = np.random.default_rng(0).standard_normal(2400)
    count = np.zeros(2400)
    for start in range(0, 1801, 150):
        count[start : start + 600] += 1
    wide = np.pad(x, 256, mode="reflect")
    spectrum = np.zeros_like(wide)
    for start in range(0, len(wide) - 511, 128):
        part = np.fft.rfft(wide[start : start + 512])
        spectrum[start : start + 512] += 2 * 512 * np.fft.irfft(part * np.r_[1, np.full(255, 0.5), 1])
    want = 2 * x * count + spectrum[256:-256]
    want[1:257] += spectrum[:256][::-1]
    want[-257:-1] += spectrum[-256:][::-1]
    found = compiled(gradient, x)
    np.testing.assert_allclose(found, want, rtol=1e-9, atol=1e-9)


def test_views_and_products_around_transforms() -> None:
    rng = np.random.default_rng(0)
    x, weight = drawn(rng, 4, 6, 10), drawn(rng, 6, 4)

    def ours(z: Any, w: Any) -> Any:
        turned = tracecomp.fft.fft(z.permute(2, 1, 0)[1:, :, ::2]).flip(1).permute(1, 2, 0)
        return tracecomp.fft.ifft(turned.reshape(6, 18) * w[:, :1]).unsqueeze(0).expand(2, 6, 18)

    turned = np.fft.fft(x.transpose(2, 1, 0)[1:, :, ::2])
    want = np.fft.ifft(np.flip(turned, 1).transpose(1, 2, 0).reshape(6, 18) * weight[:, :1])
    assert_close(compiled(ours, x, weight), np.broadcast_to(want, (2, 6, 18)), 64)


def test_transforms_are_native_in_loops_too() -> None:
    """Also where the host could not be called: in the body of a scan."""
    x = tracecomp.tensor(drawn(np.random.default_rng(0), 5, 3, 16))

    def step(carry: Any, z: Any) -> tuple[Any, Any]:
        carry = tracecomp.fft.ifft(tracecomp.fft.fft(carry) * tracecomp.fft.fft(z))
        return carry, tracecomp.fft.rfft(carry.real)

    def program(z: Any) -> Any:
        return tracecomp.scan(step, z[0], z)

    graph = tracecomp.trace(program, x)
    assert not has_external(graph)
    want = by_numpy(program)(x)
    run = tracecomp.compile(program)
    for _ in range(3):
        for a, b in zip(run(x), want, strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-12, atol=1e-12)


def test_what_passes_hand_over_is_not_interleaved() -> None:
    """Real and imaginary parts stay separate between a transform and arithmetic: no interleaving or splitting."""
    x = tracecomp.ones(8, 64)

    def program(x: Any) -> Any:
        return tracecomp.fft.irfft(tracecomp.fft.rfft(x) * tracecomp.fft.rfft(x.flip(0)), 64)

    nodes = list(split_complex(tracecomp.trace(program, x), Log()).live_nodes())
    assert [n.attrs["apart_out"] for n in nodes if n.op.name == "dft"] == [True, True, False]
    assert not any(n.op.name == "concat" for n in nodes)


def test_constants_are_no_larger_than_the_operand() -> None:
    graph = tracecomp.trace(lambda x: tracecomp.fft.fft(x), tracecomp.zeros(1 << 18, dtype=tracecomp.complex64))
    built = build(split_complex(graph, Log()))
    assert sum(c.nbytes for c in built.constants) <= 1.01 * 8 * (1 << 18)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 12, 1000, 4096, 99991])
def test_roots_of_unity(n: int) -> None:
    k = np.arange(-n, 3 * n, max(n // 500, 1))
    angle = 2 * np.arctan2(np.longdouble(0), np.longdouble(-1)) * (k % n) / np.longdouble(n)
    cos, sin = roots_of_unity(k, n)
    assert np.abs(cos - np.cos(angle)).max() <= 2e-16
    assert np.abs(sin + np.sin(angle)).max() <= 2e-16
    assert {*cos[(4 * k) % n == 0], *sin[(4 * k) % n == 0]} <= {0.0, 1.0, -1.0}


def test_plans() -> None:
    for n in range(1, 400):
        sizes = radices(n)
        primes = [p for p in range(2, n + 1) if n % p == 0 and all(p % q for q in range(2, p))]
        assert (sizes is None) == (max(primes, default=1) > LARGEST)
        assert sizes is None or np.prod(sizes, dtype=int) == n
        assert n <= fast_size(n) < 1.5 * n + 1 and radices(fast_size(n)) is not None
        cut = blocks(n, 16)
        covered = [cut.start(b).const + i for b in range(cut.count) for i in range(cut.width)]
        assert set(covered) == set(range(n)) and len(covered) < n + 16
    for n in (64, 1000, 1024, 1 << 20):
        made = plan(n, 1, 1, 4, False)
        assert made.second is not None and made.first.points * made.second.points == n
        assert made.table.array().size == made.table.size


def test_signals_from_long_overlapping_windows() -> None:
    """Each sample adds up the few windows that hold it, however long they are."""
    signal = np.random.default_rng(0).standard_normal((2, 4000))
    weights = np.hanning(1025)[:1024]

    def again(x: Any, window: Any) -> Any:
        spectrum = tracecomp.stft(x, 1024, 128, window=window, return_complex=True)
        return tracecomp.istft(spectrum, 1024, 128, window=window, length=4000)

    assert_close(compiled(again, signal, weights), signal, 4000)
