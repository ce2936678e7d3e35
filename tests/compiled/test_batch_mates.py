"""A function's result for a row does not depend on the other rows: the same bits alone and in a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracecomp as tc
from tracecomp import Tensor, nn

F = nn.functional
Case = tuple[Callable[[], Callable[[Tensor], Any]], tuple[int, ...]]


def _normal(x: Tensor) -> Tensor:
    return x.mT @ x + 10 * tc.eye(x.shape[-1])


def _outputs(layer: nn.Module) -> Callable[[Tensor], Any]:
    return lambda x: layer(x)[0]


CASES: dict[str, Case] = {
    "linear": (lambda: nn.Linear(70, 50), (70,)),
    "wide linear": (lambda: nn.Linear(300, 260), (300,)),
    "convolution": (lambda: nn.Conv2d(16, 32, 3, padding=1), (16, 12, 12)),
    "convolution by steps": (lambda: nn.Conv2d(3, 8, 5, 2, 2), (3, 12, 12)),
    "depthwise": (lambda: nn.Conv2d(16, 16, 3, groups=16), (16, 12, 12)),
    "transposed": (lambda: nn.ConvTranspose2d(8, 4, 3, 2), (8, 9, 9)),
    "layers": (
        lambda: nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 10), nn.LogSoftmax(-1)),
        (64,),
    ),
    "residual block": (
        lambda: nn.Sequential(
            nn.Conv2d(16, 16, 3, 1, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        ).eval(),
        (16, 12, 12),
    ),
    "encoder layer": (lambda: nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).eval(), (11, 32)),
    "recurrent": (lambda: _outputs(nn.LSTM(12, 20, batch_first=True)), (7, 12)),
    "attention": (lambda: lambda x: F.scaled_dot_product_attention(x, x, x), (13, 17)),
    "long sums": (lambda: lambda x: (x.sum(-1), x.mean((1, 2)), x.var((1, 2)), x.transpose(1, 2).sum(1)), (4, 2000)),
    "softmax": (lambda: lambda x: (x.softmax(-1), x.softmax(1), x.logsumexp(-1), x.cumsum(-1)), (13, 300)),
    "products": (lambda: lambda x: (x @ x.mT, x.mT @ x, (x.mT @ x).sum((1, 2))), (13, 40)),
    "cholesky and solve": (
        lambda: lambda x: (tc.linalg.cholesky(_normal(x)), tc.linalg.solve(_normal(x), x.mT)), (13, 17),
    ),
    "inverse and QR": (lambda: lambda x: (tc.linalg.inv(_normal(x)), tc.linalg.qr(x)[0]), (13, 17)),
    "Fourier": (lambda: lambda x: (tc.fft.fft2(x), tc.fft.fft(x, dim=1)), (13, 20)),
    "windows": (
        lambda: lambda x: tc.stft(x, 32, window=tc.hann_window(32), return_complex=True), (221,),
    ),
}  # fmt: skip


def rows(found: Any, first: int, count: int) -> list[bytes]:
    """The bits of these rows of every result."""
    results = found if isinstance(found, tuple) else (found,)
    return [np.ascontiguousarray(t.detach().numpy()[first : first + count]).tobytes() for t in results]


def compiled(fn: Callable[[Tensor], Any], x: Tensor) -> Any:
    """Return the result of the second call, which is native."""
    program = tc.compile(fn, dynamic=False)
    program(x)
    return program(x)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", CASES)
def test_rows_keep_their_bits_in_any_batch(name: str) -> None:
    tc.manual_seed(len(name))
    make, shape = CASES[name]
    fn, x = make(), tc.randn(9, *shape)
    with tc.no_grad():
        whole = fn(x)
        for first, count in ((0, 9), (3, 1)):
            part = x[first : first + count].clone()
            for run in (fn, lambda x: compiled(fn, x)):
                got, want = rows(run(part), 0, count), rows(whole, first, count)
                assert got == want, f"{count} rows from row {first} on"
