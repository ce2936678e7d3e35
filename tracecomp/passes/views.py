"""Simplification of views, pads, concatenations and reductions over nothing: rules about shapes, all exact."""

from __future__ import annotations

from collections.abc import Sequence

from tracecomp.ir.graph import Node, Value
from tracecomp.ir.types import Shape, broadcast_shapes
from tracecomp.passes.rewrite import Application, Replacement, Rewriter, Rules, constant, made_by
from tracecomp.passes.simplify import same_number

RULES = Rules()

EXACT_REDUCTIONS = ("max", "min", "any", "all")


@RULES.on("reshape", "expand")
def view_of_same_shape(g: Rewriter, a: Application) -> Replacement:
    """reshape(x, shape of x) -> x"""
    return a.inputs[0] if a.inputs[0].shape == a.type.shape else None


@RULES.on("permute")
def permute_of_nothing(g: Rewriter, a: Application) -> Replacement:
    """permute(x, (0, 1, 2)) -> x"""
    return a.inputs[0] if tuple(a.attrs["dims"]) == tuple(range(a.type.ndim)) else None


@RULES.on("slice")
def slice_of_everything(g: Rewriter, a: Application) -> Replacement:
    """slice(x, all of it) -> x"""
    return a.inputs[0] if a.inputs[0].shape == a.type.shape else None


@RULES.on("slice_update")
def update_of_everything(g: Rewriter, a: Application) -> Replacement:
    """slice_update(x, y, all of it) -> y"""
    return a.inputs[1] if a.inputs[1].shape == a.type.shape else None


@RULES.on("flip")
def flip_of_nothing(g: Rewriter, a: Application) -> Replacement:
    """flip(x, axes of size 1) -> x"""
    axes = tuple(sorted(d for d in a.attrs["axes"] if a.type.shape[d] > 1))
    if axes == tuple(a.attrs["axes"]):
        return None
    return g.apply("flip", a.inputs[0], axes=axes) if axes else a.inputs[0]


@RULES.on("reshape", "expand", "permute", "slice", "flip", "windows")
def view_of_constant(g: Rewriter, a: Application) -> Replacement:
    """expand(full(c)) -> full(c)"""
    c = constant(a.inputs[0])
    return None if c is None else g.full(c, a.type.shape, a.type.dtype)


@RULES.on("reshape")
def reshape_of_reshape(g: Rewriter, a: Application) -> Replacement:
    """reshape(reshape(x)) -> reshape(x)"""
    inner = made_by(a.inputs[0], "reshape")
    return g.reshape(inner.inputs[0], a.type.shape) if inner else None


@RULES.on("expand")
def expand_of_expand(g: Rewriter, a: Application) -> Replacement:
    """expand(expand(x)) -> expand(x)"""
    inner = made_by(a.inputs[0], "expand")
    return g.apply("expand", inner.inputs[0], shape=a.type.shape) if inner else None


@RULES.on("expand")
def expand_of_leading_ones(g: Rewriter, a: Application) -> Replacement:
    """expand(reshape(x: [3], [1,1,3])) -> expand(x): expansion adds leading axes itself"""
    inner = made_by(a.inputs[0], "reshape")
    if inner is None:
        return None
    x, shape = inner.inputs[0], a.inputs[0].shape
    extra = len(shape) - x.ndim
    leading = extra > 0 and shape == (1,) * extra + x.shape
    return g.apply("expand", x, shape=a.type.shape) if leading else None


@RULES.on("permute")
def permute_of_permute(g: Rewriter, a: Application) -> Replacement:
    """permute(permute(x, p), q) -> permute(x, p[q])"""
    inner = made_by(a.inputs[0], "permute")
    if inner is None:
        return None
    dims = tuple(inner.attrs["dims"][d] for d in a.attrs["dims"])
    return g.apply("permute", inner.inputs[0], dims=dims)


@RULES.on("permute")
def permute_of_ones(g: Rewriter, a: Application) -> Replacement:
    """permute that moves only axes of size 1 -> reshape"""
    x = a.inputs[0]
    moved = [d for d in a.attrs["dims"] if x.shape[d] != 1]
    return g.reshape(x, a.type.shape) if moved == sorted(moved) else None


