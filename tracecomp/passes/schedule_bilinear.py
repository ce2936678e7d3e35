"""Scheduling contractions and convolutions: register tiles, packing, blocks for threads.

One micro-kernel serves all: a tile of one output variable (unrolled) by SIMD lanes of another, with the sum over all
summed variables in order inside, one FMA per term. Only the dot form, for results with nothing to tile, sums in
lanes; which form is used depends on shapes and strides alone, never on the machine or on what is fused.
"""

from __future__ import annotations

from tracecomp.ir.index import Var
from tracecomp.ir.loops import Accumulate, Loop, Stmt
from tracecomp.passes.bilinear import BilinearNest, Operand
from tracecomp.passes.machine import Machine
from tracecomp.passes.nest import lanes_for
from tracecomp.passes.register_tiles import PARALLEL_WORK, Plan, Tiled, accumulator, nested, product_of
from tracecomp.passes.schedule import strip, tiles
from tracecomp.passes.stages import stages_of

NOMINAL_LANES = 16
GATHER_COST = 20.0
PACK_ROW_BYTES = 2048
SLIDING_TERMS = 32


def schedule_bilinear(nest: BilinearNest, machine: Machine) -> tuple[Stmt, ...]:
    """The loops of a contraction or convolution for a machine."""
    packing, body = schedule_parts(nest, machine)
    return (*packing, *body)


def schedule_parts(nest: BilinearNest, machine: Machine) -> tuple[tuple[Stmt, ...], tuple[Stmt, ...]]:
    """The loops that pack an operand, for all values of the variables outside the nest, and the loops that follow."""
    if any(v.extent == 0 for v in nest.out):
        return (), ()
    whole = nest.plain or nest
    in_lanes = sums_in_lanes(whole) or not whole.out
    if in_lanes or not nest.out:
        return (), _dot_form(nest, in_lanes, machine)
    vector = min(reversed(nest.out), key=lambda v: _lane_cost(nest, v))
    plan = _plan(nest, vector, machine)
    tiled = Tiled(nest, plan)
    if plan.packed and tiled.moving.inside:
        return (), (*tiled.packing(), *tiled.emit())
    return tiled.packing(), tiled.emit()


def sums_in_lanes(nest: BilinearNest) -> bool:
    """Whether sums in lanes are cheaper than any choice of an output variable as lanes."""
    return _dot_cost(nest) < min((_lane_cost(nest, v) for v in nest.out), default=float("inf"))


