"""The choice of a register tile: which variable becomes SIMD lanes, how large the tile is, whether to pack, k-blocks.

The choice depends on shapes, strides and a model of the machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import gcd

from tracecomp.codegen.kernels.transpose import MIN_TRANSPOSED_EXTENT
from tracecomp.ir.index import Var
from tracecomp.passes.contraction.tile_schedule import TileSchedule
from tracecomp.passes.cost.machine import Machine
from tracecomp.passes.cost.reference import (
    AS_GOOD,
    FAR_APART_BYTES,
    FAR_CYCLES,
    FAR_LINES,
    MAX_TRANSPOSED_ROWS,
    NEAR_STORES,
    NOMINAL_LANES,
    PACKED_CYCLES,
    REFERENCE,
    SHUFFLED_CYCLES,
    SHUFFLED_STRIDE,
    SLIDING_TERMS,
    STORE_CYCLES,
    TRANSPOSED_CYCLES,
)
from tracecomp.passes.nests.contraction_nest import BilinearNest, Operand, product_of
from tracecomp.passes.schedule.k_blocking import KBlocks, k_blocks_of


def _reuse(nest: BilinearNest, operand: Operand, vector: Var) -> int:
    """How often one lane vector of the operand is used."""
    # Outer loops count, too: a vector that is loaded (or packed) serves all
    # values of what the operand does not depend on.
    return product_of(v for v in (*nest.outside, *nest.out) if v != vector and not operand.depends(v))


def filled(extent: int) -> float:
    """The fraction of lanes that ``extent`` elements fill."""
    return extent / (-(-extent // NOMINAL_LANES) * NOMINAL_LANES)


def _lane_cost(nest: BilinearNest, vector: Var) -> float:
    """Estimate cycles per vector of multiply-adds from strides and extents; an ordering, not a prediction.

    Strided elements are packed into vectors, once for many calls if they are frozen.
    """
    # ``alone``: the operand varies along nothing else, so that every element is packed once.
    cost, alone = 1.0, all(map(nest.b_operand(vector).depends, nest.out))
    for operand in (nest.lhs, nest.rhs):
        if operand.depends(vector):
            # All multiply-adds that use a vector share the cost of loading it.
            reuse = _reuse(nest, operand, vector)
            stride = operand.stride(vector) or 0
            transposed = reuse <= MAX_TRANSPOSED_ROWS and _transposable(nest, operand, vector)
            packed = 1.0 if nest.is_frozen(operand) else PACKED_CYCLES
            apart = TRANSPOSED_CYCLES if transposed else packed
            shuffled = alone and 1 < stride <= SHUFFLED_STRIDE
            cost += (1.0 if stride == 1 else SHUFFLED_CYCLES if shuffled else apart) / reuse
    # The FMA instruction broadcasts a scalar of the other operand; two vectors are two loads.
    if nest.one_sided(vector):
        cost -= 0.5
    if _far_apart(nest, nest.a_operand(vector)):
        cost += FAR_CYCLES
    # Stores happen once for all terms, so their share of a long sum is small.
    if nest.store_stride(vector) != 1:
        cost += STORE_CYCLES / max(product_of(nest.reduce), 1)
    # Lanes beyond the extent do no useful work.
    return cost / filled(vector.extent)


def _far_apart(nest: BilinearNest, a_operand: Operand) -> bool:
    """Whether, for every term, the rows of a tile read elements in separate, distant lines."""
    last = nest.reduce[-1] if nest.reduce else None
    # Few lines stay in the cache until the next row of the tile reads its neighbour in them.
    if last is None or product_of(nest.reduce) <= FAR_LINES:
        return False
    far = abs(a_operand.stride(last) or 0) * nest.acc.dtype.itemsize >= FAR_APART_BYTES
    # Rows of the tile share lines, so each line is fetched once for several rows.
    return far and any(a_operand.stride(v) == 1 for v in nest.out)


def _vector(nest: BilinearNest) -> Var:
    # Reversed, as of equal costs the last variable wins: its neighbours are nearer in memory.
    costs = {v: _lane_cost(nest, v) for v in reversed(nest.out)}
    # Nearly equal costs count as equal; then prefer results that are stored contiguously.
    cheap = sorted((v for v in costs if costs[v] <= AS_GOOD * min(costs.values())), key=costs.__getitem__)
    near = [v for v in cheap if 0 < abs(nest.store_stride(v) or 0) <= NEAR_STORES]
    return min(near, key=lambda v: abs(nest.store_stride(v) or 0), default=cheap[0])


def tiles_of(nest: BilinearNest, machine: Machine) -> TileSchedule:
    """Choose the tiles for a nest: the first fields of its schedule.

    Tiles that read a copy add padding's zeros. Tiles that read the operand directly may leave those terms out
    (``passes/contraction/sliding_windows.py``). Infinite weights make the difference visible, so the reference machine
    decides which operands of a padded contraction are copied.
    """
    tiles = _tiles(nest, machine)
    # A panel contains padding's zeros, and zero times infinity is NaN. The reference machine therefore decides whether
    # there is a panel; tile sizes are chosen for the actual machine.
    if nest.padded:
        tiles = replace(tiles, pack=_tiles(nest, REFERENCE).pack)
    return tiles


def _tiles(nest: BilinearNest, machine: Machine) -> TileSchedule:
    """Choose the tile that fills the registers with totals and shares vectors; then packing and k-blocks.

    Each choice narrows the next: windows exclude a second unrolled variable, both exclude k-blocks.
    """
    vector = _vector(nest)
    b_operand = nest.b_operand(vector)
    # Rows of a tile should share B's vectors. If B varies along every variable, rows may share A instead.
    candidates = [v for v in nest.out if v != vector and not b_operand.depends(v)]
    candidates = candidates or [v for v in nest.out if v != vector and nest.one_sided(v)]
    windows = {v: _window(nest, vector, v) for v in candidates}
    # Windows first, as rows that slide share their vectors; else the longest up
    # to 12, as more rows than fit registers are of no use.
    tile = max(reversed(candidates), key=lambda v: (bool(windows[v]), min(v.extent, 12)), default=None)
    window = windows[tile] if tile is not None else ()
    height, vectors, tail = _size(nest, vector, tile, window, machine)
    unrolled = None
    # All rows of the tile's variable are in one tile: registers may be left for a second, short variable.
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
    # The tail is a separate column, in vectors of half the width.
    width = min(vectors * machine.lanes(nest.acc.dtype.itemsize), vector.extent - tail)
    # Several tiles read the same column of B; a column that does not fit the cache would be read from memory for each.
    # Rows that read separate lines of B cannot share a transposed block, so they stay outside the tile.
    shared = tile if tile is not None and not b_operand.depends(tile) else None
    transposed = _transposed(nest, b_operand, vector, shared, machine)
    if transposed:  # one vector of lanes: each lane reads a separate line
        width = min(machine.lanes(nest.acc.dtype.itemsize), vector.extent)
        return TileSchedule(vector, width, shared, shared.extent if shared else 1, transposed=transposed)
    several = len(candidates) > 1 or (tile is not None and tile.extent > height)
    alike = tile is None or not b_operand.depends(tile)  # all rows of the tile read one panel
    packed, k_blocks = alike and _packed(nest, b_operand, vector, machine), None
    # Windows and unrolled variables have unrolled terms, which k-blocks would split.
    if several and unrolled is None and not window:
        k_blocks = _k_blocks(nest, None if packed else b_operand, vector, width, machine)
    pack = "once" if packed else "no"
    return TileSchedule(vector, width, tile, height, tail, unrolled, window, k_blocks=k_blocks, pack=pack)


def _size(
    nest: BilinearNest, vector: Var, tile: Var | None, window: tuple[Var, ...], machine: Machine
) -> tuple[int, int, int]:
    """Return the height and vectors of a tile, and the number of last lanes in a separate column."""
    lanes = machine.lanes(nest.acc.dtype.itemsize)
    # A window's vectors stay in registers while the rows slide over them.
    held = window[0].extent if window else 0
    rows = tile.extent if tile else 1
    # An unrolled window grows with its terms, and long code is slow to compile and to fetch.
    most = machine.tuning.sliding_updates // product_of(window) if window else machine.registers
    # On cores that execute a vector as two halves, a half-width vector costs half, so a separate instruction for the
    # tail pays.
    tail = _tail(vector.extent, lanes) if machine.in_halves else 0
    # Both operands vary along the lanes: each row needs separate vectors, so registers are counted per vector, not per
    # tile.
    if nest.one_sided(vector):
        size = tile_size(rows, vector.extent, lanes, machine.registers - held, most=most, tail=tail)
    else:
        size = tile_size(rows, vector.extent, lanes, machine.registers, held, most, tail)
    return *size, tail


def _unrolled_beside(
    others: list[Var], height: int, vectors: int, window: tuple[Var, ...], machine: Machine
) -> tuple[Var | None, int]:
    """The longest variable whose values all fit as rows that share vectors, and how many vectors the tile has then."""
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
    """Choose k-blocks if the vectors of one column of register tiles would leave the cache before they are reused.

    Also if result lanes are strided and the elements between them belong to other tiles with the same operands: their
    totals are stored together. ``b_operand`` is the operand whose vectors are not packed.
    """
    # Inside outer loops (a row fusion) a block is small already.
    if nest.outside or not nest.reduce:
        return None
    gap = nest.store_stride(vector)
    # Results between two neighbouring lanes that other tiles compute.
    between = product_of([v for v in nest.out if 0 < (nest.store_stride(v) or 0) < (gap or 0) and nest.one_sided(v)])
    column = product_of(nest.reduce) * width * nest.acc.dtype.itemsize
    # If those are near, the totals of all of them are kept together and stored in whole lines at the end.
    together = gap == between > 1 and gap * nest.acc.dtype.itemsize <= machine.tuning.near_result_bytes
    # Half of the second cache for B's column, the other half for A and the results.
    if not together and column <= machine.l2_bytes // 2:
        return None

    def apart(var: Var) -> int:
        return abs(b_operand.stride(var) or 0) * nest.acc.dtype.itemsize if b_operand else 0

    # Every k-block also reads the range of the block's other variables.
    inside = sum(apart(v) * (v.extent - 1) for v in nest.out if v != vector and nest.one_sided(v))
    return k_blocks_of(nest.reduce, apart, machine.l2_bytes // 2 - inside, machine.tuning)


def _window(nest: BilinearNest, vector: Var, tile: Var) -> tuple[Var, ...]:
    """The innermost summed variables, from the first along which an operand's vectors coincide with those along the
    tile."""
    # From the first variable that slides: all inner ones are positions of the same window.
    for n, var in enumerate(nest.reduce):
        if rows_apart(nest, vector, tile, var) and product_of(nest.reduce[n:]) <= SLIDING_TERMS:
            return tuple(nest.reduce[n:])
    return ()


def _share_vectors(nest: BilinearNest, vector: Var, rows: Var) -> bool:
    """Whether all ``rows`` read the same vectors of an operand."""
    return any(o.depends(vector) and not o.depends(rows) for o in (nest.lhs, nest.rhs))


def rows_apart(nest: BilinearNest, vector: Var, tile: Var, within: Var) -> int:
    """How many steps of ``within`` separate one row of the tile from the next, if both read some of the same
    vectors."""
    for operand in (nest.lhs, nest.rhs):
        step, each = operand.stride(tile), operand.stride(within)
        # A step of the tile is a whole number of steps of the window, and smaller than
        # the window: then two rows read some vectors in common.
        if operand.depends(vector) and step and each and step % each == 0 and 0 < step // each < within.extent:
            return step // each
    return 0


def _packed(nest: BilinearNest, b_operand: Operand, vector: Var, machine: Machine) -> bool:
    """Whether to copy the operand that varies along the lanes into a contiguous panel."""
    reuse, frozen = _reuse(nest, b_operand, vector), kept_packed(nest, b_operand, vector, machine)
    if not (nest.one_sided(vector) and b_operand.depends(vector)) or not nest.reduce:
        return False
    # Strided lanes with contiguous terms are transposed in blocks, which is faster than element by element.
    if abs(b_operand.stride(vector) or 0) > SHUFFLED_STRIDE and _dense(b_operand, nest.reduce):
        return True
    # A panel pays if each vector is reused often enough to cover a write and a read: four times, or twice if frozen.
    if reuse < (2 if frozen else 4):
        return False
    # Without a panel, strided lanes are gathered for each use and half precision is converted for each use.
    if b_operand.stride(vector) != 1 or once_computed(nest, b_operand, machine):
        return True
    terms = product_of(nest.reduce)
    row = abs(b_operand.stride(nest.reduce[-1]) or 0) * nest.acc.dtype.itemsize
    tuning = machine.tuning
    # Packed once for all calls: a large distance between terms is then reason enough.
    if frozen:
        return row >= tuning.far_bytes
    if terms < tuning.far_terms or row < tuning.far_bytes or reuse < tuning.far_reads:
        return False
    # Memory that no cache holds arrives in whole lines, which pays only if terms are contiguous. Otherwise terms may
    # share few sets of the cache and evict each other before their neighbours are used.
    return cold(b_operand, machine) or reuse * max(terms / lines_held(row, machine), 2) >= tuning.crowded_reads


def kept_packed(nest: BilinearNest, operand: Operand, vector: Var, machine: Machine) -> bool:
    """Whether panels of a frozen operand are worth their memory until the next call."""
    # Many rows share the cost of packing in each call; a cold operand is read from memory in any case.
    often = _reuse(nest, operand, vector) >= 2 * machine.tuning.packed_rows
    return nest.is_frozen(operand) and not (often and nest.is_cold(operand))


def _transposed(nest: BilinearNest, b_operand: Operand, vector: Var, tile: Var | None, machine: Machine) -> int:
    """The number of terms in blocks that are transposed in registers and used there; 0 if a panel, or a direct load, is
    better.

    All rows that read a block have to be in one tile; otherwise it would be transposed several times.
    """
    rows = tile.extent if tile else 1
    alone = _reuse(nest, b_operand, vector) == rows <= min(MAX_TRANSPOSED_ROWS, machine.registers // 4)
    if not alone or not _transposable(nest, b_operand, vector):
        return 0
    # Lines are read whole: twice as many terms of 16 bits.
    lanes, load = machine.lanes(nest.acc.dtype.itemsize), b_operand.load
    return lanes * nest.acc.dtype.itemsize // load.dtype.itemsize if load else lanes


def _transposable(nest: BilinearNest, operand: Operand, vector: Var) -> bool:
    """Whether the operand's lanes are strided and its terms contiguous, in the innermost summed variable."""
    load = operand.load
    # Leaving out terms of padding changes bits.
    if load is None or load.where or not nest.reduce or nest.padded or operand.inside:
        return False
    # Frozen weights are packed once for all calls if a cache holds the panels. Others arrive at the speed of memory
    # either way: panels would take as much memory again, and twice as much for 16-bit weights.
    if nest.is_frozen(operand) and not nest.is_cold(operand):
        return False
    last, apart = nest.reduce[-1], abs(operand.stride(vector) or 0) > SHUFFLED_STRIDE
    return nest.one_sided(vector) and apart and operand.stride(last) == 1 and last.extent >= MIN_TRANSPOSED_EXTENT


