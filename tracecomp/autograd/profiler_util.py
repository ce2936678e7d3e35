"""Measured calls, their sums by operator, and the table and trace that show them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

__all__ = ["EventList", "FunctionEvent", "FunctionEventAvg", "Interval"]


class Interval(NamedTuple):
    """A span of time, in microseconds."""

    start: float
    end: float

    def elapsed_us(self) -> float:
        """Its length in microseconds."""
        return self.end - self.start


class _Unmeasured:
    """Times of devices, sizes of memory, operations, shapes and stacks, which are not measured here."""

    cuda_time_total: ClassVar[float] = 0.0
    self_cuda_time_total: ClassVar[float] = 0.0
    device_time_total: ClassVar[float] = 0.0
    self_device_time_total: ClassVar[float] = 0.0
    cpu_memory_usage: ClassVar[int] = 0
    self_cpu_memory_usage: ClassVar[int] = 0
    device_memory_usage: ClassVar[int] = 0
    self_device_memory_usage: ClassVar[int] = 0
    flops: ClassVar[int] = 0
    is_async: ClassVar[bool] = False
    is_remote: ClassVar[bool] = False
    input_shapes: ClassVar[tuple[object, ...]] = ()
    stack: ClassVar[tuple[str, ...]] = ()


@dataclass(frozen=True)
class FunctionEvent(_Unmeasured):
    """One call of an operator, in microseconds."""

    count: ClassVar[int] = 1
    thread: ClassVar[int] = 0
    name: str
    start: float
    cpu_time_total: float
    self_cpu_time_total: float = 0.0

    @property
    def key(self) -> str:
        return self.name

    @property
    def cpu_time(self) -> float:
        return self.cpu_time_total

    @property
    def time_range(self) -> Interval:
        return Interval(self.start, self.start + self.cpu_time_total)


@dataclass
class FunctionEventAvg(_Unmeasured):
    """All calls of one operator, in microseconds."""

    key: str = "Total"
    count: int = 0
    cpu_time_total: float = 0.0
    self_cpu_time_total: float = 0.0

    @property
    def cpu_time(self) -> float:
        return self.cpu_time_total / self.count if self.count else 0.0

    def add(self, event: FunctionEvent | FunctionEventAvg) -> FunctionEventAvg:
        """Count ``event`` as well."""
        self.count += event.count
        self.cpu_time_total += event.cpu_time_total
        self.self_cpu_time_total += event.self_cpu_time_total
        return self


E = TypeVar("E", bound=FunctionEvent | FunctionEventAvg)


class EventList(list[E]):
    """Calls in the order in which they ended, or their sums by operator with the most expensive first."""

    def key_averages(self, group_by_input_shapes: bool = False, **options: object) -> EventList[FunctionEventAvg]:
        """One entry per operator."""
        sums: dict[str, FunctionEventAvg] = {}
        for event in self:
            sums.setdefault(event.key, FunctionEventAvg(event.key)).add(event)
        return EventList(sorted(sums.values(), key=lambda e: -e.self_cpu_time_total))

    def total_average(self) -> FunctionEventAvg:
        """One entry for everything. Its total counts a nested call in each of its callers too."""
        total = FunctionEventAvg()
        for event in self:
            total.add(event)
        return total

    @property
    def self_cpu_time_total(self) -> float:
        """The time of all calls, in microseconds."""
        return sum(e.self_cpu_time_total for e in self)

    def table(self, sort_by: str | None = None, row_limit: int = 100, **options: Any) -> str:
        """The first ``row_limit`` entries in PyTorch's layout; ``sort_by`` is a field, such as "cpu_time_total"."""
        if not self:
            return ""
        rows = sorted(self, key=attrgetter(sort_by), reverse=True) if sort_by else self
        total = self.self_cpu_time_total or 1.0
        width = min(max(len(e.key) for e in self) + 4, _NAME_WIDTH)
        rule = _row("-" * width, ["-" * _WIDTH] * len(_HEAD), width)
        lines = [rule, _row("Name", _HEAD, width), rule]
        for e in rows[:row_limit]:
            shares = [f"{100 * t / total:.2f}%" for t in (e.self_cpu_time_total, e.cpu_time_total)]
            times = [_shown(t) for t in (e.self_cpu_time_total, e.cpu_time_total, e.cpu_time)]
            cells = [shares[0], times[0], shares[1], times[1], times[2], str(e.count)]
            lines.append(_row(e.key if len(e.key) < width else f"{e.key[: width - 3]}...", cells, width))
        return "\n".join([*lines, rule, f"Self CPU time total: {_shown(total)}", ""])

    def export_chrome_trace(self, path: str) -> None:
        """Write every call to ``path``, in the format of Chrome's trace viewer."""
        calls = [
            {"name": e.name, "ph": "X", "pid": 0, "tid": 0, "ts": e.start, "dur": e.cpu_time_total}
            for e in self
            if isinstance(e, FunctionEvent)
        ]
        Path(path).write_text(json.dumps({"traceEvents": calls}))

    def __str__(self) -> str:
        return self.table()


_HEAD = ["Self CPU %", "Self CPU", "CPU total %", "CPU total", "CPU time avg", "# of Calls"]
_WIDTH = 12
"""Characters of a column: a time with its unit, as in PyTorch's table."""
_NAME_WIDTH = 55
"""Characters of a name before it is truncated, PyTorch's default."""


def _row(name: str, cells: list[str], width: int) -> str:
    return "".join(f"{text:>{size}}  " for text, size in [(name, width), *((cell, _WIDTH) for cell in cells)])


def _shown(microseconds: float) -> str:
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if microseconds >= size:
            return f"{microseconds / size:.3f}{unit}"
    return f"{microseconds:.3f}us"
