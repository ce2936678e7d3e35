"""Padded graphs: they compute with a larger size than requested; elements after the valid region are padding.

Along a dynamic axis the first elements are valid and the others are padding of any value. Most operators keep elements
separate, so padding does no harm. If elements meet (sums, matrix products, scattered writes, joins) a rule replaces
padding by a neutral value, or moves it to the end again. If no rule can, it raises with the reason. Sums must be added
in the order of the valid size: ``order.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tracecomp.ir.graph import Graph
from tracecomp.ir.types import TensorType, int64
from tracecomp.ops.autodiff import Sym
from tracecomp.ops.prim import prim
from tracecomp.record.size_forms import Box, Form


class NotSized(Exception):
    """Why a program cannot be compiled for every size, or, for the sizes in ``only``, for those of a box."""

    def __init__(self, why: str, only: Iterable[int] = ()) -> None:
        super().__init__(why)
        self.only = frozenset(only)


Extent: TypeAlias = int | Form
"""The valid extent along an axis."""
Meant: TypeAlias = tuple[Extent, ...]


@dataclass(frozen=True)
class Origin:
    """The operand of a view or a sum, and ``again``, which repeats it on a similar operand; its axes are ``axes``
    there.

    ``fill`` is the value of the operand's padding for which the result's padding is masked; None: any.
    """

    of: Sym
    axes: tuple[int, ...]
    again: Callable[[Sym], Sym]
    fill: float | None = None


@dataclass(frozen=True)
class Rows:
    """A value whose rows are rows of a matrix ``of``: those that ``at`` numbers, or all."""

    of: Sym
    at: Sym | None = None

    def parts(self) -> int:
        return 1


@dataclass(frozen=True)
class Joined:
    """A value whose rows are those of ``below`` where the mask ``chosen`` holds, and those of ``above`` elsewhere."""

    chosen: Sym
    below: Rows | Joined
    above: Rows | Joined

    def parts(self) -> int:
        return self.below.parts() + self.above.parts()


class Padding:
    """State of a padded graph: the valid extents of its values, and the sizes as values."""

    def __init__(self, graph: Graph, sizes: Sequence[Sym], box: Box) -> None:
        self.graph = graph
        self.box = box
        self.like = sizes[0]
        self._sizes = sizes
        self._meant: dict[Sym, Meant] = {}  # by identity: equal values may have different valid extents
        self._origins: dict[Sym, Origin] = {}
        self._rows: dict[Sym, tuple[Rows | Joined, int]] = {}  # of values, whose first axes number them
        self._counts: dict[Form, Sym] = {}
        self.blocks: dict[tuple[Form, int], Sym] = {}  # inputs: the block in which so many elements are summed
        self._masks: dict[tuple[int, Form], Sym] = {}
        self._zeros: dict[Sym, int] = {}  # values whose padding along an axis is zero

    # ---- extents

    def extent(self, form: Form) -> Extent:
        """``form``, or its value where all sizes in the box give the same."""
        sizes = form.sizes()
        if all(self.box[k][0] == self.box[k][1] for k in sizes):
            return form.at([low for low, _ in self.box])
        return form

    def length(self, extent: Extent) -> int:
        """The length of an axis with room for all sizes in the box."""
        return extent if isinstance(extent, int) else max(extent.bounds(self.box)[1], 1)

    def lengths(self, meant: Meant) -> tuple[int, ...]:
        """The shape of a padded value."""
        return tuple(map(self.length, meant))

    def note(self, x: Sym, meant: Meant) -> Sym:
        """Record the valid extents of ``x``."""
        if any(not isinstance(e, int) for e in meant):
            self._meant[x] = meant
        return x

    def came(self, x: Sym, origin: Origin) -> Sym:
        """Note the operands of which ``x`` is a view or a sum."""
        self._origins[x] = origin
        return x

    def zeros(self, x: Sym, axis: int) -> Sym:
        """Note that the padding of ``x`` along ``axis`` is zero."""
        self._zeros[x] = axis
        return x

    def has_zeros(self, x: Sym, axis: int) -> bool:
        """Whether the padding of ``x`` along ``axis`` is known to be zero, also through views."""
        origin = self._origins.get(x)
        if origin is not None and not origin.fill:
            return self.has_zeros(origin.of, origin.axes[axis])
        return self._zeros.get(x) == axis

    def meant(self, x: Sym) -> Meant:
        """The valid extents of ``x``."""
        return self._meant.get(x, x.shape)

    def padded(self, x: Sym) -> bool:
        """Whether ``x`` has padding."""
        return x in self._meant

    # ---- values

    def count(self, extent: Extent) -> Sym:
        """The valid extent as a value."""
        if isinstance(extent, int):
            found: Sym = prim.full(like=self.like, value=extent, shape=(), dtype=int64)
            return found
        if extent not in self._counts:
            self._counts[extent] = self._value(extent)
        return self._counts[extent]

    def _value(self, form: Form) -> Sym:
        total = prim.full(like=self.like, value=0, shape=(), dtype=int64)
        for term, factor in form.terms:
            part = prim.full(like=self.like, value=factor, shape=(), dtype=int64)
            for atom in term:
                known = self._sizes[atom] if isinstance(atom, int) else prim.floor_divide(self.count(atom.of), atom.by)
                part = prim.mul(part, known)
            total = prim.add(total, part)
        return total  # type: ignore[no-any-return]

    def block(self, extent: Form, target: int) -> Sym:
        """The block length of a long sum over valid elements, as an input: the host computes it."""
        key = (extent, target)
        if key not in self.blocks:
            name = f"block{len(self.blocks)}"
            self.blocks[key] = Sym(self.graph, self.graph.add_input(TensorType(int64, ()), name, "host"))
        return self.blocks[key]

    def places(self, length: int) -> Sym:
        """0, 1, ... as indices."""
        found: Sym = prim.iota(like=self.like, shape=(length,), axis=0, dtype=int64)
        return found

    def mask(self, length: int, extent: Form) -> Sym:
        """The mask of valid elements along an axis."""
        key = (length, extent)
        if key not in self._masks:
            self._masks[key] = prim.lt(self.places(length), self.count(extent))
        return self._masks[key]

    def masked(self, x: Sym, axes: Iterable[int], fill: bool | int | float) -> Sym:
        """``x`` with ``fill`` in its padding along ``axes``.

        A mask would separate a sum from operations that graph passes join with it: the views and the sums of which
        ``x`` is made. So what these are made of is masked instead.
        """
        meant, axes = self.meant(x), tuple(axes)
        origin = self._origins.get(x)
        if origin is not None and (origin.fill is None or origin.fill == fill):
            inner = self.masked(origin.of, [origin.axes[axis] for axis in axes], fill)
            return x if inner is origin.of else self.note(origin.again(inner), meant)
        found = x
        for axis in axes:
            extent = meant[axis]
            if not isinstance(extent, int) and (fill != 0 or not self.has_zeros(found, axis)):
                shape = tuple(n if k == axis else 1 for k, n in enumerate(x.shape))
                mask = prim.reshape(self.mask(x.shape[axis], extent), shape=shape)
                found = self.note(prim.where(mask, found, fill), meant)
        return found

    def indices(self, at: Sym, x: Sym, axis: int) -> Sym:
        """Indices into ``x`` along ``axis``: those that hit its padding leave ``x``, padding of ``at`` does not."""
        extent = self.meant(x)[axis]
        meant, found = self.meant(at), at
        if not isinstance(extent, int):
            found = self.note(prim.where(prim.lt(at, self.count(extent)), at, x.shape[axis]), meant)
        return self.masked(found, range(len(meant)), 0)

    def moved(self, x: Sym, axis: int, at: Sym, extent: Extent) -> Sym:
        """The elements ``at``, a vector of indices, along ``axis`` of ``x``; ``extent`` of them are valid."""
        meant = self.meant(x)
        after = (*meant[:axis], extent, *meant[axis + 1 :])
        rows, lead = self._rows.get(x, (None, 0))
        if rows is None or axis >= lead:
            return self.note(prim.take(x, at, axis=axis), after)
        places = prim.reshape(self.places(math.prod(x.shape[:lead])), shape=x.shape[:lead])
        places = prim.take(places, at, axis=axis)
        return self.of_rows(picked(rows, self._flattened(places)), after, lead)

    # ---- rows: operators that move rows of memory are joined, so that each row moves once

    def rows_of(self, x: Sym, lead: int) -> Rows | Joined:
        """The rows of ``x``, which its first ``lead`` axes number."""
        rows, known = self._rows.get(x, (None, 0))
        if rows is not None and known == lead:
            return rows
        return Rows(prim.reshape(x, shape=(math.prod(x.shape[:lead]), math.prod(x.shape[lead:]))))

    def of_rows(self, rows: Rows | Joined, meant: Meant, lead: int) -> Sym:
        """The value that has these rows."""
        found = self.note(prim.reshape(gathered(rows), shape=self.lengths(meant)), meant)
        if has_rows(found, lead) and rows.parts() <= _MOST_PARTS:
            self._rows[found] = rows, lead
        return found

    def by_rows(self, x: Sym, lead: int) -> Sym:
        """``x``, whose moves along its first ``lead`` axes become moves of rows."""
        if has_rows(x, lead):
            self._rows.setdefault(x, (self.rows_of(x, lead), lead))
        return x

    def joined(self, mask: Sym, below: Sym, above: Sym, axis: int) -> Sym:
        """``below`` where a mask along ``axis`` holds, and ``above`` elsewhere."""
        one, other = self._rows.get(below), self._rows.get(above)
        along = prim.reshape(mask, shape=tuple(n if k == axis else 1 for k, n in enumerate(below.shape)))
        if one is None or other is None or one[1] != other[1]:
            return prim.where(along, below, above)  # type: ignore[no-any-return]
        lead = one[1]
        chosen = prim.reshape(along, shape=along.shape[:lead])
        chosen = self._flattened(prim.expand(chosen, shape=below.shape[:lead]))
        return self.of_rows(Joined(chosen, one[0], other[0]), self.meant(below), lead)

    def _flattened(self, x: Sym) -> Sym:
        return prim.reshape(x, shape=(math.prod(x.shape),))  # type: ignore[no-any-return]

    def lead(self, x: Sym, axis: int) -> int:
        """How many axes number the rows of ``x`` that moves along ``axis`` leave as they are."""
        return max(axis + 1, self._rows.get(x, (None, 0))[1])

    # ---- other divisions into axes

    def regrouped(self, x: Sym, meant: Meant, always: bool = False) -> Sym:
        """``x`` with its valid elements, in order, as those of other axes.

        ``always``: by computed indices, even if the elements are already in place.
        """
        before = self.meant(x)
        first = 0 if always else _alike(before, meant)
        last = _alike(before[first:][::-1], meant[first:][::-1], always)
        one, other = before[first : len(before) - last], meant[first : len(meant) - last]
        if not always and self._lies_alike(one, other):
            found = self.note(prim.reshape(x, shape=self.lengths(meant)), meant)
            for axis in (*range(first), *range(len(before) - last, len(before))):
                if not isinstance(before[axis], int) and self.has_zeros(x, axis):
                    self.zeros(found, axis if axis < first else axis + len(meant) - len(before))
            return found
        if first == 0 and has_rows(x, len(before) - last):
            lead = len(before) - last
            rows = picked(self.rows_of(x, lead), self._flat_place(self.order(other), one))
            return self.of_rows(rows, meant, len(meant) - last)
        outer = self.lengths(before[:first])
        inner = self.lengths(before[len(before) - last :])
        flat = prim.reshape(x, shape=(*outer, math.prod(self.lengths(one)), *inner))
        at = self._flat_place(self.order(other), one)
        found = prim.take(flat, at, axis=first)
        return self.note(prim.reshape(found, shape=self.lengths(meant)), meant)

    def _lies_alike(self, one: Meant, other: Meant) -> bool:
        """Whether the valid elements are the first ones in both shapes."""
        prefixes = all(isinstance(e, int) for e in (*one[1:], *other[1:]))
        return prefixes and math.prod(self.lengths(one)) == math.prod(self.lengths(other))

    def order(self, meant: Meant) -> Sym:
        """For each element of a padded value, flat, the index of its valid element; padding repeats some of them."""
        lengths = self.lengths(meant)
        place = self.places(math.prod(lengths))
        found: Any = None
        for axis, extent in enumerate(meant):
            behind = math.prod(lengths[axis + 1 :])
            own = place if behind == 1 else prim.floor_divide(place, behind)
            own = own if axis == 0 else prim.remainder(own, lengths[axis])
            if not isinstance(extent, int):
                own = prim.minimum(own, prim.sub(self.count(extent), 1))
            found = own if found is None else prim.add(prim.mul(found, self.count(extent)), own)
        return place if found is None else found

    def _flat_place(self, order: Sym, meant: Meant) -> Sym:
        """The flat positions, in a padded value, of the valid elements that ``order`` numbers."""
        lengths = self.lengths(meant)
        rest, found, step = order, None, 1
        for axis in reversed(range(len(meant))):
            own = rest
            if axis:
                count = self.count(meant[axis])
                own, rest = prim.remainder(rest, count), prim.floor_divide(rest, count)
            part = own if step == 1 else prim.mul(own, step)
            found = part if found is None else prim.add(found, part)
            step *= lengths[axis]
        return order if found is None else found


_LEAST_ROW, _MOST_PARTS = 16, 4
"""Least elements of rows that are worth separate numbers, and most parts to choose each row from."""


def has_rows(x: Sym, lead: int) -> bool:
    """Whether the axes behind the first ``lead`` have enough elements."""
    return math.prod(x.shape[lead:]) >= _LEAST_ROW


def picked(rows: Rows | Joined, at: Sym) -> Rows | Joined:
    """The rows ``at`` of ``rows``."""
    if isinstance(rows, Rows):
        return Rows(rows.of, at if rows.at is None else prim.take(rows.at, at, axis=0))
    return Joined(prim.take(rows.chosen, at, axis=0), picked(rows.below, at), picked(rows.above, at))


def gathered(rows: Rows | Joined) -> Sym:
    """The rows as a matrix."""
    if isinstance(rows, Rows):
        return rows.of if rows.at is None else prim.take(rows.of, rows.at, axis=0)
    chosen = prim.reshape(rows.chosen, shape=(rows.chosen.shape[0], 1))
    joined: Sym = prim.where(chosen, gathered(rows.below), gathered(rows.above))
    return joined


def _alike(one: Meant, other: Meant, plain: bool = False) -> int:
    """How many of the first extents are the same; ``plain``: and known."""
    for k, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b or (plain and not isinstance(a, int)):
            return k
    return min(len(one), len(other))