def _dense(operand: Operand, summed: Sequence[Var]) -> bool:
    """Whether as many terms as a block has are contiguous."""
    return any(abs(operand.stride(v) or 0) == 1 and v.extent >= NOMINAL_LANES for v in summed)


def cold(operand: Operand, machine: Machine) -> bool:
    load = operand.load
    return load is not None and load.buffer.size * load.dtype.itemsize > machine.cold_bytes


def lines_held(row: int, machine: Machine) -> int:
    """How many lines ``row`` bytes apart the cache holds."""
    # Addresses ``row`` bytes apart map to the same set every ``way bytes / gcd`` terms: a power of two uses few sets,
    # each with as many lines as there are ways.
    return machine.l2_bytes // gcd(row, machine.l2_bytes // machine.l2_ways)


def once_computed(nest: BilinearNest, operand: Operand, machine: Machine) -> bool:
    """Whether a copy of a computed operand pays: it is read often, and the copy is at most as large as its source."""
    # A copy contains padding's zeros, see tiles_of.
    tuning = (REFERENCE if nest.padded else machine).tuning  # see tiles_of
    return operand.computed and read_often(nest, operand, tuning.computed_reads)


def read_often(nest: BilinearNest, operand: Operand, least: int) -> bool:
    """Whether every element of an operand in memory is read often, and not through a larger range of indices."""
    names = (*nest.outside, *nest.out, *nest.reduce)
    moved = [v for v in names if operand.depends(v)]
    if operand.load is None or not moved:
        return False
    # Reads come from variables that do not move it, not from overlapping windows, whose copy would be larger than the
    # original.
    return product_of(v for v in names if v not in moved) >= least and product_of(moved) <= operand.load.buffer.size


