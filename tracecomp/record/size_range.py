"""The sizes for which a recording holds."""

from __future__ import annotations

from tracecomp.base.errors import Source, user_source


class SizeRange:
    """The values of one size for which a recording holds."""

    def __init__(self, value: int) -> None:
        self.value = value
        self.low = min(value, 1)
        self.high: int | None = None
        self.without: set[int] = set()
        self.fixed_at: Source | None = None

    def fix(self) -> None:
        """Hold for the value at hand only."""
        self.low = self.high = self.value
        self.fixed_at = self.fixed_at or user_source()

    def holds(self, value: int) -> bool:
        return self.low <= value and (self.high is None or value <= self.high) and value not in self.without

    def narrow(self, factor: int, offset: int, least: int) -> None:
        """Hold only where ``factor * size + offset >= least``."""
        if factor > 0:
            self.low = max(self.low, -((offset - least) // factor))
        else:
            high = (offset - least) // -factor
            self.high = high if self.high is None else min(self.high, high)
