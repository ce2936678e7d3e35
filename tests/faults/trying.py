"""One fault at a time, in a separate process."""

from __future__ import annotations

import contextlib
import multiprocessing
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection

from tests.faults import operators, programs, stages
from tests.faults.planted import Fault
from tracecomp.base import config
from tracecomp.base.errors import CompileError, VerifyError
from tracecomp.inspect import Comparison, compare

SECONDS = 900.0
"""Much more than any needs: a busy machine does not count as a fault."""
_FORK = multiprocessing.get_context("fork")
_FRESH = multiprocessing.get_context("spawn")
"""For what calls are served by: a process that has met modes or classes for dispatch serves none any more."""


@dataclass(frozen=True)
class Found:
    """The result of a comparison with a fault: flagged at all, the stage, the line; ``verified``: a verifier
    refused."""

    fault: Fault
    flagged: bool
    stage: bool
    line: bool
    said: str
    verified: bool = False

    @property
    def right(self) -> bool:
        return self.flagged and self.stage and self.line

    @property
    def summary(self) -> str:
        """The three answers as letters."""
        marks = zip("FSLV", (self.flagged, self.stage, self.line, self.verified), strict=True)
        return "".join(letter if yes else "-" for letter, yes in marks)


def try_fault(fault: Fault) -> Found:
    """Plant it in a child and compare there."""
    receiver, sender = _FORK.Pipe(duplex=False)
    fresh = fault.room == "served calls"
    given = (fault, sender)
    child = _FRESH.Process(target=_in_child, args=given) if fresh else _FORK.Process(target=_in_child, args=given)
    child.start()
    sender.close()
    found = Found(fault, True, False, False, "the process died")
    if receiver.poll(SECONDS):
        with contextlib.suppress(EOFError):
            found = Found(fault, *receiver.recv())
    else:
        found = Found(fault, False, False, False, "no answer")
        child.terminate()
    child.join()
    return found


def _in_child(fault: Fault, sender: Connection) -> None:
    try:
        found = run_fault(fault)
    except Exception as error:
        found = Found(fault, False, False, False, f"{type(error).__name__}: {error}")
    sender.send((found.flagged, found.stage, found.line, found.said, found.verified))


def run_fault(fault: Fault) -> Found:
    """Plant it here, for good, and compare."""
    make = next(getattr(room, fault.program) for room in (programs, operators, stages) if hasattr(room, fault.program))
    lines = [programs.line_of(mark) for mark in fault.lines]
    if fault.plant is not None:
        fault.plant.plant()
    with tempfile.TemporaryDirectory() as folder, config.override(cache_dir=folder):
        fn, args = make()
        try:
            result = compare(fn, *args, dynamic=True if fault.room == "dynamic sizes" else None)
        except (CompileError, VerifyError) as error:
            said = str(error)
            return Found(fault, True, any(s in said for s in fault.stages), any(x in said for x in lines), said, True)
    return judged(fault, result, lines)


def judged(fault: Fault, result: Comparison, lines: Sequence[str]) -> Found:
    """Return the result of a comparison, and whether it names the right stage and line."""
    if fault.own:
        said = "\n".join(result.notes)
        stage, line = (any(x in said for x in words) for words in (fault.stages, lines))
        return Found(fault, bool(result.notes), stage, line, said)
    d = result.divergence
    if d is None:
        return Found(fault, not result.ok, False, False, str(result)[-600:])
    where = f"{d.stage} {d.step}"
    stage = any(word in where for word in fault.stages)
    line = any(x in d.source for x in lines)
    return Found(fault, True, stage, line, str(d)[:900], "VerifyError" in d.values)


def table(results: Sequence[Found]) -> str:
    """The table of the documentation."""
    rows = [
        f"| {f.fault.room} | {f.fault.what} | {_mark(f.flagged)} | {_mark(f.stage)} | {_mark(f.line)} |"
        for f in results
    ]
    counts = [sum(values) for values in zip(*[(f.flagged, f.stage, f.line) for f in results], strict=True)]
    head = ["| where | fault | flagged | right stage | right line |", "|---|---|---|---|---|"]
    flagged, stage, line = counts or (0, 0, 0)
    last = f"{len(results)} faults: {flagged} flagged, {stage} with the right stage, {line} with the right line."
    return "\n".join([*head, *rows, "", last]) + "\n"


def _mark(yes: bool) -> str:
    return "yes" if yes else "**no**"
