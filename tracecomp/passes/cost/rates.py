"""How fast the processor is, measured once by ``python -m tracecomp env --measure`` and kept in the cache folder.

Nothing is measured while programs are compiled: without a record the rates of the reference machine hold, so that
a program's schedule is the same in every process. With one, only the choice of which loops wake threads changes, in
powers of two, as two measurements of one machine differ by some percent. No bit of a result depends on it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from math import log2
from pathlib import Path

from tracecomp.passes.cost import processor

FILE = "machine.json"
"""Name of the records in the cache folder: one for every kind of processor that has used the folder."""

STEPS = (0.25, 8.0)
"""How far a measured machine may move the amount of work that is worth a wake-up: a disturbed try should not matter."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Of one core: float32 operations, and bytes, per second. The defaults are those of the reference machine.

    ``multiply_adds``, ``divisions`` and ``gathers``: elements, in whole registers. ``load_bytes``: from the first
    cache. ``bandwidth``: read and written, of memory that no cache holds. ``wake_seconds``: what waking a worker costs
    the thread that wakes it, and ``0.0`` if there is one processor alone.
    """

    multiply_adds: float = 54e9
    divisions: float = 9.4e9
    gathers: float = 2.3e9
    load_bytes: float = 175e9
    bandwidth: float = 20e9
    wake_seconds: float = 9e-6

    @property
    def work_of_a_wake(self) -> float:
        """How much more a core gets done in the time of a wake-up than the reference machine does; a power of two."""
        if self.wake_seconds <= 0.0 or self.multiply_adds <= 0.0:
            # No worker to wake, or a record that makes no sense: thresholds stay as they were tuned.
            return 1.0
        ratio = self.wake_seconds * self.multiply_adds / (REFERENCE.wake_seconds * REFERENCE.multiply_adds)
        # Powers of two, because two measurements of one machine differ by a
        # few percent, and a program's loops should not.
        return min(max(2.0 ** round(log2(ratio)), STEPS[0]), STEPS[1])


REFERENCE = Rates()
"""Two cores of a virtual AMD EPYC 9004 (Zen 4), by ``python -m tracecomp env --measure``, rounded."""


def recorded(folder: str) -> Rates | None:
    """What was measured on this kind of processor; None if nothing was, or if it cannot be read."""
    try:
        found = json.loads((Path(folder) / FILE).read_text(encoding="utf8"))[processor.key()]
        return Rates(**{f.name: float(found[f.name]) for f in fields(Rates)})
    except (OSError, ValueError, KeyError, TypeError):
        # Anything unreadable is as if nobody had measured. A record decides
        # speed alone, so a warning would only be noise.
        return None


def record(folder: str, rates: Rates) -> Path:
    """Keep what was measured on this kind of processor, beside the records of others."""
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
