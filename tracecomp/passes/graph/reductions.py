"""Rules for reductions, windows and folds.

``EXACT_RULES`` keep every bit and are part of simplification. ``RULES`` follow the choice of layout and settle the
order in which floats are added.
"""

from __future__ import annotations

from tracecomp.ir.graph import Node, Value
from tracecomp.ir.sum_order import EXACT_REDUCTIONS, is_order_kept
from tracecomp.ir.types import Shape
from tracecomp.passes.graph.rewrite import Application, Replacement, Rewriter, Rules, made_by
from tracecomp.passes.graph.views import slice_of

EXACT_RULES = Rules()
RULES = Rules()


@EXACT_RULES.on("sum", "prod", *EXACT_REDUCTIONS)
def reduction_of_ones(g: Rewriter, a: Application) -> Replacement:
    """sum over axes of size 1 -> reshape; a float sum starts from 0.0, so -0.0 becomes 0.0 as it did"""
    x, axes = a.inputs[0], a.attrs["axes"]
    kept = tuple(d for d in axes if x.shape[d] != 1)
    # A sum of integers over an axis of size 1 may widen, which a reshape cannot.
    if (len(kept) == len(axes) and kept) or x.dtype is not a.type.dtype:
        return None
    if kept:
        gone = [d for d in axes if d not in kept]
        squeezed = g.reshape(x, tuple(n for d, n in enumerate(x.shape) if d not in gone))
        return g.apply(a.op.name, squeezed, axes=tuple(d - sum(e < d for e in gone) for d in kept))
    result = g.reshape(x, a.type.shape)
    # A sum starts from 0.0, which turns -0.0 into 0.0.
    if a.op.name == "sum" and x.dtype.is_floating_point:
        return g.apply("add", result, g.scalar(0.0, x.dtype))
    return result


@EXACT_RULES.on("argmax", "argmin")
def argument_among_one(g: Rewriter, a: Application) -> Replacement:
    """argmax over axes of size 1 -> 0"""
    alone = all(a.inputs[0].shape[d] == 1 for d in a.attrs["axes"])
    return g.full(0, a.type.shape, a.type.dtype) if alone else None


@EXACT_RULES.on(*EXACT_REDUCTIONS)
def reduction_of_reduction(g: Rewriter, a: Application) -> Replacement:
    """max(max(x)) -> max(x)"""
    inner = made_by(a.inputs[0], a.op.name)
    if inner is None:
        return None
    x, first = inner.inputs[0], inner.attrs["axes"]
    rest = [d for d in range(x.ndim) if d not in first]
    # The outer axes are numbered without those of the inner reduction.
    return g.apply(a.op.name, x, axes=tuple(sorted((*first, *(rest[d] for d in a.attrs["axes"])))))


@EXACT_RULES.on(*EXACT_REDUCTIONS)
def exact_reduction_of_expand(g: Rewriter, a: Application) -> Replacement:
    """max(expand(x)) -> max over the axes that are not repeated"""
    inner = made_by(a.inputs[0], "expand")
    # Empty values: the reduction would read elements that no repetition reads.
    if inner is None or 0 in inner.outputs[0].shape:
        return None
    x, offset = inner.inputs[0], inner.outputs[0].ndim - inner.inputs[0].ndim
    axes = tuple(d - offset for d in a.attrs["axes"] if d >= offset)
    reduced = g.apply(a.op.name, x, axes=axes) if axes else x
    # ``any`` of numbers is a bool: only the reduction converts it.
    if reduced.dtype is not a.type.dtype:
        return None
    return g.apply("expand", reduced, shape=a.type.shape)


@EXACT_RULES.on(*EXACT_REDUCTIONS, "argmax", "argmin")
def exact_reduction_of_permute(g: Rewriter, a: Application) -> Replacement:
    """max(permute(x)) -> permute(max(x)); not for argmax over several axes, which counts in their order"""
    inner = made_by(a.inputs[0], "permute")
    # Positions over several axes follow the order of the axes, which a permutation changes.
    if inner is None or (a.op.name in ("argmax", "argmin") and len(a.attrs["axes"]) != 1):
        return None
    return reduce_before_permute(g, a, inner)


def reduce_before_permute(g: Rewriter, a: Application, permute: Node) -> Value:
    """The reduction ``a`` of a permutation, computed on the permuted value and permuted afterwards."""
    dims = permute.attrs["dims"]
    axes = tuple(sorted(dims[d] for d in a.attrs["axes"]))
    kept = [d for d in range(len(dims)) if d not in axes]
    # The other axes keep the permutation's order.
    order = tuple(kept.index(d) for d in dims if d not in axes)
    return g.apply("permute", g.apply(a.op.name, permute.inputs[0], axes=axes), dims=order)


