"""Long sums of register tiles in stages: so many terms at a time that what they read stays in cache.

A block of the result keeps its totals in memory; every stage goes on from them, term by term in the same order, for
all register tiles of the block. So no bit depends on where a stage ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tracecomp.ir.index import Index, Var, index
from tracecomp.ir.loops import Buffer, Let, Load, Loop, Stmt, Store
from tracecomp.passes.bilinear import ACCUMULATOR, BilinearNest
from tracecomp.passes.rename import Copier

STAGE_TERMS = 512


@dataclass(frozen=True)
class Stages:
    """The summed variables: loops ``outer``, then pieces of ``cut``, ``length`` long each, then ``inner`` whole."""

    outer: tuple[Var, ...]
    cut: Var
    length: int
    inner: tuple[Var, ...]

    def pieces(self) -> Iterator[tuple[Var, Index, Var]]:
        """The loop over whole pieces and what remains: a number, where the piece begins, and a place in it."""
        whole, rest = divmod(self.cut.extent, self.length)
        number = Var(f"{self.cut.name}_o", whole)
        yield number, index(number) * self.length, Var(f"{self.cut.name}_i", self.length)
        if rest:
            yield Var(f"{self.cut.name}_o", 1), Index((), whole * self.length), Var(f"{self.cut.name}_i", rest)


def stages_of(reduce: list[Var]) -> Stages:
    """Stages of up to ``STAGE_TERMS`` terms, as many as make whole stages where that costs little."""
    outer, terms, inner = list(reduce), 1, []
    while len(outer) > 1 and terms * outer[-1].extent <= STAGE_TERMS:
        inner.insert(0, outer.pop())
        terms *= inner[0].extent
    cut = outer.pop()
    most = min(cut.extent, STAGE_TERMS // terms)
    length = next(n for n in range(most, 0, -1) if cut.extent % n == 0)
    return Stages(tuple(outer), cut, length if 2 * length > most else most, tuple(inner))
