"""Schedule nests that read along one variable and write along another: square blocks, transposed in registers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from tracecomp.ir.index import Index, Var, computed, index, unravel
from tracecomp.ir.loop_copy import Copier
from tracecomp.ir.loops import LINE, Const, IndexValue, Let, Load, Loop, Prefetch, Stmt, Store, ToLine
from tracecomp.ir.pieces import Pieces, pieces
from tracecomp.ir.scalars import call
from tracecomp.ir.types import int64
from tracecomp.passes.cost.machine import Machine
from tracecomp.passes.nests.loop_nest import Nest
from tracecomp.passes.schedule.nest_schedules import TransposeSchedule
from tracecomp.passes.schedule.tiling import loops, one_after_another, tiles

BLOCK = 16
"""Side, in elements, of a block that is transposed in registers: 16 vectors of 16 float32 fill half of 32 registers."""
FEW_PLACES = 4
"""Most parts that are interleaved by shuffles, for any distance between them."""


def transposed_pair(nest: Nest) -> tuple[Var, Var] | None:
    """Return the ``(load, store)`` variables of a nest that reads along one row variable and writes along another.

    The store variable may have an extent of only 2 if it interleaves the loaded parts without gaps: whole vectors are
    stored. A few parts may also be read at the same positions (zeros between elements).
    """
    # Passes over rows have an order, which square blocks would violate.
    if nest.reduced:
        return None
    stores = [s.offset for s in nest.stmts if isinstance(s, Store)]
    loads = [s.value.offset for s in nest.stmts if isinstance(s, Let) and isinstance(s.value, Load)]
    # Written along: every store steps by one element. It is then the variable of the lanes when squares are stored.
    along = [v for v in nest.outer if v.extent >= 2 and all(o.coefficient(v) == 1 for o in stores)]
    for store in along:
        # Read along the same variable as well: nothing to transpose.
        if any(o.coefficient(store) == 1 for o in loads):
            continue
        # At least four: shorter vectors are as slow as single elements.
        for load in (v for v in nest.outer if v.extent >= 4 and v != store):
            interleaves = all(o.coefficient(load) == store.extent for o in stores)
            # A few parts, some of which repeat a read (inserted zeros): they are interleaved by shuffles.
            alike = interleaves and store.extent <= FEW_PLACES
            across = [o for o in loads if alike or o.coefficient(store) != 0]
            if across and (interleaves or store.extent >= 4) and all(_moves(o, load, store, alike) for o in across):
                return load, store
    return None


def _moves(offset: Index, load: Var, store: Var, alike: bool) -> bool:
    """Whether whole vectors are read along ``load``; repeated reads may be shuffled for a few parts, too."""
    return offset.coefficient(load) == 1 or (alike and offset.coefficient(store) == 0)


def interleaved(nest: Nest) -> Nest:
    """Return the nest with the short variable of interleaved stores joined with the variable that steps over it."""
    stores = [s.offset for s in nest.stmts if isinstance(s, Store)]
    if nest.reduced or not stores:
        return nest
    # Interleaved stores: two variables that step through memory together become one, along which blocks can be stored.
    for short in (v for v in nest.outer if v.extent < 4 and all(o.coefficient(v) == 1 for o in stores)):
        for var in (v for v in nest.outer if v != short and all(o.coefficient(v) == short.extent for o in stores)):
            both = Var(f"{var.name}{short.name}", var.extent * short.extent)
            # Stores step by one along the joined variable; loads see its quotient and remainder.
            mapping = {var: index(both) // short.extent, short: index(both) % short.extent}
            rows = [both if v == var else v for v in nest.outer if v != short]
            return nest.mapped(mapping, rows, [])
    return nest


def mirrored(nest: Nest) -> Nest:
    """Return the nest with the variables along which it reads backwards reversed."""
    # Backwards along a variable is forwards along its mirror image: reads
    # become unit strides, writes negative ones or others.
    loads = [s.value.offset for s in nest.stmts if isinstance(s, Let) and isinstance(s.value, Load)]
    back = [v for v in nest.outer if loads and all(o.coefficient(v) == -1 for o in loads)]
    return nest.mapped({v: index(v) * -1 + (v.extent - 1) for v in back}, nest.outer, nest.reduced) if back else nest


def transpose_schedule(
    nest: Nest, load: Var, store: Var, nontemporal: str, threads: str, machine: Machine
) -> TransposeSchedule:
    """Choose panels of many lines by one or two blocks.

    Reads are then long and contiguous, and writes run in order. Non-temporal stores write two consecutive lines at a
    time, unless the written addresses are close together anyway.
    """
    tuning, reads = machine.tuning, _reads(nest)
    streams = [s for s in nest.stmts if isinstance(s, Store) and s.stream]
    itemsize = max(x.dtype.itemsize for x in reads)
    # Stores that are close together fill their lines soon in any case, for any shape of the panels.
    dense = any(abs(s.offset.coefficient(load) or 0) * itemsize < tuning.dense_bytes for s in streams)
    ahead = () if dense else tuple(x.buffer.name for x in reads if _unforeseen(x, load, store, machine))
    # Two consecutive lines if stores bypass the caches and reads are prefetched: memory is written in pairs of lines.
    height = max(BLOCK, (2 if streams and ahead else 1) * LINE // itemsize)
    others = prod(v.extent for v in nest.outer if v not in (load, store))
    # A stripe as wide as a page for each line that is read: few TLB entries at a time.
    width = tuning.stripe_bytes // itemsize
    if store.extent <= FEW_PLACES and others >= tuning.enough_panels:
        # Interleaving a few places: reading and writing both advance in order, so panels are not needed.
        width = load.extent  # all accesses are near
    elif threads != "serial":
        below = others * -(-store.extent // height)
        # Threads want panels to share. Blocks stay whole, and at least four wide so that each line is used in full.
        width = min(width, max(load.extent * below // tuning.enough_panels, 4 * BLOCK) // BLOCK * BLOCK)
    width, height = min(width, load.extent), min(height, store.extent)
    return TransposeSchedule(load, store, width, height, tuple(dict.fromkeys(ahead)), nontemporal, threads)


def transposed(nest: Nest, schedule: TransposeSchedule) -> tuple[Stmt, ...]:
    """Emit panels along the stores, then the next stripe of panels.

    Blocks of memory that no cache holds begin at its lines, as a line that two blocks share would be fetched twice:
    lines at power-of-two distances evict each other.
    """
    # The schedule is fixed; the rest decides nothing.
    load, store = schedule.load, schedule.store
    ahead = tuple(x for x in _reads(nest) if x.buffer.name in schedule.prefetch and x.offset.coefficient(load) == 1)
    lines = next((x for x in ahead if _in_lines(x, load)), None)
    others = tuple(v for v in nest.outer if v not in (load, store))
    parts: list[_Panels] = []
    # Full panels, the remainders at the right and below, and the corner: at most four sizes, each with separate loops.
    for columns, rows in product(pieces(load.extent, schedule.width), pieces(store.extent, schedule.height)):
        parts.append(_Panels(nest.stmts, others, load, columns, store, rows, ahead, lines, "e" * len(parts)))
    if schedule.threads == "serial" and not ahead:
        # Plain nested loops if the panel's number is unused: there is no next panel to prefetch and nothing to share.
        return tuple(s for part in parts for s in part.nested())
    return one_after_another(schedule.threads, [part.numbered() for part in parts])


def _reads(nest: Nest) -> list[Load]:
    return [s.value for s in nest.stmts if isinstance(s, Let) and isinstance(s.value, Load)]


def _unforeseen(x: Load, load: Var, store: Var, machine: Machine) -> bool:
    """Whether the cache does not hold the loaded memory, in pieces too many and distant for the hardware prefetcher."""
    # The hardware follows a few streams, of lines near each other, within a page. Rows farther apart than that are
    # prefetched by instructions.
    apart = abs(x.offset.coefficient(store) or 0) * x.dtype.itemsize
    large = x.buffer.size * x.dtype.itemsize > machine.l2_bytes
    unforeseen = apart >= machine.tuning.foreseen_bytes and x.offset.coefficient(load) == 1
    return large and store.extent >= BLOCK and unforeseen


def _in_lines(x: Load, load: Var) -> bool:
    """Whether reads along ``load`` begin at the same offset within a line everywhere."""
    # Then the distance to the next line is the same for all rows, and is computed once.
    return all(factor % _step(x) == 0 for atom, factor in x.offset.terms if atom != load)


def _step(x: Load) -> int:
    # A square is 16 elements wide; a line of narrow elements holds several blocks.
    return min(LINE // x.dtype.itemsize, BLOCK)


@dataclass(frozen=True)
class _Panels:
    """The panels of one size: ``columns`` of ``load``, the read variable, by ``rows`` of ``store``.

    While one panel is transposed, the operands ``ahead`` of the next are prefetched. Blocks begin at the lines of the
    operand ``lines``.
    """

    stmts: list[Stmt]
    others: tuple[Var, ...]
    load: Var
    columns: Pieces
    store: Var
    rows: Pieces
    ahead: tuple[Load, ...]
    lines: Load | None
    suffix: str

    def nested(self) -> tuple[Stmt, ...]:
        """Loops over the panels."""
        places = [index(v) if v.extent > 1 else Index() for v in self._names()]
        return loops("serial", [v for v in self._names() if v.extent > 1], self._panel(places))

    def numbered(self) -> Loop:
        """One loop over the panels."""
        shape = tuple(v.extent for v in self._names())
        number = Var("panel", prod(shape))
        if number.extent == 1:  # a single panel: no variable, and no next panel
            return Loop("serial", number, self._panel([Index()] * len(shape)))
        # The position after this panel in the same order: past the end it wraps to unused addresses, which a prefetch
        # may have.
        return Loop("serial", number, self._panel(unravel(index(number), shape), unravel(index(number) + 1, shape)))

    def _names(self) -> list[Var]:
        stripe = Var(f"{self.load.name}s", self.columns.count)
        return [*self.others, stripe, Var(f"{self.store.name}p", self.rows.count)]

    def _panel(self, here: Sequence[Index], after: Sequence[Index] = ()) -> tuple[Stmt, ...]:
        row = Var(f"{self.store.name}r", self.rows.length)
        result: list[Stmt] = []
        for some in self._blocks():
            block, lane = Var(f"{self.load.name}cb", some.count), Var(f"{self.load.name}cv", some.length)
            column = self._column(some, block)
            copier = Copier(
                self._places(here, column + index(lane), index(row)),
                f"{self.suffix}{f'_{len(result)}' if result else ''}",
            )
            # Lanes read along ``load`` while tiles step along ``store``: code generation transposes such a block in
            # registers.
            block_loop = Loop("vector", lane, tiles(row, BLOCK, copier.stmts(self.stmts), suffix="r"))
            # Prefetches accompany the first kind of blocks only; the narrow remainder would fetch the same lines again.
            asked = self._asked(after, some.count, index(block)) if after and not result else []
            result.extend(loops("serial", [block] if block.extent > 1 else [], (*asked, block_loop)))
        return tuple(result)

    def _blocks(self) -> Sequence[Pieces]:
        """The columns in blocks; those that begin at lines overlap at both ends.

        Elements stored twice have equal values: the nest does not read along the store variable (`transposed_pair`), so
        no operand is overwritten.
        """
        columns = self.columns.length
        if self.lines is None or columns < BLOCK:
            return pieces(columns, BLOCK)
        # One block more than fit: the first and the last extend beyond their lines, and overlap with their neighbours.
        return [Pieces(-(-columns // BLOCK) + 1, 0, BLOCK)]

    def _column(self, blocks: Pieces, block: Var) -> Index:
        if self.lines is None or blocks.length < BLOCK:
            return blocks.start(index(block) if block.extent > 1 else Index())
        last = self.columns.length - BLOCK
        # The distance to the next line is known only at run time, as arrays begin anywhere.
        to_line = computed(call("sub", ToLine(self.lines.buffer), Const(self.lines.offset.const, int64)))
        start = IndexValue(blocks.start(index(block)) + to_line % _step(self.lines) - BLOCK)
        # Clipped to the panel at both ends, where a block then stores elements twice with equal values.
        within = call("min", call("max", start, Const(0, int64)), Const(last, int64))
        return computed(within, (0, last))

    def _places(self, panel: Sequence[Index], column: Index, row: Index) -> dict[Var, Index]:
        *others, stripe, below = panel
        places = dict(zip(self.others, others, strict=True))
        return places | {self.load: self.columns.start(stripe) + column, self.store: self.rows.start(below) + row}

    def _asked(self, panel: Sequence[Index], blocks: int, block: Index) -> Iterable[Stmt]:
        """Prefetches of a panel, distributed over the blocks of the previous panel."""
        block = block if blocks > 1 else Index()
        # Lines of the next panel are distributed over this panel's blocks: prefetched all at once they would wait for
        # each other.
        rows, parts = -(-self.rows.length // blocks), max(blocks // self.rows.length, 1)
        for x in self.ahead:
            lanes = LINE // x.dtype.itemsize
            lines = -(-self.columns.length // lanes // parts)
            for row in range(rows):
                for line in range(lines):
                    column = (block % parts * lines + line) * lanes
                    places = self._places(panel, column, block // parts * rows + row)
                    yield Prefetch(x.buffer, x.offset.substitute(places))
