"""Window functions, ``signal.windows`` and the older ones at the top level, and frequency helpers of ``fft``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tracecomp.eager.device import Device, Layout, strided
from tracecomp.eager.tensor import Tensor, create
from tracecomp.functional.creation.creation import constant, finish
from tracecomp.functional.default_dtype import default_dtype
from tracecomp.functional.dims import Dim
from tracecomp.functional.dtype_support import ALL
from tracecomp.functional.primitives import prim
from tracecomp.functional.promotion import cast
from tracecomp.functional.publish import function
from tracecomp.functional.shape.rearranging import roll
from tracecomp.functional.special.bessel import i0
from tracecomp.ir.types import DType, float32, float64, int64


def _check(name: str, M: int, dtype: DType | None, layout: Layout) -> DType:
    if M < 0:
        raise ValueError(f"{name} requires non-negative window length, got M={M}")
    if layout not in (None, strided):
        raise ValueError(f"{name} is implemented for strided tensors only, got: {layout}")
    kind = dtype or default_dtype()
    if kind not in (float32, float64):
        raise ValueError(f"{name} expects float32 or float64 dtypes, got: {kind}")
    return kind


def _places(M: int, sym: bool, dtype: DType) -> tuple[Tensor, int]:
    """0 ... M - 1 and the length of the symmetric window that contains them."""
    return create("iota", shape=(M,), axis=0, dtype=float64), M if sym else M + 1


def _cosines(M: int, coefficients: Sequence[float], sym: bool, dtype: DType) -> Tensor:
    """Sum of (-1)^k a[k] cos(2 pi k n / (length - 1))."""
    if M == 0:
        return constant((0,), 0, dtype)
    n, length = _places(M, sym, dtype)
    if M == 1:
        return constant((1,), 1, dtype)
    total = prim.add(prim.mul(n, 0.0), coefficients[0])
    for k, a in enumerate(coefficients[1:], 1):
        wave = prim.cos(prim.mul(n, 2 * math.pi * k / (length - 1)))
        total = prim.add(total, prim.mul(wave, -a if k % 2 else a))
    return cast(total, dtype)


def _published(name: str, coefficients: Sequence[float]) -> None:
    def run(
        M: int, *, sym: bool = True, dtype: DType | None = None, layout: Layout = None, device: Device = None,
        requires_grad: bool = False,
    ) -> Tensor:  # fmt: skip
        kind = _check(name, M, dtype, layout)
        return finish(_cosines(M, coefficients, sym, kind), requires_grad, device)

    run.__name__, run.__doc__ = name, f"{name.capitalize()} window of ``M`` points, periodic unless ``sym``."
    function(to="signal.windows", composite=True)(run)


for _name, _coefficients in (
    ("hann", (0.5, 0.5)), ("blackman", (0.42, 0.5, 0.08)),
    ("nuttall", (0.3635819, 0.4891775, 0.1365995, 0.0106411)),
):  # fmt: skip
    _published(_name, _coefficients)


@function(to="signal.windows", composite=True)
def hamming(
    M: int, *, alpha: float = 0.54, sym: bool = True, dtype: DType | None = None, layout: Layout = None,
    device: Device = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Hamming window."""
    return general_hamming(
        M, alpha=alpha, sym=sym, dtype=dtype, layout=layout, device=device, requires_grad=requires_grad
    )


