"""The choice of a register tile: which variable becomes SIMD lanes, how large the tile is, whether to pack, k-blocks.

Made from shapes, strides and a model of the machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import gcd

from tracecomp.codegen.kernels.transpose import LEAST_TURNED
from tracecomp.ir.index import Var
from tracecomp.passes.contraction.tile_schedule import TileSchedule
from tracecomp.passes.cost.machine import Machine
from tracecomp.passes.cost.reference import (
    AS_GOOD,
    FAR_APART_BYTES,
    FAR_CYCLES,
    FAR_LINES,
    NEAR_STORES,
    NOMINAL_LANES,
    PACKED_CYCLES,
    REFERENCE,
    SHUFFLED_CYCLES,
    SHUFFLED_STRIDE,
    SLIDING_TERMS,
    STORE_CYCLES,
    TURNED_CYCLES,
    TURNED_ROWS,
)
from tracecomp.passes.nests.contraction_nest import BilinearNest, Operand, product_of
from tracecomp.passes.schedule.k_blocking import KBlocks, k_blocks_of


def _reuse(nest: BilinearNest, operand: Operand, vector: Var) -> int:
    """How often one lane vector of the operand is used."""
    # Outer loops count, too: a vector that is loaded (or packed) serves all
    # values of what the operand does not depend on.
    return product_of(v for v in (*nest.outside, *nest.out) if v != vector and not operand.depends(v))


def filled(extent: int) -> float:
    """The share of lanes that so many elements fill."""
    return extent / (-(-extent // NOMINAL_LANES) * NOMINAL_LANES)


def _lane_cost(nest: BilinearNest, vector: Var) -> float:
    """Cycles per vector of multiply-adds, by strides and extents only; an ordering, not a prediction.

    Elements that lie apart in memory are packed into vectors, once for many calls if they are frozen.
    """
    # ``alone``: nothing else moves the operand, so that every element is packed once.
    cost, alone = 1.0, all(map(nest.b_operand(vector).depends, nest.out))
    for operand in (nest.lhs, nest.rhs):
        if operand.depends(vector):
            # What a vector costs to load is shared by all multiply-adds that use it.
            reuse = _reuse(nest, operand, vector)
            stride = operand.stride(vector) or 0
            turned = reuse <= TURNED_ROWS and _turnable(nest, operand, vector)
            apart = 1.0 if nest.is_frozen(operand) else TURNED_CYCLES if turned else PACKED_CYCLES
            shuffled = alone and 1 < stride <= SHUFFLED_STRIDE
            cost += (1.0 if stride == 1 else SHUFFLED_CYCLES if shuffled else apart) / reuse
    # A scalar of the other operand is spread over the lanes by the instruction itself; two vectors are two loads.
    if nest.one_sided(vector):
        cost -= 0.5
    if _far_apart(nest, nest.a_operand(vector)):
        cost += FAR_CYCLES
    # Stores come once for all terms, so a long sum hardly feels them.
    if nest.store_stride(vector) != 1:
        cost += STORE_CYCLES / max(product_of(nest.reduce), 1)
    # Lanes beyond the extent do nothing.
    return cost / filled(vector.extent)


def _far_apart(nest: BilinearNest, a_operand: Operand) -> bool:
    """Whether the elements that the rows of a tile read lie in lines of their own for every term, far apart."""
    last = nest.reduce[-1] if nest.reduce else None
    # Few lines stay in the cache until the next row of the tile reads its neighbour in them.
    if last is None or product_of(nest.reduce) <= FAR_LINES:
        return False
    far = abs(a_operand.stride(last) or 0) * nest.acc.dtype.itemsize >= FAR_APART_BYTES
    # Elements of one line belong to different rows of the tile, so that each line is fetched once for several rows.
    return far and any(a_operand.stride(v) == 1 for v in nest.out)


def _vector(nest: BilinearNest) -> Var:
    # Reversed, as of equal costs the last variable wins: its neighbours are nearer in memory.
    costs = {v: _lane_cost(nest, v) for v in reversed(nest.out)}
    # What is nearly as cheap counts as equal. Then results that are stored side by side decide.
    cheap = sorted((v for v in costs if costs[v] <= AS_GOOD * min(costs.values())), key=costs.__getitem__)
    near = [v for v in cheap if 0 < abs(nest.store_stride(v) or 0) <= NEAR_STORES]
    return min(near, key=lambda v: abs(nest.store_stride(v) or 0), default=cheap[0])


def tiles_of(nest: BilinearNest, machine: Machine) -> TileSchedule:
    """The tiles for a nest: the first fields of its schedule.

    Copies hold padding's zeros, which are added, where tiles that read the operand itself may leave the terms out
    (``passes/contraction/sliding_windows.py``). With infinite weights that shows, so which operands of a padded
    contraction are copied is decided for the reference machine.
    """
    tiles = _tiles(nest, machine)
    # Padding's zeros in a panel are added, and times infinity give NaN. So whether there is a panel
    # is the reference machine's choice; how large tiles are is this machine's.
    if nest.padded:
        tiles = replace(tiles, pack=_tiles(nest, REFERENCE).pack)
    return tiles


def _tiles(nest: BilinearNest, machine: Machine) -> TileSchedule:
    """The tile that fills the registers with totals and shares vectors; then what is packed, and k-blocks.

    Each step narrows the next one: windows exclude a second unrolled variable, both exclude k-blocks.
    """
    vector = _vector(nest)
    b_operand = nest.b_operand(vector)
    # Rows of a tile should share B's vectors. Only if no variable leaves B alone, rows may be those that share A.
    candidates = [v for v in nest.out if v != vector and not b_operand.depends(v)]
    candidates = candidates or [v for v in nest.out if v != vector and nest.one_sided(v)]
    windows = {v: _window(nest, vector, v) for v in candidates}
    # Windows first, as rows that slide share their vectors; else the longest up
    # to 12, as more rows than fit registers are of no use.
    tile = max(reversed(candidates), key=lambda v: (bool(windows[v]), min(v.extent, 12)), default=None)
    window = windows[tile] if tile is not None else ()
    height, vectors, tail = _size(nest, vector, tile, window, machine)
    unrolled = None
    # All rows of the tile's variable are in one tile: there may be registers left for a second, short variable.
    if tile is not None and height == tile.extent:
        others = [v for v in candidates if v != tile]
        if nest.one_sided(vector) and not window:
            # Six registers for B's vectors, scalars and addresses; each value of
            # the second variable takes a whole tile of totals.
            room = (machine.registers - 6) // (height * vectors)
            unrolled = max((v for v in others if v.extent <= room), key=lambda v: v.extent, default=None)
        else:
            others = [v for v in others if _share_vectors(nest, vector, v)]
            unrolled, vectors = _unrolled_beside(others, height, vectors, window, machine)
    # The tail is handled by a column of its own, in vectors of half the width.
    width = min(vectors * machine.lanes(nest.acc.dtype.itemsize), vector.extent - tail)
    # Several tiles go through the same column of B, so a column that leaves
    # the cache would be read from memory for each.
    turned = _turned(nest, b_operand, vector, tile, machine)
    if turned:  # one vector of lanes, as each lane reads a line of its own
        return TileSchedule(vector, min(turned, vector.extent), tile, tile.extent if tile else 1, turned=turned)
    several = len(candidates) > 1 or (tile is not None and tile.extent > height)
    alike = tile is None or not b_operand.depends(tile)  # all rows of the tile read one panel
    packed, k_blocks = alike and _packed(nest, b_operand, vector, machine), None
    # Windows and unrolled variables have their terms written out, which k-blocks would cut.
    if several and unrolled is None and not window:
        k_blocks = _k_blocks(nest, None if packed else b_operand, vector, width, machine)
    pack = "once" if packed else "no"
    return TileSchedule(vector, width, tile, height, tail, unrolled, window, k_blocks=k_blocks, pack=pack)


def _size(
    nest: BilinearNest, vector: Var, tile: Var | None, window: tuple[Var, ...], machine: Machine
) -> tuple[int, int, int]:
    """Height and vectors of a tile, and how many last lanes stand by themselves."""
    lanes = machine.lanes(nest.acc.dtype.itemsize)
    # A window's vectors stay in registers while the rows slide over them.
    held = window[0].extent if window else 0
    rows = tile.extent if tile else 1
    # A written-out window grows with its terms, and code that is too long is slow to compile and to fetch.
    most = machine.tuning.sliding_updates // product_of(window) if window else machine.registers
    # Where arithmetic runs in halves, a vector of half the width costs
    # half, so a rest is worth an instruction of its own.
    tail = _tail(vector.extent, lanes) if machine.in_halves else 0
    # Both operands move with the lanes: each row needs vectors of its own,
    # so what is held is per vector, not for the tile.
    if nest.one_sided(vector):
        size = tile_size(rows, vector.extent, lanes, machine.registers - held, most=most, tail=tail)
    else:
        size = tile_size(rows, vector.extent, lanes, machine.registers, held, most, tail)
    return *size, tail


def _unrolled_beside(
    others: list[Var], height: int, vectors: int, window: tuple[Var, ...], machine: Machine
) -> tuple[Var | None, int]:
    """The longest variable that joins rows which share vectors, as a whole, and how many vectors the tile has then."""
    # Vectors of the window that rows share, one for each place or row, whichever are fewer.
    held = min(window[0].extent, height) if window else 0
    for var in sorted(others, key=lambda v: -v.extent):
        rows = height * var.extent
        written = machine.tuning.sliding_updates // (product_of(window) * rows)
        # Registers for all rows' totals and the vectors in flight, for each
        # vector of the width; 3 for scalars and addresses.
        fitting = min((machine.registers - 3) // (rows + 1 + held), written)
        if fitting:
            return var, min(vectors, fitting)
    return None, vectors


def _tail(extent: int, lanes: int) -> int:
    """Elements after the last whole vector, if a vector of half the width holds them."""
    tail = extent % lanes
    return tail if extent > lanes and 2 * tail <= lanes else 0


def _k_blocks(
    nest: BilinearNest, b_operand: Operand | None, vector: Var, width: int, machine: Machine
) -> KBlocks | None:
    """k-blocks where the vectors of one column of register tiles would leave the cache before they are used again.

    Also where lanes are stored apart, and what lies between them belongs to other tiles that read the same: their
    totals are stored together. ``b_operand`` is the operand whose vectors are not packed.
    """
    # Inside of outer loops (a row fusion) a block is small already.
    if nest.outside or not nest.reduce:
        return None
    gap = nest.store_stride(vector)
    # Results between two neighbouring lanes that other tiles compute.
    between = product_of([v for v in nest.out if 0 < (nest.store_stride(v) or 0) < (gap or 0) and nest.one_sided(v)])
    column = product_of(nest.reduce) * width * nest.acc.dtype.itemsize
    # If those lie close, totals of all of them are kept together and stored in whole lines at the end.
    together = gap == between > 1 and gap * nest.acc.dtype.itemsize <= machine.tuning.near_result_bytes
    # Half of the second cache for B's column, the other half for A and the results.
    if not together and column <= machine.l2_bytes // 2:
        return None

    def apart(var: Var) -> int:
        return abs(b_operand.stride(var) or 0) * nest.acc.dtype.itemsize if b_operand else 0

    # What the block's other variables span is read in every k-block too.
    inside = sum(apart(v) * (v.extent - 1) for v in nest.out if v != vector and nest.one_sided(v))
    return k_blocks_of(nest.reduce, apart, machine.l2_bytes // 2 - inside, machine.tuning)


def _window(nest: BilinearNest, vector: Var, tile: Var) -> tuple[Var, ...]:
    """The last summed variables, from the one along which an operand's vectors are read like along the tile."""
    # From the first variable on that slides: all further in are places of the same window.
    for n, var in enumerate(nest.reduce):
        if rows_apart(nest, vector, tile, var) and product_of(nest.reduce[n:]) <= SLIDING_TERMS:
            return tuple(nest.reduce[n:])
    return ()


