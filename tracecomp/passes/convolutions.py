"""One spelling for convolutions: padding becomes ``pad``, windows that do not overlap become a contraction, and a
transposed convolution becomes plain convolutions, one for each remainder of the position modulo the stride, whose
results are interleaved (so no multiplication by inserted zeros).

Padding counts as zeros that are multiplied like any other element, eagerly and compiled: an infinite weight against
padding gives NaN, as in PyTorch's general CPU path.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import gcd

from tracecomp.ir.graph import Value
from tracecomp.passes.rewrite import Application, Replacement, Rewriter, Rules

RULES = Rules()

Ints = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Geometry:
    """Sizes of one convolution: ``out`` windows of ``kernel`` places over an input padded to ``full``."""

    kernel: Ints
    out: Ints
    full: Ints
    stride: Ints
    dilation: Ints
    padding: tuple[tuple[int, int], ...]
    groups: int

    @property
    def rank(self) -> int:
        return len(self.kernel)

    def tiles(self) -> bool:
        """Whether windows are disjoint runs, or single places, in every dimension."""
        return all(
            k == 1 or out == 1 or (k == s and d == 1)
            for k, out, s, d in zip(self.kernel, self.out, self.stride, self.dilation, strict=True)
        )


def geometry(a: Application, kernel: Ints, out: Ints, size: Ints) -> Geometry:
    padding = tuple((lo, hi) for lo, hi in a.attrs["padding"])
    full = tuple(n + lo + hi for n, (lo, hi) in zip(size, padding, strict=True))
    return Geometry(
        kernel, out, full, tuple(a.attrs["stride"]), tuple(a.attrs["dilation"]), padding, a.attrs["groups"]
    )


def pad_spatial(g: Rewriter, x: Value, low: Sequence[int], high: Sequence[int], interior: Ints | None = None) -> Value:
    """``x`` (N, C, spatial) with zeros added around and between; negative amounts cut elements away."""
    lead = (0,) * (x.ndim - len(low))
    inner = (*lead, *(interior or (0,) * len(low)))
    return g.apply("pad", x, low=(*lead, *low), high=(*lead, *high), interior=inner, value=_zero(x))


def _zero(x: Value) -> int | float:
    return 0.0 if x.dtype.is_floating_point else 0


def _without_padding(a: Application) -> dict[str, object]:
    return {**a.attrs, "padding": ((0, 0),) * len(a.attrs["padding"])}


@RULES.on("conv", "conv_weight")
def convolution_of_padded(g: Rewriter, a: Application) -> Replacement:
    """conv(x, w, padding) -> conv(pad(x), w)"""
    padding = a.attrs["padding"]
    if not any(n for pair in padding for n in pair):
        return None
    low, high = zip(*padding, strict=True)
    return g.add(a.op, (pad_spatial(g, a.inputs[0], low, high), a.inputs[1]), _without_padding(a))


@RULES.on("conv")
def convolution_of_tiles(g: Rewriter, a: Application) -> Replacement:
    """conv with 1x1 kernels, or a stride as large as its kernel -> contract"""
    x, w = a.inputs
    shape = geometry(a, w.shape[2:], a.type.shape[2:], x.shape[2:])
    if not shape.tiles():
        return None
    spec = "{x},{w}->{o}".format(**_labels(shape.rank))
    result = g.apply("contract", _tiled(g, x, shape), _grouped(g, w, 0, shape.groups), spec=spec)
    return g.reshape(result, a.type.shape)


@RULES.on("conv_weight")
def weight_gradient_of_tiles(g: Rewriter, a: Application) -> Replacement:
    """conv_weight with 1x1 kernels, or a stride as large as its kernel -> contract"""
    x, y = a.inputs
    shape = geometry(a, a.type.shape[2:], y.shape[2:], x.shape[2:])
    if not shape.tiles():
        return None
    spec = "{x},{o}->{w}".format(**_labels(shape.rank))
    result = g.apply("contract", _tiled(g, x, shape), _grouped(g, y, 1, shape.groups), spec=spec)
    return g.reshape(result, a.type.shape)


@RULES.on("conv_transpose")
def transposed_convolution_of_tiles(g: Rewriter, a: Application) -> Replacement:
    """conv_transpose whose windows do not overlap -> contract"""
    y, w = a.inputs
    shape = geometry(a, w.shape[2:], y.shape[2:], a.type.shape[2:])
    if not shape.tiles():
        return None
    spec = "{o},{w}->{x}".format(**_labels(shape.rank))
    places = g.apply("contract", _grouped(g, y, 1, shape.groups), _grouped(g, w, 0, shape.groups), spec=spec)
    run = tuple(out * k for out, k in zip(shape.out, shape.kernel, strict=True))
    flat = g.reshape(places, (*a.type.shape[:2], *run))
    gaps = tuple(s - 1 if k == 1 else d - 1 for s, k, d in zip(shape.stride, shape.kernel, shape.dilation, strict=True))
    low = [-lo for lo, _ in shape.padding]
    covered = [(n - 1) * (gap + 1) + 1 for n, gap in zip(run, gaps, strict=True)]
    high = [full - n - hi for full, n, (_, hi) in zip(shape.full, covered, shape.padding, strict=True)]
    return pad_spatial(g, flat, low, high, gaps)


def _labels(rank: int) -> dict[str, str]:
    """Labels of the input in tiles (group, channel, window, place), the weight and the output."""
    windows, places = "uvw"[:rank], "xyz"[:rank]
    tiles = "".join(map("".join, zip(windows, places, strict=True)))
    return {"x": f"ngc{tiles}", "w": f"goc{places}", "o": f"ngo{windows}"}


def _grouped(g: Rewriter, value: Value, axis: int, groups: int) -> Value:
    """``value`` with its channel axis split by group."""
    shape = value.shape
    return g.reshape(value, (*shape[:axis], groups, shape[axis] // groups, *shape[axis + 1 :]))


def _tiled(g: Rewriter, x: Value, shape: Geometry) -> Value:
    """``x`` as (N, group, channel, window, place, window, place, ...)."""
    steps, stops, tiles = [1, 1], [*x.shape[:2]], list[int]()
    for k, out, s, d in zip(shape.kernel, shape.out, shape.stride, shape.dilation, strict=True):
        step = s if k == 1 else d
        steps.append(step)
        stops.append((out * k - 1) * step + 1)
        tiles += [out, k]
    used = g.apply("slice", x, starts=(0,) * x.ndim, stops=tuple(stops), steps=tuple(steps))
    return g.reshape(used, (x.shape[0], shape.groups, x.shape[1] // shape.groups, *tiles))


@dataclass(frozen=True, slots=True)
class Phase:
    """Results at positions ``remainder`` modulo the stride: every ``step``-th place of the kernel from ``first``.

    Result ``q`` of the phase adds input ``q - shift - j * dilation`` times place ``first + j * step``, ``j < count``.
    """

    first: int
    step: int
    count: int
    shift: int
    dilation: int


def phases(kernel: int, stride: int, dilation: int) -> Iterator[Phase]:
    """One phase for each remainder modulo ``stride``; ``count`` is 0 where no place of the kernel falls."""
    common = gcd(stride, dilation)
    step = stride // common
    for remainder in range(stride):
        first = next((k for k in range(min(step, kernel)) if (k * dilation - remainder) % stride == 0), None)
        if first is None:
            yield Phase(0, step, 0, 0, 1)
        else:
            count = (kernel - first + step - 1) // step
            yield Phase(first, step, count, (first * dilation - remainder) // stride, dilation // common)


@RULES.on("conv_transpose")
def transposed_convolution(g: Rewriter, a: Application) -> Replacement:
    """conv_transpose(y, w) -> interleave(conv(pad(y), flip(w) of each phase))"""
    y, w = a.inputs
    shape = geometry(a, w.shape[2:], y.shape[2:], a.type.shape[2:])
    count = tuple(-(-full // s) for full, s in zip(shape.full, shape.stride, strict=True))
    kernel = _input_major(g, w, shape)
    parts = {
        index: _phase(g, y, kernel, shape, count, [phase for _, phase in choice])
        for choice in product(
            *(list(enumerate(phases(k, s, d))) for k, s, d in zip(shape.kernel, shape.stride, shape.dilation, strict=True))
        )
        for index in [tuple(r for r, _ in choice)]
    }
    joined = _interleave(g, parts, shape.stride)
    low = [-lo for lo, _ in shape.padding]
    high = [lo + size - n for (lo, _), size, n in zip(shape.padding, a.type.shape[2:], joined.shape[2:], strict=True)]
    return pad_spatial(g, joined, low, high)


def _input_major(g: Rewriter, w: Value, shape: Geometry) -> Value:
    """The weight (O, C / groups, kernel) as (C, O / groups, kernel), flipped: the kernel of the adjoint."""
    grouped = _grouped(g, w, 0, shape.groups)
    swapped = g.apply("permute", grouped, dims=(0, 2, 1, *range(3, grouped.ndim)))
    channels = w.shape[1] * shape.groups
    merged = g.reshape(swapped, (channels, w.shape[0] // shape.groups, *shape.kernel))
    return g.apply("flip", merged, axes=tuple(range(2, merged.ndim)))


def _phase(
    g: Rewriter, y: Value, kernel: Value, shape: Geometry, count: Ints, chosen: Sequence[Phase]
) -> Value:
    """The ``count`` results of one phase in every dimension. ``kernel`` is flipped: place k is its k-th from the end."""
    if any(p.count == 0 for p in chosen):
        return g.full(_zero(y), (y.shape[0], kernel.shape[0], *count), y.dtype)
    starts = [k - 1 - p.first - (p.count - 1) * p.step for k, p in zip(shape.kernel, chosen, strict=True)]
    stops = [k - p.first for k, p in zip(shape.kernel, chosen, strict=True)]
    places = g.apply(
        "slice", kernel, starts=(0, 0, *starts), stops=(*kernel.shape[:2], *stops),
        steps=(1, 1, *(p.step for p in chosen)),
    )  # fmt: skip
    low = [p.shift + (p.count - 1) * p.dilation for p in chosen]
    high = [n - have - p.shift for n, have, p in zip(count, y.shape[2:], chosen, strict=True)]
    return g.apply(
        "conv", pad_spatial(g, y, low, high), places, stride=(1,) * shape.rank, padding=((0, 0),) * shape.rank,
        dilation=tuple(p.dilation for p in chosen), groups=shape.groups,
    )  # fmt: skip


def _interleave(g: Rewriter, parts: dict[Ints, Value], stride: Ints) -> Value:
    """The value whose positions with remainder ``r`` modulo ``stride`` are ``parts[r]``, last dimension first."""
    for dim in reversed(range(len(stride))):
        axis = 2 + dim
        joined: dict[Ints, Value] = {}
        for index in product(*(range(s) for s in stride[:dim])):
            group = [parts[(*index, r)] for r in range(stride[dim])]
            apart = [g.reshape(v, (*v.shape[: axis + 1], 1, *v.shape[axis + 1 :])) for v in group]
            stacked = g.apply("concat", *apart, axis=axis + 1)
            shape = group[0].shape
            joined[index] = g.reshape(stacked, (*shape[:axis], shape[axis] * stride[dim], *shape[axis + 1 :]))
        parts = joined
    return parts[()]
