"""Padding rules: the operands of each operator in a padded graph for which the valid elements of its result are
right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tracecomp.ir.op import Op
from tracecomp.ir.scalars import identity
from tracecomp.ir.types import float32, float64
from tracecomp.ops.autodiff import Sym
from tracecomp.ops.contraction import parse_spec
from tracecomp.ops.prim import prim
from tracecomp.ops.regions import inputs_of
from tracecomp.record.dynamic_shapes import loops, opaque, order
from tracecomp.record.dynamic_shapes.padding import Extent, Meant, NotSized, Origin, Padding
from tracecomp.record.size_forms import Form

Attrs = dict[str, Any]
Operands = Sequence[Sym]
Applied = tuple[Sym, ...]
Rule = Callable[[Padding, Op, Operands, Attrs, Meant], Applied]
"""A rule: attributes contain formulas if they depend on sizes; the last argument is the valid extent of the first
result."""


def apply(p: Padding, op: Op, xs: Operands, attrs: Attrs, meant: Meant) -> Applied:
    """The results of ``op``, padded."""
    depends = any(not isinstance(e, int) for e in meant) or any(map(p.padded, xs))
    if not depends and all(map(_is_plain, attrs.values())):
        return _as_is(p, op, xs, attrs, meant)
    rule = RULES.get(op.name) or KINDS.get(op.kind)
    if rule is None:
        raise NotSized(f"{op.name} mixes elements along an axis whose size varies, at {p.graph.here.source}")
    try:
        return rule(p, op, xs, attrs, meant)
    except NotSized as reason:
        types = ", ".join(str(x.type) for x in xs)
        raise NotSized(f"{reason}: {op.name} of {types} at {p.graph.here.source}", reason.only) from None


def _is_plain(attr: object) -> bool:
    if isinstance(attr, tuple):
        return all(map(_is_plain, attr))
    return not isinstance(attr, Form)


def _expect(held: bool, why: str = "elements are mixed along an axis whose size varies") -> None:
    if not held:
        raise NotSized(why)


def _as_is(p: Padding, op: Op, xs: Operands, attrs: Attrs, meant: Meant) -> Applied:
    """Operators whose valid elements depend only on valid ones."""
    _expect(all(_is_plain(v) for name, v in attrs.items() if name != "shape"), "an attribute depends on a size")
    attrs = dict(attrs, shape=p.lengths(attrs["shape"])) if "shape" in attrs else attrs
    return tuple(Sym(p.graph, v) for v in p.graph.add(op, [x.value for x in xs], attrs))


def _elementwise(p: Padding, op: Op, xs: Operands, attrs: Attrs, meant: Meant) -> Applied:
    for x in xs:
        own = p.meant(x)
        _expect(
            all(a == b or a == 1 for a, b in zip(own, meant[len(meant) - len(own) :], strict=True)),
            "unrelated sizes are equal",
        )
    found = _as_is(p, op, xs, attrs, meant)
    return _keep_zeros(p, xs[0], found, meant) if op.name == "cast" else found


def _expand(p: Padding, op: Op, xs: Operands, attrs: Attrs, meant: Meant) -> Applied:
    return _keep_zeros(p, xs[0], _as_is(p, op, xs, attrs, meant), meant)


def _keep_zeros(p: Padding, x: Sym, found: Applied, meant: Meant) -> Applied:
    """``found``, whose padding is zero where that of ``x`` is."""
    for own, extent in enumerate(p.meant(x)):
        axis = own + len(meant) - x.ndim
        if not isinstance(extent, int) and meant[axis] == extent and p.has_zeros(x, own):
            p.zeros(found[0], axis)
    return found


_COMBINED_BY = {
    "sum": "add", "prod": "mul", "any": "or", "all": "and", "max": "max", "argmax": "max", "min": "min",
    "argmin": "min",
}  # fmt: skip


def _reduction(p: Padding, op: Op, xs: Operands, attrs: Attrs, meant: Meant) -> Applied:
    (x,) = xs
    axes = attrs["axes"]
    own = p.meant(x)
    if all(isinstance(own[axis], int) for axis in axes):
        order.in_blocks(p, x, axes, op.name)
        (found,) = _as_is(p, op, xs, attrs, meant)
        if op.name == "sum":
            kept = tuple(k for k in range(x.ndim) if k not in axes)
            p.came(found, Origin(x, kept, lambda y: prim.sum(y, **attrs), x.dtype.python(0)))
        return (found,)
    x, axes = order.in_one_run(p, x, axes)
    if order.in_blocks(p, x, axes, op.name):
        return (_in_blocks(p, x, axes),)
    if op.name in ("argmax", "argmin"):
        _expect(len(axes) == 1 or all(isinstance(e, int) for e in own[1:]), "places are counted along several axes")
    return _as_is(p, op, [p.masked(x, axes, identity(_COMBINED_BY[op.name], x.dtype))], dict(attrs, axes=axes), meant)


def _in_blocks(p: Padding, x: Sym, axes: Sequence[int]) -> Sym:
    """The sum along ``axes``, of which one varies and has more than one element."""
    own = p.meant(x)
    wide = [k for k in axes if own[k] != 1]
    if len(wide) != 1 or x.dtype not in (float32, float64):
        order.fix(p, own, "a long sum over several axes, or in half precision")
    found = order.sum_in_blocks(p, x, wide[0])
    if len(axes) > 1:
        found = prim.reshape(found, shape=tuple(n for k, n in enumerate(x.shape) if k not in axes))
    return found


def _contract(p: Padding, op: Op, xs: Operands, attrs: Attrs, meant: Meant) -> Applied:
    *ins, out = parse_spec(attrs["spec"])
    lone = order.vector_product(p, attrs["spec"], xs)
    if lone is not None:
        return (_product_and_sum(p, attrs["spec"], xs, *lone),)
    summed = [[k for k, label in enumerate(own) if label not in out] for own in ins]
    found = [p.masked(x, axes, x.dtype.python(0)) for x, axes in zip(xs, summed, strict=True)]
    return _as_is(p, op, found, attrs, meant)


def _grouped(p: Padding, op: Op, xs: Operands, attrs: Attrs, meant: Meant) -> Applied:
    """Padding belongs to no group, as groups end at valid rows."""
    x, y, ends = xs
    _expect(isinstance(p.meant(ends)[0], int))
    # Summed terms: of both operands' rows, or of the groups themselves.
    return _as_is(p, op, (p.masked(x, (1,), 0.0), p.masked(y, (y.value.ndim - 2,), 0.0), ends), attrs, meant)


def _product_and_sum(p: Padding, spec: str, xs: Operands, matrix: int, axes: Sequence[int]) -> Sym:
    """A contraction with a vector: operand ``matrix`` has all labels."""
    *ins, out = parse_spec(spec)
    labels, other = ins[matrix], ins[1 - matrix]
    x, y = xs[matrix], xs[1 - matrix]
    sizes = dict(zip(other, y.shape, strict=True))
    y = prim.permute(y, dims=tuple(sorted(range(len(other)), key=lambda k: labels.index(other[k]))))
    y = prim.reshape(y, shape=tuple(sizes.get(c, 1) for c in labels))
    total = _in_blocks(p, p.note(prim.mul(x, y), p.meant(x)), axes)
    kept = [c for c in labels if c in out]
    found: Sym = prim.permute(total, dims=tuple(kept.index(c) for c in out))
    return found


def _reshape(p: Padding, op: Op, xs: Operands, attrs: Attrs, meant: Meant) -> Applied:
    (x,) = xs
    found = p.regrouped(x, meant)
    wide = [k for k, e in enumerate(p.meant(x)) if e != 1]
    if [p.meant(x)[k] for k in wide] == [e for e in meant if e != 1] and wide:  # others come and go
        left = iter(wide)
        axes = tuple(wide[0] if e == 1 else next(left) for e in meant)
        p.came(found, Origin(x, axes, lambda y: prim.reshape(y, shape=p.lengths(meant))))
    return (found,)


def _permute(p: Padding, op: Op, xs: Operands, attrs: Attrs, meant: Meant) -> Applied:
    (found,) = _as_is(p, op, xs, attrs, meant)
    return (p.came(found, Origin(xs[0], attrs["dims"], lambda y: prim.permute(y, **attrs))),)


def _slice(p: Padding, op: Op, xs: Operands, attrs: Attrs, meant: Meant) -> Applied:
    """Along each axis a static slice, of elements that exist for every size, or elements taken one by one."""
    (x,) = xs
    for axis, (start, stop, step) in enumerate(zip(attrs["starts"], attrs["stops"], attrs["steps"], strict=True)):
        if start == 0 and step == 1 and stop == p.meant(x)[axis]:
            continue
        last = p.length(stop)
        if isinstance(start, int) and (isinstance(stop, int) or p.length(meant[axis]) == -(-(last - start) // step)):
            _expect(last <= x.shape[axis], "a slice ends beyond the padding")
            x = _part(p, x, axis, (start, last, step), meant[axis])
        else:
            at = p.places(p.length(meant[axis]))
            at = prim.add(prim.mul(at, step), p.count(start))
            x = p.moved(x, axis, _within(p, at, p.meant(x)[axis]), meant[axis])
    return (x,)


def _part(p: Padding, x: Sym, axis: int, part: tuple[int, int, int], extent: Extent) -> Sym:
    starts = tuple(part[0] if k == axis else 0 for k in range(x.ndim))
    stops = tuple(part[1] if k == axis else n for k, n in enumerate(x.shape))
    steps = tuple(part[2] if k == axis else 1 for k in range(x.ndim))
    own = p.meant(x)
    return p.note(prim.slice(x, starts=starts, stops=stops, steps=steps), (*own[:axis], extent, *own[axis + 1 :]))


def _within(p: Padding, at: Sym, extent: Extent) -> Sym:
    """Indices, clamped to the last valid one."""
    found: Sym = prim.maximum(prim.minimum(at, prim.sub(p.count(extent), 1)), 0)
    return found


def _strided(p: Padding, length: int, at: tuple[Extent, int], extent: Extent) -> tuple[Sym, Sym]:
    """For each of ``length`` positions, its index among ``extent`` with a start and step ``at``, and whether it
    exists."""
    start, step = at
    offset = prim.sub(p.places(length), p.count(start))
    place = prim.floor_divide(offset, step)
    inside = prim.mul(prim.ge(offset, 0), prim.lt(place, p.count(extent)))
    return place, inside if step == 1 else prim.mul(inside, prim.eq(prim.remainder(offset, step), 0))


def _slice_update(p: Padding, op: Op, xs: Operands, attrs: Attrs, meant: Meant) -> Applied:
    """The base where no element of the slice goes, and what goes there: found place by place along each axis."""
    base, new = xs
    hit: Any = None
    for axis, (start, stop, step) in enumerate(zip(attrs["starts"], attrs["stops"], attrs["steps"], strict=True)):
        if start == 0 and step == 1 and stop == meant[axis]:
            continue
        place, inside = _strided(p, base.shape[axis], (start, step), p.meant(new)[axis])
        new = p.moved(new, axis, _within(p, place, p.meant(new)[axis]), meant[axis])
        inside = prim.reshape(inside, shape=tuple(n if k == axis else 1 for k, n in enumerate(base.shape)))
        hit = inside if hit is None else prim.mul(hit, inside)
    return (new if hit is None else prim.where(hit, new, base),)


def _flip(p: Padding, op: Op, xs: Operands, attrs: Attrs, meant: Meant) -> Applied:
    (x,) = xs
    for axis in attrs["axes"]:
        at = prim.sub(prim.sub(p.count(meant[axis]), 1), p.places(x.shape[axis]))
        x = p.moved(x, axis, prim.maximum(at, 0), meant[axis])
    return (x,)


def _concat(p: Padding, op: Op, xs: Operands, attrs: Attrs, meant: Meant) -> Applied:
    """If an axis is dynamic, each result element is searched in the operands, from the last one to the first."""
    axis = attrs["axis"]
    own = [p.meant(x)[axis] for x in xs]
    if all(isinstance(e, int) for e in own):
        return _as_is(p, op, xs, attrs, meant)
    at = p.places(p.length(meant[axis]))
    ends = []
    start: Any = None
    found: list[Sym] = []
    lead = max(p.lead(x, axis) for x in xs)
    for x, extent in zip(xs, own, strict=True):
        if extent == 0:
            continue  # it has no element to choose
        place = at if start is None else prim.sub(at, start)
        found.append(p.moved(p.by_rows(x, lead), axis, _within(p, place, extent), meant[axis]))
        start = p.count(extent) if start is None else prim.add(start, p.count(extent))
        ends.append(start)
    result = found[-1]
    for part, end in zip(reversed(found[:-1]), reversed(ends[:-1]), strict=True):
        result = p.joined(prim.lt(at, end), part, result, axis)
    return (result,)


def _pad(p: Padding, op: Op, xs: Operands, attrs: Attrs, meant: Meant) -> Applied:
    """Along a dynamic axis, a static number of zeros around the operand; otherwise elements taken one by one."""
    (x,) = xs
    own, value, left = p.meant(x), attrs["value"], []
    for axis, (low, high, interior) in enumerate(zip(attrs["low"], attrs["high"], attrs["interior"], strict=True)):
        plain = isinstance(low, int) and isinstance(high, int)
        if plain and (isinstance(own[axis], int) or (low >= 0 and high >= 0 and not interior)):
            left.append((low, high, interior))
            continue
        place, inside = _strided(p, p.length(meant[axis]), (low, interior + 1), own[axis])
        x = p.moved(x, axis, _within(p, place, own[axis]), meant[axis])
        inside = prim.reshape(inside, shape=tuple(n if k == axis else 1 for k, n in enumerate(x.shape)))
        x = p.note(prim.where(inside, x, value), p.meant(x))
        left.append((0, 0, 0))
    changed = [k for k, found in enumerate(left) if any(found) and not isinstance(own[k], int)]
    if not any(map(any, left)):
        return (x,)
    lows, highs, interiors = zip(*left, strict=True)
    attrs = dict(attrs, low=lows, high=highs, interior=interiors)
    return _as_is(p, op, [p.masked(x, changed, value)], attrs, meant)


def _convolution(p: Padding, op: Op, xs: Operands, attrs: Attrs, meant: Meant) -> Applied:
    """Every image is summed over in one order, however many there are; gradients of weights sum over images, too."""
    for k, x in enumerate(xs):
        images = int(k == 0 and op.name != "conv_weight")
        order.fix(p, p.meant(x)[images:], "the order of a convolution's sums depends on its sizes")
    return _as_is(p, op, xs, attrs, meant)


def _apart_from(*names: str) -> Rule:
    """Operators that mix elements along the axes that these attributes name only."""

    def rule(p: Padding, op: Op, xs: Operands, attrs: Attrs, meant: Meant) -> Applied:
        mixed = {attrs[name] for name in names}
        for x in xs:
            own = p.meant(x)
            _expect(all(isinstance(e, int) for k, e in enumerate(own) if k in mixed))
        return _as_is(p, op, xs, attrs, meant)

    return rule


def _windows(p: Padding, op: Op, xs: Operands, attrs: Attrs, meant: Meant) -> Applied:
    """Windows along dynamic axes: their sums have another order than masked sums."""
    order.fix(p, p.meant(xs[0])[xs[0].ndim - len(attrs["sizes"]) :], "windows along an axis whose size varies")
    return _as_is(p, op, xs, attrs, meant)


def _window(p: Padding, op: Op, xs: Operands, attrs: Attrs, meant: Meant) -> Applied:
    """Reductions of windows: valid windows read only valid elements."""
    for x in xs:
        order.fix(p, p.meant(x)[-2 * len(attrs["sizes"]) :], "windows")
    return _as_is(p, op, xs, attrs, meant)


def _take(p: Padding, op: Op, xs: Operands, attrs: Attrs, meant: Meant) -> Applied:
    x, at = xs
    return _as_is(p, op, [x, p.indices(at, x, attrs["axis"])], attrs, meant)


def _gather(p: Padding, op: Op, xs: Operands, attrs: Attrs, meant: Meant) -> Applied:
    x, at = xs
    axis = attrs["axis"]
    _same_elsewhere(p, x, at, axis)
    return _as_is(p, op, [x, p.indices(at, x, axis)], attrs, meant)


def _same_elsewhere(p: Padding, x: Sym, at: Sym, axis: int) -> None:
    """Check that axes other than ``axis`` are large enough for the index."""
    fits = all(k == axis or n <= m for k, (n, m) in enumerate(zip(at.shape, x.shape, strict=True)))
    _expect(fits, "an index has more padding than its destination")


def _put(p: Padding, op: Op, xs: Operands, attrs: Attrs, meant: Meant) -> Applied:
    base, at, src = xs
    if p.padded(at):
        src = _neutral(p, src, range(attrs["axis"], attrs["axis"] + at.ndim), attrs["mode"])
    return _as_is(p, op, [base, p.indices(at, base, attrs["axis"]), src], attrs, meant)


def _scatter(p: Padding, op: Op, xs: Operands, attrs: Attrs, meant: Meant) -> Applied:
    base, at, src = xs
    axis = attrs["axis"]
    _same_elsewhere(p, base, at, axis)
    meets = [
        k for k, (e, own) in enumerate(zip(p.meant(at), p.meant(base), strict=True))
        if not isinstance(e, int) and (k == axis or e != own)
    ]  # fmt: skip
    if meets:
        src = _neutral(p, src, meets, attrs["mode"])
    return _as_is(p, op, [base, p.indices(at, base, axis), src], attrs, meant)


def _neutral(p: Padding, src: Sym, axes: Sequence[int] | range, mode: str) -> Sym:
    """``src`` with padding whose writes change nothing."""
    _expect(mode != "set", "padding would be overwritten")
    return p.masked(src, axes, identity(mode, src.dtype))


def _searchsorted(p: Padding, op: Op, xs: Operands, attrs: Attrs, meant: Meant) -> Applied:
    _expect(isinstance(p.meant(xs[0])[-1], int))
    return _as_is(p, op, xs, attrs, meant)


def _scan(p: Padding, op: Op, xs: Operands, attrs: Attrs, meant: Meant) -> Applied:
    """Keep the carries in steps after the last valid one. Sums over steps are computed after the scan, as in passes."""
    first, end = attrs["carries"], attrs["carries"] + attrs["xs"]
    for k, x in enumerate(xs):
        order.fix(p, p.meant(x)[int(first <= k < end) :], "a step of the loop has shapes that vary")
    if isinstance(attrs["length"], int):
        return _as_is(p, op, xs, attrs, meant)
    padded = {**attrs, "length": p.length(attrs["length"])}
    graph = loops.sums_apart(tuple(x.type for x in xs), **padded)
    made = dict(zip(inputs_of(graph), xs, strict=True))
    for node in graph.live_nodes():
        operands = [made[v] for v in node.inputs]
        if node.op.name not in ("scan", "contract", "sum", "add"):
            raise NotSized("the loop sums values of its steps in an unsupported form")
        if node.op is op:
            results = _masked_scan(p, op, operands, {**node.attrs, "length": attrs["length"]})
        else:
            results = apply(p, node.op, operands, dict(node.attrs), node.outputs[0].shape)
        made.update(zip(node.outputs, results, strict=True))
    return tuple(made[o.value] for o in graph.outputs)


def _masked_scan(p: Padding, op: Op, xs: Operands, attrs: Attrs) -> Applied:
    carries, count, length = attrs["carries"], attrs["xs"], attrs["length"]
    room = p.length(length)
    body = loops.masked_body(attrs["body"], carries, count)
    operands = [*xs[: carries + count], p.mask(room, length), *xs[carries + count :]]
    attrs = {**attrs, "body": body, "xs": count + 1, "length": room}
    found = [Sym(p.graph, v) for v in p.graph.add(op, [x.value for x in operands], attrs)]
    return (*found[:carries], *(p.note(y, (length, *y.shape[1:])) for y in found[carries:]))


def _random(p: Padding, op: Op, xs: Operands, attrs: Attrs, meant: Meant) -> Applied:
    """The bits for the valid number of elements, which determines the block of each element."""
    (state,) = xs
    number = p.order(meant)
    most = -(-number.shape[0] // 4)
    flat = prim.random_bits(state, shape=(4 * most,))
    total: Any = 1
    for extent in meant:
        total = prim.mul(p.count(extent), total)
    blocks = prim.floor_divide(prim.add(total, 3), 4)
    word = prim.floor_divide(number, blocks)
    place = prim.add(prim.mul(word, most), prim.sub(number, prim.mul(word, blocks)))
    return (prim.reshape(prim.take(flat, place, axis=0), shape=p.lengths(meant)),)


RULES: dict[str, Rule] = {
    "contract": _contract, "reshape": _reshape, "permute": _permute, "expand": _expand, "slice": _slice, "flip": _flip,
    "windows": _windows, "slice_update": _slice_update, "take": _take, "gather": _gather, "put": _put,
    "scatter": _scatter, "searchsorted": _searchsorted, "scan": _scan, "opaque": opaque.call, "grouped_mm": _grouped,
    **dict.fromkeys(("cumsum", "cumprod", "cummax", "cummin", "recurrence"), _as_is),
}  # fmt: skip
KINDS: dict[str, Rule] = {
    "elementwise": _elementwise, "reduction": _reduction, "creation": _as_is, "convolution": _convolution,
    "pad": _pad, "concat": _concat, "sort": _apart_from("axis"), "window": _window, "random": _random,
}  # fmt: skip
