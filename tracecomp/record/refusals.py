"""The reason why a call cannot be recorded, with the lines of the compiled function that show it."""

from __future__ import annotations

from types import FrameType

from tracecomp.base.capture_guide import BreakReason, Section
from tracecomp.base.errors import CaptureError, user_source
from tracecomp.base.gc_pause import RareCollections
from tracecomp.eager.modes import modes


class Refusals:
    """The refusals of one recording. Unless ``strict``, the call continues without being recorded."""

    def __init__(self, strict: bool) -> None:
        self.strict = strict
        self.reason: BreakReason | None = None
        self.lines: set[int] = set()  # of the compiled function, that a recording cannot hold
        self.running: FrameType | None = None  # that of the compiled function
        self.collections = RareCollections()  # until the program runs without being recorded

    def refuse_here(self, what: str, section: Section, remedy: str = "") -> None:
        """Refuse what the program does at the line that runs; ``what`` begins with a verb.

        CaptureError; or, when not ``strict``, the rest of the call runs without being recorded.
        """
        self.blame(self.line())
        self.refuse(BreakReason(f"the program {what}, at {user_source()}", section, remedy))

    def refuse(self, reason: BreakReason) -> None:
        """Refuse for ``reason``, which no single line shows: CaptureError if ``strict``, or record no further."""
        self.reason = reason
        self.collections.stop()
        if self.strict:
            raise CaptureError(str(reason))
        modes.recorder = None

    def blame(self, line: int) -> None:
        """Note a line because of which there is no recording."""
        self.lines |= {line} - {0}

    def line(self) -> int:
        """The line of the compiled function that runs, or 0."""
        return 0 if self.running is None else self.running.f_lineno or 0