@RULES.on("sum", "prod")
def reduction_of_permute(g: Rewriter, a: Application) -> Replacement:
    """sum(permute(x)) -> permute(sum(x)), where that adds in the same order"""
    x, inner = a.inputs[0], made_by(a.inputs[0], "permute")
    if inner is None:
        return None
    exact = not a.type.dtype.is_floating_point
    return (
        reduce_before_permute(g, a, inner)
        if exact or is_order_kept(x.shape, a.attrs["axes"], inner.attrs["dims"])
        else None
    )


@RULES.on("windows")
def windows_that_tile(g: Rewriter, a: Application) -> Replacement:
    """windows that do not overlap -> permute(reshape(slice(x)))"""
    x, sizes = a.inputs[0], a.attrs["sizes"]
    rank, lead = len(sizes), a.inputs[0].ndim - len(sizes)
    counts = a.type.shape[lead : lead + rank]
    steps, run = [1] * lead, list(x.shape[:lead])
    tiles = list(x.shape[:lead])
    for k, n, s, d in zip(sizes, counts, a.attrs["strides"], a.attrs["dilations"], strict=True):
        # Adjacent windows, or windows of one element, share no element.
        if not (k == 1 or n == 1 or (k == s and d == 1)):
            return None
        steps.append(s if k == 1 else d)
        run.append(n * k)
        tiles += [n, k]
    # Windows first, then positions in them: the order of the axes of ``windows``.
    order = (*range(lead), *range(lead, lead + 2 * rank, 2), *range(lead + 1, lead + 2 * rank, 2))
    return g.apply("permute", g.reshape(slice_of(g, x, [0] * x.ndim, tuple(run), steps), tuple(tiles)), dims=order)


@RULES.on("fold")
def fold_that_tiles(g: Rewriter, a: Application) -> Replacement:
    """fold of windows that do not overlap -> pad(reshape(permute(x))) + 0.0: sums of one term, which start from 0.0"""
    x, shape, sizes = a.inputs[0], a.type.shape, a.attrs["sizes"]
    rank, lead = len(sizes), len(shape) - len(sizes)
    counts = x.shape[lead : lead + rank]
    gaps: list[int] = []
    for k, n, s, d in zip(sizes, counts, a.attrs["strides"], a.attrs["dilations"], strict=True):
        # Overlapping windows add up; those stay folds.
        if not (k == 1 or n == 1 or (k == s and d == 1)):
            return None
        gaps.append(s - 1 if k == 1 else d - 1)
    order = (*range(lead), *(axis for d in range(rank) for axis in (lead + d, lead + rank + d)))
    tiles = g.apply("permute", x, dims=order)
    flat = g.reshape(tiles, (*shape[:lead], *(n * k for n, k in zip(counts, sizes, strict=True))))
    zeros = (0,) * len(shape)
    covered = ((n - 1) * (gap + 1) + 1 for n, gap in zip(flat.shape[lead:], gaps, strict=True))
    high = (*zeros[:lead], *(size - n for size, n in zip(shape[lead:], covered, strict=True)))
    nothing = 0.0 if x.dtype.is_floating_point else 0
    whole = g.apply("pad", flat, low=zeros, high=high, interior=(*zeros[:lead], *gaps), value=nothing)
    # A fold is a sum that starts from 0.0, so a single -0.0 becomes 0.0.
    return g.apply("add", whole, g.scalar(nothing, x.dtype))


@RULES.on("reshape")
def split_of_permute(g: Rewriter, a: Application) -> Replacement:
    """reshape(permute(x)) that only splits axes -> permute(reshape(x)), which leaves memory unchanged"""
    inner = made_by(a.inputs[0], "permute")
    parts = _split_axes(a.inputs[0].shape, a.type.shape)
    if inner is None or parts is None:
        return None
    x, dims = inner.inputs[0], inner.attrs["dims"]
    pieces = {dims[i]: part for i, part in enumerate(parts)}
    split = g.reshape(x, tuple(a.type.shape[d] for axis in range(x.ndim) for d in pieces[axis]))
    place = {d: n for n, d in enumerate(d for axis in range(x.ndim) for d in pieces[axis])}
    return g.apply("permute", split, dims=tuple(place[d] for d in range(a.type.ndim)))


def _split_axes(shape: Shape, target: Shape) -> list[list[int]] | None:
    """The axes of ``target`` that each axis of ``shape`` becomes; None when axes merge."""
    parts: list[list[int]] = []
    at = 0
    for size in shape:
        part: list[int] = []
        have = 1
        # At least one axis for each, also of size 1.
        while at < len(target) and (have != size or not part):
            have *= target[at]
            part.append(at)
            at += 1
        if have != size:
            return None
        parts.append(part)
    return parts if at == len(target) else None