def tile_size(
    rows: int, columns: int, lanes: int, registers: int, held: int = 0, most: int = 32, tail: int = 0
) -> tuple[int, int]:
    """Choose the height and vectors of the register tile with the fewest modelled cycles over the whole result.

    ``held`` returns, for a number of rows, how many vectors of an operand beyond one every column of the tile keeps in
    registers. ``most`` limits the tile's vectors. ``tail``: see ``TileSchedule``.
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
            # Every vector of the tile must be non-empty.
            if vectors > 1 and (vectors - 1) * lanes >= columns - tail:
                continue
            cost = _cover(rows, columns - tail, height, vectors, lanes, bool(tail))
            # The small margin makes the choice independent of the rounding of two equal sums.
            if cost < best_cost - 1e-9:
                best, best_cost = (height, vectors), cost
    return best


def _cover(rows: int, columns: int, height: int, vectors: int, lanes: int, half: bool) -> float:
    def cycles(h: int, v: float) -> float:
        # Cycles of one term: an FMA for each vector, at least four because a total waits for its previous FMA. Add
        # loads of B's vectors, half as much for A's scalars, and loop and address arithmetic.
        return max(h * v, 4.0) + 0.15 * (v + 0.5 * h) + 0.01 * h + 0.4 if h and v else 0.0

    full_rows, rest_rows = divmod(rows, height)
    # Remaining rows and columns are tiles of other sizes, and count with the cycles of those.
    full_columns, rest_columns = divmod(columns, vectors * lanes)
    rest_vectors = -(-rest_columns // lanes)
    total = 0.0
    for v, n in ((vectors, full_columns), (rest_vectors, 1), (0.5 * half, 1)):
        total += n * (full_rows * cycles(height, v) + cycles(rest_rows, v))
    return total
