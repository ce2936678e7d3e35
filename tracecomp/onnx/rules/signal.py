"""Fourier transforms and windows."""

from __future__ import annotations

import math

import numpy as np

from tracecomp import fft
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.ir.types import float64
from tracecomp.onnx.registry import Call, Value, ints, rule
from tracecomp.onnx.rules.elementwise import dtype_of


@rule("DFT", static=(1, 2))
def dft(call: Call, x: Tensor, length: Value = None, axis: Value = None) -> Tensor:
    """Complex numbers are pairs in the last dimension.

    Those of real numbers are computed in float64 and rounded once: ONNX's own tests ask for zeros where terms cancel.
    """
    if x.shape[-1] == 1 and x.dtype != float64:
        return _dft(call, x.double(), length, axis).to(x.dtype)
    return _dft(call, x, length, axis)


def _dft(call: Call, x: Tensor, length: Value, axis: Value) -> Tensor:
    dim = ints(axis)[0] if axis is not None else call.attr("axis", 1 if call.opset < 20 else -2)
    dim += x.dim() if dim < 0 else 0
    inverse, one_sided = call.attr("inverse", 0), call.attr("onesided", 0)
    whole = 2 * (x.shape[dim] - 1) if inverse and one_sided else x.shape[dim]
    count = whole if length is None else ints(length)[0]
    real = x.shape[-1] == 1
    if inverse and one_sided:
        return fft.irfft(T.view_as_complex(x.contiguous()), count, dim).unsqueeze(-1)
    values = x.squeeze(-1) if real else T.view_as_complex(x.contiguous())
    if inverse:
        found = fft.ifft(values, count, dim)
    elif real and one_sided:
        found = fft.rfft(values, count, dim)
    else:
        found = fft.fft(values, count, dim)
    return T.view_as_real(found)


@rule("STFT", static=(1, 3))
def stft(call: Call, x: Tensor, step: Value, window: Tensor | None = None, length: Value = None) -> Tensor:
    size = window.shape[0] if window is not None else ints(length)[0]
    hop = ints(step)[0]
    real = x.dim() == 2 or x.shape[-1] == 1
    values = x.squeeze(-1) if x.dim() == 3 and real else (x if real else T.view_as_complex(x.contiguous()))
    frames = (values.shape[1] - size) // hop + 1
    places = T.arange(frames)[:, None] * hop + T.arange(size)[None]
    cut = values.index_select(1, places.reshape(-1)).reshape([values.shape[0], frames, size])
    cut = cut if window is None else cut * window
    found = fft.rfft(cut) if real and call.attr("onesided", 1) else fft.fft(cut)
    return T.view_as_real(found)


def _window(name: str, parts: tuple[float, ...]) -> None:
    """A sum of cosines."""

    @rule(name, static=(0,))
    def run(call: Call, size: Value) -> Tensor:
        n = ints(size)[0]
        count = n if call.attr("periodic", 1) else n - 1
        angle = T.arange(n).float() * (2 * math.pi / count)
        found = sum((c * T.cos(k * angle) for k, c in enumerate(parts) if k), T.full([n], parts[0]))
        return found.to(dtype_of(call, call.attr("output_datatype", 1)))


_window("HannWindow", (0.5, -0.5))
_window("HammingWindow", (25 / 46, -21 / 46))
_window("BlackmanWindow", (0.42, -0.5, 0.08))


@rule("MelWeightMatrix", static=(0, 1, 2, 3, 4))
def mel_weights(call: Call, bins: Value, size: Value, rate: Value, low: Value, high: Value) -> Value:
    """Triangles over the frequencies, their corners evenly apart on the mel scale (O'Shaughnessy 1987)."""
    count, length, hertz = (np.asarray(v).item() for v in (bins, size, rate))

    def mel(f: float) -> float:
        return 2595 * math.log10(1 + f / 700)

    edges = np.linspace(mel(np.asarray(low).item()), mel(np.asarray(high).item()), count + 2)
    edges = np.linspace(edges[0], edges[-1], count + 2) if count + 2 > 1 else edges
    step = (edges[-1] - edges[0]) / (count + 2)
    corners = 700 * (np.power(10, (np.arange(count + 2) * step + edges[0]) / 2595) - 1)
    places = ((length + 1) * corners // hertz).astype(int)
    found = np.zeros((length // 2 + 1, count))
    for k in range(count):
        start, middle, end = places[k : k + 3]
        if middle == start:
            found[middle, k] = 1
        for n in range(start, middle + 1):
            found[n, k] = (n - start) / (middle - start) if middle != start else found[n, k]
        for n in range(middle, end):
            found[n, k] = (end - n) / (end - middle)
    kind = dtype_of(call, call.attr("output_datatype", 1))
    return found.astype(kind.numpy)