@function(to="signal.windows", composite=True)
def general_hamming(
    M: int, *, alpha: float = 0.54, sym: bool = True, dtype: DType | None = None, layout: Layout = None,
    device: Device = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """alpha - (1 - alpha) cos."""
    kind = _check("general_hamming", M, dtype, layout)
    return finish(_cosines(M, (alpha, 1 - alpha), sym, kind), requires_grad, device)


@function(to="signal.windows", composite=True)
def general_cosine(
    M: int, *, a: Sequence[float], sym: bool = True, dtype: DType | None = None, layout: Layout = None,
    device: Device = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Sum of cosines with coefficients ``a``."""
    if not isinstance(a, list | tuple):
        raise TypeError("Coefficients must be a list/tuple")
    if not a:
        raise ValueError("Coefficients cannot be empty")
    return finish(_cosines(M, tuple(a), sym, _check("general_cosine", M, dtype, layout)), requires_grad, device)


def _shaped(M: int, sym: bool, dtype: DType, shape: Any) -> Tensor:
    """``shape(n, length)`` over float64 places, for at least one point."""
    if M == 0:
        return constant((0,), 0, dtype)
    n, length = _places(M, sym, dtype)
    if M == 1:
        return constant((1,), 1, dtype)
    return cast(shape(n, length), dtype)


@function(to="signal.windows", composite=True)
def bartlett(
    M: int, *, sym: bool = True, dtype: DType | None = None, layout: Layout = None, device: Device = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Triangular window."""

    def shape(n: Tensor, length: int) -> Tensor:
        return prim.sub(1.0, prim.abs(prim.sub(prim.mul(n, 2.0 / (length - 1)), 1.0)))

    return finish(_shaped(M, sym, _check("bartlett", M, dtype, layout), shape), requires_grad, device)


@function(to="signal.windows", composite=True)
def cosine(
    M: int, *, sym: bool = True, dtype: DType | None = None, layout: Layout = None, device: Device = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Half a sine wave."""
    kind = _check("cosine", M, dtype, layout)
    if M <= 1:
        return constant((M,), 1, kind)
    n, length = _places(M, sym, kind)
    wave = prim.sin(prim.mul(prim.add(n, 0.5), math.pi / length))
    return finish(cast(wave, kind), requires_grad, device)


@function(to="signal.windows", composite=True)
def exponential(
    M: int, *, center: float | None = None, tau: float = 1.0, sym: bool = True, dtype: DType | None = None,
    layout: Layout = None, device: Device = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """exp(-|n - center| / tau)."""
    kind = _check("exponential", M, dtype, layout)
    if tau <= 0:
        raise ValueError(f"Tau must be positive, got: {tau} instead.")
    if sym and center is not None:
        raise ValueError("Center must be None for symmetric windows")

    def shape(n: Tensor, length: int) -> Tensor:
        middle = (length - 1) / 2 if center is None else center
        return prim.exp(prim.mul(prim.abs(prim.sub(n, float(middle))), -1.0 / tau))

    return finish(_shaped(M, sym, kind, shape), requires_grad, device)


@function(to="signal.windows", composite=True)
def gaussian(
    M: int, *, std: float = 1.0, sym: bool = True, dtype: DType | None = None, layout: Layout = None,
    device: Device = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """exp(-((n - middle) / std)^2 / 2)."""
    kind = _check("gaussian", M, dtype, layout)
    if std <= 0:
        raise ValueError(f"Standard deviation must be positive, got: {std} instead.")

    def shape(n: Tensor, length: int) -> Tensor:
        x = prim.mul(prim.sub(n, (length - 1) / 2), 1.0 / std)
        return prim.exp(prim.mul(prim.mul(x, x), -0.5))

    return finish(_shaped(M, sym, kind, shape), requires_grad, device)


@function(to="signal.windows", composite=True)
def kaiser(
    M: int, *, beta: float = 12.0, sym: bool = True, dtype: DType | None = None, layout: Layout = None,
    device: Device = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """i0(beta sqrt(1 - x^2)) / i0(beta) for x from -1 to 1."""
    kind = _check("kaiser", M, dtype, layout)
    if beta < 0:
        raise ValueError(f"beta must be non-negative, got: {beta} instead.")

    def shape(n: Tensor, length: int) -> Tensor:
        x = prim.sub(prim.mul(n, 2.0 / (length - 1)), 1.0)
        inner = prim.maximum(prim.sub(1.0, prim.mul(x, x)), 0.0)
        return prim.div(i0(prim.mul(prim.sqrt(inner), float(beta))), i0(constant((), beta, float64)))

    return finish(_shaped(M, sym, kind, shape), requires_grad, device)


def _check_older(name: str, window_length: int, dtype: DType | None, layout: Layout) -> DType:
    """The type of one of the older windows, which support any floating type."""
    kind = dtype or default_dtype()
    if layout not in (None, strided):
        raise RuntimeError(f"{name} is not implemented for sparse types, got: {layout}")
    if not kind.is_floating_point:
        raise RuntimeError(f"{name} expects floating point dtypes, got: {kind!r}")
    if window_length < 0:
        raise RuntimeError(f"{name} requires non-negative window_length, got window_length={window_length}")
    return kind


def _older(name: str, window: Callable[[int, bool, DType], Tensor]) -> None:
    def run(
        window_length: int, periodic: bool = True, *, dtype: DType | None = None, layout: Layout = None,
        device: Device = None, requires_grad: bool = False,
    ) -> Tensor:  # fmt: skip
        kind = _check_older(f"{name}_window", window_length, dtype, layout)
        return finish(window(window_length, not periodic, kind), requires_grad, device)

    run.__name__, run.__doc__ = f"{name}_window", f"{name.capitalize()} window, symmetric unless ``periodic``."
    function(to="torch")(run)


_older("hann", lambda M, sym, kind: _cosines(M, (0.5, 0.5), sym, kind))
_older("blackman", lambda M, sym, kind: _cosines(M, (0.42, 0.5, 0.08), sym, kind))
_older("bartlett", lambda M, sym, kind: cast(bartlett(M, sym=sym, dtype=float64), kind))


@function(to="torch")
def hamming_window(
    window_length: int, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, *, dtype: DType | None = None,
    layout: Layout = None, device: Device = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """alpha - beta cos, symmetric unless ``periodic``."""
    kind = _check_older("hamming_window", window_length, dtype, layout)
    return finish(_cosines(window_length, (alpha, beta), not periodic, kind), requires_grad, device)


@function(to="torch")
def kaiser_window(
    window_length: int, periodic: bool = True, beta: float = 12.0, *, dtype: DType | None = None, layout: Layout = None,
    device: Device = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Kaiser window, symmetric unless ``periodic``."""
    kind = _check_older("kaiser_window", window_length, dtype, layout)
    made = kaiser(window_length, beta=beta, sym=not periodic, dtype=float64)
    return finish(cast(made, kind), requires_grad, device)


def _halves(input: Tensor, dim: Any, sign: int) -> Tensor:
    dims = list(range(input.ndim)) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    sizes = [input.shape[d] for d in dims]
    return roll(input, [n // 2 if sign > 0 else -(n // 2) for n in sizes], dims) if dims else input.clone()


@function(to="fft", takes=ALL, composite=True)
def fftshift(input: Tensor, dim: Dim = None) -> Tensor:
    """Move the zero frequency to the middle."""
    return _halves(input, dim, 1)


@function(to="fft", takes=ALL, composite=True)
def ifftshift(input: Tensor, dim: Dim = None) -> Tensor:
    """The inverse of :func:`fftshift`."""
    return _halves(input, dim, -1)


def _frequencies(n: int, d: float, count: int, dtype: DType | None, wrapped: bool) -> Tensor:
    place = create("iota", shape=(count,), axis=0, dtype=int64)
    if wrapped:
        place = prim.where(prim.ge(place, (n + 1) // 2), prim.sub(place, n), place)
    length = n * d
    return prim.mul(cast(place, dtype or default_dtype()), 1.0 / length if length else math.copysign(math.inf, length))


@function(to="fft", composite=True)
def fftfreq(n: int, d: float = 1.0, *, dtype: DType | None = None, requires_grad: bool = False) -> Tensor:
    """Frequencies of a transform of ``n`` samples at distance ``d``."""
    return finish(_frequencies(n, d, n, dtype, True), requires_grad)


@function(to="fft", composite=True)
def rfftfreq(n: int, d: float = 1.0, *, dtype: DType | None = None, requires_grad: bool = False) -> Tensor:
    """The non-negative frequencies of :func:`fftfreq`."""
    return finish(_frequencies(n, d, n // 2 + 1, dtype, False), requires_grad)
