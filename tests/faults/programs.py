"""Small programs in which planted faults show. A line's mark (``# @ name``) is what a comparison has to name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tracecomp as torch
import tracecomp.nn.functional as F
from tracecomp import nn

Made = tuple[Callable[..., Any], tuple[Any, ...]]


def line_of(mark: str) -> str:
    """``file:line`` of the line that is marked so."""
    for file in map(Path(__file__).with_name, ("programs.py", "operators.py", "stages.py")):
        for number, line in enumerate(file.read_text().splitlines(), 1):
            if line.endswith(f"# @ {mark}"):
                return f"{file.name}:{number}"
    raise LookupError(mark)


def numbers(*shape: int, seed: int = 0) -> Any:
    """Random numbers."""
    return torch.tensor(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def algebra() -> Made:
    def fn(x: Any, y: Any, mask: Any, n: Any) -> Any:
        a = torch.neg(-x)  # @ double negation
        b = y + (-x)  # @ sum with a negation
        c = torch.where(~mask, x, y)  # @ chosen by a negation
        d = -(y * 3.0)  # @ negated product
        e = x / 8.0  # @ division by 8
        f = ~(n == 2)  # @ negated comparison
        g = n * 1  # @ times one
        h = x.half().float()  # @ there and back
        i = torch.abs(torch.abs(y))  # @ absolute twice
        j = torch.abs(-y)  # @ absolute of a negation
        return a, b, c, d, e, f, g, h, i, j

    x = numbers(6, 11)
    return fn, (x, numbers(6, 11, seed=1), x > 0, torch.arange(66).reshape(6, 11) % 4)


def views() -> Made:
    def fn(x: Any, y: Any) -> Any:
        a = x.permute(1, 2, 0).permute(1, 0, 2)  # @ permuted twice
        b = x[:, 1:9:2][:, 1:3]  # @ sliced twice
        c = x.flip(0, 1).flip(1, 2)  # @ flipped twice
        d = F.pad(F.pad(x, (1, 2)), (3, 1))  # @ padded twice
        e = torch.cat([x, y], 1)[:, 10:14]  # @ part of a concatenation
        f = F.pad(x, (2, 2))[:, :, 4:7]  # @ part of the padded image
        g = torch.cat([x[:, :3], x[:, 3:7]], 1)  # @ neighbours
        h = x.reshape(4, 70).reshape(28, 10)  # @ reshaped twice
        return a * 2, b * 2, c * 2, d * 2, e * 2, f * 2, g * 2, h * 2

    return fn, (numbers(4, 10, 7), numbers(4, 10, 7, seed=1))


def reductions() -> Made:
    def fn(x: Any, y: Any) -> Any:
        a = x.amax(1).amax(0)  # @ maximum twice
        b = y.sum(0)  # @ long sum
        c = x.permute(2, 0, 1).sum(1)  # @ sum of a permuted
        d = (x - x.mean(-1, keepdim=True)).pow(2).mean(-1)  # @ variance
        e = x.argmax(-1)  # @ argument of the maximum
        f = torch.cumsum(x, 1)  # @ running sum
        return a, b, c, d, e, f

    return fn, (numbers(5, 9, 21), numbers(2111, 3, seed=1))


def products() -> Made:
    def fn(x: Any, y: Any, v: Any) -> Any:
        a = x.T @ y  # @ product of a transposed
        b = (x @ y).T  # @ transposed product
        c = torch.relu(x @ v)  # @ product with a vector
        d = torch.einsum("ij,kj->ik", x, y) + 1.0  # @ einsum
        e = torch.arange(37) * 3  # @ thrice
        f = e + torch.ones(37, dtype=torch.int64)
        return a, b, c, d, f * 3

    return fn, (numbers(37, 37), numbers(37, 37, seed=1), numbers(37, seed=2))


def chains() -> Made:
    def fn(x: Any, v: Any, w: Any) -> Any:
        a = x @ v  # @ first product
        b = x @ w  # @ second product
        c = a @ b  # @ third product
        return c @ x + a.sum(0)  # @ last product

    return fn, (numbers(33, 33), numbers(33, 33, seed=1), numbers(33, 33, seed=2))


def mathematics() -> Made:
    def fn(x: Any) -> Any:
        a = torch.exp(x)  # @ exp
        b = torch.log(x.abs() + 0.5)  # @ log
        c = torch.tanh(x)  # @ tanh
        d = torch.sin(x)  # @ sin
        e = torch.sigmoid(x)  # @ sigmoid
        f = torch.erf(x)  # @ erf
        g = torch.sqrt(x.abs() + 0.1)  # @ sqrt
        h = torch.expm1(x)  # @ expm1
        i = x.abs().pow(2.5)  # @ pow
        j = torch.atan2(x, x + 0.3)  # @ atan2
        k = torch.log1p(x.abs())  # @ log1p
        return a, b, c, d, e, f, g, h, i, j, k

    return fn, (numbers(13, 9) * 3,)


def doubles() -> Made:
    def fn(x: Any) -> Any:
        return torch.log1p(x.abs())  # @ log1p of doubles

    return fn, (1e-6 * numbers(13, 9).double(),)


def selections() -> Made:
    def fn(x: Any, y: Any, n: Any) -> Any:
        a = torch.maximum(x, y)  # @ maximum
        b = torch.clamp(x, -0.5, 0.5)  # @ clamp
        c = n // 3  # @ floor division
        d = n % 5  # @ remainder
        e = x.to(torch.int32)  # @ to integers
        f = (x > y).sum(1)  # @ counted
        g = x.to(torch.bfloat16) * 3  # @ bfloat16
        h = (x != 0).all(1)  # @ all
        i = torch.round(x * 10)  # @ rounded
        j = n < -3  # @ below
        return a, b, c, d, e, f, g, h, i, j

    n = torch.arange(-40, 59).reshape(9, 11)
    return fn, (numbers(9, 11) * 4, numbers(9, 11, seed=1), n)


def indexing() -> Made:
    def fn(table: Any, at: Any, x: Any) -> Any:
        a = table[at]  # @ looked up
        b = torch.zeros(11, 6).index_add(0, at, x)  # @ added at
        c = torch.gather(x, 1, at.reshape(-1, 1) % 6)  # @ gathered
        d = x.clone()
        d[2:5] = a[2:5] * 2  # @ written in part
        e = torch.cat([torch.exp(x), torch.sin(x) * 2, x + 1], 1)  # @ concatenated
        return a * 2, b, c, d, e

    rng = np.random.default_rng(0)
    return fn, (numbers(11, 6), torch.tensor(rng.integers(0, 11, 9)), numbers(9, 6, seed=1))


def convolutions() -> Made:
    torch.manual_seed(0)
    first, second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, stride=2)
    norm = nn.BatchNorm2d(8)

    def fn(x: Any) -> Any:
        h = first(x)  # @ first convolution
        h = torch.relu(norm(h))  # @ normalisation
        h = F.max_pool2d(h, 2)  # @ pooling
        h = second(h)  # @ second convolution
        return h.mean((2, 3))  # @ mean over places

    return fn, (numbers(2, 3, 14, 14),)


def laid_out() -> Made:
    torch.manual_seed(0)
    layers = [
        nn.Conv2d(8, 16, 3, padding=1),
        nn.Conv2d(8, 16, (3, 5), padding=(1, 2)),
        nn.Conv2d(32, 24, 3, padding=(2, 1)),
    ]

    def fn(x: Any) -> Any:
        with torch.no_grad():
            a, b = (torch.relu(layer(x)) for layer in layers[:2])  # @ padded unevenly
            c = torch.cat([a, b], 1)  # @ channels joined
            d = layers[2](c)  # @ third convolution
            e = torch.relu(d).sum((2, 3))  # @ sum over places
            return d * 2, e

    return fn, (numbers(4, 8, 14, 12),)


def attention() -> Made:
    def fn(q: Any, k: Any, v: Any) -> Any:
        s = q @ k.transpose(-1, -2) * 0.125  # @ scores
        p = torch.softmax(s, -1)  # @ softmax
        return p @ v  # @ weighted

    return fn, tuple(numbers(2, 640, 64, seed=n) for n in range(3))


def perceptron() -> Made:
    def fn(x: Any, v: Any, w: Any) -> Any:
        h = x @ v  # @ into the hidden layer
        h = F.gelu(h)  # @ activation
        return h @ w  # @ out of the hidden layer

    return fn, (numbers(509, 64), numbers(64, 1024, seed=1) * 0.1, numbers(1024, 64, seed=2) * 0.1)


def training() -> Made:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 5))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    def fn(x: Any, y: Any) -> Any:
        optimizer.zero_grad()  # @ cleared
        out = model(x)  # @ model
        loss = F.cross_entropy(out, y)  # @ loss
        loss.backward()  # @ backward
        optimizer.step()  # @ step
        return loss.detach()

    return fn, (numbers(20, 12), torch.arange(20) % 5)


def descent() -> Made:
    torch.manual_seed(0)
    layer = nn.Linear(6, 3)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)

    def fn(x: Any) -> Any:
        optimizer.zero_grad()
        loss = layer(x).pow(2).mean()  # @ squared
        loss.backward()
        optimizer.step()  # @ descent
        return loss.detach()

    return fn, (numbers(7, 6),)


def accumulating() -> Made:
    torch.manual_seed(0)
    layer = nn.Linear(6, 3)

    def fn(x: Any) -> Any:
        loss = layer(x).pow(2).mean()  # @ squared again
        loss.backward()  # @ accumulated
        return loss.detach()

    return fn, (numbers(7, 6),)


class Counting(nn.Module):
    """Keeps state of several kinds."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, 4)
        self.register_buffer("total", torch.zeros(4))
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self.last = torch.zeros(3, 4)
        self.calls = 0

    def forward(self, x: Any) -> Any:
        self.calls += 1  # @ counted calls
        h = self.layer(x)
        with torch.no_grad():
            self.total.add_(h.sum(0))  # @ added to a buffer
            self.seen += 1  # @ counted in a buffer
            self.total[1:3].mul_(0.5)  # @ scaled in part
            self.last = h * 0.25  # @ kept
        return h + self.total  # @ with the total


