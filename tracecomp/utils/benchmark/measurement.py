"""The results of measurements: a statement, its times and statistics."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from tracecomp.runtime.threads import get_num_threads, set_num_threads

T = TypeVar("T")
_SHAKY, _WILD = 0.1, 0.25
"""Spreads, as parts of the median, that are said."""
_UNITS = {"ns": (1e-9, "nanosecond"), "us": (1e-6, "microsecond"), "ms": (1e-3, "millisecond"), "s": (1.0, "second")}


@dataclasses.dataclass(frozen=True)
class TaskSpec:
    """The identity of a measured task."""

    stmt: str
    setup: str
    global_setup: str = ""
    label: str | None = None
    sub_label: str | None = None
    description: str | None = None
    env: str | None = None
    num_threads: int = 1

    @property
    def title(self) -> str:
        """The label and sub-label, or else the statement."""
        if self.label is not None:
            return self.label + (f": {self.sub_label}" if self.sub_label else "")
        return self.stmt if "\n" not in self.stmt else f"stmt:\n{_indented(self.stmt)}"

    def setup_str(self) -> str:
        """The setup statement as text."""
        if not self.setup or self.setup == "pass":
            return ""
        return f"setup:\n{_indented(self.setup)}" if "\n" in self.setup else f"setup: {self.setup}"

    def summarize(self) -> str:
        """Title, description and setup in lines."""
        sections = (self.title, self.description or "", self.setup_str())
        return "\n".join(f"{part}\n" if "\n" in part else part for part in sections if part)


def _indented(text: str) -> str:
    return "\n".join("  " + line for line in text.splitlines())


@dataclasses.dataclass(repr=False)
class Measurement:
    """Times of a statement: ``raw_times`` in seconds, each of ``number_per_run`` runs."""

    number_per_run: int
    raw_times: list[float]
    task_spec: TaskSpec
    metadata: Mapping[Any, Any] | None = None

    def __getattr__(self, name: str) -> Any:
        if name in TaskSpec.__dataclass_fields__:
            return getattr(self.task_spec, name)
        raise AttributeError(f"'Measurement' object has no attribute {name!r}")

    @property
    def times(self) -> list[float]:
        """Seconds of one run."""
        return [t / self.number_per_run for t in self.raw_times]

    @cached_property
    def _quartiles(self) -> tuple[float, float, float]:
        low, middle, high = np.quantile(self.times, (0.25, 0.5, 0.75)) if self.raw_times else (-1.0, -1.0, -1.0)
        return float(low), float(middle), float(high)

    @property
    def median(self) -> float:
        return self._quartiles[1]

    @property
    def mean(self) -> float:
        return float(np.mean(self.times))

    @property
    def iqr(self) -> float:
        """From the first quartile to the third."""
        return self._quartiles[2] - self._quartiles[0]

    @property
    def significant_figures(self) -> int:
        """How many digits of the median mean something, by the spread of the times between the quartiles."""
        times, n = sorted(self.times), len(self.raw_times)
        inner = times[n // 4 : math.ceil(3 * n / 4)]
        interval = max(1.645 * float(np.std(inner)) / math.sqrt(len(inner)), 25e-9)
        return min(max(math.floor(math.log10(self.median / interval)), 1), 4)

    def meets_confidence(self, threshold: float = _SHAKY) -> bool:
        """Whether the spread is below ``threshold`` times the median."""
        return self.iqr / self.median < threshold

    @property
    def has_warnings(self) -> bool:
        return bool(self.raw_times) and not self.meets_confidence()

    @property
    def title(self) -> str:
        return self.task_spec.title

    @property
    def as_row_name(self) -> str:
        return self.task_spec.sub_label or self.task_spec.stmt or "[Unknown]"

    def _warning(self) -> str:
        if not self.has_warnings:
            return ""
        wild = not self.meets_confidence(_WILD)
        why = (
            "This suggests significant environmental influence." if wild else "This could indicate system fluctuation."
        )
        percent = self.iqr / self.median * 100
        return f"  WARNING: Interquartile range is {percent:.1f}% of the median measurement.\n           {why}"

    def __repr__(self) -> str:
        n, runs, threads = len(self.raw_times), self.number_per_run, self.task_spec.num_threads
        unit, scale = select_unit(self.median)
        low, middle, high = (q / scale for q in self._quartiles)
        lines = [object.__repr__(self), self.task_spec.summarize()]
        lines.append(f"  {'Median: ' if n > 1 else ''}{middle:.2f} {unit}")
        if n >= 4:
            lines.append(f"  IQR:    {high - low:.2f} {unit} ({low:.2f} to {high:.2f})")
        many = f"{n} measurement{'s' if n > 1 else ''}, {runs} runs {'per measurement,' if n > 1 else ','}"
        lines.append(f"  {many} {threads} thread{'s' if threads > 1 else ''}")
        return "\n".join([*lines, self._warning()]).strip()

    @staticmethod
    def merge(measurements: Iterable[Measurement]) -> list[Measurement]:
        """Measurements of one task as one, with times of single runs."""
        groups: defaultdict[TaskSpec, list[float]] = defaultdict(list)
        for m in measurements:
            groups[m.task_spec].extend(m.times)
        return [Measurement(1, times, task) for task, times in groups.items()]


def select_unit(t: float) -> tuple[str, float]:
    """The unit in which ``t`` seconds have at most three digits before the point, and its length in seconds."""
    place = math.floor(math.log10(t) // 3) if t > 0 else -3
    unit = {-3: "ns", -2: "us", -1: "ms"}.get(place, "s" if place >= 0 else "ns")
    return unit, _UNITS[unit][0]


def unit_to_english(u: str) -> str:
    """The name of a unit: "us" is a microsecond."""
    return _UNITS[u][1]


def trim_sigfig(x: float, n: int) -> float:
    """``x`` with ``n`` significant figures."""
    if n != int(n):
        raise AssertionError("Number of significant figures must be an integer")
    if x == 0:
        return x
    scale = 10 ** (math.ceil(math.log10(abs(x))) - n)
    return float(round(x / scale) * scale)


def ordered_unique(elements: Iterable[T]) -> list[T]:
    """Each element once, as they come."""
    return list(dict.fromkeys(elements))


@contextlib.contextmanager
def set_torch_threads(n: int) -> Iterator[None]:
    """``n`` threads within."""
    before = get_num_threads()
    try:
        set_num_threads(n)
        yield
    finally:
        set_num_threads(before)
