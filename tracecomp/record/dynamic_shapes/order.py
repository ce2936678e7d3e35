"""The order of padded sums: that of the valid size; otherwise the sum is not padded.

Padding adds zeros at the end, which changes neither a sum from the first element to the last, nor one in lanes. But the
number of lanes, and whether a long sum has two stages, follow from the number of elements (``docs/numerics.md``). A
padded graph is valid only for sizes with the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tracecomp.ir.sum_order import COLUMN_BLOCK, COLUMN_LONG, EXACT_REDUCTIONS, lanes_for, runs_of, stage
from tracecomp.ops.autodiff import Sym
from tracecomp.ops.contraction import parse_spec
from tracecomp.ops.prim import prim
from tracecomp.record.dynamic_shapes.padding import Meant, NotSized, Padding
from tracecomp.record.size_forms import Form


def fix(p: Padding, meant: Meant, why: str) -> None:
    """NotSized unless all of ``meant`` are plain numbers."""
    sizes = {size for e in meant if isinstance(e, Form) for size in e.sizes()}
    if sizes:
        raise NotSized(why, sizes)


def in_blocks(p: Padding, x: Sym, axes: Sequence[int], name: str) -> bool:
    """Whether a reduction along axes that vary is made in blocks; NotSized if that differs within the box."""
    meant = p.meant(x)
    if name in EXACT_REDUCTIONS or name in ("argmax", "argmin"):
        return False
    sizes = {size for e in meant if isinstance(e, Form) for size in e.sizes()}
    if not sizes:
        return False
    # The order of a sum depends on sizes in steps. It is the same within
    # the box where it is the same at both ends.
    first, last = (_decided(shape, tuple(axes)) for shape in _corners(p, meant))
    if first != last:
        raise NotSized("the order of a sum depends on its size", sizes)
    varies = any(isinstance(meant[axis], Form) for axis in axes)
    if _is_reordered(x) and not _same_in_any_order(p, meant, axes, varies):
        raise NotSized("the order of a sum depends on the memory layout", sizes)
    if first.stage is None or not varies:
        return False
    if name != "sum" or first.runs > 1 or first.lanes > 1:
        raise NotSized("the order of a sum depends on its size", sizes)
    return True


def _is_reordered(x: Sym) -> bool:
    """Whether the elements of ``x`` may have another order of axes in memory, in which graph passes sum them."""
    left, seen = [x.value], {x.value}
    while left:
        node = left.pop().node
        if node is None or node.op.kind not in ("elementwise", "view"):
            continue
        if node.op.name == "permute":
            # Axes of one element have no place in memory.
            wide = [d for d in node.attrs["dims"] if node.inputs[0].shape[d] != 1]
            if wide != sorted(wide):
                return True
        left += [v for v in node.inputs if v not in seen]
        seen.update(node.inputs)
    return False


def _same_in_any_order(p: Padding, meant: Meant, axes: Sequence[int], varies: bool) -> bool:
    """Whether padding shows in no sum along ``axes``, be they the first or the last ones in memory."""
    kept = [axis for axis in range(len(meant)) if axis not in axes]
    for turned in ([*axes, *kept], [*kept, *axes]):
        places = tuple(turned.index(axis) for axis in axes)
        first, last = (_decided(shape, places) for shape in _corners(p, tuple(meant[axis] for axis in turned)))
        if first != last or (varies and first.stage is not None):
            return False
    return True


def sum_in_blocks(p: Padding, x: Sym, axis: int) -> Sym:
    """The sum along a padded ``axis``: first over blocks, whose length follows from the valid size.

    Rows are added to the sums of their blocks from the first to the last, like a sum along an axis.
    """
    extent = p.meant(x)[axis]
    assert isinstance(extent, Form)
    length = x.shape[axis]
    blocks = -(-length // (COLUMN_BLOCK // 4))
    if blocks > COLUMN_LONG:
        raise NotSized("a sum may be too long for one level of blocks", set(extent.sizes()))
    place = prim.floor_divide(p.places(length), p.block(extent, COLUMN_BLOCK))
    shape = (*x.shape[:axis], blocks, *x.shape[axis + 1 :])
    zeros = prim.full(like=x, value=0.0, shape=shape, dtype=x.dtype)
    parts = prim.put(zeros, prim.minimum(place, blocks - 1), p.masked(x, [axis], 0.0), axis=axis, mode="add")
    found: Sym = prim.sum(parts, axes=(axis,))
    return found


def vector_product(p: Padding, spec: str, operands: Sequence[Sym]) -> tuple[int, list[int]] | None:
    """For a contraction that is a product and a sum in blocks: the operand with all labels, and the summed axes.

    NotSized if that differs within the box.
    """
    left, right, out = parse_spec(spec)
    # An operand with an unshared label is a matrix, even with one row, and its products are added in sequence.
    alone = [not set(left) <= set(right), not set(right) <= set(left)]
    if all(alone):
        return None
    matrix = 0 if alone[0] else 1
    meant = p.meant(operands[matrix])
    axes = [k for k, c in enumerate((left, right)[matrix]) if c not in out]
    if _runs_to_join(meant, axes):
        fix(p, tuple(meant[axis] for axis in axes), "the order of a sum over several axes depends on their sizes")
    if not in_blocks(p, operands[matrix], axes, "sum"):
        return None
    wide_axes = [axis for axis in axes if meant[axis] != 1]
    if len(wide_axes) != 1 or not isinstance(meant[wide_axes[0]], Form):
        fix(p, meant, "a long sum over several axes")
    return matrix, axes


def in_one_run(p: Padding, x: Sym, axes: Sequence[int]) -> tuple[Sym, tuple[int, ...]]:
    """``x`` and the axes to reduce; those that are summed in lanes together are one, along which lanes count."""
    meant = p.meant(x)
    last = _runs_to_join(meant, axes)
    if not last:
        return x, tuple(axes)
    first, end = last[0], last[-1] + 1
    total = Form.constant(1)
    for extent in meant[first:end]:
        product = total.times(extent if isinstance(extent, Form) else Form.constant(extent))
        if product is None:
            raise NotSized("a product of too many sizes")
        total = product
    joined = p.regrouped(x, (*meant[:first], p.extent(total), *meant[end:]))
    return joined, (*[axis for axis in axes if axis < first], first)


def _runs_to_join(meant: Meant, axes: Sequence[int]) -> list[int]:
    """The last run of reduced axes, with padding between its elements; empty where there is none."""
    run: list[int] = []
    for axis in reversed(range(len(meant))):
        if axis not in axes:
            break
        run.insert(0, axis)
    while run and meant[run[0]] == 1:
        run.pop(0)
    return run if any(isinstance(meant[axis], Form) for axis in run[1:]) else []


def _corners(p: Padding, meant: Meant) -> list[tuple[int, ...]]:
    """The shape for the smallest sizes and for the largest ones."""
    low = tuple(e if isinstance(e, int) else max(e.bounds(p.box)[0], 1) for e in meant)
    return [low, p.lengths(meant)]


class _Decided(NamedTuple):
    """The properties of a sum that follow from the number of elements, including its stages."""

    lanes: int
    stage: int | None
    runs: int


def _decided(shape: tuple[int, ...], axes: tuple[int, ...]) -> _Decided:
    runs = runs_of(shape, axes)
    lanes = lanes_for(runs[-1].extent) if runs and runs[-1].reduced else 1
    reduced = sum(run.reduced for run in runs)
    return _Decided(lanes, stage(runs), reduced)