def counting() -> Made:
    return Counting(), (numbers(3, 4),)


def dropping() -> Made:
    def fn(x: Any) -> Any:
        a = F.dropout(x, 0.4)  # @ dropout
        b = torch.rand(5, 7) * 2  # @ random numbers
        c = torch.randn(3) + b.sum()  # @ normal numbers
        return a, b, c

    return fn, (numbers(6, 8),)


def branching() -> Made:
    def fn(x: Any) -> Any:
        h = x * 2
        if h.sum() > 0:  # noqa: SIM108  # @ condition
            h = h - 1  # @ then
        else:
            h = h * h  # @ else
        return h

    return fn, (torch.ones(3, 5) * torch.linspace(-1, 2, 5),)


doubled = True
scale = 1.5
table = {"gain": 2.0}


class Options:
    """Options that a program reads."""

    def __init__(self) -> None:
        self.power = 2
        self.shift = 0.25
        self.names = ["a", "b"]


options = Options()


def reading() -> Made:
    gain = 3.0

    def change(value: float) -> None:
        nonlocal gain
        gain = value

    def fn(x: Any, k: int = 3, flag: bool = True) -> Any:
        h = x * scale  # @ global
        h = h + table["gain"]  # @ entry
        h = h**options.power + options.shift  # @ attribute
        h = h * gain  # @ variable
        h = h * k  # @ argument
        return h if flag else -h  # @ flag

    fn.change = change  # type: ignore[attr-defined]
    return fn, (numbers(4, 6), 3, True)


