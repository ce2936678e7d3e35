"""More small programs in which planted faults show: operators with hand-written loops, and the code that serves eager
calls."""

from __future__ import annotations

from typing import Any

import numpy as np

import tracecomp as torch
import tracecomp.nn.functional as F
from tests.faults.programs import Made, numbers
from tracecomp import nn
from tracecomp.eager_kernels import background, philox
from tracecomp.functional.warm import EVERY


def ordering() -> Made:
    def fn(x: Any, y: Any, w: Any, v: Any, s: Any) -> Any:
        a = x.sort(1, stable=True)  # @ sorted
        b = y.sort(0, descending=True, stable=True)  # @ doubles sorted
        c = w.sort(0)  # @ long line sorted
        d = v.topk(3, 1)  # @ first of many lines
        e = w.topk(5)  # @ first of a long line
        f = torch.searchsorted(s, x)  # @ places in a sequence
        return *a, *b, *c, *d, *e, f

    x = (numbers(3, 30) * 2).round() * torch.where(numbers(3, 30, seed=1) > 0, 1.0, -1.0)
    y = (numbers(40, 2, seed=2) * 2).round().double()
    w = torch.tensor(np.random.default_rng(3).integers(-(2**20), 2**20, 700).astype(np.int32) // 200000 * 1000)
    return fn, (x, y, w, numbers(60, 9, seed=4), (numbers(12, seed=5) * 2).round().sort()[0])


def running() -> Made:
    def fn(x: Any, wide: Any) -> Any:
        a = x.cumsum(1)  # @ running total
        b = wide.cumsum(0)  # @ running sum of long rows
        c = x.cumprod(0)  # @ running product
        d = x.cummax(1)[0]  # @ running maximum
        return a, b, c, d

    return fn, (numbers(5, 17), numbers(4, 3000, seed=1))


def gathering() -> Made:
    def fn(x: Any, at: Any, rows: Any, y: Any) -> Any:
        a = x[rows]  # @ rows taken
        b = x.gather(1, at)  # @ gathered along
        c = x.scatter_add(1, at, y)  # @ scattered
        d = x.index_add(0, rows, y)  # @ rows added
        e = x.gather(0, rows.reshape(6, 1).expand(6, 9))  # @ slices gathered
        f = x.scatter(1, at, y)  # @ put where they belong
        return a, b, c, d, e, f

    rng = np.random.default_rng(0)
    at, rows = torch.tensor(rng.integers(0, 9, (6, 9))), torch.tensor(rng.integers(0, 7, 6))
    return fn, (numbers(7, 9), at, rows, numbers(6, 9, seed=2))


def pooling() -> Made:
    def fn(x: Any) -> Any:
        a = F.max_pool2d(x, 3, 2, 1)  # @ pooled maximum
        b = F.avg_pool2d(x, 2)  # @ pooled mean
        c = F.interpolate(x, scale_factor=2.0, mode="bilinear")  # @ interpolated
        d = F.unfold(x, 3)  # @ unfolded
        e = F.fold(d * 2.0, (10, 12), 3)  # @ folded
        return a, b, c, d, e

    return fn, (numbers(2, 3, 10, 12),)


def complexes() -> Made:
    def fn(z: Any, w: Any) -> Any:
        a = z @ w  # @ product of complex matrices
        b = z * w.T  # @ product of complex numbers
        c = z.sum(0)  # @ sum of complex numbers
        d = torch.fft.fft(z)  # @ transformed
        e = torch.fft.irfft(z, 14)  # @ transformed back
        return a, b, c, d, e

    z, w = (torch.complex(numbers(6, 8, seed=n), numbers(6, 8, seed=n + 1)) for n in (0, 2))
    return fn, (z, w.T.contiguous())


def laid_elsewhere() -> Made:
    def fn(x: Any, y: Any, h: Any) -> Any:
        a = torch.atan2(x.T, y)  # @ angles in other orders
        b = h.mean(1)  # @ mean of rows
        c = x.T.sum(0)  # @ sum of a turned one
        d = x @ y  # @ product of matrices
        e = x @ y[:, 0]  # @ product with a column
        f = x @ y[:, :3]  # @ product of few columns
        return a, b, c, d, e, f

    return fn, (numbers(24, 40), numbers(40, 24, seed=1), numbers(7, 300, seed=2))


def images() -> Made:
    def fn(x: Any, w: Any, v: Any) -> Any:
        a = F.conv2d(x, w, padding=1)  # @ convolved by tiles
        b = F.conv2d(x, v, stride=2)  # @ convolved by windows
        c = F.conv_transpose2d(a, w)  # @ convolved back
        return a, b, c

    return fn, (numbers(3, 32, 12, 12), numbers(32, 32, 3, 3, seed=1), numbers(8, 32, 5, 5, seed=2))


def served_derivatives() -> Made:
    def fn(x: Any, least: float = 0.5) -> Any:
        x = x.detach().requires_grad_()
        y = F.layer_norm(x, (9,), None, None, least)  # @ d served norm
        y.pow(3).sum().backward()
        return x.grad

    x = numbers(9, 7).t()  # Python handles calls with such operands
    warmed(lambda: fn(x, 1e-5))
    return fn, (x,)


def served_updates() -> Made:
    model = nn.Linear(6, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)

    def fn(x: Any) -> Any:
        optimizer.zero_grad()
        model(x).pow(2).sum().backward()  # @ loss of a step
        optimizer.step()  # @ served step
        return model.weight.detach().clone()

    x = numbers(5, 6)
    warmed(lambda: fn(x))
    return fn, (x,)


def served_views() -> Made:
    def fn(x: Any) -> Any:
        a, b = x.split(3, 1)  # @ split again
        c = x.unflatten(0, (2, 4))  # @ unflattened again
        return a * 2, b * 2, c * 2

    x = numbers(8, 6)
    for _ in range(3):
        fn(x)
    return fn, (x,)


def many_numbers() -> Made:
    def fn(x: Any) -> Any:
        a = x * torch.rand(64, 33)  # @ random after many
        b = x + torch.randn(64, 33)  # @ normal after many
        return a, b

    while philox._made < philox._WORTH:
        torch.rand(1 << 20)
    return fn, (numbers(64, 33),)


def iterated() -> Made:
    lstm = nn.LSTM(5, 6)

    def fn(x: Any, n: Any) -> Any:
        a, _ = lstm(x)  # @ many steps
        b = torch.cond(n > 2, lambda t: t.sin(), lambda t: t.cos(), (x,))  # @ one of two
        return a, b

    return fn, (numbers(9, 2, 5), torch.tensor(3))


def signed() -> Made:
    def fn(x: Any, k: float) -> Any:
        h = torch.copysign(x, k)  # @ sign of an argument
        return h + 1

    return fn, (numbers(4, 6), 0.0)


def sized() -> Made:
    def fn(x: Any) -> Any:
        if x.shape[0] > 7:
            return x * 2  # @ many rows
        return x + 1  # @ few rows

    return fn, (numbers(6, 4),)


def as_long() -> Made:
    def fn(x: Any, y: Any) -> Any:
        return x + y  # @ sum of as many rows

    return fn, (numbers(6, 4), numbers(6, 4, seed=1))


def counted() -> Made:
    def fn(x: Any, k: Any) -> Any:
        return x * k  # @ product with a count

    return fn, (numbers(6, 4).int(), 3)


def measured() -> Made:
    def fn(x: Any, k: Any) -> Any:
        return x * k, k  # @ product with a measure

    return fn, (numbers(6, 4), 3.0)


def warmed(call: Any) -> None:
    """Call so often that machine code takes over where it can."""
    background.REST = 0.0  # this process ends soon
    for _ in range(3 * EVERY):
        call()
    background.finish()
