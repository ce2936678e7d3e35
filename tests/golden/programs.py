"""Programs whose every stage is kept as text in this folder, each small enough to read."""

from __future__ import annotations

from collections.abc import Callable

import tracecomp as torch
from tracecomp import nn
from tracecomp.ir.graph import Graph
from tracecomp.nn import functional as F

PROGRAMS: dict[str, Callable[[], Graph]] = {}


def golden(make: Callable[[], Graph]) -> Callable[[], Graph]:
    PROGRAMS[make.__name__] = make
    return make


@golden
def softmax() -> Graph:
    """One kernel: two reductions over rows, the exponentials kept in the result."""

    def softmax(x: torch.Tensor) -> torch.Tensor:
        e = torch.exp(x - x.amax(1, keepdim=True))
        return e / e.sum(1, keepdim=True)

    return torch.trace(softmax, torch.ones(64, 100))


@golden
def linear_relu() -> Graph:
    """A matrix product in register tiles with an epilogue of bias and ReLU."""

    def linear_relu(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return torch.relu(F.linear(x, weight, bias))

    return torch.trace(linear_relu, torch.ones(32, 48), torch.ones(64, 48), torch.ones(64))


@golden
def convolution() -> Graph:
    """Padding, a convolution as a contraction over windows of the image, and pooling."""

    def convolution(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.max_pool2d(torch.relu(F.conv2d(x, weight, padding=1)), 2)

    return torch.trace(convolution, torch.ones(2, 3, 8, 8), torch.ones(4, 3, 3, 3))


@golden
def training_step() -> Graph:
    """Forward, backward and an SGD step of a linear model, in one graph that updates its state."""
    weight, bias = torch.zeros(8, requires_grad=True), torch.zeros((), requires_grad=True)
    optimizer = torch.optim.SGD([weight, bias], lr=0.1)

    def training_step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = ((x @ weight + bias - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    return torch.trace(training_step, torch.ones(16, 8), torch.ones(16))


@golden
def recurrence() -> Graph:
    """A loop over time that carries a state."""
    layer = nn.RNN(8, 8)

    def recurrence(xs: torch.Tensor) -> torch.Tensor:
        return layer(xs)[0]

    return torch.trace(recurrence, torch.ones(5, 2, 8))
