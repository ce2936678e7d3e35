"""Rules that follow the choice of layout: reductions of permuted values, and windows that do not overlap.

They settle the order in which floats are added.
"""

from __future__ import annotations

from tracecomp.ir.types import Shape
from tracecomp.passes.rewrite import Application, Replacement, Rewriter, Rules, made_by
from tracecomp.passes.views import reduce_before_permute, slice_of

RULES = Rules()


@RULES.on("sum", "prod")
def reduction_of_permute(g: Rewriter, a: Application) -> Replacement:
    """sum(permute(x)) -> permute(sum(x)): adds in the order in which ``x`` lies in memory"""
    inner = made_by(a.inputs[0], "permute")
    return reduce_before_permute(g, a, inner) if inner else None


@RULES.on("windows")
def windows_that_tile(g: Rewriter, a: Application) -> Replacement:
    """windows that do not overlap -> permute(reshape(slice(x)))"""
    x, sizes = a.inputs[0], a.attrs["sizes"]
    rank, lead = len(sizes), a.inputs[0].ndim - len(sizes)
    counts = a.type.shape[lead : lead + rank]
    steps, run = [1] * lead, list(x.shape[:lead])
    tiles = list(x.shape[:lead])
    for k, n, s, d in zip(sizes, counts, a.attrs["strides"], a.attrs["dilations"], strict=True):
        if not (k == 1 or n == 1 or (k == s and d == 1)):
            return None
        steps.append(s if k == 1 else d)
        run.append(n * k)
        tiles += [n, k]
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
    return g.apply("add", whole, g.scalar(nothing, x.dtype))


@RULES.on("reshape")
def split_of_permute(g: Rewriter, a: Application) -> Replacement:
    """reshape(permute(x)) that only splits axes -> permute(reshape(x)), which lies in memory as it is"""
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
        while at < len(target) and (have != size or not part):
            have *= target[at]
            part.append(at)
            at += 1
        if have != size:
            return None
        parts.append(part)
    return parts if at == len(target) else None
