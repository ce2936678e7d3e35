"""Graphs that compute with more rows than are asked for, the rows behind the last one being padding.

A value's *rows* are those along the one axis whose size grows with the call's size n: ``factor * n + offset`` of them
are meant. Most operators keep rows apart, so padding does no harm there. Where rows meet (sums, products of matrices,
scattered writes) a rule here replaces padding by what changes nothing; where none can, it says why.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tracecomp.ir.graph import Graph
from tracecomp.ir.immutable import immutable
from tracecomp.ir.op import Op
from tracecomp.ir.scalars import identity
from tracecomp.ir.types import int64
from tracecomp.ops.autodiff import Sym
from tracecomp.ops.contraction import parse_spec
from tracecomp.ops.prim import prim


class NotSized(Exception):
    """Why a program cannot be compiled for every size."""


@immutable
class Rows:
    """The axis that grows, and how many of its entries are meant at size n: ``factor * n + offset``."""

    axis: int
    factor: int
    offset: int

    def count(self, size: int) -> int:
        """How many entries are meant."""
        return self.factor * size + self.offset

    def size(self, array: Any) -> int:
        """The size at which all entries of ``array`` are meant."""
        found: int = (array.shape[self.axis] - self.offset) // self.factor
        return found


Operands = Sequence[Sym]
Rule = Callable[["Padding", Op, Operands, dict[str, Any], "Rows | None"], Operands]


class Padding:
    """What is known while a padded graph is built: the rows of its values, and the size as a value."""

    def __init__(self, graph: Graph, size: Sym) -> None:
        self.graph = graph
        self.size = size
        self.known: dict[Sym, Rows] = {}
        self._masks: dict[tuple[int, Rows], Sym] = {}

    def rows(self, x: Sym) -> Rows | None:
        return self.known.get(x)

    def operands(self, op: Op, given: Operands, attrs: dict[str, Any], rows: Rows | None) -> Operands:
        """What to apply ``op`` to, so that the rows of its result that are meant, ``rows``, are right."""
        if rows is None and all(self.rows(x) is None for x in given):
            return given
        rule = _RULES.get(op.name) or _KINDS.get(op.kind)
        if rule is None:
            raise NotSized(f"{op.name} mixes rows, at {self.graph.here.source}")
        try:
            return rule(self, op, given, attrs, rows)
        except NotSized as reason:
            types = ", ".join(str(x.type) for x in given)
            raise NotSized(f"{reason}: {op.name} of {types} at {self.graph.here.source}") from None

    def count(self, rows: Rows) -> Sym:
        """How many rows are meant."""
        found: Sym = prim.add(prim.mul(self.size, rows.factor), rows.offset)
        return found

    def masked(self, x: Sym, fill: bool | int | float) -> Sym:
        """``x`` with ``fill`` in its padding."""
        rows = self.rows(x)
        if rows is None:
            return x
        mask = self._mask(x.shape[rows.axis], rows)
        shape = tuple(n if i == rows.axis else 1 for i, n in enumerate(x.shape))
        found: Sym = prim.where(prim.reshape(mask, shape=shape), x, fill)
        self.known[found] = rows
        return found

    def _mask(self, length: int, rows: Rows) -> Sym:
        key = (length, rows)
        if key not in self._masks:
            at = prim.iota(like=self.size, shape=(length,), axis=0, dtype=int64)
            self._masks[key] = prim.lt(at, self.count(rows))
        return self._masks[key]

    def indices(self, at: Sym, x: Sym, axis: int) -> Sym:
        """Indices into ``x`` along ``axis``: those that hit its padding leave ``x``, padding of ``at`` does not."""
        found = at
        rows = self.rows(x)
        if rows is not None and rows.axis == axis:
            found = prim.where(prim.lt(at, self.count(rows)), at, x.shape[axis])
            if at in self.known:
                self.known[found] = self.known[at]
        return self.masked(found, 0)


def _expect(held: bool, op: Op) -> None:
    if not held:
        raise NotSized("it mixes rows")


def _elementwise(p: Padding, op: Op, xs: Operands, attrs: dict[str, Any], rows: Rows | None) -> Operands:
    rank = max(x.ndim for x in xs)
    for x in xs:
        own = p.rows(x)
        if own is not None:
            _expect(rows == Rows(own.axis + rank - x.ndim, own.factor, own.offset), op)
    return xs


def _any(p: Padding, op: Op, xs: Operands, attrs: dict[str, Any], rows: Rows | None) -> Operands:
    """Operators whose meant rows need no others than those before them."""
    return xs


_COMBINED_BY = {
    "sum": "add", "prod": "mul", "any": "or", "all": "and", "max": "max", "argmax": "max", "min": "min",
    "argmin": "min",
}  # fmt: skip


def _reduction(p: Padding, op: Op, xs: Operands, attrs: dict[str, Any], rows: Rows | None) -> Operands:
    (x,) = xs
    own = p.rows(x)
    if own is None or own.axis not in attrs["axes"]:
        return xs
    return [p.masked(x, identity(_COMBINED_BY[op.name], x.dtype))]


def _contract(p: Padding, op: Op, xs: Operands, attrs: dict[str, Any], rows: Rows | None) -> Operands:
    *ins, out = parse_spec(attrs["spec"])
    labels = {labels[own.axis] for x, labels in zip(xs, ins, strict=True) if (own := p.rows(x)) is not None}
    summed = any(label not in out for label in labels)
    return [p.masked(x, x.dtype.python(0)) for x in xs] if summed else xs


def _convolution(p: Padding, op: Op, xs: Operands, attrs: dict[str, Any], rows: Rows | None) -> Operands:
    x, w = xs
    first = p.rows(x)
    _expect(first is not None and first.axis == 0, op)
    if op.name == "conv_weight":
        return [p.masked(x, 0.0), p.masked(w, 0.0)]
    _expect(p.rows(w) is None and rows == first, op)
    return xs


def _reshape(p: Padding, op: Op, xs: Operands, attrs: dict[str, Any], rows: Rows | None) -> Operands:
    own = p.rows(xs[0])
    _expect(rows is not None and own is not None, op)
    assert rows is not None and own is not None
    before, after = xs[0].shape[: own.axis], attrs["shape"][: rows.axis]
    _expect(math.prod(before) == math.prod(after), op)
    return xs


def _expand(p: Padding, op: Op, xs: Operands, attrs: dict[str, Any], rows: Rows | None) -> Operands:
    own = p.rows(xs[0])
    _expect(own is None or rows == Rows(own.axis + len(attrs["shape"]) - xs[0].ndim, own.factor, own.offset), op)
    return xs


def _slice(p: Padding, op: Op, xs: Operands, attrs: dict[str, Any], rows: Rows | None) -> Operands:
    own = p.rows(xs[0])
    _expect(rows is None or (own is not None and rows.axis == own.axis), op)
    return xs


def _slice_update(p: Padding, op: Op, xs: Operands, attrs: dict[str, Any], rows: Rows | None) -> Operands:
    base, new = xs
    own, other = p.rows(base), p.rows(new)
    if own is not None and other is not None:
        _expect(own.axis == other.axis and attrs["stops"][own.axis] == base.shape[own.axis], op)
        _expect(attrs["steps"][own.axis] == 1, op)
    return xs


def _flip(p: Padding, op: Op, xs: Operands, attrs: dict[str, Any], rows: Rows | None) -> Operands:
    own = p.rows(xs[0])
    _expect(own is not None and own.axis not in attrs["axes"], op)
    return xs


def _along_others(p: Padding, op: Op, xs: Operands, attrs: dict[str, Any], rows: Rows | None) -> Operands:
    """Operators that move elements along one axis only, or each window of some last axes by itself."""
    axes = {attrs["axis"]} if "axis" in attrs else set(range(xs[0].ndim - len(attrs["sizes"]), xs[0].ndim))
    if op.kind == "window":
        axes = set(range(xs[0].ndim - 2 * len(attrs["sizes"]), xs[0].ndim))
    for x in xs:
        own = p.rows(x)
        _expect(own is None or (own.axis not in axes and own == rows), op)
    return xs


def _pad(p: Padding, op: Op, xs: Operands, attrs: dict[str, Any], rows: Rows | None) -> Operands:
    _expect(rows is not None and rows == p.rows(xs[0]), op)
    assert rows is not None
    _expect(not any(attrs[name][rows.axis] for name in ("low", "high", "interior")), op)
    return xs


def _take(p: Padding, op: Op, xs: Operands, attrs: dict[str, Any], rows: Rows | None) -> Operands:
    x, at = xs
    axis, own, chosen = attrs["axis"], p.rows(x), p.rows(at)
    if chosen is not None:
        _expect(rows == Rows(axis + chosen.axis, chosen.factor, chosen.offset), op)
    elif own is not None and own.axis != axis:
        moved = own.axis if own.axis < axis else own.axis + at.ndim - 1
        _expect(rows == Rows(moved, own.factor, own.offset), op)
    return [x, p.indices(at, x, axis)]


def _gather(p: Padding, op: Op, xs: Operands, attrs: dict[str, Any], rows: Rows | None) -> Operands:
    x, at = xs
    own, chosen = p.rows(x), p.rows(at)
    _expect(rows == chosen, op)
    _expect(own is None or own.axis == attrs["axis"] or own == chosen, op)
    return [x, p.indices(at, x, attrs["axis"])]


def _put(p: Padding, op: Op, xs: Operands, attrs: dict[str, Any], rows: Rows | None) -> Operands:
    base, at, src = xs
    axis, own, chosen, given = attrs["axis"], p.rows(base), p.rows(at), p.rows(src)
    if chosen is not None:
        _expect(given == Rows(axis + chosen.axis, chosen.factor, chosen.offset), op)
        src = _neutral(p, op, src, attrs["mode"])
    elif given is not None:
        moved = given.axis if given.axis < axis else given.axis - at.ndim + 1
        _expect(own == Rows(moved, given.factor, given.offset) and moved != axis, op)
    return [base, p.indices(at, base, axis), src]


def _scatter(p: Padding, op: Op, xs: Operands, attrs: dict[str, Any], rows: Rows | None) -> Operands:
    base, at, src = xs
    axis, own, chosen = attrs["axis"], p.rows(base), p.rows(at)
    if chosen is not None and (chosen.axis == axis or own != chosen):
        _expect(own is None or own.axis == axis, op)
        src = _neutral(p, op, src, attrs["mode"])
    return [base, p.indices(at, base, axis), src]


def _neutral(p: Padding, op: Op, src: Sym, mode: str) -> Sym:
    """``src`` with padding whose writes change nothing."""
    _expect(mode != "set" and p.rows(src) is not None, op)
    return p.masked(src, identity(mode, src.dtype))


def _searchsorted(p: Padding, op: Op, xs: Operands, attrs: dict[str, Any], rows: Rows | None) -> Operands:
    own = p.rows(xs[0])
    _expect(own is None or (own.axis < xs[0].ndim - 1 and own == rows), op)
    return xs


_RULES: dict[str, Rule] = {
    "contract": _contract, "reshape": _reshape, "permute": _any, "expand": _expand, "slice": _slice, "flip": _flip,
    "windows": _along_others, "slice_update": _slice_update, "take": _take, "gather": _gather, "put": _put,
    "scatter": _scatter, "searchsorted": _searchsorted,
    **dict.fromkeys(("cumsum", "cumprod", "cummax", "cummin", "recurrence"), _any),
}  # fmt: skip
_KINDS: dict[str, Rule] = {
    "elementwise": _elementwise, "reduction": _reduction, "creation": _any, "convolution": _convolution,
    "pad": _pad, "concat": _along_others, "sort": _along_others, "window": _along_others,
}  # fmt: skip
