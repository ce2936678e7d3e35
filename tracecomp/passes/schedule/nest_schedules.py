"""The schedules of elementwise work, reductions and moves, as data; ``elementwise.py`` chooses them.

A nest with reduced variables in lanes has a ``RowSchedule``. Any other one may have a ``LaneSchedule``, and where its
accesses allow it a ``ColumnSchedule`` or a ``TransposeSchedule``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tracecomp.ir.index import Var
from tracecomp.passes.schedule.records import (
    KINDS,
    number,
    setting,
    variable,
    variable_or_none,
    variables_of,
    word,
    words,
)

STORES = ("no", "always", "alone")
"""Whether stores bypass the caches; ``alone``: only if no other thread shares the work."""


@dataclass(frozen=True)
class RowSchedule:
    """SIMD lanes along the innermost reduced variable; a few rows at a time."""

    TITLE: ClassVar[str] = "lanes along rows"

    rows_at_once: int = setting(number, "rows computed together in one loop")
    split_from: int = setting(number, "shortest reduced variable whose passes without sums may be split")
    threads: str = setting(word(*KINDS), "who shares the loop over rows", "serial")


@dataclass(frozen=True)
class LaneSchedule:
    """SIMD lanes along a kept variable; each lane computes a separate row."""

    TITLE: ClassVar[str] = "lanes across rows"

    vector: Var | None = setting(variable_or_none, "the variable of the lanes")
    width: int = setting(number, "values of vector at a time: the lanes of some registers")
    order: tuple[Var, ...] = setting(variables_of, "the other variables, outermost first", ())
    transposed: int = setting(number, "summed elements per block transposed in registers; 0: none", 0)
    nontemporal: str = setting(word(*STORES), "whether stores bypass the caches", "no")
    threads: str = setting(word(*KINDS), "who shares the outermost loop", "serial")


@dataclass(frozen=True)
class ColumnSchedule:
    """Wide blocks of columns, whose totals stay in cache while some rows at a time are added to them."""

    TITLE: ClassVar[str] = "blocks of columns"

    vector: Var = setting(variable, "the variable of the columns")
    width: int = setting(number, "lanes at a time")
    block: int = setting(number, "columns of a block")
    rows_at_once: int = setting(number, "rows that are added at a time")
    threads: str = setting(word(*KINDS), "who shares the blocks", "serial")


@dataclass(frozen=True)
class TransposeSchedule:
    """Blocks that are read along one variable, transposed in registers, and written along another, in panels."""

    TITLE: ClassVar[str] = "transposed"

    load: Var = setting(variable, "the variable along which memory is read")
    store: Var = setting(variable, "the variable along which memory is written")
    width: int = setting(number, "elements of a panel along load")
    height: int = setting(number, "elements of a panel along store")
    prefetch: tuple[str, ...] = setting(words(), "buffers whose next panel is prefetched", ())
    nontemporal: str = setting(word(*STORES), "whether stores bypass the caches", "no")
    threads: str = setting(word(*KINDS), "who shares the panels", "serial")


MapSchedule = LaneSchedule | ColumnSchedule | TransposeSchedule