def _share_vectors(nest: BilinearNest, vector: Var, rows: Var) -> bool:
    """Whether all ``rows`` read the same vectors of an operand."""
    return any(o.depends(vector) and not o.depends(rows) for o in (nest.lhs, nest.rhs))


def rows_apart(nest: BilinearNest, vector: Var, tile: Var, within: Var) -> int:
    """How many steps of ``within`` lead from one row of the tile to the next, if both read some of the same vectors."""
    for operand in (nest.lhs, nest.rhs):
        step, each = operand.stride(tile), operand.stride(within)
        # A step of the tile is a whole number of steps of the window, and smaller than
        # the window: then two rows read some vectors in common.
        if operand.depends(vector) and step and each and step % each == 0 and 0 < step // each < within.extent:
            return step // each
    return 0


def _packed(nest: BilinearNest, b_operand: Operand, vector: Var, machine: Machine) -> bool:
    """Whether the operand that moves with the lanes is worth copying into a contiguous panel."""
    reuse, frozen = _reuse(nest, b_operand, vector), nest.is_frozen(b_operand)
    if not (nest.one_sided(vector) and b_operand.depends(vector)) or not nest.reduce:
        return False
    # Lanes that lie apart while terms lie together are turned in squares, which is faster than one by one.
    if abs(b_operand.stride(vector) or 0) > SHUFFLED_STRIDE and _dense(b_operand, nest.reduce):
        return True
    # A panel pays if each vector is used often enough to make up for being written and
    # read again: four times, or twice if it lasts over many calls.
    if reuse < (2 if frozen else 4):
        return False
    # Lanes that lie apart would be gathered for each use, half precision converted for each use.
    if b_operand.stride(vector) != 1 or once_computed(nest, b_operand, machine):
        return True
    terms = product_of(nest.reduce)
    row = abs(b_operand.stride(nest.reduce[-1]) or 0) * nest.acc.dtype.itemsize
    tuning = machine.tuning
    # Packed once for all calls: also where only the distance between terms speaks for it.
    if frozen:
        return row >= tuning.far_bytes
    if terms < tuning.far_terms or row < tuning.far_bytes or reuse < tuning.far_reads:
        return False
    # Memory that no cache holds comes in whole lines only when terms lie together. Or terms share few sets
    # of the cache, so that they push each other out before their neighbours are used.
    return cold(b_operand, machine) or reuse * max(terms / lines_held(row, machine), 2) >= tuning.crowded_reads


