"""The sizes for which a recording holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import CodeType

from tracecomp.base.code_origin import is_user_file
from tracecomp.base.errors import Source, user_source
from tracecomp.record.size_forms import Form


class SizeRange:
    """The values of one size for which a recording holds."""

    def __init__(self, value: int) -> None:
        self.value = value
        self.low = min(value, 1)
        self.high: int | None = None
        self.without: set[int] = set()
        self.fixed_at: Source | None = None
        self.read_at: Source | None = None
        """The line of the program that reads the size as a plain number, as ``len`` and ``int`` do."""

    def fix(self) -> None:
        """Hold only for the current value."""
        self.low = self.high = self.value
        self.fixed_at = self.fixed_at or user_source()

    def note_reader(self, code: CodeType) -> None:
        """Note that ``code`` has read the size as a plain number."""
        if self.read_at is None and is_user_file(code.co_filename):
            self.read_at = user_source()

    @property
    def fixed(self) -> bool:
        """Whether one value is all there is."""
        return self.low == self.high

    def holds(self, value: int) -> bool:
        return self.low <= value and (self.high is None or value <= self.high) and value not in self.without

    def bound(self, low: int | None, high: int | None) -> None:
        """Hold between ``low`` and ``high`` only."""
        self.low = self.low if low is None else max(self.low, low)
        self.high = high if self.high is None else self.high if high is None else min(self.high, high)

    def narrow(self, factor: int, offset: int, least: int) -> None:
        """Hold only where ``factor * size + offset >= least``."""
        if factor > 0:
            self.bound(-((offset - least) // factor), None)
        else:
            self.bound(None, (offset - least) // -factor)

    def says(self) -> str:
        """The values as text."""
        text = f"from {self.low} on" + ("" if self.high is None else f" to {self.high}")
        return text + "".join(f", not {n}" for n in sorted(self.without) if n >= self.low)


@dataclass
class Conditions:
    """Conditions on the sizes of a recording: ``ranges`` of each, and formulas that are 0, nonzero, or >= 0."""

    ranges: list[SizeRange] = field(default_factory=list)
    zero: set[Form] = field(default_factory=set)
    other: set[Form] = field(default_factory=set)
    positive: set[Form] = field(default_factory=set)

    @property
    def values(self) -> list[int]:
        """The current sizes."""
        return [r.value for r in self.ranges]

    def holds(self, sizes: Sequence[int]) -> bool:
        """Whether the recording holds for ``sizes``."""
        return (
            all(r.holds(n) for r, n in zip(self.ranges, sizes, strict=True))
            and all(form.at(sizes) == 0 for form in self.zero)
            and all(form.at(sizes) != 0 for form in self.other)
            and all(form.at(sizes) >= 0 for form in self.positive)
        )

    def learn(self, name: str, difference: Form, found: bool) -> None:
        """Take over that ``difference``, compared with 0 as ``name`` says, was ``found``."""
        line = difference.line()
        if name in ("eq", "ne"):
            self._equal(difference, line, found == (name == "eq"))
        elif (name in ("ge", "gt")) == found:  # the difference is large
            self._least(difference, int(name in ("gt", "le")))
        else:
            self._least(Form.constant(0).plus(difference, -1), int(name in ("lt", "ge")))

    def _equal(self, difference: Form, line: tuple[int, int, int] | None, is_zero: bool) -> None:
        if line is None:
            (self.zero if is_zero else self.other).add(difference)
            return
        size, factor, offset = line
        if is_zero:
            self.ranges[size].fix()
        elif offset % factor == 0:
            self.ranges[size].without.add(-offset // factor)

    def _least(self, difference: Form, least: int) -> None:
        line = difference.line()
        if line is None:
            self.positive.add(difference.plus(Form.constant(-least)))
        else:
            size, factor, offset = line
            self.ranges[size].narrow(factor, offset, least)
