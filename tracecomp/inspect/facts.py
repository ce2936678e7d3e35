"""Facts about a compiled function, as data; ``text_report.py`` formats them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import numpy as np

from tracecomp.compiled.backends import Native
from tracecomp.compiled.kernel_profile import Profile
from tracecomp.inspect.bottleneck import Limit
from tracecomp.passes.kernel_title import KernelTitle

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class StageFacts:
    """One step of the compilation: its time, the program's size after it, its rules, choices with reasons.

    ``parts`` are the seconds of some of its work.
    """

    name: str
    seconds: float
    size: str
    rules: dict[str, int]
    choices: tuple[tuple[str, str, str, str], ...]
    parts: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class KernelFacts:
    """One call of a kernel, in the order in which they run.

    ``title`` names its module, functions and lines; ``name`` is the key of its code. ``operators`` are the graph
    nodes it computes, ``sources`` the user's lines, ``scopes`` the modules and functions
    that contain them. ``seconds``, ``share`` (of the binding peak) and ``limit`` are None if not measured.
    ``prepares``: it runs once for many calls.
    """

    number: int
    name: str
    function: str
    operators: tuple[str, ...]
    title: KernelTitle
    sources: tuple[str, ...]
    scopes: tuple[str, ...]
    nbytes: int
    operations: int
    schedules: tuple[str, ...]
    prepares: bool = False
    seconds: float | None = None
    share: float | None = None
    binding: str = ""
    limit: Limit | None = None


@dataclass(frozen=True)
class Apart:
    """Two kernels that were not fused although one reads the other's result: reason, number, bytes passed.

    ``titles`` are those of the two kernels.
    """

    producer: str
    consumer: str
    reason: str
    count: int
    nbytes: int
    source: str
    titles: tuple[str, str] = ("", "")


@dataclass(frozen=True)
class Block:
    """A temporary value: its place in the arena, its first and last call, and its producer."""

    offset: int
    nbytes: int
    first: int
    last: int
    made_by: str
    type: str


@dataclass(frozen=True)
class MemoryFacts:
    """Bytes of a call by use. ``predicted`` is the memory in addition to its inputs: temporary values, scratch,
    results.

    ``measured`` is the additional peak memory of the process during one call, results included. It is None if the
    system does not report it, or if a call takes less than the process's other memory varies.
    """

    arguments: int
    state: int
    constants: int
    results: int
    arena: int
    scratch: int
    blocks: tuple[Block, ...]
    calls: int
    measured: int | None = None

    @property
    def predicted(self) -> int:
        return self.arena + self.scratch + self.results


@dataclass(frozen=True)
class GraphFacts:
    """One graph: how it was compiled, into which kernels, and why these are not one.

    ``checked`` are the results of checked mode, ``not_measured`` the reason for missing times. ``operands()`` are
    copies of the measured call's operands.
    """

    name: str
    phase: str
    nodes: int
    stages: tuple[StageFacts, ...]
    kernels: tuple[KernelFacts, ...]
    apart: tuple[Apart, ...]
    together: str
    memory: MemoryFacts
    threads: int
    wall: float | None = None
    not_measured: str = ""
    checked: str = ""
    backend: Native | None = field(default=None, repr=False, compare=False)
    profile: Profile | None = field(default=None, repr=False, compare=False)
    operands: Callable[[], list[Array]] | None = field(default=None, repr=False, compare=False)

    @property
    def seconds(self) -> float | None:
        """Time of all kernels of one call."""
        known = [k.seconds for k in self.kernels if k.seconds is not None]
        return sum(known) if known else None

    @property
    def share(self) -> float | None:
        """The share of the call's time that its kernels would take at their peaks."""
        known = [(k.seconds, k.share) for k in self.kernels if k.seconds is not None and k.share is not None]
        total = sum(seconds for seconds, _ in known)
        return sum(seconds * min(share, 1.0) for seconds, share in known) / total if total else None


@dataclass(frozen=True)
class RecordingFacts:
    """One recording: its inputs and outputs, by role; the numbers it depends on; guards; its graphs; its time."""

    name: str
    calls: int
    inputs: dict[str, tuple[str, ...]]
    outputs: dict[str, tuple[str, ...]]
    predicates: tuple[str, ...]
    guards: tuple[str, ...]
    operators: dict[str, int]
    graphs: tuple[GraphFacts, ...] = ()
    says: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Costs:
    """The cost and benefit of compilation, in seconds. ``eager`` and ``call`` are None if not measured.

    ``loaded``: the machine code came from the disk, stored by an earlier process.
    """

    compiling: float
    loaded: bool
    eager: float | None = None
    call: float | None = None
    why_not: str = ""

    @property
    def break_even(self) -> int | None:
        """Calls after which compiling has paid for itself; None if a call saves nothing."""
        if self.eager is None or self.call is None or self.eager <= self.call:
            return None
        return int(-(-self.compiling // (self.eager - self.call)))


@dataclass(frozen=True)
class FunctionFacts:
    """The history of a function's calls.

    ``made`` counts recorded calls. ``derived`` counts recordings in use that no call made: they come from another
    recording and hold for a range of sizes.

    ``again`` are the reasons why calls were recorded again, with the old and the new value. ``parts`` are the compiled
    pieces of a function with graph breaks, and the derivatives of a derivative.
    """

    name: str
    made: int
    derived: int = 0
    again: tuple[str, ...] = ()
    eager_because: str = ""
    broken_because: str = ""
    recordings: tuple[RecordingFacts, ...] = ()
    parts: tuple[FunctionFacts, ...] = ()
    costs: Costs | None = None

    @property
    def graphs(self) -> tuple[GraphFacts, ...]:
        """The graphs of all recordings."""
        return tuple(g for r in self.recordings for g in r.graphs)

    @property
    def kernels(self) -> tuple[KernelFacts, ...]:
        """The kernels of all graphs."""
        return tuple(k for g in self.graphs for k in g.kernels)


def plain(value: object) -> Any:
    """Convert records to dictionaries, without fields for the library's own use."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value) if f.repr}
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return value
