"""Measurements side by side in a table."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

from tracecomp.utils.benchmark.measurement import (
    Measurement,
    ordered_unique,
    select_unit,
    trim_sigfig,
    unit_to_english,
)

_BEST, _GOOD, _BAD, _WORST, _BOLD, _END = "\033[92m", "\033[34m", "\033[2m\033[91m", "\033[31m", "\033[1m", "\033[0m"
Row = tuple[int, str | None, str]


class Compare:
    """A table of measurements: a row for each label within, a column for each description, a table for each label."""

    def __init__(self, results: Iterable[Measurement]) -> None:
        self._results: list[Measurement] = []
        self.extend_results(results)
        self._trimmed = self._warned = False
        self._colored = ""

    def extend_results(self, results: Iterable[Measurement]) -> None:
        """Add measurements. ValueError for anything else."""
        results = list(results)
        for r in results:
            if not isinstance(r, Measurement):
                raise ValueError(f"Expected an instance of `Measurement`, got {type(r)} instead.")
        self._results.extend(results)

    def trim_significant_figures(self) -> None:
        """Show the digits that mean something."""
        self._trimmed = True

    def colorize(self, rowwise: bool = False) -> None:
        """Colour the best and the worst of each column, or of each row."""
        self._colored = "rows" if rowwise else "columns"

    def highlight_warnings(self) -> None:
        """Mark times that vary much."""
        self._warned = True

    def print(self) -> None:
        """Print the tables."""
        print(str(self))

    def __str__(self) -> str:
        groups: defaultdict[str | None, list[Measurement]] = defaultdict(list)
        for m in Measurement.merge(self._results):
            groups[m.task_spec.label].append(m)
        return "\n".join(self._table(label, group) for label, group in groups.items())

    def _table(self, label: str | None, results: list[Measurement]) -> str:
        unit, scale = select_unit(min(m.median for m in results))
        rows = sorted(ordered_unique(map(_row, results)), key=lambda r: (r[0], r[1] or ""))
        columns = ordered_unique(m.task_spec.description for m in results)
        at = {(_row(m), m.task_spec.description): m for m in results}
        cells = {c: self._column([at.get((r, c)) for r in rows], scale) for c in columns}
        names = _names(rows)
        wide = [max(map(len, names)), *[max(len(c or ""), *map(len, cells[c])) for c in columns]]
        head = "  |  ".join(text.center(w) for text, w in zip(["", *[c or "" for c in columns]], wide, strict=True))
        lines = [f"[{(' ' + (label or '') + ' ').center(len(head) - 2, '-')}]", head]
        threads = -1
        for i, row in enumerate(rows):
            if row[0] != threads:
                threads = row[0]
                lines.append(f"{threads} threads: ".ljust(len(head), "-"))
            texts = [names[i].ljust(wide[0])]
            for c, w in zip(columns, wide[1:], strict=True):
                beside = (
                    [at.get((row, d)) for d in columns]
                    if self._colored == "rows"
                    else [at.get((r, c)) for r in rows if r[0] == row[0]]
                )
                texts.append(self._tinted(cells[c][i].center(w), at.get((row, c)), beside))
            lines.append("  |  ".join(texts))
        lines += ["", f"Times are in {unit_to_english(unit)}s ({unit})."]
        if self._warned and any(m.has_warnings for m in results):
            lines.append("(! XX%) Measurement has high variance, where XX is the IQR / median * 100.")
        return "\n".join(lines) + "\n"

    def _column(self, found: Sequence[Measurement | None], scale: float) -> list[str]:
        """The texts of a column, all of one width."""
        there = [m for m in found if m is not None]
        whole = {id(m): math.ceil(math.log10(m.median / scale)) for m in there}
        digits = min(max(m.significant_figures - whole[id(m)], 0) for m in there) if self._trimmed else 1
        width = max(whole.values()) + digits + (1 if digits else 0)
        marks = self._warned and any(m.has_warnings for m in there)

        def text(m: Measurement) -> str:
            value = m.median / scale
            value = trim_sigfig(value, m.significant_figures) if self._trimmed else value
            mark = f" (! {m.iqr / m.median * 100:.0f}%)" if marks and m.has_warnings else ""
            return f"{value:>{width}.{digits}f}{mark:>{7 if marks else 0}}"

        texts = ["" if m is None else text(m) for m in found]
        return [t or " " * max(map(len, texts)) for t in texts]

    def _tinted(self, text: str, m: Measurement | None, beside: Sequence[Measurement | None]) -> str:
        if m is None or not self._colored:
            return text
        value, best = m.median, min(other.median for other in beside if other is not None)
        if value <= best * 1.01 or value <= best + 100e-9:
            return _BEST + _BOLD + text + _END * 2
        if value <= best * 1.1:
            return _GOOD + _BOLD + text + _END * 2
        if value >= best * 5:
            return _WORST + _BOLD + text + _END * 2
        return _BAD + text + _END * 2 if value >= best * 2 else text


def _row(m: Measurement) -> Row:
    return m.task_spec.num_threads, m.task_spec.env, m.as_row_name


def _names(rows: Sequence[Row]) -> list[str]:
    """The first column: the description of each row, with its environment where there are several."""
    several = len({env for _, env, _ in rows}) > 1
    wide = max(len(env or "") for _, env, _ in rows) + 4 if several else 4
    return ["  " + (f"({env or ''})" if several else "").ljust(wide) + name for _, env, name in rows]
