"""Estimated speed of convolutions by transformed tiles, relative to window by window, from sizes alone: it decides
bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd, prod

from tracecomp.passes.cost.reference import (
    FAR_WEIGHTS,
    LEAST_SPEED,
    LONGEST_PIECE,
    MOST_PLACES,
    NOMINAL_IMAGES,
    TRANSFORM_COST,
    TRANSFORM_COST_FAR,
)


@dataclass(frozen=True)
class Sizes:
    """``out`` results along one axis, of ``window`` places each, ``dilation`` apart, moving by ``stride``."""

    out: int
    window: int
    stride: int
    dilation: int

    @property
    def places(self) -> int:
        # A stride sorts the positions of a window by remainder; each remainder is a convolution of stride 1 with a
        # separate window length.
        """Products for two results: one more than its places for every piece of a window (``form_of``)."""
        lengths = [len(range(r, self.window, self.stride)) for r in range(self.stride)]
        # F(2, n) needs n + 1 products for two results: n, and one more for each
        # piece of up to three places that is transformed.
        return sum(length + -(-length // LONGEST_PIECE) for length in lengths)

    @property
    def pairs(self) -> int:
        """Pairs of results for one remainder of the place modulo the dilation, whose windows share elements."""
        return -(-self.out // (2 * self.dilation))


@dataclass(frozen=True)
class Convolution:
    """The sizes of a convolution, or of the gradient of its weights: ``channels`` and ``filters`` of a group."""

    channels: int
    filters: int
    images: int
    kernel: Sequence[int]
    out: Sequence[int]
    stride: Sequence[int]
    dilation: Sequence[int]
    gradient: bool

    @property
    def transformed(self) -> bool:
        """Whether it is computed by transformed tiles."""
        axes = self.axes
        whole = len(axes) == sum(k > 1 for k in self.kernel)
        return bool(axes) and whole and min(self.channels, self.filters) > 1 and self.speed > 1

    @property
    def axes(self) -> list[Sizes]:
        """The axes along which windows overlap."""
        found = []
        for k, n, s, d in zip(self.kernel, self.out, self.stride, self.dilation, strict=True):
            stride, dilation = s // gcd(s, d), d // gcd(s, d)
            if stride < k and dilation < n:
                found.append(Sizes(n, k, stride, dilation))
        return found

    @property
    def speed(self) -> float:
        """Estimated speed of transformed tiles, as a factor; 1 where they do not pay."""
        # A window of one place moves over its axis like another batch.
        images = self.images * prod(n for k, n in zip(self.kernel, self.out, strict=True) if k == 1)
        return speed(self.channels, self.filters, images if self.gradient else NOMINAL_IMAGES, self.axes)


def speed(channels: int, filters: int, images: int, axes: Sequence[Sizes]) -> float:
    """Estimated speed of this form relative to window by window; 1 where it does not pay.

    A convolution and the gradient of its weights transform matrices of the same sizes.
    """
    places = prod(axis.places for axis in axes)
    # A dilated convolution is ``dilation`` interleaved ones without dilation, so pairs are counted per remainder.
    pairs = prod(axis.pairs * axis.dilation for axis in axes)
    if places > MOST_PLACES or 0 in (channels, filters, images * pairs):
        return 1.0
    of_weights = TRANSFORM_COST_FAR if places * channels * filters > FAR_WEIGHTS else TRANSFORM_COST
    # Transforming the image is shared by all filters, transforming the results back by all
    # channels, and transforming weights by all tiles of the batch.
    transforming = TRANSFORM_COST * (1 / channels + 1 / filters) + of_weights / (images * pairs)
    products = pairs * places * (1 + transforming)
    # Products of the plain form per product of this form, both as multiply-adds, with the transforms counted in that
    # unit.
    estimate = prod(axis.out * axis.window for axis in axes) / products
    return estimate if estimate >= LEAST_SPEED else 1.0
