"""Solving with triangular matrices, and LU with partial pivoting. Derivatives: Giles (2008), as in ``linalg.py``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tracecomp.base.errors import in_batch, matrix_weight
from tracecomp.ir.arrays import Array
from tracecomp.ir.index import Index, computed, index
from tracecomp.ir.loops import (
    Buffer,
    Check,
    Const,
    Expr,
    If,
    IndexValue,
    Let,
    Load,
    Local,
    Loop,
    Read,
    Stmt,
    Store,
    cast,
)
from tracecomp.ir.op import Imperative, Op, Operand, Operands, Sample, Types, register
from tracecomp.ir.pieces import pieces
from tracecomp.ir.scalars import call, const
from tracecomp.ir.types import TensorType, int32, int64
from tracecomp.ops.define import of, require
from tracecomp.ops.linalg.elimination import PANEL, WIDTH, Matrix, Panel, copied, eliminated, panels, pivoted, strips
from tracecomp.ops.linalg.matrix import (
    OBLONG,
    SQUARES,
    WIDE,
    adjoint,
    columns,
    decomposition,
    lower,
    magnitude,
    matrices,
    mm,
    rows,
    square,
    turned,
    unit,
    upper,
    zero_pivot,
)
from tracecomp.ops.parts import conj
from tracecomp.ops.prim import prim
from tracecomp.ops.statements import Names, vectors

# ---- triangular systems


def _triangular_infer(a: TensorType, b: TensorType, **attrs: bool) -> TensorType:
    require(
        square("solve_triangular")(a).shape[:-1] == b.shape[:-1],
        RuntimeError,
        f"linalg.solve_triangular: Incompatible shapes of A and B for the equation AX = B: {a} and {b}",
    )
    return b


def _triangular_impl(a: Array, b: Array, *, above: bool, ones: bool, turn: bool) -> Any:
    a, n = np.swapaxes(a, -1, -2) if turn else a, a.shape[-1]
    x = np.array(b)
    with np.errstate(all="ignore"):
        for step in range(n):
            k, known = (n - 1 - step, slice(n - step, n)) if above != turn else (step, slice(0, step))
            x[..., k, :] -= (a[..., k, None, known] @ x[..., known, :])[..., 0, :]
            x[..., k, :] /= 1 if ones else a[..., k, k, None]
    return x


def _triangular_loop(
    ins: Sequence[Buffer], outs: Sequence[Buffer], in_types: Sequence[TensorType], out_types: Types, *, above: bool,
    ones: bool, turn: bool,
) -> list[Stmt]:  # fmt: skip
    """Solve by steps from the last row of an upper triangle. Threads share strips of columns."""
    (*lead, n, width), names = in_types[1].shape, Names()

    def place(step: Index) -> Index:
        return step * -1 + (n - 1) if above != turn else step

    def solved(batch: Index, start: Index, count: int) -> list[Stmt]:
        def element(i: Index, j: Index) -> Index:
            row, column = (place(j), place(i)) if turn else (place(i), place(j))
            return (batch * n + row) * n + column

        triangle = Matrix(ins[0], element)
        given, target = (Matrix(b, lambda i, j: (batch * n + place(i)) * width + j) for b in (ins[1], outs[0]))

        def divided(x: Expr, row: Index) -> Expr:
            return x if ones else call("div", x, triangle.load(row, row))

        def panel(panel: Panel) -> list[Stmt]:
            return eliminated(names, triangle, target, panel, n, start, count, divided, lambda column: None)

        row, lane = names.var(n), names.var(count)
        at = index(row), start + index(lane)
        copied = Loop("serial", row, (Loop("vector", lane, (target.store(*at, given.load(*at)),)),))
        return [copied, *panels(names, n, panel)]

    batches = math.prod(lead)
    result: list[Stmt] = []
    for p in pieces(width, WIDTH) if batches * n else ():
        both = names.var(batches * p.count)
        body = solved(index(both) // p.count, p.start(index(both) % p.count), p.length)
        result.append(Loop("parallel", both, tuple(body)))
    return result


def _triangular_vjp(grads: Operands, outs: Operands, ins: Operands, *, above: bool, ones: bool, turn: bool) -> Any:
    back = prim.triangular_solve(conj(ins[0]), grads[0], above=above, ones=ones, turn=not turn)
    product = mm(conj(outs[0]), turned(back)) if turn else mm(back, adjoint(outs[0]))
    return prim.neg((upper if above else lower)(product, int(ones))), back


decomposition("triangular_solve", "X with T X = B; T is the triangle (with ``ones`` on its diagonal) above or below "
              "the diagonal of A, then transposed if ``turn``", _triangular_infer, _triangular_impl, _triangular_vjp,
              attrs={"above": bool, "ones": bool, "turn": bool}, loop=Imperative(_triangular_loop),
              samples=(
                  *(Sample((of(d, *a, domain="regular"), of(d, *b)), {"above": above, "ones": ones, "turn": turn})
                    for d in WIDE for above in (False, True)
                    for ones, turn in ((False, False), (True, False), (False, True))
                    for a, b in (((3, 3), (3, 2)), ((2, 4, 4), (2, 4, 1)), ((0, 2, 2), (0, 2, 3)))),
                  *(Sample((of("f64", 39, 39, domain="regular"), of("f64", 39, 35)),
                           {"above": above, "ones": False, "turn": above}) for above in (False, True)),
              ))  # fmt: skip


# ---- LU with partial pivoting


def lu_by_rows(x: Array, *, fails: str) -> Any:
    """The numpy meaning of ``lu_factor``."""
    lu = np.array(x)
    m, n = x.shape[-2:]
    batch = x.shape[:-2]
    flat = lu.reshape(math.prod(batch), m, n)
    each = np.arange(len(flat))
    pivots = np.zeros((len(flat), min(m, n)), np.int32)
    for k in range(min(m, n)):
        best = k + np.argmax(magnitude(flat[:, k:, k]), axis=1) if len(flat) else pivots[:, k]
        pivots[:, k] = best + 1
        flat[each, k], flat[each, best] = flat[each, best], flat[each, k].copy()
        pivot = flat[:, k, k, None]
        with np.errstate(all="ignore"):
            flat[:, k + 1 :, k] = np.where(pivot == 0, flat[:, k + 1 :, k], flat[:, k + 1 :, k] / pivot)
        flat[:, k + 1 :, k + 1 :] -= flat[:, k + 1 :, k, None] * flat[:, k, None, k + 1 :]
    error = zero_pivot(flat, fails, batch) if fails else None
    if error is not None:
        raise error
    return flat.reshape(x.shape), pivots.reshape(*batch, min(m, n))


def permutation(pivots: Array, size: int) -> Any:
    """The rows of A in the order of L U, from LAPACK's list of swaps (counted from 1)."""
    flat = pivots.reshape(math.prod(pivots.shape[:-1]), pivots.shape[-1])
    fits = not flat.size or (flat.min() >= 1 and flat.max() <= size)
    require(fits, IndexError, f"pivot_order: swaps must name rows from 1 to {size}")
    order = np.tile(np.arange(size), (len(flat), 1))
    each = np.arange(len(flat))
    for k in range(flat.shape[1]):
        other = flat[:, k] - 1
        order[each, k], order[each, other] = order[each, other], order[each, k].copy()
    return order.reshape(*pivots.shape[:-1], size)