def modes() -> Made:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 5), nn.Dropout(0.5), nn.BatchNorm1d(5))

    def fn(x: Any) -> Any:
        h = model(x)  # @ model in a mode
        return h * 2 + torch.zeros(5)  # @ after the model

    return fn, (numbers(8, 5),)


def shapes() -> Made:
    def fn(x: Any, y: Any) -> Any:
        h = x.reshape(-1) * 2  # @ flattened
        return h.sum() / len(x) + y.mean(0)  # @ by its length

    return fn, (numbers(6, 4), numbers(6, 4, seed=1))


def aliases() -> Made:
    total = torch.zeros(4)

    def fn(x: Any, y: Any) -> Any:
        x.mul_(2)  # @ doubled in place
        y.add_(1)  # @ raised in place
        total.add_(x[0])  # @ gathered in total
        return x * y + total  # @ product of both

    return fn, (numbers(3, 4), numbers(3, 4, seed=1))


def frozen() -> Made:
    torch.manual_seed(0)
    weight = torch.randn(96, 96)
    other = torch.randn(96, 96)

    def fn(x: Any) -> Any:
        h = x @ (weight * 0.1 + other.T)  # @ prepared weight
        return torch.tanh(h) @ other  # @ plain weight

    return fn, (numbers(16, 96),)


