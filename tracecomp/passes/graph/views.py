"""Simplification of views, and of elementwise operators on repeated operands. All rules keep every bit."""

from __future__ import annotations

from collections.abc import Sequence

from tracecomp.ir.graph import Value
from tracecomp.ir.types import Shape, broadcast_shapes
from tracecomp.passes.graph.axis_orders import reshape_parts
from tracecomp.passes.graph.rewrite import Application, Replacement, Rewriter, Rules, constant, made_by

RULES = Rules()


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


@RULES.on("flip")
def flip_of_nothing(g: Rewriter, a: Application) -> Replacement:
    """flip(x, axes of size 1) -> x"""
    # Normal form, so that equal flips are one node.
    axes = tuple(sorted(d for d in a.attrs["axes"] if a.type.shape[d] > 1))
    if axes and axes == tuple(a.attrs["axes"]):
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
    """permute(permute(x, p), q) -> permute(x, p[q]), also with a reshape between them that merges axes"""
    between = made_by(a.inputs[0], "reshape")
    value = between.inputs[0] if between else a.inputs[0]
    inner = made_by(value, "permute")
    # Without elements there are no runs to compare.
    if inner is None or 0 in value.shape:
        return None
    runs: dict[int, list[int]] = {}
    for ins, outs in reshape_parts(value.shape, a.inputs[0].shape):
        # An axis that the reshape splits would have to be permuted in parts.
        if len(outs) > 1:
            return None
        runs[outs[0]] = ins
    moved = [axis for d in a.attrs["dims"] for axis in runs.get(d, [])]
    moved += [axis for axis in range(value.ndim) if axis not in moved]  # axes of size 1
    dims = tuple(inner.attrs["dims"][d] for d in moved)
    return g.reshape(g.apply("permute", inner.inputs[0], dims=dims), a.type.shape)


@RULES.on("permute")
def permute_of_ones(g: Rewriter, a: Application) -> Replacement:
    """permute that moves only axes of size 1 -> reshape"""
    x = a.inputs[0]
    moved = [d for d in a.attrs["dims"] if x.shape[d] != 1]
    return g.reshape(x, a.type.shape) if moved == sorted(moved) else None


@RULES.on("slice")
def slice_in_normal_form(g: Rewriter, a: Application) -> Replacement:
    """Step 1 for a single element, stop just after the last element taken: equal slices become one node."""
    starts, steps = tuple(a.attrs["starts"]), list(a.attrs["steps"])
    for d, size in enumerate(a.type.shape):
        if size <= 1:
            # With a single element, any step reads the same.
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
    # Positions in the inner slice are multiplied by its step.
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
    # Along repeated axes every position reads the same element.
    repeated = [x.shape[d] != inner.outputs[0].shape[d + offset] for d in range(x.ndim)]
    starts = [0 if repeated[d] else a.attrs["starts"][d + offset] for d in range(x.ndim)]
    steps = [1 if repeated[d] else a.attrs["steps"][d + offset] for d in range(x.ndim)]
    shape = tuple(1 if repeated[d] else a.type.shape[d + offset] for d in range(x.ndim))
    return g.apply("expand", slice_of(g, x, starts, shape, steps), shape=a.type.shape)


@RULES.on("slice")
def slice_of_pad(g: Rewriter, a: Application) -> Replacement:
    """slice(pad(x)) -> slice(x) when no padding is taken"""
    inner = made_by(a.inputs[0], "pad")
    if inner is None or 0 in a.type.shape or any(inner.attrs["interior"]):
        return None
    x, low = inner.inputs[0], inner.attrs["low"]
    starts = [s - b for s, b in zip(a.attrs["starts"], low, strict=True)]
    last = [s + (n - 1) * k for s, n, k in zip(starts, a.type.shape, a.attrs["steps"], strict=True)]
    # First and last are inside the image: then all between them are.
    inside = all(s >= 0 and e < size for s, e, size in zip(starts, last, x.shape, strict=True))
    return slice_of(g, x, starts, a.type.shape, a.attrs["steps"]) if inside else None


@RULES.on("slice")
def slice_of_concat(g: Rewriter, a: Application) -> Replacement:
    """slice(concat(x, y)) -> slice(x) when it is within one part"""
    inner = made_by(a.inputs[0], "concat")
    if inner is None or 0 in a.type.shape:
        return None
    axis, begin = inner.attrs["axis"], 0
    start = a.attrs["starts"][axis]
    # Steps are positive, so the last element bounds the others.
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
    # Only axes of size 1 are dropped, so both orders read the same elements.
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
    # Leading axes only: the others belong to windows.
    if inner is None or not gone or max(gone) >= inner.inputs[0].ndim - len(inner.attrs["sizes"]):
        return None
    x = inner.inputs[0]
    squeezed = g.reshape(x, tuple(n for d, n in enumerate(x.shape) if d not in gone))
    return g.add(inner.op, (squeezed,), inner.attrs)[0]


def dropped_ones(shape: Shape, target: Shape) -> tuple[int, ...] | None:
    """The axes of size 1 that ``shape`` loses to become ``target``; None when it changes otherwise."""
    gone, at = [], 0
    for d, n in enumerate(shape):
        # Greedy: an axis that fits is taken, and only axes of size 1 may be left out.
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
    # Flipping twice cancels: the symmetric difference.
    axes = tuple(sorted(set(inner.attrs["axes"]) ^ set(a.attrs["axes"])))
    return g.apply("flip", inner.inputs[0], axes=axes)


@RULES.on_kind("elementwise")
def elementwise_of_expanded(g: Rewriter, a: Application) -> Replacement:
    """exp(expand(x)) -> expand(exp(x)); add(expand(x), y) -> add(x, y) where y has the shape of the result"""
    nodes = [made_by(v, "expand") for v in a.inputs]
    if not any(nodes):
        return None
    inputs = [n.inputs[0] if n else v for n, v in zip(nodes, a.inputs, strict=True)]
    # Computed once for each element and repeated afterwards: less work, same bits.
    result = g.add(a.op, inputs, a.attrs)[0]
    return result if result.shape == a.type.shape else g.apply("expand", result, shape=a.type.shape)


@RULES.on_kind("elementwise")
def elementwise_of_filled(g: Rewriter, a: Application) -> Replacement:
    """add(x, full(c, shape)) -> add(x, c)"""
    if len(a.inputs) == 1 or not any(v.shape and made_by(v, "full") for v in a.inputs):
        return None
    rest = [v.shape for v in a.inputs if constant(v) is None]
    # Other operands must determine the shape, or it would be lost.
    if not rest or broadcast_shapes(*rest) != a.type.shape:
        return None
    inputs = [v if (c := constant(v)) is None else g.scalar(c, v.dtype) for v in a.inputs]
    return g.add(a.op, inputs, a.attrs)[0] if tuple(inputs) != a.inputs else None
