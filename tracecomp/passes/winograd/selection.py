"""Selection of Winograd convolutions and weight gradients (computed by transformed tiles), by their estimated speed.

The choice depends on sizes alone; for convolutions it does not depend on the number of images.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from tracecomp.ir.index import Index, Var, computed, index
from tracecomp.ir.loop_copy import Copier
from tracecomp.ir.loops import Call, Const, IndexValue
from tracecomp.ir.types import float32, float64, int64
from tracecomp.passes.cost.reference import NOMINAL_IMAGES
from tracecomp.passes.cost.winograd import Sizes, speed
from tracecomp.passes.nests.contraction_nest import BilinearNest, Operand, product_of
from tracecomp.passes.winograd.transforms import Form, form_of


def up_to(at: Index, last: int) -> Index:
    """Return ``at``, or ``last`` if a tile ends after it."""
    # Never beyond the end: no minimum is needed.
    if at.bounds is None or at.bounds[1] <= last:
        return at
    return computed(Call("min", (IndexValue(at), Const(last, int64)), int64), (at.bounds[0], last))


@dataclass(frozen=True)
class Axis:
    """An axis along which windows move: the result's position, the position in a window.

    ``dilation`` steps of the window equal ``stride`` steps of the result.
    """

    place: Var
    within: Var
    stride: int
    dilation: int

    @property
    def sizes(self) -> Sizes:
        return Sizes(self.place.extent, self.within.extent, self.stride, self.dilation)

    @property
    def form(self) -> Form:
        """How two results along the axis are transformed."""
        return form_of(self.within.extent, self.stride)

    def seen(self, first: Index, form: Form) -> list[dict[Var, Index]]:
        """Positions, in order, that the results at ``first`` and after it read."""
        found = []
        for n in range(form.seen):
            # Elements beyond a window belong to the window of the second result.
            later = n >= self.within.extent
            place = up_to(first + self.dilation * later, self.place.extent - 1)
            # Read through the window's variable, so that padding's masks apply as they do in the plain form.
            found.append({self.place: place, self.within: Index((), n - self.stride * later)})
        return found


@dataclass(frozen=True)
class Windows:
    """The variables of a convolution by small windows, or, for ``gradient``, of the gradient of its weights.

    ``x`` moves along the axes and over ``images``, ``groups`` and ``channel``. ``other`` are the weights, which move
    over the windows, ``groups``, ``channel`` and ``filter``; or the result's gradient, which moves over ``images``,
    places, ``groups`` and ``filter``.
    """

    images: list[Var]
    groups: list[Var]
    axes: list[Axis]
    filter: Var
    channel: Var
    x: Operand
    other: Operand
    gradient: bool

    @property
    def speed(self) -> float:
        sizes = [axis.sizes for axis in self.axes]
        images = product_of(self.images) if self.gradient else NOMINAL_IMAGES
        return speed(self.channel.extent, self.filter.extent, images, sizes)


def windows_of(nest: BilinearNest) -> Windows | None:
    """Return the windows of a nest over the graph's variables (without extents of 1), if this form pays."""
    # Transforms multiply by a half, which integers lack.
    if nest.acc.dtype not in (float32, float64):
        return None
    for x, other in ((nest.lhs, nest.rhs), (nest.rhs, nest.lhs)):
        # First as a convolution, then as a gradient of weights: each is a product summed over the variables that the
        # other keeps.
        for gradient in (False, True):
            found = _windows(nest, x, other, gradient)
            # Lanes of results are filters, so these are innermost; a gradient's operand may have them strided.
            if found and (gradient or nest.out[-1] == found.filter) and found.speed > 1:
                return found
    return None


def _windows(nest: BilinearNest, x: Operand, other: Operand, gradient: bool) -> Windows | None:
    # ``other`` varies with groups like the image, and alone with filters.
    groups, filters = ([v for v in nest.out if other.depends(v) and x.depends(v) == shared] for shared in (True, False))
    kept = [v for v in nest.out if not other.depends(v)]
    # A gradient sums over places and keeps the places of a window; a convolution the reverse.
    places, inside = (nest.reduce, kept) if gradient else (kept, nest.reduce)
    axes = [axis for p in places for k in inside if other.depends(p) or other.depends(k) for axis in _axis(x, p, k)]
    moved = [v for axis in axes for v in (axis.place, axis.within)]
    channels = [v for v in inside if v not in moved]
    # Every variable has one role. Two axes with one variable in common are a diagonal, which has no tiles.
    if not axes or len(set(moved)) != len(moved) or len(filters) != 1 or len(channels) != 1:
        return None
    images = [v for v in places if v not in moved]
    return Windows(images, groups, axes, filters[0], channels[0], x, other, gradient)


def _axis(x: Operand, place: Var, within: Var) -> list[Axis]:
    """The axis of the two variables, if windows move along it and overlap."""
    one, other = x.stride(place), x.stride(within)
    if not one or not other:
        return []
    # In smallest steps, as strides in memory may have a common factor.
    step, apart = (n // gcd(one, other) for n in (one, other))
    # Windows that do not overlap share nothing, so there is nothing to save.
    if not (0 < step < within.extent and 0 < apart < place.extent):
        return []
    moved = [Copier({v: index(v) + n}) for v, n in ((place, apart), (within, step))]
    # The proof: moving the place by ``apart`` or the window by ``step`` gives the same statements, masks of padding
    # included. So two results read the same elements, shifted.
    seen, also = ((copier.stmts(x.stmts), copier.expr(x.expr)) for copier in moved)
    return [Axis(place, within, step, apart)] if seen == also else []
