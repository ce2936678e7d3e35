"""The memory that a tensor shares with its views, and how often it was written."""

from __future__ import annotations

from typing import Any


class Memory:
    """The common state of all tensors over one memory. ``writes`` counts all writes; None: code outside tensors may
    write it."""

    __slots__ = ("writes",)
    writes: int | None

    def __init__(self) -> None:
        self.writes = 0


class Storage:
    """Shared by a tensor and all its views; ``version`` counts the writes that autograd tracks.

    A tensor that gets other memory leaves its storage to its earlier views. ``former`` then represents the tensor's old
    state, of which they are views from then on.
    """

    __slots__ = ("former", "memory", "version")

    def __init__(self, memory: Memory | None = None) -> None:
        self.former: Any = None
        self.version = 0
        self.memory = memory or Memory()

    def wrote(self, times: int = 1) -> None:
        """Count a write of the memory, which autograd counts as so many ``times``."""
        before, self.version = self.version, self.version + times
        if self.memory.writes is not None:
            same = self.memory.writes is before and times > 0
            self.memory.writes = self.version if same else self.memory.writes + 1

    def share(self) -> None:
        """Note that the memory can from now on be written without a count."""
        self.memory.writes = None
