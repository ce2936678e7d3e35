"""Simplification of pads, concatenations and partial updates. All rules keep every bit."""

from __future__ import annotations

from tracecomp.ir.graph import Value
from tracecomp.ir.types import bool_, int32
from tracecomp.passes.graph.algebra import same_number
from tracecomp.passes.graph.rewrite import Application, Replacement, Rewriter, Rules, constant, made_by
from tracecomp.passes.graph.views import slice_of

RULES = Rules()


@RULES.on("slice_update")
def update_of_everything(g: Rewriter, a: Application) -> Replacement:
    """slice_update(x, y, all of it) -> y"""
    return a.inputs[1] if a.inputs[1].shape == a.type.shape else None


@RULES.on("pad")
def pad_by_nothing(g: Rewriter, a: Application) -> Replacement:
    """pad(x, 0) -> x"""
    # By shape as well: negative and positive amounts may add up to zero.
    nothing = not any(a.attrs["low"]) and not any(a.attrs["high"])
    return a.inputs[0] if nothing and a.inputs[0].shape == a.type.shape else None


@RULES.on("pad")
def pad_that_cuts(g: Rewriter, a: Application) -> Replacement:
    """pad by negative amounts alone -> slice"""
    low, high = a.attrs["low"], a.attrs["high"]
    if any(a.attrs["interior"]) or max((*low, *high), default=1) > 0 or 0 in a.type.shape:
        return None
    return slice_of(g, a.inputs[0], tuple(-n for n in low), a.type.shape, (1,) * a.type.ndim)


@RULES.on("pad")
def pad_of_pad(g: Rewriter, a: Application) -> Replacement:
    """pad(pad(x)) -> pad(x) with the same value and nothing cut away"""
    inner = made_by(a.inputs[0], "pad")
    # Zeros between elements would come between the outer padding, too.
    if inner is None or any(a.attrs["interior"]) or not same_number(inner.attrs["value"], a.attrs["value"]):
        return None
    sides = [amount for node in (a, inner) for side in ("low", "high") for amount in node.attrs[side]]
    # One pad may cut off elements that the other cannot restore.
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
    # Bitwise the same number, as the pad may be of -0.0.
    return g.full(c, a.type.shape, a.type.dtype) if c is not None and same else None


@RULES.on("add")
def sum_of_pads(g: Rewriter, a: Application) -> Replacement:
    """pad(x) + pad(y) -> pad(concat(x, y)) + 0.0 if x and y become adjacent: gradients of a split"""
    # By position, so that the gradient of a split is joined in order, for any order of additions.
    runs = sorted(filter(None, map(_padded_run, a.inputs)), key=lambda run: run[:2])
    if len(runs) < 2 or a.inputs[0].shape != a.inputs[1].shape:
        return None
    (axis, first, x), (other, second, y) = runs
    gap, shape = second - first - x.shape[axis], list(x.shape)
    # Other axes, or runs that overlap: elements are added there.
    if axis != other or gap < 0:
        return None
    shape[axis], zero = gap, 0.0 if x.dtype.is_floating_point else 0
    between = [g.full(zero, tuple(shape), x.dtype)] if gap else []
    joined = g.apply("concat", x, *between, y, axis=axis)
    low = tuple(first if d == axis else 0 for d in range(x.ndim))
    high = tuple(n - m - b for n, m, b in zip(a.type.shape, joined.shape, low, strict=True))
    whole = g.apply("pad", joined, low=low, high=high, interior=(0,) * x.ndim, value=zero)
    # The sum of -0.0 and a zero of padding is 0.0; adding 0.0 to the joined value keeps that.
    return g.apply("add", whole, g.scalar(zero, x.dtype))


def _padded_run(value: Value) -> tuple[int, int, Value] | None:
    """Axis, position and operand of a ``pad`` with zeros along one axis, to which 0.0 may have been added."""
    total = made_by(value, "add")
    # Two of three parts may be joined already.
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
    # At least one part stays, which determines the result's type.
    parts = [p for p in parts if p.shape[axis]] or parts[:1]
    if len(parts) == 1:
        return parts[0]
    return g.add(a.op, parts, a.attrs) if tuple(parts) != a.inputs else None


@RULES.on("concat")
def concat_of_neighbours(g: Rewriter, a: Application) -> Replacement:
    """concat(slice(x, 0:3), slice(x, 3:8)) -> slice(x, 0:8)"""
    axis = a.attrs["axis"]
    parts = [a.inputs[0]]
    # Each part joins the run before it if it starts at the run's end.
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
    # All other axes have to begin at the same place.
    if starts != next_starts or set(steps) != {1}:
        return None
    shape = tuple(n + y.shape[axis] if d == axis else n for d, n in enumerate(x.shape))
    return slice_of(g, first.inputs[0], first.attrs["starts"], shape, first.attrs["steps"])


_WRITTEN = {"add": "add", "mul": "mul", "max": "maximum", "min": "minimum"}


@RULES.on("scatter")
def scatter_of_one_into_a_number(g: Rewriter, a: Application) -> Replacement:
    """scatter(full(c), index, y) with one index per line -> where(position == index, y combined with c, c)"""
    base, index, new = a.inputs
    axis, shape = a.attrs["axis"], a.type.shape
    # One index per line: no two writes overlap, so their order does not matter.
    one_each = bool(shape) and index.shape == (*shape[:axis], 1, *shape[axis + 1 :])
    if constant(base) is None or not one_each or a.type.numel == 0 or a.type.dtype is bool_:
        return None
    n = shape[axis]
    places = g.apply("iota", shape=(n,), axis=0, dtype=int32)
    place = g.apply("take", places, index, axis=0)  # also checks the index
    along = g.reshape(places, tuple(n if d == axis else 1 for d in range(len(shape))))
    op = _WRITTEN.get(a.attrs["mode"])
    if op is not None:
        new = g.apply(op, g.full(constant(base) or 0, new.shape, a.type.dtype), new)
    return g.apply("where", g.apply("eq", along, place), new, base)
