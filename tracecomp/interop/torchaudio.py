"""The compiled operators of torchaudio, in Python: recursive filters and the overdrive effect.

Each sample depends on the one before, so they loop over time, and over all channels at once. torchaudio differentiates
the filters itself. Its alignment and transducer loss are not provided: ``is_align_available`` says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracecomp.eager.modes import no_grad
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.library import Library


def lfilter_core_loop(input_signal_windows: Tensor, a_coeffs_flipped: Tensor, padded_output_waveform: Tensor) -> None:
    """Write the response of a recursive filter into ``padded_output_waveform`` [batch, channels, time + order - 1].

    Args:
        input_signal_windows: the signal after the filter's numerator [batch, channels, time].
        a_coeffs_flipped: the denominator [channels, order], from the oldest sample to the newest, whose factor is 1.
        padded_output_waveform: zeros; the first ``order - 1`` samples are the state before the signal.
    """
    order = a_coeffs_flipped.shape[1]
    signal = input_signal_windows.detach().numpy()
    factors = a_coeffs_flipped.detach().numpy()
    result = padded_output_waveform.detach().numpy().copy()
    for step in range(signal.shape[2]):
        value = signal[:, :, step].copy()
        for k in range(order):
            value -= result[:, :, step + k] * factors[:, k]
        result[:, :, step + order - 1] = value
    with no_grad():
        padded_output_waveform.copy_(T.from_numpy(result))


def overdrive_core_loop(
    waveform: Tensor, temp: Tensor, last_in: Tensor, last_out: Tensor, output_waveform: Tensor
) -> None:
    """Write the overdriven ``waveform`` [channels, time] into ``output_waveform``.

    ``temp`` [channels, time] is the distorted signal. ``last_in`` and ``last_out`` [channels] are the state, updated
    in place.
    """
    before, after = last_in.detach().numpy().copy(), last_out.detach().numpy().copy()
    clean, distorted = waveform.detach().numpy(), temp.detach().numpy()
    result = output_waveform.detach().numpy().copy()
    leak, dry, wet = (clean.dtype.type(x) for x in (0.995, 0.5, 0.75))
    for step in range(clean.shape[1]):
        after = distorted[:, step] - before + leak * after
        before = distorted[:, step]
        result[:, step] = clean[:, step] * dry + after * wet
    with no_grad():
        for target, value in ((last_in, before), (last_out, after), (output_waveform, result)):
            target.copy_(T.from_numpy(value.copy()))


_OPERATORS: dict[str, dict[str, Callable[..., Any]]] = {
    "_torchaudio": {"cuda_version": lambda: None, "is_align_available": lambda: False},
    "torchaudio": {"_lfilter_core_loop": lfilter_core_loop, "_overdrive_core_loop": overdrive_core_loop},
}
for _space, _functions in _OPERATORS.items():
    _library = Library(_space, "FRAGMENT")
    for _name, _fn in _functions.items():
        _library.impl(_name, _fn, "CompositeImplicitAutograd")
