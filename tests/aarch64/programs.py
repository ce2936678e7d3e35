"""``python -m tests.aarch64.programs`` prints a digest of each of these programs, whose bits no processor may change.

A program runs eagerly, and compiled with one thread and with three. All must give the same bits. NaNs are equal: their
signs and payloads have no meaning (docs/numerics.md).
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tracecomp as torch
from tests.passes.test_processors import CASES, TRAINED, gradients
from tracecomp import nn
from tracecomp.base import config
from tracecomp.nn import functional as F

Fn = Callable[..., Any]
PROGRAMS: dict[str, tuple[Fn, Callable[[], Sequence[Any]]]] = {}
"""By name: a function, and what makes its arguments."""


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    """Normally distributed numbers, the same in every process."""
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def extremes() -> torch.Tensor:
    """Numbers beyond the ranges of integer types and of half precision, many times, so that vectors hold them too."""
    values = [np.nan, np.inf, 3e10, 1e20, 2147483648.0, 129.0, 300.5, 65504.0, 65520.0, 1e-8, 6e-8, 0.0, 4294967297.0]
    return torch.from_numpy(np.tile(np.array([s * v for v in values for s in (1, -1)], np.float32), 5))


def program(*shapes: tuple[int, ...], name: str | None = None) -> Callable[[Fn], Fn]:
    """Add a function of arguments with these shapes."""

    def add(fn: Fn) -> Fn:
        PROGRAMS[name or fn.__name__] = fn, lambda: [numbers(*shape, seed=k) for k, shape in enumerate(shapes)]
        return fn

    return add


def on_extremes(fn: Fn) -> Fn:
    """Add a function of ``extremes``."""
    PROGRAMS[fn.__name__] = fn, lambda: [extremes()]
    return fn


for _name, (_fn, _shapes) in CASES.items():
    program(*_shapes, name=_name)(_fn)
    if _name in TRAINED:
        program(*_shapes, name=f"gradients of {_name}")(gradients(_fn))


@on_extremes
def floats_to_integers(x: Any) -> Any:
    kinds = torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64
    return [y.to(t) for t in kinds for y in (x, x.double() * 1.5, x.half(), x.bfloat16())]


@on_extremes
def half_conversions(x: Any) -> Any:
    return [x.half(), x.double().half(), x.bfloat16().float(), (x.half() * 3).float(), x.double().bfloat16().float()]


@on_extremes
def bits_and_comparisons(x: Any) -> Any:
    flipped = x.flip(0)
    whole = x.clamp(-1e6, 1e6).nan_to_num().to(torch.int32)
    return [x.maximum(flipped), x.minimum(flipped), x < flipped, x.isnan(), x.sign(), x.fmod(7.0), x % 3.0,
            whole // 7, whole % 7, whole << 3, whole >> 2, whole ^ 12345, torch.where(x > 0, x, flipped)]  # fmt: skip


@program((300,))
def functions(x: Any) -> Any:
    y = x.abs() + 0.01
    return [x.exp(), x.exp2(), x.expm1(), y.log(), y.log2(), y.log10(), y.log1p(), x.sin(), x.cos(), x.tan(), x.tanh(),
            x.erf(), x.erfc(), y.lgamma(), y.digamma(), x.sigmoid(), y.pow(2.7), y.sqrt(), y.rsqrt(), x.atan(),
            x.sinh(), x.asinh(), x.atan2(y), F.gelu(x), F.silu(x), F.softplus(x), x.erfinv()]  # fmt: skip


@program((300,))
def double_functions(x: Any) -> Any:
    x = x.double()
    y = x.abs() + 0.01
    return [x.exp(), y.log(), x.sin(), x.cos(), x.tanh(), x.erf(), y.lgamma(), y.pow(2.7), y.sqrt(), x.expm1()]


@program((40, 50))
def half_precision(x: Any) -> Any:
    h, b = x.half(), x.bfloat16()
    return [h @ h.t(), torch.softmax(h, -1), h.sum(0), (b @ b.t()).float(), F.layer_norm(b, (50,)).float(), h.exp()]


@program((37, 300), (300, 70))
def double_product(a: Any, b: Any) -> Any:
    return a.double() @ b.double()


@program((9, 50))
def integer_products_and_sums(x: Any) -> Any:
    i = (x * 100).to(torch.int64)
    return [i @ i.t(), i.sum(), i.prod(1), i.cumsum(1), (i.to(torch.int32) * 77777).sum(0), i.to(torch.int8).sum(1)]


@program((70, 90))
def scans_and_sorts(x: Any) -> Any:
    values, places = x.sort(1)
    return [x.cumsum(0), x.cumprod(1), x.logcumsumexp(1), values, places, x.topk(5)[1], x.argmax(0), x.median(1)[0]]


@program((3, 5000))
def long_sums(x: Any) -> Any:
    return [x.sum(), x.mean(1), x.std(1), x.norm(), x.var(), x.logsumexp(1), x.amax(), x.double().sum(), x.prod(1)]


@program((2, 600, 700))
def two_stage_sums(x: Any) -> Any:
    return [x.sum((0, 2)), x.sum(), x.sum((0, 1)), x.half().sum(), x.abs().mean((1, 2))]


@program((12, 12), (12, 3))
def linear_algebra(a: Any, b: Any) -> Any:
    s = a @ a.t() + 12 * torch.eye(12)
    return [torch.linalg.solve(a, b), torch.linalg.inv(s), torch.linalg.cholesky(s), *torch.linalg.qr(a), a.det()]


@program((6, 40))
def fourier(x: Any) -> Any:
    y = torch.fft.rfft(x)
    return [torch.view_as_real(y), torch.fft.irfft(y * y.conj(), 40), torch.fft.fft2(x).abs()]


@program((2, 3, 15, 17))
def images(x: Any) -> Any:
    resized = [F.interpolate(x, (20, 31), mode=mode) for mode in ("nearest", "bilinear", "bicubic")]
    pooled = [F.max_pool2d(x, 3, 2), F.avg_pool2d(x, 2), F.adaptive_avg_pool2d(x, 4)]
    return [*resized, *pooled, F.pad(x, (1, 2, 2, 1), mode="reflect"), x.flip(2, 3)]


@program((1, 8, 30, 30), (16, 8, 3, 3))
def winograd_and_transposed(x: Any, w: Any) -> Any:
    return [F.conv2d(x, w, padding=1), F.conv_transpose2d(x, w.transpose(0, 1), stride=2), F.conv2d(x, w, dilation=2)]


@program((20, 11))
def indexed(x: Any) -> Any:
    rows = (x[:, 0] * 100).to(torch.int64) % 20
    added = torch.zeros(20, 11).index_add(0, rows, x)
    return [x[rows], x.gather(1, rows[:, None] % 11), added, x.index_select(0, rows), torch.bincount(rows), x.unique()]


@program((3,))
def random_numbers(x: Any) -> Any:
    torch.manual_seed(5)
    made = [torch.randn(101), torch.rand(77), torch.randint(1000, (50,)), torch.randperm(40), torch.rand(9).bernoulli()]
    return [*made, torch.empty(30).exponential_(), F.dropout(x, 0.5), x]


@program((50, 3))
def complex_numbers(x: Any) -> Any:
    z = torch.complex(x, x.flip(0))
    return [torch.view_as_real(z * z.conj() + z / (z + 1)), z.abs(), z.angle(), torch.view_as_real(z.t() @ z)]


@program((10, 3, 8))
def recurrent(x: Any) -> Any:
    torch.manual_seed(1)
    lstm, gru = nn.LSTM(8, 12, num_layers=2), nn.GRU(8, 6, bidirectional=True)
    with torch.no_grad():
        return [lstm(x)[0], gru(x)[0]]


@program((4, 10, 32))
def transformer(x: Any) -> Any:
    torch.manual_seed(2)
    with torch.no_grad():
        return nn.TransformerEncoderLayer(32, 4, 48, batch_first=True, dropout=0.0)(x)


@program((50,))
def loops(x: Any) -> Any:
    for _ in range(40):
        x = x + (x * 0.3).sin()
    return x


def _training(make: Callable[[], nn.Module], optimizer: Callable[[Any], Any], x: Any) -> Fn:
    """Five steps: losses and weights."""

    def run(compile: Callable[[Fn], Fn]) -> list[Any]:
        torch.manual_seed(3)
        model = make()
        steps = optimizer(model.parameters())
        wanted = torch.randint(5, (len(x),))

        def step(x: Any) -> Any:
            steps.zero_grad()
            loss = F.cross_entropy(model(x), wanted)
            loss.backward()
            steps.step()
            return loss.detach()

        run_step = compile(step)
        return [*(run_step(x) for _ in range(5)), *(p.detach() for p in model.parameters())]

    return run


TRAINING: dict[str, Fn] = {
    "a perceptron with Adam": _training(
        lambda: nn.Sequential(nn.Linear(20, 33), nn.GELU(), nn.LayerNorm(33), nn.Dropout(0.1), nn.Linear(33, 5)),
        torch.optim.Adam, numbers(37, 20),
    ),
    "a convolutional network with SGD": _training(
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8 * 9, 5)
        ),
        lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True), numbers(6, 3, 8, 8),
    ),
    "attention with AdamW": _training(
        lambda: nn.Sequential(nn.TransformerEncoderLayer(16, 2, 24, dropout=0.0), nn.Flatten(), nn.Linear(64, 5)),
        torch.optim.AdamW, numbers(7, 4, 16),
    ),
}  # fmt: skip
"""Functions of what compiles a step."""


def digest(results: Any) -> str:
    """Digest of shapes, dtypes and bits of tensors, in which all NaNs are one."""
    found = hashlib.sha256()
    for tensor in results if isinstance(results, list | tuple) else [results]:
        tensor = tensor.detach()
        array = (tensor.float() if tensor.dtype is torch.bfloat16 else tensor).numpy()
        found.update(f"{tensor.dtype} {array.shape}".encode())
        if array.dtype.kind == "f":
            array = np.where(np.isnan(array), array.dtype.type(np.nan), array)
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()[:16]


def digests(name: str) -> set[str]:
    """The digests of a program eagerly and compiled: one, if nothing is wrong."""
    run = TRAINING.get(name) or _calls(*PROGRAMS[name])
    found = {digest(run(lambda fn: fn))}
    for threads in (1, 3):
        with config.override(num_threads=threads):
            found.add(digest(run(torch.compile)))
    return found


def _calls(fn: Fn, arguments: Callable[[], Sequence[Any]]) -> Fn:
    def run(compile: Callable[[Fn], Fn]) -> Any:
        compiled, given = compile(fn), arguments()
        first = compiled(*given)
        # The first call of a compiled function runs eagerly; the next runs the program.
        return first if compiled is fn else compiled(*given)

    return run


def main(names: Sequence[str]) -> int:
    """Print the digests of the programs called ``names``, default all."""
    for name in names or (*PROGRAMS, *TRAINING):
        print(f"{name}: {' '.join(sorted(digests(name)))}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