def half_product() -> Made:
    def fn(x: Any, w: Any) -> Any:
        return (x @ w.T).relu()  # @ product of half types

    return fn, (numbers(33, 65).bfloat16(), numbers(47, 65, seed=1).bfloat16())


def windows() -> Made:
    torch.manual_seed(0)
    layer = nn.Conv2d(16, 16, 3, padding=1)

    def fn(x: Any) -> Any:
        return layer(x)  # @ windows

    return fn, (numbers(2, 16, 20, 20),)


def recurrent() -> Made:
    torch.manual_seed(0)
    layer = nn.LSTM(6, 8)

    def fn(x: Any) -> Any:
        out, (h, c) = layer(x)  # @ recurrent layer
        return out * 2, h, c

    return fn, (numbers(7, 3, 6),)


def recurrent_training() -> Made:
    torch.manual_seed(0)
    layer = nn.GRU(6, 8)

    def fn(x: Any) -> Any:
        out, _ = layer(x)  # @ recurrent layer in training
        loss = out.pow(2).mean()
        loss.backward()
        return [p.grad for p in layer.parameters()]

    return fn, (numbers(7, 3, 6),)


def large() -> Made:
    def fn(x: Any, y: Any) -> Any:
        a = torch.exp(-x * x) + y  # @ large map
        b = a.sum(1)  # @ row sums
        c = a.sum(0)  # @ column sums
        return a, b, c

    return fn, (numbers(700, 413), numbers(700, 413, seed=1))


def transposing() -> Made:
    def fn(x: Any) -> Any:
        a = x.T.contiguous() * 2  # @ transposed
        b = torch.stack([x, x + 1], -1).reshape(130, -1)  # @ woven
        return a, b

    return fn, (numbers(130, 67),)


def dynamic() -> Made:
    torch.manual_seed(0)
    layer = nn.Linear(6, 4)

    def fn(x: Any) -> Any:
        h = torch.exp(layer(x))  # @ rows
        g = h.T @ x  # @ against rows
        return g, h / h.sum(0), h.amax(0), h.mean()  # @ over rows

    return fn, (numbers(9, 6),)


def derivatives() -> Made:
    def fn(x: Any, y: Any, at: Any) -> Any:
        a = torch.exp(x * y)  # @ d exp of a product
        b = x / (y * y + 1.0)  # @ d quotient
        c = torch.tanh(x) * torch.sigmoid(y)  # @ d tanh
        d = torch.sqrt(y * y + 0.3).sum(1)  # @ d sqrt
        e = x @ y.T  # @ d matmul
        f = torch.where(x > 0.1, x, y * 0.5)  # @ d where
        g = torch.cat([x, y], 1)[:, 2:7]  # @ d cat
        h = x.amax(1) + torch.log(y.abs() + 0.7).amin(0).sum()  # @ d amax
        i = x[at] * 2  # @ d lookup
        j = torch.cumsum(y, 0) * x.abs()  # @ d cumsum
        k = F.pad(x, (1, 2)) * 3 + x.T.reshape(5, 5).sum()  # @ d pad
        m = torch.sort(y, 1).values * torch.arange(5.0)  # @ d sort
        n = torch.sin(x) ** 3 + torch.maximum(x, y)  # @ d power
        p = (x - y) * -x  # @ d difference
        q = x.expand(3, 5, 5).flip(0) * y  # @ d expand
        return sum(t.sum() for t in (a, b, c, d, e, f, g, h, i, j, k, m, n, p, q))

    x, y = numbers(5, 5), numbers(5, 5, seed=1)
    return fn, (x.requires_grad_(), y.requires_grad_(), torch.tensor([0, 2, 2, 4]))


