"""``torch.fft``: every transform is one of three primitives on resized operands (``ops/fourier/fourier.py``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tracecomp.eager.tensor import Tensor
from tracecomp.functional.dims import Dim, Sizes, wrap_dim
from tracecomp.functional.dtype_support import ALL
from tracecomp.functional.primitives import prim
from tracecomp.functional.promotion import as_float, cast
from tracecomp.functional.publish import function
from tracecomp.functional.shape.shaping import cut_range
from tracecomp.ir.types import float32, float64, type_word
from tracecomp.ops.fourier.fourier import ADJOINT, NORMS

Plan = tuple[tuple[int, ...], list[int]]  # axes, and sizes along them


def _floating(x: Tensor) -> Tensor:
    """Convert ``x`` to a type that has transforms."""
    x = as_float(x)
    if x.dtype.to_real() not in (float32, float64):
        raise RuntimeError(f"Unsupported dtype {type_word(x.dtype)}")
    return x


def _as_complex(x: Tensor) -> Tensor:
    return cast(x, x.dtype.to_complex())


def _real(name: str, x: Tensor) -> Tensor:
    if x.dtype.is_complex:
        raise RuntimeError(f"{name} expects a real input tensor, but got {type_word(x.dtype)}")
    return _floating(x)


def _norm(norm: str | None) -> str:
    if norm not in (None, *NORMS):
        raise RuntimeError(f'Invalid normalization mode: "{norm}"')
    return norm or "backward"


def sized(x: Tensor, axis: int, n: int) -> Tensor:
    """Truncate, or pad with zeros, at the end of an axis."""
    have = x.shape[axis]
    if n == have:
        return x
    if n < have:
        return cut_range(x, axis, 0, n)
    high = tuple(n - have if i == axis else 0 for i in range(x.ndim))
    zero = (0,) * x.ndim
    return prim.pad(x, low=zero, high=high, interior=zero, value=0.0)


def _check_points(sizes: Sequence[int]) -> None:
    for n in sizes:
        if n < 1:
            raise RuntimeError(f"Invalid number of data points ({n}) specified")


def _plan(x: Tensor, s: Any, dim: Any, halved: bool = False) -> Plan:
    """Axes and sizes of a transform in several dimensions; ``halved``: of a result with a half spectrum as operand."""
    sizes = None if s is None else [int(n) for n in ([s] if isinstance(s, int) else s)]
    if dim is None:
        count = x.ndim if sizes is None else len(sizes)
        if count > x.ndim:
            raise RuntimeError(f"Got shape with {count} values but input tensor only has {x.ndim} dimensions.")
        axes = tuple(range(x.ndim - count, x.ndim))
    else:
        axes = tuple(wrap_dim(d, x.ndim) for d in ([dim] if isinstance(dim, int) else dim))
        if len(set(axes)) != len(axes):
            raise RuntimeError("FFT dims must be unique")
    if sizes is None:
        sizes = [-1] * len(axes)
    if len(sizes) != len(axes):
        raise RuntimeError("When given, dim and shape arguments must have the same length")
    # Half a spectrum of n points belongs to 2 * (n - 1) points, unless the caller gives an odd number.
    whole = [2 * (x.shape[a] - 1) if halved and a == axes[-1] else x.shape[a] for a in axes]
    found = [have if n == -1 else n for n, have in zip(sizes, whole, strict=True)]
    _check_points(found)
    return axes, found


def _resized(x: Tensor, axes: Sequence[int], sizes: Sequence[int]) -> Tensor:
    for axis, n in zip(axes, sizes, strict=True):
        x = sized(x, axis, n)
    return x


def _complex(name: str, x: Tensor, plan: Plan, norm: str, forward: bool) -> Tensor:
    """fft and ifft."""
    axes, sizes = plan
    x = _as_complex(_resized(_floating(x), axes, sizes))
    return prim.fft_c2c(x, axes=axes, forward=forward, norm=norm) if axes else x.clone()


def _to_half(name: str, x: Tensor, plan: Plan, norm: str, forward: bool) -> Tensor:
    """rfft; or ihfft, which is its conjugate normalised as an inverse."""
    axes, sizes = plan
    x = _resized(_real(name, x), _some(name, axes), sizes)
    found = prim.fft_r2c(x, axes=axes, norm=norm if forward else ADJOINT[norm])
    return found if forward else prim.conj(found)


def _from_half(name: str, x: Tensor, plan: Plan, norm: str, forward: bool) -> Tensor:
    """irfft; or hfft, which is that of the conjugate normalised as a forward transform."""
    axes, sizes = plan
    x = _resized(_as_complex(_floating(x)), _some(name, axes), [*sizes[:-1], sizes[-1] // 2 + 1])
    x = prim.conj(x) if forward else x
    return prim.fft_c2r(x, axes=axes, size=sizes[-1], norm=ADJOINT[norm] if forward else norm)


def _some(name: str, axes: Sequence[int]) -> Sequence[int]:
    if not axes:
        raise RuntimeError(f"{name} must transform at least one axis")
    return axes


Transform = Callable[[str, Tensor, Plan, str, bool], Tensor]


def _publish(name: str, transform: Transform, forward: bool, doc: str) -> None:
    halved = transform is _from_half

    def one(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
        if not isinstance(dim, int):
            raise TypeError(f"fft_{name}(): argument 'dim' must be int, not {type(dim).__name__}")
        axis = wrap_dim(dim, input.ndim)
        _check_points([] if n is None else [n])
        return transform(name, input, _plan(input, n, axis, halved), _norm(norm), forward)

    def two(input: Tensor, s: Sizes | None = None, dim: Sizes = (-2, -1), norm: str | None = None) -> Tensor:
        return transform(name + "2", input, _plan(input, s, dim, halved), _norm(norm), forward)

    def several(input: Tensor, s: Sizes | None = None, dim: Dim = None, norm: str | None = None) -> Tensor:
        return transform(name + "n", input, _plan(input, s, dim, halved), _norm(norm), forward)

    for fn, suffix, where in ((one, "", "one dimension"), (two, "2", "the last two dimensions"),
                              (several, "n", "several dimensions")):  # fmt: skip
        fn.__name__, fn.__doc__ = name + suffix, f"{doc}, in {where}."
        function(to="fft", takes=ALL, composite=True)(fn)


_publish("fft", _complex, True, "Discrete Fourier transform")
_publish("ifft", _complex, False, "Inverse discrete Fourier transform")
_publish("rfft", _to_half, True, "Half of the transform of a real tensor, the rest of which is its conjugate")
_publish("ihfft", _to_half, False, "Half of the inverse transform of a real tensor")
_publish("irfft", _from_half, False, "The real tensor of which ``input`` is the half spectrum")
_publish("hfft", _from_half, True, "The real transform of a signal of which ``input`` is one half")
