"""The schedules of convolutions by transformed tiles, and of gradients of their weights, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeVar

from tracecomp.passes.schedule.records import KINDS, Chooser, ScheduleError, number, setting, with_fields, word


@dataclass(frozen=True)
class ConvolutionSchedule:
    """Blocks of tiles, each transformed, multiplied by one column of filters after the other, and transformed back."""

    TITLE: ClassVar[str] = "winograd"

    width: int = setting(number, "filters of a column: the lanes of some registers")
    block: int = setting(number, "tiles of a block, all kept in cache")
    threads: str = setting(word(*KINDS), "who shares the blocks", "serial")
    weight_threads: str = setting(word(*KINDS), "who shares the weights' transformation", "serial")


@dataclass(frozen=True)
class GradientSchedule:
    """Both sides' tiles transformed and multiplied, and a block's totals in cache until all tiles are summed."""

    TITLE: ClassVar[str] = "winograd weight gradient"

    width: int = setting(number, "results of a column: the lanes of some registers")
    run: int = setting(number, "rows whose totals a block keeps")
    chunk: int = setting(number, "most tiles transformed at a time")
    threads: str = setting(word(*KINDS), "who shares the blocks", "serial")
    copy_threads: str = setting(word(*KINDS), "who shares the copy of a gradient with strided filters", "serial")
    total_threads: str = setting(word(*KINDS), "who shares adding the parts' totals", "serial")


S = TypeVar("S", ConvolutionSchedule, GradientSchedule)


def made_with(chosen: S, chooser: Chooser) -> S:
    """Return the chosen schedule with the user's fields."""
    # Any number but zero is valid: a position's sum runs over channels or tiles in order, for any blocks.
    made = with_fields(chosen, chooser.next_given(), {})
    for name in ("width", "block", "run", "chunk"):
        if getattr(made, name, 1) < 1:
            raise ScheduleError(f"{made.TITLE}: {name} must be at least 1")
    chooser.made.append(made)
    return made
