"""Convolutions: forward, and the gradients to data and weight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from benchmarks.workload import Array, Workload


@dataclass(frozen=True)
class Shape:
    """A convolution of N, C, H, W images with O, C / groups, K, K weights."""

    label: str
    n: int
    c: int
    side: int
    o: int
    k: int = 3
    stride: int = 1
    padding: int = 1
    groups: int = 1
    dilation: int = 1

    @property
    def options(self) -> dict[str, int]:
        """Keyword arguments of torch's conv2d."""
        return {"stride": self.stride, "padding": self.padding, "groups": self.groups, "dilation": self.dilation}

    @property
    def out_side(self) -> int:
        """Height and width of the result."""
        return (self.side + 2 * self.padding - self.dilation * (self.k - 1) - 1) // self.stride + 1

    @property
    def flops(self) -> float:
        """Multiplications and additions of the forward pass; each gradient has as many."""
        return 2.0 * self.n * self.o * self.out_side**2 * (self.c // self.groups) * self.k**2

    def arrays(self, rng: Any) -> tuple[Array, ...]:
        """Image, weight, gradient of the result."""
        shapes = (
            (self.n, self.c, self.side, self.side),
            (self.o, self.c // self.groups, self.k, self.k),
            (self.n, self.o, self.out_side, self.out_side),
        )
        return tuple(rng.standard_normal(s).astype("float32") for s in shapes)


SHAPES = (
    Shape("3x3 64-64, 8x56x56", 8, 64, 56, 64),
    Shape("3x3 64-64, 1x56x56", 1, 64, 56, 64),
    Shape("3x3 3-32, 8x64x64", 8, 3, 64, 32),
    Shape("3x3 128-256 stride 2, 8x28x28", 8, 128, 28, 256, stride=2),
    Shape("1x1 128-256, 8x28x28", 8, 128, 28, 256, k=1, padding=0),
    Shape("3x3 depthwise 128, 8x28x28", 8, 128, 28, 128, groups=128),
    Shape("3x3 4 groups 128-128, 8x28x28", 8, 128, 28, 128, groups=4),
    Shape("3x3 dilated 32-32, 4x40x40", 4, 32, 40, 32, padding=2, dilation=2),
)


def _forward(shape: Shape) -> Workload:
    return Workload(
        "conv forward", shape.label, lambda rng: shape.arrays(rng)[:2],
        lambda lib: lambda x, w: lib.nn.functional.conv2d(x, w, **shape.options),
        lambda xp: lambda x, w: _jax_conv(x, w, shape), flops=shape.flops, tolerance=1e-3, channels_last=True,
    )  # fmt: skip


def _gradient(shape: Shape, of: Literal["data", "weight"]) -> Workload:
    """The gradient alone. torch has a function for it; elsewhere the forward pass is dead code."""
    wanted = 0 if of == "data" else 1

    def torch(lib: Any) -> Any:
        def ours(x: Any, w: Any, g: Any) -> Any:
            leaves = [x.detach().requires_grad_(wanted == 0), w.detach().requires_grad_(wanted == 1)]
            y = lib.nn.functional.conv2d(*leaves, **shape.options)
            return lib.autograd.grad(y, leaves[wanted], g)[0]

        def peers(x: Any, w: Any, g: Any) -> Any:
            pair = [[value] * 2 for value in (shape.stride, shape.padding, shape.dilation)]
            mask = [wanted == 0, wanted == 1, False]
            backward = lib.ops.aten.convolution_backward
            return backward(g, x, w, None, *pair, False, [0, 0], shape.groups, mask)[wanted]

        return peers if lib.__name__ == "torch" else ours

    def jax(xp: Any) -> Any:
        def f(x: Any, w: Any, g: Any) -> Any:
            import jax

            _, pull = jax.vjp(lambda x, w: _jax_conv(x, w, shape), x, w)
            return pull(g)[wanted]

        return f

    return Workload(
        f"conv {of} gradient", shape.label, shape.arrays, torch, jax, flops=shape.flops, tolerance=1e-3,
        export=False, channels_last=True,
    )  # fmt: skip


def _jax_conv(x: Any, w: Any, shape: Shape) -> Any:
    import jax

    return jax.lax.conv_general_dilated(
        x, w, (shape.stride,) * 2, ((shape.padding,) * 2,) * 2, rhs_dilation=(shape.dilation,) * 2,
        feature_group_count=shape.groups,
    )  # fmt: skip


WORKLOADS = [
    *map(_forward, SHAPES),
    *(_gradient(s, "data") for s in SHAPES),
    *(_gradient(s, "weight") for s in SHAPES),
]
