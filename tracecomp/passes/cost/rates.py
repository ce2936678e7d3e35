"""How fast the processor is, measured once by ``python -m tracecomp env --measure`` and kept in the cache folder.

Compilation never measures. Without a record the rates of the reference machine apply, so that a program's schedule is
the same in every process. A record changes only which loops wake threads, in powers of two, as two measurements of one
machine differ by some percent. Bits of results do not depend on it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from math import log2
from pathlib import Path

from tracecomp.passes.cost import processor

FILE = "machine.json"
"""Name of the records in the cache folder, which has one record per kind of processor."""

STEPS = (0.25, 8.0)
"""Limits of the factor by which a record scales the work worth a wake-up: a disturbed measurement should not matter."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates of one core: float32 operations, and bytes, per second. The defaults are those of the reference machine.

    ``multiply_adds``, ``divisions`` and ``gathers``: elements, in whole registers. ``load_bytes``: from the first
    cache. ``bandwidth``: read and written, of memory that no cache holds. ``wake_seconds``: the time that waking a
    worker takes the waking thread; ``0.0`` with a single processor.
    """

    multiply_adds: float = 54e9
    divisions: float = 9.4e9
    gathers: float = 2.3e9
    load_bytes: float = 175e9
    bandwidth: float = 20e9
    wake_seconds: float = 9e-6

    @property
    def work_of_a_wake(self) -> float:
        """How many times the reference machine's work a core does during a wake-up; a power of two."""
        if self.wake_seconds <= 0.0 or self.multiply_adds <= 0.0:
            # No worker to wake, or an implausible record: thresholds keep their tuned values.
            return 1.0
        ratio = self.wake_seconds * self.multiply_adds / (REFERENCE.wake_seconds * REFERENCE.multiply_adds)
        # Powers of two, because two measurements of one machine differ by a
        # few percent, and a program's loops should not.
        return min(max(2.0 ** round(log2(ratio)), STEPS[0]), STEPS[1])


REFERENCE = Rates()
"""Two cores of a virtual AMD EPYC 9004 (Zen 4), by ``python -m tracecomp env --measure``, rounded."""


def recorded(folder: str) -> Rates | None:
    """The measurements of this kind of processor; None if there are none, or if they cannot be read."""
    try:
        found = json.loads((Path(folder) / FILE).read_text(encoding="utf8"))[processor.key()]
        return Rates(**{f.name: float(found[f.name]) for f in fields(Rates)})
    except (OSError, ValueError, KeyError, TypeError):
        # An unreadable record counts as missing. A record decides only speed, so a warning would be noise.
        return None


def record(folder: str, rates: Rates) -> Path:
    """Store the measurements of this kind of processor, next to the records of others."""
    path = Path(folder) / FILE
    try:
        found = json.loads(path.read_text(encoding="utf8"))
        assert isinstance(found, dict)
    except (OSError, ValueError, AssertionError):
        found = {}
    path.parent.mkdir(parents=True, exist_ok=True)
    # Others' records are kept: one cache folder may be shared by machines, over a network for example.
    path.write_text(json.dumps(found | {processor.key(): asdict(rates)}, indent=1) + "\n", encoding="utf8")
    return path