@RULES.on("slice")
def slice_in_normal_form(g: Rewriter, a: Application) -> Replacement:
    """Step 1 where one element is taken, the stop just after the last element taken: equal slices become one node."""
    starts, steps = tuple(a.attrs["starts"]), list(a.attrs["steps"])
    for d, size in enumerate(a.type.shape):
        if size <= 1:
            steps[d] = 1
    stops = tuple(s + max(n - 1, 0) * k + (n > 0) for s, k, n in zip(starts, steps, a.type.shape, strict=True))
    if (stops, tuple(steps)) == (tuple(a.attrs["stops"]), tuple(a.attrs["steps"])):
        return None
    return g.apply("slice", a.inputs[0], starts=starts, stops=stops, steps=tuple(steps))


def slice_of(g: Rewriter, x: Value, starts: Sequence[int], shape: Shape, steps: Sequence[int]) -> Value:
    """The slice of ``x`` with result shape ``shape``."""
    stops = tuple(s + max(n - 1, 0) * k + (n > 0) for s, k, n in zip(starts, steps, shape, strict=True))
    return g.apply("slice", x, starts=tuple(starts), stops=stops, steps=tuple(steps))


@RULES.on("slice")
def slice_of_slice(g: Rewriter, a: Application) -> Replacement:
    """slice(slice(x)) -> slice(x)"""
    inner = made_by(a.inputs[0], "slice")
    if inner is None or 0 in a.type.shape:
        return None
    first = zip(inner.attrs["starts"], inner.attrs["steps"], strict=True)
    starts = [s + k * t for (s, k), t in zip(first, a.attrs["starts"], strict=True)]
    steps = [k * j for k, j in zip(inner.attrs["steps"], a.attrs["steps"], strict=True)]
    return slice_of(g, inner.inputs[0], starts, a.type.shape, steps)


@RULES.on("slice")
def slice_of_expand(g: Rewriter, a: Application) -> Replacement:
    """slice(expand(x)) -> expand(slice(x))"""
    inner = made_by(a.inputs[0], "expand")
    if inner is None or 0 in a.type.shape:
        return None
    x, offset = inner.inputs[0], a.type.ndim - inner.inputs[0].ndim
    repeated = [x.shape[d] != inner.outputs[0].shape[d + offset] for d in range(x.ndim)]
    starts = [0 if repeated[d] else a.attrs["starts"][d + offset] for d in range(x.ndim)]
    steps = [1 if repeated[d] else a.attrs["steps"][d + offset] for d in range(x.ndim)]
    shape = tuple(1 if repeated[d] else a.type.shape[d + offset] for d in range(x.ndim))
    return g.apply("expand", slice_of(g, x, starts, shape, steps), shape=a.type.shape)


@RULES.on("slice")
def slice_of_pad(g: Rewriter, a: Application) -> Replacement:
    """slice(pad(x)) -> slice(x) when nothing of the padding is taken"""
    inner = made_by(a.inputs[0], "pad")
    if inner is None or 0 in a.type.shape or any(inner.attrs["interior"]):
        return None
    x, low = inner.inputs[0], inner.attrs["low"]
    starts = [s - b for s, b in zip(a.attrs["starts"], low, strict=True)]
    last = [s + (n - 1) * k for s, n, k in zip(starts, a.type.shape, a.attrs["steps"], strict=True)]
    inside = all(s >= 0 and e < size for s, e, size in zip(starts, last, x.shape, strict=True))
    return slice_of(g, x, starts, a.type.shape, a.attrs["steps"]) if inside else None


@RULES.on("slice")
def slice_of_concat(g: Rewriter, a: Application) -> Replacement:
    """slice(concat(x, y)) -> slice(x) when it lies within one part"""
    inner = made_by(a.inputs[0], "concat")
    if inner is None or 0 in a.type.shape:
        return None
    axis, begin = inner.attrs["axis"], 0
    start = a.attrs["starts"][axis]
    last = start + (a.type.shape[axis] - 1) * a.attrs["steps"][axis]
    for part in inner.inputs:
        end = begin + part.shape[axis]
        if begin <= start and last < end:
            starts = list(a.attrs["starts"])
            starts[axis] -= begin
            return slice_of(g, part, starts, a.type.shape, a.attrs["steps"])
        begin = end
    return None