def _filled(extent: int) -> float:
    return extent / (-(-extent // NOMINAL_LANES) * NOMINAL_LANES)


def _reuse(nest: BilinearNest, operand: Operand, vector: Var) -> int:
    """How often one lane vector of the operand is used."""
    total = 1
    for v in (*nest.outside, *nest.out):
        if v != vector and not operand.depends(v):
            total *= v.extent
    return total


def _lane_cost(nest: BilinearNest, vector: Var) -> float:
    """Cycles per vector of multiply-adds, by strides and extents only; an ordering, not a prediction."""
    terms = 1
    for v in nest.reduce:
        terms *= v.extent
    cost = 1.0
    for operand in (nest.lhs, nest.rhs):
        if operand.depends(vector):
            reuse = _reuse(nest, operand, vector)
            contiguous = operand.stride(vector) == 1
            cost += (1.0 if contiguous else GATHER_COST) / reuse
    if not (nest.lhs.depends(vector) and nest.rhs.depends(vector)):
        cost -= 0.5
    if nest.store_stride(vector) != 1:
        cost += GATHER_COST / max(terms, 1)
    return cost / _filled(vector.extent)


def _dot_cost(nest: BilinearNest) -> float:
    if not nest.reduce:
        return float("inf")
    last = nest.reduce[-1]
    strides = {nest.lhs.stride(last), nest.rhs.stride(last)}
    if not strides <= {0, 1} or last.extent < NOMINAL_LANES:
        return float("inf")
    two_sided = all(v is not None and v.extent > 2 for v in _sides(nest))
    return ((0.65 if two_sided else 2.0) + 24.0 / (product_of(nest.reduce) / NOMINAL_LANES)) / _filled(last.extent)


def _sides(nest: BilinearNest) -> tuple[Var | None, Var | None]:
    """The longest output variables that only the left operand, and that only the right one, moves with.

    Of equally long ones that along which the operand's elements lie closest.
    """

    def longest(one: Operand, other: Operand) -> Var | None:
        alone = [v for v in nest.out if one.depends(v) and not other.depends(v)]
        return max(alone, key=lambda v: (v.extent, -abs(one.stride(v) or 0)), default=None)

    return longest(nest.lhs, nest.rhs), longest(nest.rhs, nest.lhs)


def _plan(nest: BilinearNest, vector: Var, machine: Machine) -> Plan:
    moving = nest.rhs if nest.rhs.depends(vector) else nest.lhs
    tiles = [v for v in nest.out if v != vector and not moving.depends(v)]
    tiles = tiles or [v for v in nest.out if v != vector and not (nest.lhs.depends(v) and nest.rhs.depends(v))]
    tile = max(reversed(tiles), key=lambda v: min(v.extent, 12), default=None)
    lanes = machine.lanes(nest.acc.dtype.itemsize)
    window = _window(nest, moving, tile) if tile is not None else ()
    registers = machine.registers - (window[0].extent if window else 0)
    height, vectors = _tile_size(tile.extent if tile else 1, vector.extent, lanes, registers)
    width = min(vectors * lanes, vector.extent)
    whole = None
    if tile is not None and height == tile.extent and not window:
        room = (machine.registers - 6) // (height * vectors)
        fitting = [v for v in tiles if v != tile and v.extent <= room]
        whole = max(fitting, key=lambda v: v.extent, default=None)
    stages = None
    several = (tile.extent if tile else 1) > height or len(nest.out) > 2
    column = product_of(nest.reduce) * width * nest.acc.dtype.itemsize
    if not window and whole is None and not nest.outside and several and column > machine.l2_bytes // 2:
        stages = stages_of(nest.reduce)
    return Plan(vector, tile, width, height, _packed(nest, moving, vector), whole, window, stages)


def _window(nest: BilinearNest, moving: Operand, tile: Var) -> tuple[Var, ...]:
    """The last summed variables, from the one along which the moving operand is read like along the tile."""
    step = moving.stride(tile)
    for n, var in enumerate(nest.reduce):
        if step and moving.stride(var) == step and product_of(nest.reduce[n:]) <= SLIDING_TERMS:
            return tuple(nest.reduce[n:])
    return ()


def _packed(nest: BilinearNest, moving: Operand, vector: Var) -> str:
    """Which operand is worth copying into a contiguous panel: "lhs", "rhs" or "" for none."""
    both = nest.lhs.depends(vector) and nest.rhs.depends(vector)
    reuse = _reuse(nest, moving, vector)
    terms = 1
    for v in nest.reduce:
        terms *= v.extent
    if both or reuse < 4 or not nest.reduce:
        return ""
    stride = moving.stride(vector)
    row = abs(moving.stride(nest.reduce[-1]) or 0) * nest.acc.dtype.itemsize
    if stride != 1 or (terms >= 256 and row >= PACK_ROW_BYTES and reuse >= 64):
        return "rhs" if moving is nest.rhs else "lhs"
    return ""


def _tile_size(rows: int, columns: int, lanes: int, registers: int) -> tuple[int, int]:
    """Height and vectors of the register tile with the fewest modelled cycles over the whole result."""
    best, best_cost = (1, 1), float("inf")
    for vectors in range(1, 9):
        for height in range(1, 15):
            if height * vectors + vectors + 1 > registers - 2 or height > rows:
                continue
            if vectors > 1 and (vectors - 1) * lanes >= columns:
                continue
            cost = _cover(rows, columns, height, vectors, lanes)
            if cost < best_cost - 1e-9:
                best, best_cost = (height, vectors), cost
    return best


def _cover(rows: int, columns: int, height: int, vectors: int, lanes: int) -> float:
    def cycles(h: int, v: int) -> float:
        return max(h * v, 4.0) + 0.15 * (v + 0.5 * h) + 0.01 * h + 0.4 if h and v else 0.0

    full_rows, rest_rows = divmod(rows, height)
    full_columns, rest_columns = divmod(columns, vectors * lanes)
    rest_vectors = -(-rest_columns // lanes)
    total = 0.0
    for v, n in ((vectors, full_columns), (rest_vectors, 1)):
        total += n * (full_rows * cycles(height, v) + cycles(rest_rows, v))
    return total


def _dot_form(nest: BilinearNest, in_lanes: bool, machine: Machine) -> tuple[Stmt, ...]:
    """Every result by itself: ``in_lanes`` along the last summed variable or in order, a tile of results at a time."""
    last = nest.reduce[-1] if nest.reduce else None
    lanes = lanes_for(last.extent) if last and in_lanes else 1
    body: tuple[Stmt, ...] = (*nest.lhs.stmts, *nest.rhs.stmts, nest.update())
    if last is not None:
        body = strip(last, lanes, body) if lanes > 1 else (Loop("serial", last, body),)
        for var in reversed(nest.reduce[:-1]):
            body = (Loop("serial", var, body),)
    content: tuple[Stmt, ...] = (Accumulate((accumulator(nest, lanes),), body), *nest.after)
    both = (nest.lhs, nest.rhs)
    shared = [v for v in nest.out if all(o.depends(v) for o in both)]
    cut = _dot_tile(nest, max(1, lanes // machine.lanes(nest.acc.dtype.itemsize)), machine)
    for var, height in cut[1:]:
        content = tiles(var, height, content, suffix="f")
    for var in reversed([v for v in nest.out if v not in shared and all(v != c for c, _ in cut)]):
        content = (Loop("serial", var, content),)
    parallel = nest.work >= PARALLEL_WORK
    for var, height in cut[:1]:
        content = tiles(var, height, content, "parallel" if parallel and not shared else "serial")
    return nested(shared, content, nest.work)


def _dot_tile(nest: BilinearNest, registers: int, machine: Machine) -> list[tuple[Var, int]]:
    """The output variables that a tile of results spans, the one to loop over outside first, and how far it goes.

    One of each operand if possible, so that every loaded vector is used several times. ``registers``: of one result.
    """
    two = [v for v in _sides(nest) if v is not None]
    if len(two) < 2:
        one_sided = [v for v in nest.out if not (nest.lhs.depends(v) and nest.rhs.depends(v))]
        two = sorted(one_sided, key=lambda v: v.extent)[-2:]
    two = sorted(two, key=lambda v: -v.extent)
    if len(two) < 2:
        return [(v, min(4, v.extent)) for v in two]
    apart = _sides(nest)[0] is not None and _sides(nest)[1] is not None

    def cycles(a: int, b: int) -> float:
        loads = a + b if apart else a * b + 1
        covered = -(-two[0].extent // a) * -(-two[1].extent // b)
        return covered * (registers * max(a * b, loads) + 0.1 * (a + b))

    fitting = [
        (a, b)
        for a in range(1, min(two[0].extent, 12) + 1)
        for b in range(1, min(two[1].extent, 12) + 1)
        if (a * b + 1) * registers + 2 <= machine.registers
    ]
    a, b = min(fitting, key=lambda ab: cycles(*ab), default=(1, 1))
    return [(two[0], a), (two[1], b)]
