"""Short-time Fourier transforms: windows of a signal, transformed one by one, and their overlap-add."""

from __future__ import annotations

import warnings

from tracecomp.base.errors import warn_user
from tracecomp.eager.tensor import Tensor, create
from tracecomp.functional.dtype_support import ALL
from tracecomp.functional.primitives import prim
from tracecomp.functional.promotion import cast
from tracecomp.functional.publish import function
from tracecomp.functional.shape.joining import cat
from tracecomp.functional.shape.shaping import cut_range
from tracecomp.functional.signal.fourier import sized
from tracecomp.ir.types import type_word


def _turned(x: Tensor, start: int, stop: int) -> Tensor:
    axis = x.ndim - 1
    return prim.flip(cut_range(x, axis, start, stop), axes=(axis,))


def _padded(x: Tensor, pad: int, mode: str) -> Tensor:
    """Extend the last dimension by ``pad`` samples at both ends."""
    n, axis = x.shape[-1], x.ndim - 1
    if mode == "constant":
        around = (0,) * axis + (pad,)
        return prim.pad(x, low=around, high=around, interior=(0,) * x.ndim, value=0.0)
    if mode == "reflect":
        if pad >= n:
            raise RuntimeError(
                "Argument #4: Padding size should be less than the corresponding input dimension, but got: padding "
                f"({pad}, {pad}) at dimension {axis} of input {list(x.shape)}"
            )
        before, after = _turned(x, 1, pad + 1), _turned(x, n - pad - 1, n - 1)
    elif mode == "circular":
        before, after = cut_range(x, axis, n - pad, n), cut_range(x, axis, 0, pad)
    elif mode == "replicate":
        shape = (*x.shape[:-1], pad)
        before, after = (prim.expand(cut_range(x, axis, i, i + 1), shape=shape) for i in (0, n - 1))
    else:
        raise NotImplementedError(f"Unrecognised padding mode {mode}")
    return cat([before, x, after], axis)


def _window(name: str, window: Tensor | None, win_length: int, n_fft: int, like: Tensor) -> Tensor | None:
    """The window, padded with zeros to ``n_fft``; None when it is 1 everywhere."""
    if window is not None and (window.ndim != 1 or window.shape[0] != win_length):
        raise RuntimeError(
            f"{name}: expected a 1D window tensor of size equal to win_length={win_length}, but got window with size "
            f"{list(window.shape)}"
        )
    if window is None:
        if win_length == n_fft:
            return None
        window = create("full", value=1.0, shape=(win_length,), dtype=like.dtype.to_real())
    before = (n_fft - win_length) // 2
    return prim.pad(window, low=(before,), high=(n_fft - win_length - before,), interior=(0,), value=0.0)


def _lengths(name: str, n_fft: int, hop_length: int | None, win_length: int | None) -> tuple[int, int]:
    hop, length = n_fft // 4 if hop_length is None else hop_length, n_fft if win_length is None else win_length
    if hop <= 0:
        raise RuntimeError(f"{name}: expected hop_length > 0, but got hop_length={hop}")
    if not 0 < length <= n_fft:
        raise RuntimeError(f"{name}: expected 0 < win_length <= n_fft, but got win_length={length}")
    return hop, length


