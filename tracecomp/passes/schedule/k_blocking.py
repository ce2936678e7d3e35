"""k-blocking: compute a long sum some hundred terms at a time, so that the operands stay in cache for all register
tiles.

This is the KC loop of BLIS. A block of the result keeps its totals in memory between its k-blocks. Each k-block
continues from them, term by term in the same order, so bits do not depend on its length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from math import prod

from tracecomp.ir.index import Index, Var, index, linear
from tracecomp.ir.loop_copy import Copier
from tracecomp.ir.loops import Buffer, Let, Load, Local, Loop, Stmt, Store
from tracecomp.ir.pieces import pieces
from tracecomp.passes.cost.tuning import Tuning
from tracecomp.passes.nests.contraction_nest import ACCUMULATOR, BilinearNest
from tracecomp.passes.schedule.records import NONE, Variables, variable
from tracecomp.passes.schedule.tiling import loops, piece


@dataclass(frozen=True)
class KBlocks:
    """The summed variables in order: ``outer``, then ``cut`` in pieces of ``length``; every piece contains all of
    ``inner``."""

    outer: tuple[Var, ...]
    cut: Var
    length: int
    inner: tuple[Var, ...]

    def __str__(self) -> str:
        """The summed variables in order, the split one with its length: ``c k/128 u``."""
        outer, inner = ([v.name for v in names] for names in (self.outer, self.inner))
        return " ".join((*outer, f"{self.cut.name}/{self.length}", *inner))

    def pieces(self) -> Iterator[tuple[Var, Index, Var]]:
        """Yield full pieces, and the remainder as a shorter one: their number, start, and inner variable."""
        for some in pieces(self.cut.extent, self.length):
            # The remainder is one shorter piece, whose start is a constant.
            number = Var(f"{self.cut.name}_o", some.count)
            start = some.start(index(number)) if some.length == self.length else Index((), some.first)
            yield number, start, Var(f"{self.cut.name}_i", some.length)


def k_blocks_read(text: str, variables: Variables) -> KBlocks | None:
    """Parse the result of ``str``; None for ``-``."""
    if text == NONE:
        return None
    names, lengths = zip(*(word.partition("/")[::2] for word in text.split()), strict=True)
    found = [variable(name, variables) for name in names]
    cut = [n for n, length in enumerate(lengths) if length]
    if len(cut) != 1 or not lengths[cut[0]].isdecimal() or not 0 < int(lengths[cut[0]]) <= found[cut[0]].extent:
        raise ValueError("expected all summed variables in order, one with its block length: k/128")
    return KBlocks(tuple(found[: cut[0]]), found[cut[0]], int(lengths[cut[0]]), tuple(found[cut[0] + 1 :]))


def k_blocks_of(reduce: list[Var], apart: Callable[[Var], int], room: int, tuning: Tuning) -> KBlocks:
    """Choose k-blocks of up to ``k_block_terms`` terms, of equal length if a length above half of that divides the sum.

    ``apart``: bytes between neighbouring terms in memory. The operands of a k-block should span at most ``room``.
    """
    outer, inner, terms = list(reduce), list[Var](), 1
    longest = tuning.k_block_terms
    # Whole inner variables first, as long as their terms fit the block and their operands fit ``room``: pieces that end
    # inside an inner variable would need two loops.
    while len(outer) > 1 and terms * outer[-1].extent <= longest and room >= apart(outer[-1]) * outer[-1].extent:
        inner.insert(0, outer.pop())
        terms *= inner[0].extent
        room -= apart(inner[0]) * inner[0].extent
    cut = outer.pop()
    # At least ``k_block_least`` terms even where they span more than
    # ``room``: each block loads and stores all totals.
    fitting = max(room // max(apart(cut), 1), -(-tuning.k_block_least // terms))
    most = min(cut.extent, longest // terms, fitting)
    # Equal pieces where a length above half of the wanted one divides the extent, so that there is no remainder with
    # separate loops.
    return KBlocks(tuple(outer), cut, piece(cut.extent, most), tuple(inner))


@dataclass(frozen=True)
class Totals:
    """The totals of a block of the result: all of ``inner``, and ``spans``, variables from a first position for a
    length.

    The last span is in lanes.
    """

    name: str
    inner: list[Var]
    spans: dict[Var, tuple[Index, int]]

    def total(self, nest: BilinearNest) -> Load:
        extents = [*(v.extent for v in self.inner), *(length for _, length in self.spans.values())]
        # Positions are relative to the block, so the totals' buffer is as small as the block.
        at = [*map(index, self.inner), *(index(v) - first for v, (first, _) in self.spans.items())]
        return Load(Buffer(self.name, nest.acc.dtype, prod(extents)), linear(at, extents))

    def each(self, stmts: Iterable[Stmt], suffix: str) -> tuple[Stmt, ...]:
        """Loops over the whole block."""
        *rows, lane = (Var(f"{v.name}_b", length) for v, (_, length) in self.spans.items())
        starts = {v: first for v, (first, _) in self.spans.items()}
        mapping = {v: first + index(w) for (v, first), w in zip(starts.items(), (*rows, lane), strict=True)}
        # Names get a suffix, as the same statements occur at the beginning and at the end of the block.
        body = Copier(mapping, f"_{self.name}{suffix}").stmts(stmts)
        return loops("serial", [*rows, *self.inner], (Loop("vector", lane, body),))


def in_k_blocks(
    nest: BilinearNest, blocks: KBlocks, totals: Totals, tiles: Callable[[BilinearNest], tuple[Stmt, ...]]
) -> tuple[Stmt, ...]:
    """Compute a block of the result; ``tiles`` builds its register tiles, for given values of the inner variables."""
    total = totals.total(nest)
    body: tuple[Stmt, ...] = ()
    for number, begin, place in blocks.pieces():
        # Each k-block starts from the stored total instead of zero and stores it again. The
        # chain of additions is unbroken, so the sum has the bits of one loop.
        goes_on = replace(
            nest, reduce=[place, *blocks.inner], start=total, epilogue=[Store(total.buffer, total.offset, nest.acc)]
        )
        made = Copier({blocks.cut: begin + index(place)}).stmts(tiles(goes_on))
        body += loops("serial", [number, *totals.inner], made)
    return (
        Local(total.buffer),
        *totals.each([Store(total.buffer, total.offset, nest.accumulator().init)], "s"),
        *loops("serial", blocks.outer, body),
        # The epilogue runs after the last term.
        *totals.each([Let(ACCUMULATOR, total), *nest.epilogue], "e"),
    )