def _order_loop(
    ins: Sequence[Buffer], outs: Sequence[Buffer], in_types: Sequence[TensorType], out_types: Types, *, size: int
) -> list[Stmt]:
    (*lead, steps), names = in_types[0].shape, Names()
    batch, k, mine, other = names.var(math.prod(lead)), names.var(steps), names.let(), names.let()
    start, swap = index(batch) * size, names.let()
    given = Let(swap, call("sub", cast(Load(ins[0], index(batch) * steps + index(k)), int64), Const(1, int64)))
    over = frozenset((batch, k))
    place = Read(swap, int64, over)
    inside = call("and", call("ge", place, Const(0, int64)), call("lt", place, Const(size, int64)))
    here, there = start + index(k), start + computed(place, (0, size - 1))
    lets = Let(mine, Load(outs[0], here)), Let(other, Load(outs[0], there))
    stores = Store(outs[0], there, Read(mine, int64, over)), Store(outs[0], here, Read(other, int64, over))
    step = given, Check(inside), If(inside, (*lets, *stores))
    first = vectors(names, size, lambda i: [Store(outs[0], start + i, IndexValue(i))])
    return [Loop("parallel", batch, (*first, Loop("serial", k, step)))] if batch.extent * size else []


def _order_type(p: TensorType, *, size: int) -> TensorType:
    """The type of the order. Code relies on swaps of 32 bits, and on at most one for each row."""
    require(p.dtype is int32, RuntimeError, f"pivot_order: swaps must be of type torch.int32, got {p.dtype}")
    fits = p.ndim > 0 and p.shape[-1] <= size
    require(fits, RuntimeError, f"pivot_order: {list(p.shape)} swaps are too many for {size} rows")
    return TensorType(int64, (*p.shape[:-1], size))


register(
    Op(
        name="pivot_order", kind="elimination", doc="order of rows that LAPACK's swaps give",
        infer=_order_type,
        impl=lambda p, *, size: np.ascontiguousarray(permutation(p, size)), loop=Imperative(_order_loop),
        attrs={"size": int},
        samples=tuple(
            Sample((of("i32", *s, domain="positive"),), {"size": 10}) for s in ((3,), (2, 4), (0, 2), (2, 0))
        ),
    )
)  # fmt: skip


def _lu_infer(x: TensorType, *, fails: str) -> tuple[TensorType, TensorType]:
    return x, TensorType(int32, (*x.shape[:-2], min(x.shape[-2:])))