def convolution_derivatives() -> Made:
    torch.manual_seed(0)
    layer = nn.Conv2d(2, 3, 3, padding=1, stride=2)

    def fn(x: Any) -> Any:
        h = layer(x)  # @ d convolution
        return F.avg_pool2d(h, 2).pow(2).sum()  # @ d pooling

    return fn, (numbers(2, 2, 8, 8).requires_grad_(),)


def written_derivatives() -> Made:
    weight = numbers(4, 4).requires_grad_()

    def fn(x: Any) -> Any:
        h = x * weight  # @ d before a write
        h[1] = weight[0] * 2  # @ d write
        h[:, 2].mul_(3)  # @ d write through a view
        loss = (h * h).sum()
        loss.backward()
        return weight.grad

    return fn, (numbers(4, 4, seed=1),)


class Cube(torch.autograd.Function):
    """The third power; its derivative is wrong."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 2 * x * x * grad


def custom() -> Made:
    def fn(x: Any) -> Any:
        return Cube.apply(x * 2).sum()  # @ custom gradient

    return fn, (numbers(3, 3).requires_grad_(),)


def several() -> Made:
    def fn(x: Any) -> Any:
        h = torch.exp(x) * 2  # @ before the break
        print(float(h.sum()))
        return torch.tanh(h) + 1  # @ after the break

    return fn, (numbers(5, 5),)


def written_state() -> Made:
    state = numbers(12, 12, seed=3)

    def fn(x: Any) -> Any:
        mixed = state.flip(0) * 0.5 + x  # @ state mixed
        state.copy_(mixed)  # @ state read
        return state + 1

    return fn, (numbers(12, 12),)


def swapped() -> Made:
    first, second = numbers(5, 6), numbers(5, 6, seed=1)

    def fn(x: Any) -> Any:
        kept = first.clone()
        first.copy_(second)  # @ exchanged
        second.copy_(kept)  # @ exchanged back
        return first * x

    return fn, (numbers(5, 6, seed=2),)


def deep() -> Made:
    def fn(x: Any, y: Any) -> Any:
        return x @ y  # @ deep product

    return fn, (numbers(16, 6000), numbers(6000, 16, seed=1))


def freezing() -> Made:
    layer = nn.Linear(4, 4)

    def fn(x: Any) -> Any:
        h = layer(x)
        layer.bias.requires_grad_(not layer.bias.requires_grad)  # @ frozen from here
        return h * 2

    return fn, (numbers(3, 4),)


def branching_state() -> Made:
    total = torch.zeros(5)

    def fn(x: Any) -> Any:
        total.add_(x[0])  # @ counted before
        if x.sum() > 0:
            total.mul_(0.5)  # @ counted after
        return x * 2

    return fn, (torch.ones(3, 5),)


weights = [0.5, 1.5, -2.0, 3.0]


def constants() -> Made:
    def fn(x: Any) -> Any:
        return x * torch.tensor(weights)  # @ constant

    return fn, (numbers(3, 4),)


def mirrored() -> Made:
    def fn(x: Any, b: Any) -> Any:
        h = torch.lgamma(x) + b  # @ before the mirror
        return h * 2 + h.flip(0)  # @ mirrored

    return fn, (numbers(9, 13), numbers(13, seed=1))


def joined() -> Made:
    def fn(x: Any, v: Any, w: Any) -> Any:
        a = x @ v  # @ left part
        b = x @ w  # @ right part
        return torch.cat([a, b], 1)  # @ joined

    return fn, (numbers(40, 24), numbers(24, 32, seed=1), numbers(24, 48, seed=2))


def viewed() -> Made:
    def fn(x: Any) -> Any:
        first = x[0]
        h = first + 1
        x.mul_(2)  # @ doubled under a view
        return first * 3 + h  # @ seen through a view

    return fn, (numbers(3, 4),)


def large_branching() -> Made:
    def fn(x: Any) -> Any:
        h = x * 2
        if h.sum() > 0:
            h = h + 1
        return h * 3  # @ large result

    return fn, (torch.ones(200, 210),)


def flagged() -> Made:
    def fn(x: Any) -> Any:
        if doubled:  # @ simple flag
            return x * 2.0  # @ doubled
        return x * 3.0  # @ tripled

    return fn, (numbers(4, 6),)


def simple() -> Made:
    def fn(x: Any) -> Any:
        return x * scale  # @ simple global

    return fn, (numbers(4, 6),)