def _promoted(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Convert both to complex if either is."""
    if a.dtype.is_complex or b.dtype.is_complex:
        return cast(a, a.dtype.to_complex()), cast(b, b.dtype.to_complex())
    return a, b


_warned: set[str] = set()


def _warn_once(why: str) -> None:
    """PyTorch's warning about a transform without a window, once per process."""
    if why not in _warned:
        _warned.add(why)
        warn_user(
            f"A window was not provided. A rectangular window will be applied{why}explicitly set "
            "`window=torch.ones(n_fft, device=<device>)`."
        )


def _check_complex_result(input: Tensor, window: Tensor | None, return_complex: bool | None) -> bool:
    if return_complex is None:
        if not input.dtype.is_complex and (window is None or not window.dtype.is_complex):
            raise RuntimeError(
                "stft requires the return_complex parameter be given for real inputs, and will further require that "
                "return_complex=True in a future PyTorch release."
            )
        return True
    if not return_complex:
        warnings.warn(
            "stft with return_complex=False is deprecated. In a future pytorch release, stft will return complex "
            "tensors for all inputs, and return_complex=False will raise an error.",
            UserWarning,
            stacklevel=4,
        )
    return return_complex


@function(takes=ALL, composite=True)
def stft(
    input: Tensor, n_fft: int, hop_length: int | None = None, win_length: int | None = None,
    window: Tensor | None = None, center: bool = True, pad_mode: str = "reflect", normalized: bool = False,
    onesided: bool | None = None, return_complex: bool | None = None, align_to_window: bool | None = None,
) -> Tensor:  # fmt: skip
    """Transforms of windows of a signal (B?, T), ``hop_length`` apart: (B?, frequencies, windows)."""
    as_complex = _check_complex_result(input, window, return_complex)
    if not input.dtype.differentiable:
        raise RuntimeError(f"stft: expected a tensor of floating point or complex values, got {type_word(input.dtype)}")
    if input.ndim not in (1, 2):
        raise RuntimeError(f"stft: expected a 1D or 2D tensor, but got {input.ndim}D tensor")
    x = input if input.ndim == 2 else prim.reshape(input, shape=(1, input.shape[0]))
    x = _padded(x, n_fft // 2, pad_mode) if center else x
    if not 0 < n_fft <= x.shape[1]:
        raise RuntimeError(f"stft: expected 0 < n_fft < {x.shape[1]}, but got n_fft={n_fft}")
    hop, length = _lengths("stft", n_fft, hop_length, win_length)
    if window is None:
        _warn_once(
            ",which is known to cause spectral leakage. Other windows such as torch.hann_window or "
            "torch.hamming_window are recommended to reduce spectral leakage.To suppress this warning and use a "
            "rectangular window, "
        )
    weights = _window("stft", window, length, n_fft, x)
    frames = prim.windows(x, sizes=(n_fft,), strides=(hop,), dilations=(1,))
    if weights is not None:
        frames = prim.mul(*_promoted(frames, weights))
    found = _spectrum(frames, onesided, "ortho" if normalized else "backward")
    found = prim.permute(found, dims=(0, 2, 1))
    found = found if input.ndim == 2 else prim.reshape(found, shape=tuple(found.shape[1:]))
    return found if as_complex else prim.view_as_real(found)


def _spectrum(frames: Tensor, onesided: bool | None, norm: str) -> Tensor:
    if frames.dtype.is_complex:
        if onesided:
            raise RuntimeError("Cannot have onesided output if window or input is complex")
        return prim.fft_c2c(frames, axes=(2,), forward=True, norm=norm)
    if onesided is False:
        return prim.fft_c2c(cast(frames, frames.dtype.to_complex()), axes=(2,), forward=True, norm=norm)
    return prim.fft_r2c(frames, axes=(2,), norm=norm)


@function(takes=ALL, composite=True)
def istft(
    input: Tensor, n_fft: int, hop_length: int | None = None, win_length: int | None = None,
    window: Tensor | None = None, center: bool = True, normalized: bool = False, onesided: bool | None = None,
    length: int | None = None, return_complex: bool = False,
) -> Tensor:  # fmt: skip
    """The signal whose :func:`stft` is ``input``, by least squares (Griffin and Lim 1984)."""
    _check_spectrum(input, n_fft, onesided, window, return_complex)
    hop, width = _lengths("istft", n_fft, hop_length, win_length)
    spectrum = input if input.ndim == 3 else prim.reshape(input, shape=(1, *input.shape))
    frames = prim.permute(spectrum, dims=(0, 2, 1))
    norm = "ortho" if normalized else "backward"
    if return_complex:
        frames = prim.fft_c2c(frames, axes=(2,), forward=False, norm=norm)
    else:
        frames = prim.fft_c2r(sized(frames, 2, n_fft // 2 + 1), axes=(2,), size=n_fft, norm=norm)
    if window is None:
        _warn_once(
            ".Please provide the same window used by stft to make the inversion lossless."
            "To suppress this warning and use a rectangular window, "
        )
    weights = _window("istft", window, width, n_fft, frames)
    if weights is None:
        weights = create("full", value=1.0, shape=(n_fft,), dtype=frames.dtype)
    frames, weights = _promoted(frames, weights)
    count = frames.shape[1]
    signal = _overlapped(prim.mul(frames, weights), hop)
    envelope = _overlapped(prim.expand(prim.mul(weights, weights), shape=(1, count, n_fft)), hop)
    start = n_fft // 2 if center else 0
    stop = signal.shape[1] - start if length is None else start + length
    kept = min(stop, signal.shape[1])
    signal, envelope = cut_range(signal, 1, start, kept), cut_range(envelope, 1, start, kept)
    if not bool(envelope.abs().min() > 1e-11):
        raise RuntimeError("window overlap add min: 1")
    found = sized(prim.div(signal, envelope), 1, stop - start)
    return found if input.ndim == 3 else prim.reshape(found, shape=(found.shape[1],))


def _overlapped(frames: Tensor, hop: int) -> Tensor:
    """Overlap-add (B, windows, n) to (B, T)."""
    batch, count, n = frames.shape
    shape = (batch, n + hop * (count - 1))
    return prim.fold(frames, shape=shape, sizes=(n,), strides=(hop,), dilations=(1,))


def _check_spectrum(
    input: Tensor, n_fft: int, onesided: bool | None, window: Tensor | None, return_complex: bool
) -> None:
    """RuntimeError when ``input`` does not fit the other arguments."""
    if not input.dtype.is_complex:
        raise RuntimeError(
            "istft requires a complex-valued input tensor matching the output from stft with return_complex=True."
        )
    if input.numel() == 0 or input.ndim not in (2, 3):
        raise RuntimeError(f"istft: expected a tensor with 2 or 3 dimensions and elements, got {list(input.shape)}")
    size = input.shape[-2]
    half = size != n_fft if onesided is None else onesided
    if return_complex and half:
        raise RuntimeError("Cannot have onesided output if window or input is complex")
    if window is not None and window.dtype.is_complex and not return_complex:
        raise RuntimeError("Complex windows are incompatible with return_complex=False")
    want = n_fft // 2 + 1 if half else n_fft
    if size != want:
        raise RuntimeError(f"istft: expected the frequency dimension to match fft_size {want}, but got {size}")
