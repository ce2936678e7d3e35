"""Programs whose compile time matters: many blocks, small parameters, unrolled loops, torchvision's networks."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Any, Literal

from benchmarks.workload import Workload, inputs, integers, normal

WIDTH = 64
"""Features of the residual blocks."""


def blocks(lib: Any, hidden: tuple[int, ...]) -> Any:
    """Residual blocks with such hidden widths."""
    nn = lib.nn

    class Block(nn.Module):  # type: ignore[name-defined]
        def __init__(self, width: int) -> None:
            super().__init__()
            self.norm, self.first, self.second = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, width), nn.Linear(width, WIDTH)

        def forward(self, x: Any) -> Any:
            return x + self.second(nn.functional.gelu(self.first(self.norm(x)), approximate="tanh"))

    return nn.Sequential(*(Block(width) for width in hidden))


def small_parameters(lib: Any, count: int) -> Any:
    """Scales its input by the squares of ``count`` parameters of a few elements."""
    nn = lib.nn

    class Scale(nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.each = nn.ParameterList(nn.Parameter(lib.zeros(3 + k % 5)) for k in range(count))

        def forward(self, x: Any) -> Any:
            return x * sum((p * p).sum() for p in self.each)

    return Scale()


def torchvision(lib: Any, name: str) -> Any:
    """A network of torchvision, which imports the library that has the name torch."""
    return getattr(import_module("torchvision.models"), name)()


def unrolled(lib: Any) -> Any:
    """1,024 steps of a recurrent network."""

    def run(x: Any, w: Any) -> Any:
        for _ in range(1024):
            x = lib.tanh(x @ w)
        return x

    return run


def stacked(lib: Any) -> Any:
    """400 steps that depend on each other, all of them results."""

    def run(x: Any) -> Any:
        steps = []
        for _ in range(400):
            x = lib.sin(x * 1.5)
            steps.append(x)
        return lib.stack(steps)

    return run


def _jax(net: str, *size: Any) -> Any:
    """jax is imported by its engine alone; the last of ``size`` is its namespace of arrays."""
    return getattr(import_module("benchmarks.jax_nets"), net)(*size[:-1])


def _blocks(name: str, hidden: tuple[int, ...]) -> Workload:
    return Workload(
        "blocks", name, inputs(normal(32, WIDTH), integers(WIDTH, 32)), partial(blocks, hidden=hidden),
        partial(_jax, "blocks", hidden), mode="training", optimizer="adamw", export=False,
    )  # fmt: skip


def _parameters(count: int) -> Workload:
    return Workload(
        "parameters", f"AdamW over {count:,} of 3 to 7 elements", inputs(normal(4, 8), integers(8, 4)),
        partial(small_parameters, count=count), partial(_jax, "small_parameters", count), mode="training",
        optimizer="adamw", export=False,
    )  # fmt: skip


def _network(name: str, mode: Literal["inference", "training"]) -> Workload:
    target = (integers(1000, 4),) if mode == "training" else ()
    return Workload(
        "torchvision", f"{name}, {mode}", inputs(normal(4, 3, 64, 64), *target), partial(torchvision, name=name),
        mode=mode, optimizer="sgd" if mode == "training" else "", export=False, tolerance=2e-3,
    )  # fmt: skip


NETWORKS = ("resnet18", "mobilenet_v3_large", "densenet121")
LARGE = [
    *(_blocks(f"{n} equal", (128,) * n) for n in (8, 16, 32, 64, 128)),
    *(_blocks(f"{n} distinct", tuple(64 + 8 * k for k in range(n))) for n in (8, 16, 32, 64)),
    *(_network(name, mode) for mode in ("training", "inference") for name in NETWORKS),
    *map(_parameters, (200, 1000)),
    Workload("loops", "1,024 recurrent steps, unrolled", inputs(normal(4, 16), normal(16, 16)), unrolled,
             lambda jnp: unrolled(jnp)),
    Workload("loops", "400 steps joined by stack", inputs(normal(64)), stacked, lambda jnp: stacked(jnp)),
]  # fmt: skip