@RULES.on("reshape")
def squeezed_permute(g: Rewriter, a: Application) -> Replacement:
    """reshape(permute(x)) that drops axes of size 1 -> permute(reshape(x))"""
    inner = made_by(a.inputs[0], "permute")
    gone = dropped_ones(a.inputs[0].shape, a.type.shape)
    if inner is None or gone is None:
        return None
    x, dims = inner.inputs[0], inner.attrs["dims"]
    kept = sorted(dims[i] for i in range(len(dims)) if i not in gone)
    squeezed = g.reshape(x, tuple(x.shape[d] for d in kept))
    return g.apply("permute", squeezed, dims=tuple(kept.index(dims[i]) for i in range(len(dims)) if i not in gone))


@RULES.on("reshape")
def squeezed_windows(g: Rewriter, a: Application) -> Replacement:
    """reshape(windows(x)) that drops leading axes of size 1 -> windows(reshape(x))"""
    inner = made_by(a.inputs[0], "windows")
    gone = dropped_ones(a.inputs[0].shape, a.type.shape)
    if inner is None or not gone or max(gone) >= inner.inputs[0].ndim - len(inner.attrs["sizes"]):
        return None
    x = inner.inputs[0]
    squeezed = g.reshape(x, tuple(n for d, n in enumerate(x.shape) if d not in gone))
    return g.add(inner.op, (squeezed,), inner.attrs)[0]


def dropped_ones(shape: Shape, target: Shape) -> tuple[int, ...] | None:
    """The axes of size 1 that ``shape`` loses to become ``target``; None when it changes otherwise."""
    gone, at = [], 0
    for d, n in enumerate(shape):
        if at < len(target) and n == target[at]:
            at += 1
        elif n == 1:
            gone.append(d)
        else:
            return None
    return tuple(gone) if at == len(target) else None


@RULES.on("flip")
def flip_of_flip(g: Rewriter, a: Application) -> Replacement:
    """flip(flip(x)) -> x"""
    inner = made_by(a.inputs[0], "flip")
    if inner is None:
        return None
    axes = tuple(sorted(set(inner.attrs["axes"]) ^ set(a.attrs["axes"])))
    return g.apply("flip", inner.inputs[0], axes=axes)


@RULES.on("pad")
def pad_by_nothing(g: Rewriter, a: Application) -> Replacement:
    """pad(x, 0) -> x"""
    nothing = not any(a.attrs["low"]) and not any(a.attrs["high"])
    return a.inputs[0] if nothing and a.inputs[0].shape == a.type.shape else None


@RULES.on("pad")
def pad_that_cuts(g: Rewriter, a: Application) -> Replacement:
    """pad by nothing but negative amounts -> slice"""
    low, high = a.attrs["low"], a.attrs["high"]
    if any(a.attrs["interior"]) or max((*low, *high), default=1) > 0 or 0 in a.type.shape:
        return None
    return slice_of(g, a.inputs[0], tuple(-n for n in low), a.type.shape, (1,) * a.type.ndim)


@RULES.on("pad")
def pad_of_pad(g: Rewriter, a: Application) -> Replacement:
    """pad(pad(x)) -> pad(x) with the same value and nothing cut away"""
    inner = made_by(a.inputs[0], "pad")
    if inner is None or any(a.attrs["interior"]) or not same_number(inner.attrs["value"], a.attrs["value"]):
        return None
    sides = [amount for node in (a, inner) for side in ("low", "high") for amount in node.attrs[side]]
    if min(sides, default=0) < 0:
        return None
    low, high = (
        tuple(p + q for p, q in zip(inner.attrs[side], a.attrs[side], strict=True)) for side in ("low", "high")
    )
    return g.apply("pad", inner.inputs[0], **{**inner.attrs, "low": low, "high": high})


@RULES.on("pad")
def pad_of_same_constant(g: Rewriter, a: Application) -> Replacement:
    """pad(full(c), c) -> full(c)"""
    c = constant(a.inputs[0])
    same = c is not None and same_number(c, a.attrs["value"])
    return g.full(c, a.type.shape, a.type.dtype) if c is not None and same else None


