"""Convolutions in simple terms: padding becomes ``pad``, and transposed convolutions become plain ones.

A transposed convolution becomes one plain convolution for each remainder of the position modulo the stride. Their
results are interleaved, so no inserted zeros are multiplied. ``layout`` rewrites plain convolutions as contractions of
windows.

Padding counts as zeros that are multiplied like any other element, eagerly and compiled: an infinite weight times
padding gives NaN, as in PyTorch's general CPU path.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, product
from math import gcd, prod

from tracecomp.ir.graph import Value
from tracecomp.passes.graph.rewrite import Application, Replacement, Rewriter, Rules
from tracecomp.passes.graph.views import slice_of

RULES = Rules()

Ints = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Geometry:
    """Sizes of one convolution: ``out`` windows of size ``kernel`` over an input padded to ``full``."""

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
        """Whether windows are disjoint runs, or single elements, in every dimension."""
        return all(
            # A single element, a single window, or adjacent windows: no two windows share an element.
            k == 1 or out == 1 or (k == s and d == 1)
            for k, out, s, d in zip(self.kernel, self.out, self.stride, self.dilation, strict=True)
        )


def geometry(a: Application, kernel: Ints, out: Ints, size: Ints) -> Geometry:
    padding = tuple((lo, hi) for lo, hi in a.attrs["padding"])
    full = tuple(n + lo + hi for n, (lo, hi) in zip(size, padding, strict=True))
    return Geometry(kernel, out, full, tuple(a.attrs["stride"]), tuple(a.attrs["dilation"]), padding, a.attrs["groups"])


def pad_spatial(g: Rewriter, x: Value, low: Sequence[int], high: Sequence[int], interior: Ints | None = None) -> Value:
    """``x`` (N, C, spatial) with zeros added around and between; negative amounts cut elements away."""
    lead = (0,) * (x.ndim - len(low))
    # Batch and channels are not padded.
    inner = (*lead, *(interior or (0,) * len(low)))
    return g.apply("pad", x, low=(*lead, *low), high=(*lead, *high), interior=inner, value=_zero(x))


def _zero(x: Value) -> int | float:
    return 0.0 if x.dtype.is_floating_point else 0


def _without_size(a: Application) -> dict[str, object]:
    return {name: value for name, value in a.attrs.items() if name != "size"}


def _without_padding(a: Application) -> dict[str, object]:
    return {**a.attrs, "padding": ((0, 0),) * len(a.attrs["padding"])}


# Three quarters: parts add kernels and have smaller tiles, which must save at least a quarter of the work.
PARTLY = 0.75
"""Largest share of its work at which a convolution is split into parts that skip padding."""
PART_LENGTH = 8
"""Least average results of a part along an axis, and least channels: fewer do not fill register tiles."""


@dataclass(frozen=True, slots=True)
class Seen:
    """``count`` positions from ``first`` that overlap the image exactly at ``others``."""

    first: int
    count: int
    others: range


def seen_along(count: int, step: int, others: int, apart: int, low: int, size: int) -> list[Seen]:
    """The positions along an axis; position a reads the image at position b of ``others`` at ``a * step + b * apart -
    low``."""
    ranges = []
    for a in range(count):
        # From a * step + b * apart - low between 0 and the size, rounded up on both sides.
        start, stop = -(-(low - a * step) // apart), -(-(low + size - a * step) // apart)
        ranges.append(range(min(max(start, 0), others), min(max(stop, 0), others)))
    found = []
    # Neighbouring positions that overlap the same range form one part.
    for same, run in groupby(enumerate(ranges), lambda r: r[1]):
        first, *rest = [a for a, _ in run]
        found.append(Seen(first, 1 + len(rest), same))
    return found


@RULES.on("conv", "conv_weight")
def convolution_in_parts(g: Rewriter, a: Application) -> Replacement:
    """conv(x, w, padding) -> concat(conv(slice(x), slice(w)), ...) if much of the work would be on padding"""
    x, other = a.inputs
    weights = a.op.name == "conv_weight"
    kernel, out = (tuple(a.attrs["kernel"]), other.shape[2:]) if weights else (other.shape[2:], a.type.shape[2:])
    shape = geometry(a, kernel, out, x.shape[2:])
    axes = []
    for n, k, o, s, d, (lo, _) in zip(
        x.shape[2:], kernel, out, shape.stride, shape.dilation, shape.padding, strict=True
    ):
        axes.append(seen_along(k, d, o, s, lo, n) if weights else seen_along(o, s, k, d, lo, n))
    done = prod(sum(seen.count * len(seen.others) for seen in axis) for axis in axes)
    # Short parts have remainders everywhere.
    long = all(o >= PART_LENGTH * len(axis) for o, axis in zip(out, axes, strict=True))
    channels = min(x.shape[1], other.shape[1] if weights else a.type.shape[1]) // shape.groups
    if done > PARTLY * prod(kernel) * prod(out) or not long or channels < PART_LENGTH:
        return None
    parts = [_part(g, a, shape, chosen) for chosen in product(*axes)]
    # From the last axis: parts are in row-major order.
    for dim, axis in reversed(list(enumerate(axes, 2))):
        rows = [parts[n : n + len(axis)] for n in range(0, len(parts), len(axis))]
        parts = [g.apply("concat", *row, axis=dim) for row in rows]
    return parts[0]


def _part(g: Rewriter, a: Application, shape: Geometry, chosen: Sequence[Seen]) -> Value:
    """The convolution, or gradient of weights, at the ``chosen`` positions of its result."""
    x, other = a.inputs
    weights = a.op.name == "conv_weight"
    count = tuple(seen.count for seen in chosen)
    others = tuple(len(seen.others) for seen in chosen)
    if 0 in others:
        # These windows contain padding alone.
        return g.full(_zero(x), (*a.type.shape[:2], *count), x.dtype)
    kernel, out = (count, others) if weights else (others, count)
    starts, sizes = [], []
    along = zip(chosen, kernel, out, shape.stride, shape.dilation, shape.padding, strict=True)
    for seen, k, o, s, d, (lo, _) in along:
        first, place = (seen.others.start, seen.first) if weights else (seen.first, seen.others.start)
        starts.append(first * s + place * d - lo)
        # The extent that ``o`` windows of size ``k`` cover.
        sizes.append((o - 1) * s + (k - 1) * d + 1)
    ones = (1,) * x.ndim
    image = slice_of(g, x, (0, 0, *starts), (*x.shape[:2], *sizes), ones)
    begins = (0, 0, *(seen.others.start for seen in chosen))
    read = slice_of(g, other, begins, (*other.shape[:2], *others), ones)
    attrs = _without_padding(a) | ({"kernel": kernel} if weights else {})
    return g.apply(a.op.name, image, read, **attrs)


@RULES.on("conv", "conv_weight")
def convolution_of_padded(g: Rewriter, a: Application) -> Replacement:
    """conv(x, w, padding) -> conv(pad(x), w)"""
    padding = a.attrs["padding"]
    if not any(n for pair in padding for n in pair):
        return None
    low, high = zip(*padding, strict=True)
    return g.add(a.op, (pad_spatial(g, a.inputs[0], low, high), a.inputs[1]), _without_padding(a))


@RULES.on("conv_transpose")
def transposed_pointwise_convolution(g: Rewriter, a: Application) -> Replacement:
    """conv_transpose(y, w: 1x1) -> pad(conv(y, w transposed)): remains a convolution, for the layout to choose"""
    y, w = a.inputs
    shape = geometry(a, w.shape[2:], y.shape[2:], a.type.shape[2:])
    if set(shape.kernel) != {1}:
        return None
    # A 1x1 kernel adds no neighbours: as a convolution the layout still weighs it.
    plain = plain_convolution(g, y, _input_major(g, w, shape), (1,) * shape.rank, shape.groups)
    gaps = tuple(s - 1 for s in shape.stride)
    low = [-lo for lo, _ in shape.padding]
    # Between its results the transposed convolution has zeros.
    high = [
        full - (n - 1) * s - 1 - hi
        for full, n, s, (_, hi) in zip(shape.full, shape.out, shape.stride, shape.padding, strict=True)
    ]
    return pad_spatial(g, plain, low, high, gaps)


def plain_convolution(g: Rewriter, x: Value, w: Value, dilation: Ints, groups: int) -> Value:
    """A convolution of stride 1 without padding."""
    rank = len(dilation)
    return g.apply("conv", x, w, stride=(1,) * rank, padding=((0, 0),) * rank, dilation=dilation, groups=groups)


@RULES.on("conv_transpose")
def transposed_convolution_of_tiles(g: Rewriter, a: Application) -> Replacement:
    """conv_transpose whose windows do not overlap -> pad(contract): every result is one product sum, or zero"""
    y, w = a.inputs
    shape = geometry(a, w.shape[2:], y.shape[2:], a.type.shape[2:])
    if not shape.tiles():
        return None
    windows, places = "uvw"[: shape.rank], "xyz"[: shape.rank]
    # Every element of every window is one product, so one contraction computes all of them, tile by tile.
    spec = f"ngo{windows},goc{places}->ngc{places}{windows}"
    result = g.apply("contract", grouped(g, y, 1, shape.groups), grouped(g, w, 0, shape.groups), spec=spec)
    run = tuple(out * k for out, k in zip(shape.out, shape.kernel, strict=True))
    rank = shape.rank
    # Window and position in it are adjacent axes: a reshape joins them to image positions.
    tiles = tuple(d for n in range(3, 3 + rank) for d in (n + rank, n))
    flat = g.reshape(g.apply("permute", result, dims=(0, 1, 2, *tiles)), (*a.type.shape[:2], *run))
    # Gaps between windows (1x1 kernels with a stride) or within them (dilation) are zeros, inserted by padding.
    gaps = tuple(s - 1 if k == 1 else d - 1 for s, k, d in zip(shape.stride, shape.kernel, shape.dilation, strict=True))
    low = [-lo for lo, _ in shape.padding]
    covered = [(n - 1) * (gap + 1) + 1 for n, gap in zip(run, gaps, strict=True)]
    high = [full - n - hi for full, n, (_, hi) in zip(shape.full, covered, shape.padding, strict=True)]
    return pad_spatial(g, flat, low, high, gaps)


def grouped(g: Rewriter, value: Value, axis: int, groups: int) -> Value:
    """``value`` with its channel axis split by group."""
    shape = value.shape
    return g.reshape(value, (*shape[:axis], groups, shape[axis] // groups, *shape[axis + 1 :]))


@dataclass(frozen=True, slots=True)
class Phase:
    """Results at positions ``remainder`` modulo the stride: every ``step``-th kernel element from ``first``.

    Result ``q`` of the phase adds input ``q - shift - j * dilation`` times kernel element ``first + j * step``, ``j <
    count``.
    """

    first: int
    step: int
    count: int
    shift: int
    dilation: int


def phases(kernel: int, stride: int, dilation: int) -> Iterator[Phase]:
    """Return one phase for each remainder modulo ``stride``; ``count`` is 0 where no kernel element contributes."""
    common = gcd(stride, dilation)
    step = stride // common
    for remainder in range(stride):
        # Kernel elements k with k * dilation equal to the remainder modulo the stride: every ``step``-th.
        first = next((k for k in range(min(step, kernel)) if (k * dilation - remainder) % stride == 0), None)
        if first is None:
            # Some remainders meet no kernel element: those results are zero.
            yield Phase(0, step, 0, 0, 1)
        else:
            count = (kernel - first + step - 1) // step
            yield Phase(first, step, count, (first * dilation - remainder) // stride, dilation // common)


@RULES.on("conv_transpose")
def transposed_convolution_of_neighbours(g: Rewriter, a: Application) -> Replacement:
    """conv_transpose(y, w) of stride 1 -> conv(y, flip(w)), padded"""
    y, w = a.inputs
    shape = geometry(a, w.shape[2:], y.shape[2:], a.type.shape[2:])
    spans = [(k - 1) * d for k, d in zip(shape.kernel, shape.dilation, strict=True)]
    padding = tuple((span - lo, span - hi) for span, (lo, hi) in zip(spans, shape.padding, strict=True))
    # Negative padding would have to cut the input first, which the general rule does.
    if set(shape.stride) != {1} or min(n for pair in padding for n in pair) < 0:
        return None
    return g.apply("conv", y, _input_major(g, w, shape), **{**_without_size(a), "padding": padding})


@RULES.on("conv_transpose")
def transposed_convolution(g: Rewriter, a: Application) -> Replacement:
    """conv_transpose(y, w) -> interleave(conv(pad(y), flip(w) of each phase))"""
    y, w = a.inputs
    shape = geometry(a, w.shape[2:], y.shape[2:], a.type.shape[2:])
    # Results of each remainder, rounded up: the last ones are cut off at the end.
    count = tuple(-(-n // s) for n, s in zip(a.type.shape[2:], shape.stride, strict=True))
    kernel = _input_major(g, w, shape)
    geometries = zip(shape.kernel, shape.stride, shape.dilation, shape.padding, strict=True)
    along = [_phases_from(k, s, d, lo) for k, s, d, (lo, _) in geometries]
    spans = [[_span(p, b, n) for p, b in ps if p.count] for ps, n in zip(along, count, strict=True)]
    # Padded once for all phases, as far as the farthest of them reads.
    low = [max(0, -min(start for start, _ in span)) for span in spans]
    high = [max(0, max(stop for _, stop in span) - n) for span, n in zip(spans, y.shape[2:], strict=True)]
    padded = pad_spatial(g, y, low, high)
    parts = []
    for chosen in product(*along):
        reads = [_span(p, b, n) for (p, b), n in zip(chosen, count, strict=True)]
        shifted = [(start + lo, stop + lo) for (start, stop), lo in zip(reads, low, strict=True)]
        parts.append(_phase(g, padded, kernel, shape, shifted, count, [p for p, _ in chosen]))
    joined = _interleave(g, parts, shape.stride)
    return slice_of(g, joined, (0,) * y.ndim, a.type.shape, (1,) * y.ndim)


def _phases_from(kernel: int, stride: int, dilation: int, low: int) -> list[tuple[Phase, int]]:
    """Return the phases of results 0, 1, ... ``stride`` - 1 after the first ``low`` are cut off, and their start."""
    every = list(phases(kernel, stride, dilation))
    return [(every[(n + low) % stride], (n + low) // stride) for n in range(stride)]


def _span(phase: Phase, begin: int, count: int) -> tuple[int, int]:
    """The positions of the input that results ``begin .. begin + count`` of a phase read."""
    start = begin - phase.shift - (phase.count - 1) * phase.dilation
    return start, begin + count - phase.shift


def _input_major(g: Rewriter, w: Value, shape: Geometry) -> Value:
    """The weight (O, C / groups, kernel) as (C, O / groups, kernel), flipped: the kernel of the adjoint."""
    split = grouped(g, w, 0, shape.groups)
    # The adjoint reads weights from outputs to inputs, and kernels from the end.
    swapped = g.apply("permute", split, dims=(0, 2, 1, *range(3, split.ndim)))
    channels = w.shape[1] * shape.groups
    merged = g.reshape(swapped, (channels, w.shape[0] // shape.groups, *shape.kernel))
    return g.apply("flip", merged, axes=tuple(range(2, merged.ndim)))


def _phase(
    g: Rewriter, y: Value, kernel: Value, shape: Geometry, reads: Sequence[tuple[int, int]], count: Ints,
    chosen: Sequence[Phase],
) -> Value:  # fmt: skip
    """``count`` results of one phase. ``kernel`` is flipped: element k is its k-th from the end."""
    if any(p.count == 0 for p in chosen):
        return g.full(_zero(y), (y.shape[0], kernel.shape[0], *count), y.dtype)
    # In the flipped kernel the phase's last element comes first.
    starts = [k - 1 - p.first - (p.count - 1) * p.step for k, p in zip(shape.kernel, chosen, strict=True)]
    steps = (1, 1, *(p.step for p in chosen))
    places = slice_of(g, kernel, (0, 0, *starts), (*kernel.shape[:2], *(p.count for p in chosen)), steps)
    sizes = (*y.shape[:2], *(stop - start for start, stop in reads))
    seen = slice_of(g, y, (0, 0, *(start for start, _ in reads)), sizes, (1,) * y.ndim)
    return plain_convolution(g, seen, places, tuple(p.dilation for p in chosen), shape.groups)


def _interleave(g: Rewriter, parts: Sequence[Value], stride: Ints) -> Value:
    """The value whose positions with remainders r modulo ``stride`` are ``parts[r]``, r in row-major order."""
    for axis, step in reversed(list(enumerate(stride, 2))):
        parts = [_in_turns(g, parts[n : n + step], axis) for n in range(0, len(parts), step)]
    return parts[0]


def _in_turns(g: Rewriter, parts: Sequence[Value], axis: int) -> Value:
    """The elements of ``parts``, interleaved along an axis."""
    if len(parts) == 1:
        return parts[0]
    shape = parts[0].shape
    # Interleaved by a new axis after this one, over the parts.
    apart = [g.reshape(part, (*shape[: axis + 1], 1, *shape[axis + 1 :])) for part in parts]
    joined = g.apply("concat", *apart, axis=axis + 1)
    return g.reshape(joined, (*shape[:axis], shape[axis] * len(parts), *shape[axis + 1 :]))
