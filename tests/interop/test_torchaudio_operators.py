"""torchaudio's compiled operators, compared with loops over single samples."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import tracecomp as torch
from tracecomp.library import ops

RNG = np.random.default_rng(0)


def load(tmp_path: Path) -> None:
    """Load the operators as torchaudio does: by the path of its extension."""
    folder = tmp_path / "torchaudio" / "lib"
    folder.mkdir(parents=True)
    (folder / "libtorchaudio.so").touch()
    ops.load_library(folder / "libtorchaudio.so")


def test_availability(tmp_path: Path) -> None:
    load(tmp_path)
    assert ops._torchaudio.cuda_version() is None and ops._torchaudio.is_align_available() is False


def test_recursive_filters(tmp_path: Path) -> None:
    load(tmp_path)
    batch, channels, time, order = 2, 3, 20, 4
    signal = RNG.normal(size=(batch, channels, time))
    factors = np.concatenate([RNG.normal(size=(channels, order - 1)) * 0.2, np.ones((channels, 1))], 1)
    padded = np.zeros((batch, channels, time + order - 1))
    out = torch.tensor(padded)
    ops.torchaudio._lfilter_core_loop(torch.tensor(signal), torch.tensor(factors), out)
    for b in range(batch):
        for c in range(channels):
            for t in range(time):
                past = [padded[b, c, t + k] * factors[c, k] for k in range(order - 1)]
                padded[b, c, t + order - 1] = signal[b, c, t] - sum(past)
    np.testing.assert_allclose(out.numpy(), padded, rtol=1e-12, atol=1e-12)


def test_overdrive(tmp_path: Path) -> None:
    load(tmp_path)
    clean, distorted = RNG.normal(size=(2, 2, 10)).astype(np.float32)
    last_in, last_out, out = torch.zeros(2), torch.zeros(2), torch.zeros(2, 10)
    ops.torchaudio._overdrive_core_loop(torch.tensor(clean), torch.tensor(distorted), last_in, last_out, out)
    for c in range(2):
        before = after = 0.0
        for t in range(10):
            after = distorted[c, t] - before + 0.995 * after
            before = distorted[c, t]
            assert abs(float(out[c, t]) - (clean[c, t] * 0.5 + after * 0.75)) < 1e-5
        assert float(last_in[c]) == distorted[c, -1] and abs(float(last_out[c]) - after) < 1e-5
