"""Decisions that a model takes on its dynamic sizes: at which other sizes it may be another program.

All sizes that an export records at may take the same side of a branch. So the model is also recorded with symbolic
sizes, which notes every comparison. The sizes on the other side of each are then tried as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tracecomp.onnx.errors import UnsupportedError
from tracecomp.record.size_forms import Form
from tracecomp.record.size_range import Conditions
from tracecomp.record.symbolic.sizes import LEAST

Sizes = Mapping[str, int]
Ranges = Mapping[str, tuple[int | None, int | None]]
MOST_PATHS = 24
"""Runs that look for decisions. A model that compares its sizes with more numbers is refused."""
_FARTHEST = 4096
"""How far along one size the roots of a formula of sizes are looked for."""
_UNLIMITED = 2**31
"""Limits beyond it are those of counting elements, which no size reaches."""
_PLAIN = sorted({n for k in range(1, 11) for n in ((1 << k), (1 << k) + 1)})
"""Sizes at which the export checks a program that reads a size as a plain number, which notes no condition."""


@dataclass(frozen=True)
class Path:
    """Conditions on the sizes, in the order of ``names``, under which the program is that of the run ``at``."""

    names: Sequence[str]
    at: Sizes
    conditions: Conditions

    def holds(self, sizes: Sizes) -> bool:
        return self.conditions.holds([sizes[name] for name in self.names])

    def others(self) -> Iterator[dict[str, int]]:
        """Sizes that differ in one, on the other side of each condition."""
        for name, held in zip(self.names, self.conditions.ranges, strict=True):
            tried = set() if held.fixed else {held.low - 1, *held.without}
            if held.high is not None and not held.fixed:
                tried.add(held.high + 1)
            for n in sorted(tried, key=lambda n: abs(n - self.at[name])):
                yield {**self.at, name: n}
        for forms, holds in (
            (self.conditions.zero, lambda n: n == 0),
            (self.conditions.other, lambda n: n != 0),
            (self.conditions.positive, lambda n: n >= 0),
        ):
            for form in sorted(forms, key=repr):
                yield from self._across(form, holds)

    def fixed(self) -> list[str]:
        """The sizes that the program reads as plain numbers, maybe only because they equal another number by chance."""
        return [name for name, held in zip(self.names, self.conditions.ranges, strict=True) if held.fixed]

    def _across(self, form: Form, holds: Callable[[int], bool]) -> Iterator[dict[str, int]]:
        """The nearest sizes at which ``form`` is not as it was, along each size below and above."""
        for k in sorted(form.sizes()):
            if self.conditions.ranges[k].fixed:  # each size is a path: these are checked at some sizes only
                continue
            name, values = self.names[k], [self.at[name] for name in self.names]
            for steps in (range(values[k] - 1, LEAST - 1, -1), range(values[k] + 1, _FARTHEST)):
                n = next((n for n in steps if not holds(form.at([*values[:k], n, *values[k + 1 :]]))), None)
                if n is not None:
                    yield {**self.at, name: n}

    def ends(self, ranges: Ranges) -> Iterator[dict[str, int]]:
        """Sizes of this path that are far from where it was found: ``min`` and ``max`` agree at their boundary."""
        for name, held in zip(self.names, self.conditions.ranges, strict=True):
            high = 2 * self.at[name] + 1
            for n in (held.low, high if held.high is None else min(high, held.high)):
                sizes = {**self.at, name: min(max(n, LEAST, ranges[name][0] or 0), ranges[name][1] or n)}
                if self.holds(sizes):
                    yield sizes


def elsewhere(start: Sizes, ranges: Ranges, run: Callable[[Sizes], Path | None]) -> list[dict[str, int]]:
    """Return sizes at which the program may differ from that at ``start``: one for each path, and the least ones.

    ``run`` gives the path at some sizes, None where the program does not run. UnsupportedError for too many paths.
    """
    paths: list[Path] = []
    refused: list[Sizes] = []
    waiting: list[dict[str, int]] = [{**start}]
    while waiting:
        sizes = waiting.pop(0)
        if sizes in refused or any(path.holds(sizes) for path in paths):
            continue
        if len(paths) + len(refused) == MOST_PATHS:
            raise UnsupportedError(
                f"the program branches on the sizes {', '.join(start)} too often: {MOST_PATHS} runs show only a part"
            )
        path = run(sizes)
        if path is None:
            refused.append(sizes)
            continue
        paths.append(path)
        if len(paths) == 1:
            waiting += [{**start, name: n} for name in path.fixed() for n in (start[name] + 1, 2 * start[name] + 1)]
        waiting += [other for other in path.others() if _within(other, ranges)]
    ones = [{**start, name: 1} for name in start]  # sizes of one are not followed: anything may be expanded
    found = [sizes for path in paths[1:] for sizes in (path.at, *path.ends(ranges))]
    for name in {name for name in start if all(name in path.fixed() for path in paths)}:
        found += [sizes for n in _PLAIN if _within(sizes := {**start, name: n}, ranges)]
    found += [sizes for sizes in ones if _within(sizes, ranges, 1)]
    return [{**sizes} for k, sizes in enumerate(found) if sizes not in found[:k]]


def _within(sizes: Sizes, ranges: Ranges, least: int = LEAST) -> bool:
    """Return whether the sizes are within the requested ranges."""
    return all(max(least, ranges[name][0] or 0) <= n <= (ranges[name][1] or _UNLIMITED) for name, n in sizes.items())
