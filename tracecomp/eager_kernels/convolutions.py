"""Convolutions of floats, and gradients of their weights, with the bits of compiled programs, for any shape.

They become plain ones by the same rules (``passes/graph/convolutions.py``). A plain one is a matrix product for each
image: its windows, copied element by element, times the weights. If a program would use transformed tiles, so does this
module, with the transforms of ``passes/winograd/transforms.py`` applied to arrays.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import product
from typing import Any, TypeAlias

import numpy as np
from numpy.lib.stride_tricks import as_strided

from tracecomp.eager_kernels.products import add_products, contract
from tracecomp.eager_kernels.programs import served
from tracecomp.ir.graph import Graph
from tracecomp.ir.interpret import Interpreter
from tracecomp.ir.op import Attrs, Op
from tracecomp.ir.types import TensorType, compute_dtype, from_numpy_dtype
from tracecomp.passes.cost.winograd import Convolution, Sizes
from tracecomp.passes.graph.rule_sets import decompose
from tracecomp.passes.steps import Log
from tracecomp.passes.winograd.transforms import Transform, along_each, form_of
from tracecomp.passes.winograd.weight_gradient import parts_of

Array = np.ndarray[Any, Any]
Ints: TypeAlias = tuple[int, ...]


def convolve(op: Op, x: Array, y: Array, attrs: Attrs) -> Array:
    """``op``, one of the three convolutions, on arrays of floats."""

    def eager(arrays: Sequence[Array]) -> tuple[Array, ...]:
        return (_for_any_shape(op, arrays[0], arrays[1], attrs),)

    return (served(op, (x, y), attrs, eager) or eager((x, y)))[0]


def _for_any_shape(op: Op, x: Array, y: Array, attrs: dict[str, object]) -> Array:
    wide = compute_dtype(from_numpy_dtype(x.dtype)).numpy
    a, b = (np.ascontiguousarray(v, wide) for v in (x, y))
    plain = _plain(op, a.dtype, a.shape, b.shape, tuple(attrs.items()))
    found = _convolved(op, (a, b), attrs) if plain is None else plain.run((a, b), evaluate=_evaluated)[0]
    return np.ascontiguousarray(found, x.dtype)


@lru_cache(1024)
def _plain(op: Op, dtype: Any, x: Ints, y: Ints, attrs: tuple[tuple[str, object], ...]) -> Interpreter | None:
    """Return the convolution in terms of plain ones; None if it is plain."""
    graph = Graph(op.name)
    element = from_numpy_dtype(dtype)
    operands = graph.add_input(TensorType(element, x), "x"), graph.add_input(TensorType(element, y), "y")
    graph.add_output(graph.apply(op.name, *operands, **dict(attrs)))
    made = decompose(graph, Log())
    nodes = list(made.live_nodes())
    return None if len(nodes) == 1 and nodes[0].op is op and nodes[0].attrs == dict(attrs) else Interpreter(made)


def _evaluated(op: Op, arrays: Sequence[Array], attrs: Attrs) -> Any:
    if op.name in ("conv", "conv_weight"):
        return _convolved(op, arrays, attrs)
    if op.name == "contract":
        return contract(arrays[0], arrays[1], attrs["spec"])
    return op.impl(*arrays, **attrs)


def _convolved(op: Op, arrays: Sequence[Array], attrs: Attrs) -> Array:
    """Compute a convolution without padding, or the gradient of its weights."""
    x, other = arrays
    weights = op.name == "conv_weight"
    windows = _Windows.of(x, other, attrs, weights)
    if 0 in (x.size, other.size, windows.sizes.channels):
        return np.asarray(op.impl(x, other, **attrs))
    if windows.sizes.transformed:
        return windows.gradient_by_tiles() if weights else windows.by_tiles()
    return windows.gradient() if weights else windows.convolution()


class _Windows:
    """The two operands by groups: ``x`` (images, groups, channels, positions), and the weights (groups, filters,
    channels, positions of a window) or the result's gradient (images, groups, filters, positions)."""

    def __init__(self, x: Array, other: Array, groups: int, sizes: Convolution) -> None:
        self.groups, self.sizes = groups, sizes
        self.x = x.reshape(x.shape[0], groups, sizes.channels, *x.shape[2:])
        lead = (x.shape[0], groups, sizes.filters) if sizes.gradient else (groups, sizes.filters, sizes.channels)
        self.other = np.ascontiguousarray(other).reshape(*lead, *other.shape[2:])
        self.kernel, self.out = tuple(sizes.kernel), tuple(sizes.out)
        self.taps, self.places = math.prod(self.kernel), math.prod(self.out)

    @staticmethod
    def of(x: Array, other: Array, attrs: Attrs, gradient: bool) -> _Windows:
        groups, stride, dilation = attrs["groups"], attrs["stride"], attrs["dilation"]
        kernel = attrs["kernel"] if gradient else other.shape[2:]
        out = tuple(
            (n - (k - 1) * d - 1) // s + 1 for n, k, s, d in zip(x.shape[2:], kernel, stride, dilation, strict=True)
        )
        channels, filters = x.shape[1] // groups, other.shape[gradient] // groups
        sizes = Convolution(channels, filters, len(x), kernel, out, stride, dilation, gradient)
        return _Windows(x, other, groups, sizes)

    def images_at_once(self, copies: float) -> Iterator[slice]:
        """Yield some images at a time, for ``copies`` copies of each of their elements."""
        each = max(int(self.x[0].nbytes * copies), 1)
        step = max(AT_ONCE // each, 1)
        return (slice(n, min(n + step, len(self.x))) for n in range(0, len(self.x), step))

    # ---- window by window

    def seen(self, images: slice) -> Array:
        """Return the contents of windows: (groups, channels and positions of a window, images, positions)."""
        x = np.moveaxis(self.x[images], 0, 2)
        steps = x.strides[3:]
        within = [s * d for s, d in zip(steps, self.sizes.dilation, strict=True)]
        along = [s * d for s, d in zip(steps, self.sizes.stride, strict=True)]
        shape = (*x.shape[:2], *self.kernel, x.shape[2], *self.out)
        view = as_strided(x, shape, (*x.strides[:2], *within, x.strides[2], *along), writeable=False)
        return view.reshape(self.groups, self.sizes.channels * self.taps, x.shape[2], self.places)

    def convolution(self) -> Array:
        """A sum goes channel by channel, position by position."""
        groups, filters = self.groups, self.sizes.filters
        result = np.empty((len(self.x), groups, filters, self.places), self.x.dtype)
        weights = self.other.reshape(groups, filters, -1)
        for images in self.images_at_once(self.taps):
            found = np.empty((groups, filters, images.stop - images.start, self.places), self.x.dtype)
            add_products(weights, self.seen(images), "gok,gknp->gonp", found)
            result[images] = np.moveaxis(found, 2, 0)
        return result.reshape(len(self.x), groups * filters, *self.out)

    def gradient(self) -> Array:
        """A sum goes image by image, position by position."""
        groups, filters, channels = self.groups, self.sizes.filters, self.sizes.channels
        result = np.empty((groups, filters, channels * self.taps), self.x.dtype)
        given = self.other.reshape(len(self.x), groups, filters, self.places)
        for images in self.images_at_once(self.taps):
            some = np.moveaxis(given[images], 0, 2)
            add_products(some, self.seen(images), "gonp,gknp->gok", result, goes_on=images.start > 0)
        return result.reshape(groups * filters, channels, *self.kernel)

    # ---- by transformed tiles

    @property
    def lines(self) -> list[_Line]:
        given = zip(self.kernel, self.out, self.sizes.stride, self.sizes.dilation, strict=True)
        return [_line(*numbers) for numbers in given]

    def tiles(self, images: slice) -> Array:
        """The transformed input: (products of a tile, groups, channels, images, tiles)."""
        lines = self.lines
        x = _filled(np.moveaxis(self.x[images], 0, 2), [line.length for line in lines])
        values = [_at(x, at) for at in product(*(line.seen for line in lines))]
        return self._stacked(_along([(n.form.seen, n.form.of_input) for n in lines if n.form], values))

    def by_tiles(self) -> Array:
        """The convolution; a sum goes channel by channel."""
        groups, filters, lines = self.groups, self.sizes.filters, self.lines
        weights = [self.other[(..., *at)] for at in np.ndindex(*self.kernel)]
        turned = np.stack(_along([(n.window, n.form.of_weights) for n in lines if n.form], weights))
        result = np.empty((len(self.x), groups, filters, *self.out), self.x.dtype)
        for images in self.images_at_once(4.0):
            tiles = self.tiles(images)
            made = np.empty((len(tiles), groups, filters, *tiles.shape[3:]), self.x.dtype)
            add_products(turned, tiles, "sgoc,sgcnp->sgonp", made)
            made = made.reshape(*made.shape[:4], *(line.tiles for line in lines))
            found = _along([(n.form.places, n.form.to_results) for n in lines if n.form], list(made))
            for value, at in zip(found, product(*(line.results for line in lines)), strict=True):
                self._put(result[images], value, at)
        return result.reshape(len(self.x), groups * filters, *self.out)

    def gradients(self, images: slice) -> Array:
        """The transformed gradient of the result, zero outside the border: like ``tiles``, with filters for
        channels."""
        given = np.moveaxis(self.other[images], 0, 2)
        lines = self.lines
        given = _filled(given, [1 + max(places.last for places in line.results) for line in lines])
        values = [_at(given, at) for at in product(*(line.results for line in lines))]
        return self._stacked(_along([(2, n.form.of_results) for n in lines if n.form], values))

    def _put(self, result: Array, value: Array, at: Sequence[_Places]) -> None:
        """Store results of tiles at their positions; those outside the border are dropped."""
        along = range(3, 3 + len(at))
        for axis, (places, size) in zip(along, zip(at, self.out, strict=True), strict=True):
            kept, which = places.below(size)
            value = value[(slice(None),) * axis + (which,)]
            at = (*at[: axis - 3], kept, *at[axis - 2 :])
        value = np.moveaxis(value, 2, 0)
        if all(value.shape) and all(isinstance(p.index, slice) for p in at):
            result[(..., *(p.index for p in at))] = value
        elif all(value.shape):
            crossed: Any = np.ix_(*(p.places for p in at))
            result[(..., *crossed)] = value

    def _stacked(self, values: Sequence[Array]) -> Array:
        """Values by position, with tiles as one axis: those of axes without windows vary slowest."""
        lines = self.lines
        order = sorted(range(len(lines)), key=lambda n: lines[n].form is not None)
        found = np.stack([v.transpose(0, 1, 2, *(3 + n for n in order)) for v in values])
        return found.reshape(*found.shape[:4], -1)

    def gradient_by_tiles(self) -> Array:
        """The gradient; tiles are summed in order in each part, then the parts."""
        groups, filters, channels, lines = self.groups, self.sizes.filters, self.sizes.channels, self.lines
        forms = [line.form for line in lines if line.form]
        each = math.prod(line.tiles for line in lines)
        ends = parts_of(each * len(self.x), groups * channels * filters)
        totals = np.zeros((len(ends), math.prod(f.places for f in forms), groups, channels, filters), self.x.dtype)
        for number in range(len(self.x)):
            left, right = (make(slice(number, number + 1))[:, :, :, 0] for make in (self.tiles, self.gradients))
            start = number * each
            for part, (begin, end) in enumerate(ends):
                a, b = max(begin, start), min(end, start + each)
                if a < b:
                    cut = (..., slice(a - start, b - start))
                    add_products(left[cut], right[cut], "sgct,sgot->sgco", totals[part], goes_on=True)
        total = sum(totals, np.zeros(totals.shape[1:], totals.dtype))
        found = _along([(form.places, form.to_weights) for form in forms], list(total))
        result = np.stack([np.swapaxes(v, 1, 2) for v in found], -1)
        return np.ascontiguousarray(result).reshape(groups * filters, channels, *self.kernel)


AT_ONCE = 1 << 20
"""Bytes of windows, or of tiles, that are built at a time: they stay in a cache, and calls are few."""


class _Line:
    """The tiles along an axis: pairs of neighbouring results, or single ones if windows have one position.

    ``seen`` has the input position of each element of a tile; the input is extended to ``length`` by zeros, which
    affect no result. ``results`` has the position of each result of a tile.
    """

    def __init__(self, window: int, out: int, stride: int, dilation: int) -> None:
        self.window, self.form = window, None
        if window == 1:
            self.tiles = out
            self.seen, self.results = [_Places(np.arange(out) * stride)], [_Places(np.arange(out))]
        else:
            common = math.gcd(stride, dilation)
            step, apart = stride // common, dilation // common
            self.form = form_of(window, step)
            pairs = Sizes(out, window, step, apart).pairs
            first = (np.arange(pairs) * (2 * apart) + np.arange(apart)[:, None]).reshape(-1)
            self.tiles, self.seen = len(first), []
            for n in range(self.form.seen):
                later = n >= window  # elements after a window belong to the window of the second result
                self.seen.append(_Places((first + apart * later) * stride + (n - step * later) * dilation))
            self.results = [_Places(first), _Places(first + apart)]
        self.length = 1 + max(places.last for places in self.seen)


_line = lru_cache(1024)(_Line)


class _Places:
    """Positions along an axis, as a slice if they are evenly spaced."""

    def __init__(self, places: Array) -> None:
        self.places, self.last = places, int(places.max())
        steps = np.diff(places)
        even = not len(steps) or bool((steps == steps[0]).all())
        step = int(steps[0]) if len(steps) and even else 1
        self.index: Any = slice(int(places[0]), self.last + 1, step) if even else places

    def of(self, x: Array, axis: int) -> Array:
        """Return the elements of ``x`` at the positions."""
        return np.asarray(x[(slice(None),) * axis + (self.index,)])

    def below(self, size: int) -> tuple[_Places, Array | slice]:
        """Return the positions below ``size``, and their indices."""
        there = self.places < size
        if isinstance(self.index, slice):
            return _Places(self.places[there]), slice(0, int(there.sum()))
        return _Places(self.places[there]), np.flatnonzero(there)


class _Arrays:
    """Operations of the transforms, on arrays."""

    def add(self, a: Array, b: Array) -> Array:
        return np.add(a, b)

    def sub(self, a: Array, b: Array) -> Array:
        return np.subtract(a, b)

    def half(self, a: Array) -> Array:
        return np.asarray(a * a.dtype.type(0.5))


def _filled(x: Array, lengths: Sequence[int]) -> Array:
    """Append zeros to the last axes of ``x``, up to these lengths."""
    lead = x.ndim - len(lengths)
    more = [(0, max(n - have, 0)) for n, have in zip(lengths, x.shape[lead:], strict=True)]
    return np.pad(x, [(0, 0)] * lead + more) if any(high for _, high in more) else x


def _along(transforms: Iterable[tuple[int, Transform]], values: Sequence[Array]) -> list[Array]:
    """Transform arrays along one axis after the other."""
    over_any: Any = along_each
    return list(over_any(_Arrays(), transforms, values))


def _at(x: Array, places: Sequence[_Places]) -> Array:
    """The elements of ``x`` at these positions along its last axes."""
    for axis, some in enumerate(places, x.ndim - len(places)):
        x = some.of(x, axis)
    return x