def _lu_vjp(grads: Operands, outs: Operands, ins: Operands, *, fails: str) -> Any:
    lu, pivots = outs
    g = grads[0]
    m, n = lu.shape[-2:]
    k = min(m, n)
    core, gcore = columns(rows(lu, 0, k), 0, k), columns(rows(g, 0, k), 0, k)
    low = prim.add(lower(core, 1), unit(core))
    up = upper(core)

    def without(factor_above: bool, x: Operand, turn: bool) -> Any:
        """Multiply ``x`` from the left by the inverse of the core's lower (or upper) factor, or its adjoint."""
        factor = conj(core) if turn else core
        return prim.triangular_solve(factor, x, above=factor_above, ones=not factor_above, turn=turn)

    glow, gup = lower(gcore, 1), upper(gcore)
    rest: Any = None
    if n > k:
        other, gother = columns(lu, k, n), columns(g, k, n)
        rest = without(False, gother, True)
        glow = prim.sub(glow, lower(mm(rest, adjoint(other)), 1))
    elif m > k:
        other, gother = rows(lu, k, m), rows(g, k, m)
        rest = adjoint(without(True, adjoint(gother), False))
        gup = prim.sub(gup, upper(mm(adjoint(other), rest)))
    inner = prim.add(lower(mm(adjoint(low), glow), 1), upper(mm(gup, adjoint(up))))
    inner = without(False, inner, True)
    total = adjoint(without(True, adjoint(inner), False))
    if rest is not None:
        total = prim.concat(total, rest, axis=len(lu.shape) - (1 if n > k else 2))
    order = prim.pivot_order(pivots, size=m)
    place = prim.sort(order, axis=len(order.shape) - 1, descending=False)[1]
    index = prim.expand(prim.reshape(place, shape=(*place.shape, 1)), shape=tuple(total.shape))
    return (prim.gather(total, index, axis=len(total.shape) - 2),)


def _lu_loop(
    ins: Sequence[Buffer], outs: Sequence[Buffer], in_types: Sequence[TensorType], out_types: Types, *, fails: str
) -> list[Stmt]:
    (*lead, m, n), names = in_types[0].shape, Names()
    batch = names.var(math.prod(lead))
    x = Matrix(outs[0], lambda i, j: (index(batch) * m + i) * n + j)
    pivots = Matrix(outs[1], lambda i, j: index(batch) * min(m, n) + j)

    kept = Buffer("panel", in_types[0].dtype, m * PANEL)

    def panel(panel: Panel) -> list[Stmt]:
        narrow = Matrix(kept, lambda i, j: i * PANEL + j - panel.first)  # rows that are close together
        steps = pivoted(names, narrow, x, pivots, panel, m, n)
        result = [copied(names, x, narrow, m, panel), *steps, copied(names, narrow, x, m, panel)]
        for start, count, repeat in strips(names, n):
            behind = call("gt", IndexValue(start + count), IndexValue(panel.end))
            body = eliminated(
                names, narrow, x, panel, m, start, count, lambda value, row: value,
                lambda column: call("ge", IndexValue(column), IndexValue(panel.end)),
            )  # fmt: skip
            result.extend(repeat([If(behind, tuple(body))]))
        return result

    if not in_types[0].numel:
        return []
    start = index(batch) * (m * n)
    given = vectors(names, m * n, lambda i: [Store(outs[0], start + i, Load(ins[0], start + i))])
    loop = Loop("parallel", batch, (Local(kept), *given, *panels(names, min(m, n), panel)))
    if not fails:
        return [loop]
    told = in_batch(fails, tuple(lead), min(m, n))
    return [loop, _checked(names, outs[0], min(m, n), (m, n), told, math.prod(lead))]


def _checked(names: Names, x: Buffer, size: int, shape: tuple[int, int], fails: str, batches: int) -> Stmt:
    """Check that no pivot is zero: the first one last, as the last report is the error."""
    number, back, pivot, dtype = names.var(batches), names.var(size), names.let(), x.dtype
    batch, step = index(number) * -1 + (batches - 1), index(back) * -1 + (size - 1)
    at = (batch * shape[0] + step) * shape[1] + step
    fine = call("ne", Read(pivot, dtype, frozenset((number, back))), const(0.0, dtype))
    place = IndexValue(batch * matrix_weight(fails) + step + 1)
    return Loop("serial", number, (Loop("serial", back, (Let(pivot, Load(x, at)), Check(fine, fails, place))),))


decomposition(
    "lu_factor",
    "L and U in one matrix, and LAPACK's row swaps; zero pivots are the error ``fails``, unless it is empty",
    _lu_infer,
    lu_by_rows,
    _lu_vjp,
    ("outs",),
    attrs={"fails": str},
    loop=Imperative(_lu_loop),
    samples=(*matrices(*OBLONG, fails=""), *matrices(*SQUARES, (40, 37), (37, 75), fails="singular")),
)
