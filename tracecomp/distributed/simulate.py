"""Predict the time of a recorded step in N processes: ``python -m tracecomp.distributed.simulate step.json``.

``step_of`` extracts the parts of a compiled step from its last call, with their times; ``write`` stores them as JSON.
The simulation runs them for every rank, event by event. Code takes its time on that rank. Communication begins when all
ranks have started it and earlier ones have ended, and overlaps with code that does not read its result. Stragglers are
ranks whose code is slower, at random. ``Network`` determines the time of a communication, by the algorithm:

* ``pairs``, the current transports: every process sends to every other one; large arrays in two rounds by pieces.
* ``halving``: pieces by recursive halving and doubling; the number of messages grows with the logarithm of N.
* ``nodes``: halving within a machine, then among machines, each process for its piece.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tracecomp.compiled.backends import Hosted
from tracecomp.compiled.function import Compiled

Times = np.ndarray[Any, Any]
WAYS = ("pairs", "halving", "nodes")
_SMALL = 1 << 13
"""Most bytes for which a reduction takes one round; as in ``communication/group.py``."""


@dataclass(frozen=True)
class Part:
    """One part of a step: code of ``seconds``, or communication ``name`` of ``nbytes`` per process.

    ``reads`` are numbers of the parts whose results it reads.
    """

    name: str
    nbytes: int
    reads: tuple[int, ...]
    seconds: float


@dataclass(frozen=True)
class Step:
    """The parts of a step in their order; bytes of state (weights, moments) and of results between parts."""

    parts: tuple[Part, ...]
    state_bytes: int
    between_bytes: int


@dataclass(frozen=True)
class Network:
    """Seconds before a message's first byte, bytes in a second, and seconds of processor time for a message.

    ``near`` are the same three within a machine of ``per_node`` processes.
    """

    latency: float = 2e-6
    bandwidth: float = 10e9
    overhead: float = 1e-6
    near: tuple[float, float, float] = (5e-7, 20e9, 5e-7)
    per_node: int = 8


@dataclass(frozen=True)
class Prediction:
    """Seconds of a step, of its communication, and of the step if communication were free; bytes per process."""

    ranks: int
    seconds: float
    communication: float
    without: float
    memory: int

    @property
    def hidden(self) -> float:
        """The fraction of communication that overlaps with code."""
        longer = self.seconds - self.without
        return 1.0 - min(longer / self.communication, 1.0) if self.communication else 1.0


def step_of(compiled: Compiled) -> Step:
    """Extract the step of ``compiled``'s last call, with its times.

    ValueError if the function did not run as code around communication.
    """
    plan = compiled.entries[0].plan if compiled.entries else None
    hosted = None if plan is None else plan.forward
    if not isinstance(hosted, Hosted) or not hosted.last:
        raise ValueError("the function has no recording with communication. Call it in a process group first")
    graph = hosted.graph
    state = sum(i.value.type.nbytes for i in graph.inputs if i.role == "state")
    parts = [Part(s.name, s.nbytes, s.reads, s.end - s.begin) for s in hosted.last]
    busy = sum(s.waited if s.name else s.end - s.begin for s in hosted.last)
    rest = Part("", 0, (), max(hosted.seconds - busy, 0.0))  # between parts, and copying results
    return Step((*parts, rest), state, hosted.between_bytes)


def typical(steps: Sequence[Step]) -> Step:
    """One step with, for each part, the median of its times in several runs."""
    rows = zip(*(s.parts for s in steps), strict=True)
    parts = [replace(row[0], seconds=statistics.median(p.seconds for p in row)) for row in rows]
    return Step(tuple(parts), steps[0].state_bytes, steps[0].between_bytes)


def write(step: Step, path: str | Path) -> None:
    """Keep a step as JSON."""
    Path(path).write_text(json.dumps(asdict(step)))


def read(path: str | Path) -> Step:
    """Read a file of ``write``."""
    found = json.loads(Path(path).read_text())
    parts = tuple(Part(p["name"], p["nbytes"], tuple(p["reads"]), p["seconds"]) for p in found["parts"])
    return Step(parts, found["state_bytes"], found["between_bytes"])


# ---- communication


def _round(nbytes: float, peers: int, link: tuple[float, float, float]) -> float:
    """Seconds for every process to send ``nbytes`` in total to ``peers`` others, and to receive from them."""
    latency, bandwidth, overhead = link
    return latency + peers * overhead + nbytes / bandwidth if peers else 0.0


def _halving(nbytes: float, size: int, link: tuple[float, float, float]) -> float:
    """One pass over pieces of ``nbytes``, one partner at a time."""
    latency, bandwidth, overhead = link
    return (
        math.ceil(math.log2(size)) * (latency + overhead) + nbytes * (size - 1) / size / bandwidth if size > 1 else 0.0
    )


def _seconds(part: Part, size: int, network: Network, way: str) -> float:
    """Seconds of a communication from the last start on."""
    far, near = (network.latency, network.bandwidth, network.overhead), network.near
    if part.name == "broadcast_from":
        return math.ceil(math.log2(max(size, 2))) * _round(part.nbytes, 1, far)
    gathered = part.nbytes * size if part.name == "all_gather" else part.nbytes
    passes = 2 if part.name == "all_reduce" else 1
    if way == "pairs":
        if part.name == "all_reduce" and part.nbytes <= _SMALL:
            return _round(part.nbytes * (size - 1), size - 1, far)
        return passes * _round(gathered * (size - 1) / size, size - 1, far)
    if way == "halving":
        return passes * _halving(gathered, size, far)
    inside = min(network.per_node, size)
    nodes = math.ceil(size / inside)
    return passes * (_halving(gathered, inside, near) + _halving(gathered / inside, nodes, far))


# ---- events


class _Run:
    """One step of all ranks."""

    def __init__(self, step: Step, takes: Sequence[float], slower: Times) -> None:
        size = len(slower)
        self.parts, self.takes, self.size, self.slower = step.parts, takes, size, slower
        self.begun = {k: np.zeros(size) for k, p in enumerate(step.parts) if p.name}
        self.ended: dict[int, Times] = {}
        self.missing = dict.fromkeys(self.begun, size)
        self.waiting: dict[int, list[tuple[int, int, float]]] = {k: [] for k in self.begun}
        self.events: list[tuple[float, int, int]] = [(0.0, rank, 0) for rank in range(size)]
        self.end = np.zeros(size)

    def seconds(self) -> float:
        """When the last rank has ended."""
        heapq.heapify(self.events)
        while self.events:
            self._rank(*heapq.heappop(self.events))
        return float(self.end.max())

    def _rank(self, now: float, rank: int, at: int) -> None:
        """Run one rank from part ``at`` on, until it waits for an unfinished communication."""
        while at <= len(self.parts):
            reads = self.parts[at].reads if at < len(self.parts) else [*self.begun]
            for k in reads:
                if k in self.begun and k not in self.ended:
                    self.waiting[k].append((rank, at, now))
                    return
                if k in self.begun:
                    now = max(now, float(self.ended[k][rank]))
            if at == len(self.parts):
                self.end[rank] = now
                return
            if self.parts[at].name:
                self._begin(at, rank, now)
            else:
                now += self.parts[at].seconds * self.slower[rank]
            at += 1

    def _begin(self, k: int, rank: int, now: float) -> None:
        """A rank has started a communication; the last one determines its end."""
        before = [e for e in self.ended if e < k]
        self.begun[k][rank] = max(now, float(self.ended[max(before)][rank]) if before else 0.0)
        self.missing[k] -= 1
        if self.missing[k]:
            return
        last = max([float(self.begun[k].max()), *(float(self.ended[e].max()) for e in self.ended if e < k)])
        self.ended[k] = np.full(self.size, last + self.takes[k])
        for other, at, since in self.waiting[k]:
            heapq.heappush(self.events, (since, other, at))


def simulate(
    step: Step, ranks: int, network: Network, *, way: str = "pairs", straggling: float = 0.0, slower: float = 1.0,
    seed: int = 0,
) -> Prediction:  # fmt: skip
    """A step in ``ranks`` processes. Code takes ``slower`` times its time, on each rank more by up to ``straggling``.

    ValueError for an unknown ``way``.
    """
    if way not in WAYS:
        raise ValueError(f"way must be one of {', '.join(WAYS)}, got {way!r}")
    factors = slower * (1.0 + straggling * np.random.default_rng(seed).random(ranks))
    takes = [_seconds(p, ranks, network, way) if p.name else 0.0 for p in step.parts]
    seconds, without = (_Run(step, t, factors).seconds() for t in (takes, [0.0] * len(takes)))
    messages = 2 * max((p.nbytes for p in step.parts if p.name), default=0)
    return Prediction(ranks, seconds, sum(takes), without, step.state_bytes + step.between_bytes + messages)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table of predictions for a step."""
    given = argparse.ArgumentParser(prog="python -m tracecomp.distributed.simulate", description=simulate.__doc__)
    given.add_argument("step", help="a file written by write()")
    given.add_argument("--ranks", type=int, nargs="+", default=[8, 64, 512, 4096])
    given.add_argument("--latency", type=float, default=2e-6, help="seconds")
    given.add_argument("--bandwidth", type=float, default=10e9, help="bytes per second")
    given.add_argument("--overhead", type=float, default=1e-6, help="processor seconds per message")
    given.add_argument("--per-node", type=int, default=8, help="processes per machine")
    given.add_argument("--straggling", type=float, default=0.1, help="relative slowdown of the slowest rank")
    options = given.parse_args(arguments)
    network = Network(options.latency, options.bandwidth, options.overhead, per_node=options.per_node)
    step = read(options.step)
    print(
        "| ranks | way | step, ms | communication, ms | hidden | memory of a process, MB |\n|---|---|---|---|---|---|"
    )
    for ranks in options.ranks:
        for way in WAYS:
            found = simulate(step, ranks, network, way=way, straggling=options.straggling)
            times = f"{found.seconds * 1e3:.2f} | {found.communication * 1e3:.2f}"
            print(f"| {ranks} | {way} | {times} | {found.hidden:.0%} | {found.memory / 1e6:.0f} |")


if __name__ == "__main__":
    main()