@RULES.on("add")
def sum_of_pads(g: Rewriter, a: Application) -> Replacement:
    """pad(x) + pad(y) -> pad(concat(x, y)) + 0.0 when x and y come to stand beside each other: gradients of a split"""
    runs = sorted(filter(None, map(_padded_run, a.inputs)), key=lambda run: run[:2])
    if len(runs) < 2 or a.inputs[0].shape != a.inputs[1].shape:
        return None
    (axis, first, x), (other, second, y) = runs
    gap, shape = second - first - x.shape[axis], list(x.shape)
    if axis != other or gap < 0:
        return None
    shape[axis], zero = gap, 0.0 if x.dtype.is_floating_point else 0
    between = [g.full(zero, tuple(shape), x.dtype)] if gap else []
    joined = g.apply("concat", x, *between, y, axis=axis)
    low = tuple(first if d == axis else 0 for d in range(x.ndim))
    high = tuple(n - m - b for n, m, b in zip(a.type.shape, joined.shape, low, strict=True))
    whole = g.apply("pad", joined, low=low, high=high, interior=(0,) * x.ndim, value=zero)
    return g.apply("add", whole, g.scalar(zero, x.dtype))


def _padded_run(value: Value) -> tuple[int, int, Value] | None:
    """Axis, position and operand of a ``pad`` with zeros along one axis, to which 0.0 may have been added."""
    total = made_by(value, "add")
    if total and constant(total.inputs[1]) == 0:
        value = total.inputs[0]
    node = made_by(value, "pad")
    if node is None or any(node.attrs["interior"]) or not same_number(node.attrs["value"], 0):
        return None
    axes = [d for d, sides in enumerate(zip(node.attrs["low"], node.attrs["high"], strict=True)) if any(sides)]
    if len(axes) != 1 or min(node.attrs["low"][axes[0]], node.attrs["high"][axes[0]]) < 0:
        return None
    return axes[0], node.attrs["low"][axes[0]], node.inputs[0]


@RULES.on("concat")
def concat_of_parts(g: Rewriter, a: Application) -> Replacement:
    """concat(x, concat(y, z), empty) -> concat(x, y, z); concat(x) -> x"""
    axis = a.attrs["axis"]
    parts: list[Value] = []
    for part in a.inputs:
        inner = made_by(part, "concat")
        parts += inner.inputs if inner and inner.attrs["axis"] == axis else [part]
    parts = [p for p in parts if p.shape[axis]] or parts[:1]
    if len(parts) == 1:
        return parts[0]
    return g.add(a.op, parts, a.attrs) if tuple(parts) != a.inputs else None


@RULES.on("concat")
def concat_of_neighbours(g: Rewriter, a: Application) -> Replacement:
    """concat(slice(x, 0:3), slice(x, 3:8)) -> slice(x, 0:8)"""
    axis = a.attrs["axis"]
    parts = [a.inputs[0]]
    for part in a.inputs[1:]:
        joined = _join(g, parts[-1], part, axis)
        parts[-1:] = [joined] if joined else [parts[-1], part]
    return g.add(a.op, parts, a.attrs) if len(parts) < len(a.inputs) else None


def _join(g: Rewriter, x: Value, y: Value, axis: int) -> Value | None:
    """One slice for two that continue each other along ``axis``."""
    first, second = made_by(x, "slice"), made_by(y, "slice")
    if first is None or second is None or first.inputs != second.inputs:
        return None
    steps = (*first.attrs["steps"], *second.attrs["steps"])
    starts, next_starts = list(first.attrs["starts"]), list(second.attrs["starts"])
    starts[axis] += x.shape[axis]
    if starts != next_starts or set(steps) != {1}:
        return None
    shape = tuple(n + y.shape[axis] if d == axis else n for d, n in enumerate(x.shape))
    return slice_of(g, first.inputs[0], first.attrs["starts"], shape, first.attrs["steps"])


@RULES.on("sum", "prod", *EXACT_REDUCTIONS)
def reduction_of_ones(g: Rewriter, a: Application) -> Replacement:
    """sum over axes of size 1 -> reshape; a float sum starts from 0.0, so -0.0 becomes 0.0 as it did"""
    x, axes = a.inputs[0], a.attrs["axes"]
    kept = tuple(d for d in axes if x.shape[d] != 1)
    if (len(kept) == len(axes) and kept) or x.dtype is not a.type.dtype:
        return None
    if kept:
        gone = [d for d in axes if d not in kept]
        squeezed = g.reshape(x, tuple(n for d, n in enumerate(x.shape) if d not in gone))
        return g.apply(a.op.name, squeezed, axes=tuple(d - sum(e < d for e in gone) for d in kept))
    result = g.reshape(x, a.type.shape)
    if a.op.name == "sum" and x.dtype.is_floating_point:
        return g.apply("add", result, g.scalar(0.0, x.dtype))
    return result