def _turned(nest: BilinearNest, b_operand: Operand, vector: Var, tile: Var | None, machine: Machine) -> int:
    """Terms of squares that are turned in registers and used from there; 0 where a panel, or nothing, is better.

    All rows that read a square have to be in one tile: else it would be turned several times.
    """
    rows = tile.extent if tile else 1
    alone = _reuse(nest, b_operand, vector) == rows <= min(TURNED_ROWS, machine.registers // 4)
    return machine.lanes(nest.acc.dtype.itemsize) if alone and _turnable(nest, b_operand, vector) else 0


def _turnable(nest: BilinearNest, operand: Operand, vector: Var) -> bool:
    """Whether the operand's lanes lie apart and its terms together, in the innermost summed variable."""
    load = operand.load
    # Which terms of padding are left out decides bits, and weights that last are packed once for all calls.
    if load is None or load.where or not nest.reduce or nest.padded or nest.is_frozen(operand) or operand.inside:
        return False
    last, apart = nest.reduce[-1], abs(operand.stride(vector) or 0) > SHUFFLED_STRIDE
    return nest.one_sided(vector) and apart and operand.stride(last) == 1 and last.extent >= LEAST_TURNED


def _dense(operand: Operand, summed: Sequence[Var]) -> bool:
    """Whether so many terms as a square has lie together."""
    return any(abs(operand.stride(v) or 0) == 1 and v.extent >= NOMINAL_LANES for v in summed)


def cold(operand: Operand, machine: Machine) -> bool:
    load = operand.load
    return load is not None and load.buffer.size * load.dtype.itemsize > machine.cold_bytes


def lines_held(row: int, machine: Machine) -> int:
    """How many lines ``row`` bytes apart the cache holds."""
    # Addresses ``row`` apart meet in the same set every ``way bytes / gcd`` terms: a power
    # of two uses few sets, each with as many lines as there are ways.
    return machine.l2_bytes // gcd(row, machine.l2_bytes // machine.l2_ways)


def once_computed(nest: BilinearNest, operand: Operand, machine: Machine) -> bool:
    """Whether a copy of an operand made from what it is loaded from pays: many read it, and it is no larger."""
    # A copy holds padding's zeros, see tiles_of.
    tuning = (REFERENCE if nest.padded else machine).tuning  # see tiles_of
    return operand.computed and read_often(nest, operand, tuning.computed_reads)


def read_often(nest: BilinearNest, operand: Operand, least: int) -> bool:
    """Whether every element of an operand in memory is read so often, and not again from a larger range of indices."""
    names = (*nest.outside, *nest.out, *nest.reduce)
    moved = [v for v in names if operand.depends(v)]
    if operand.load is None or not moved:
        return False
    # Read often by what does not move it, and not through overlapping
    # windows, whose copy would be larger than the original.
    return product_of(v for v in names if v not in moved) >= least and product_of(moved) <= operand.load.buffer.size


def tile_size(
    rows: int, columns: int, lanes: int, registers: int, held: int = 0, most: int = 32, tail: int = 0
) -> tuple[int, int]:
    """Height and vectors of the register tile with the fewest modelled cycles over the whole result.

    ``held``: how many vectors of an operand every column of the tile keeps in registers, beyond one, if it has so many
    rows. ``most``: how many vectors the tile may have. ``tail``: see ``TileSchedule``.
    """
    best, best_cost = (1, 1), float("inf")
    # Small enough to try all sizes: 8 vectors by 14 rows are more than any register file holds.
    for vectors in range(1, 9):
        for height in range(1, 15):
            # Totals, one or more vectors of B for each column, and one register for the spread scalar of A.
            needed = height * vectors + (1 + min(held, height)) * vectors + 1
            # Two registers stay free for what the epilogue computes.
            if needed > registers - 2 or height > rows or height * vectors > most:
                continue
            # No vector of the tile may be empty.
            if vectors > 1 and (vectors - 1) * lanes >= columns - tail:
                continue
            cost = _cover(rows, columns - tail, height, vectors, lanes, bool(tail))
            # The small margin keeps the choice from depending on the rounding of two equal sums.
            if cost < best_cost - 1e-9:
                best, best_cost = (height, vectors), cost
    return best


def _cover(rows: int, columns: int, height: int, vectors: int, lanes: int, half: bool) -> float:
    def cycles(h: int, v: float) -> float:
        # Cycles of one term: an FMA each, at least four, as long as a total waits for its own last FMA; loads
        # of B's vectors and half as much for A's scalars; loop and address arithmetic.
        return max(h * v, 4.0) + 0.15 * (v + 0.5 * h) + 0.01 * h + 0.4 if h and v else 0.0

    full_rows, rest_rows = divmod(rows, height)
    # Rests of rows and columns are tiles of their own size, and count with their own cycles.
    full_columns, rest_columns = divmod(columns, vectors * lanes)
    rest_vectors = -(-rest_columns // lanes)
    total = 0.0
    for v, n in ((vectors, full_columns), (rest_vectors, 1), (0.5 * half, 1)):
        total += n * (full_rows * cycles(height, v) + cycles(rest_rows, v))
    return total