@RULES.on("argmax", "argmin")
def argument_among_one(g: Rewriter, a: Application) -> Replacement:
    """argmax over axes of size 1 -> 0"""
    alone = all(a.inputs[0].shape[d] == 1 for d in a.attrs["axes"])
    return g.full(0, a.type.shape, a.type.dtype) if alone else None


@RULES.on(*EXACT_REDUCTIONS)
def reduction_of_reduction(g: Rewriter, a: Application) -> Replacement:
    """max(max(x)) -> max(x)"""
    inner = made_by(a.inputs[0], a.op.name)
    if inner is None:
        return None
    x, first = inner.inputs[0], inner.attrs["axes"]
    rest = [d for d in range(x.ndim) if d not in first]
    return g.apply(a.op.name, x, axes=tuple(sorted((*first, *(rest[d] for d in a.attrs["axes"])))))


@RULES.on(*EXACT_REDUCTIONS)
def exact_reduction_of_expand(g: Rewriter, a: Application) -> Replacement:
    """max(expand(x)) -> max over the axes that are not repeated"""
    inner = made_by(a.inputs[0], "expand")
    if inner is None or 0 in inner.outputs[0].shape:
        return None
    x, offset = inner.inputs[0], inner.outputs[0].ndim - inner.inputs[0].ndim
    axes = tuple(d - offset for d in a.attrs["axes"] if d >= offset)
    reduced = g.apply(a.op.name, x, axes=axes) if axes else x
    if reduced.dtype is not a.type.dtype:
        return None
    return g.apply("expand", reduced, shape=a.type.shape)


@RULES.on(*EXACT_REDUCTIONS, "argmax", "argmin")
def exact_reduction_of_permute(g: Rewriter, a: Application) -> Replacement:
    """max(permute(x)) -> permute(max(x)); not for argmax over several axes, which counts in their order"""
    inner = made_by(a.inputs[0], "permute")
    if inner is None or (a.op.name in ("argmax", "argmin") and len(a.attrs["axes"]) != 1):
        return None
    return reduce_before_permute(g, a, inner)


def reduce_before_permute(g: Rewriter, a: Application, permute: Node) -> Value:
    """The reduction ``a`` of a permutation, computed on the permuted value and permuted afterwards."""
    dims = permute.attrs["dims"]
    axes = tuple(sorted(dims[d] for d in a.attrs["axes"]))
    kept = [d for d in range(len(dims)) if d not in axes]
    order = tuple(kept.index(d) for d in dims if d not in axes)
    return g.apply("permute", g.apply(a.op.name, permute.inputs[0], axes=axes), dims=order)


@RULES.on_kind("elementwise")
def elementwise_of_expanded(g: Rewriter, a: Application) -> Replacement:
    """exp(expand(x)) -> expand(exp(x)); add(expand(x), y) -> add(x, y) where y has the shape of the result"""
    nodes = [made_by(v, "expand") for v in a.inputs]
    if not any(nodes):
        return None
    inputs = [n.inputs[0] if n else v for n, v in zip(nodes, a.inputs, strict=True)]
    result = g.add(a.op, inputs, a.attrs)[0]
    return result if result.shape == a.type.shape else g.apply("expand", result, shape=a.type.shape)


@RULES.on_kind("elementwise")
def elementwise_of_filled(g: Rewriter, a: Application) -> Replacement:
    """add(x, full(c, shape)) -> add(x, c)"""
    if len(a.inputs) == 1:
        return None
    rest = [v.shape for v in a.inputs if constant(v) is None]
    if not rest or broadcast_shapes(*rest) != a.type.shape:
        return None
    inputs = [v if (c := constant(v)) is None else g.scalar(c, v.dtype) for v in a.inputs]
    return g.add(a.op, inputs, a.attrs)[0] if tuple(inputs) != a.inputs else None
