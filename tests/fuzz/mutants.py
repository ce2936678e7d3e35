"""Do the tests notice small faults? ``python -m tests.fuzz.mutants --count 1000 --seed 0 --minutes 60``

Faults are planted one at a time in the functions of passes, scheduling and code generation. A fault changes a
comparison, operator, number, branch or order of arguments, or leaves out a call. Each is planted in a fork of this
process. The fork runs the checks (``killers.py``) that run the changed line, quickest first. With ``--tests`` it then
runs the tests of the changed file's room. A mutant is killed when one of them fails or does not end. Survivors are
printed.
"""

from __future__ import annotations

import argparse
import os
import pickle
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fuzz.killers import PACKAGE, ROOMS, Killer, Reach, killers, reaches
from tests.fuzz.mutations import Mutation, mutations, plant
from tracecomp.base import config

TESTS = PACKAGE.parent / "tests"
SHARE = {"program": 15.0, "result": 20.0}
"""Seconds of the processor for checks of each kind."""
SLOW = 8.0
"""How much longer than the processor's time a mutant may take, on a machine that others use, before it has no end."""
TESTS_SECONDS = 200


def in_fork(work: Callable[[], Any], seconds: float) -> Any:
    """Return the result of ``work`` in a separate process; ``"ended"`` if that crashes, or takes too long."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.setsid()
        quiet = os.open(os.devnull, os.O_RDWR)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        signal.alarm(int(seconds) + 1)
        try:
            answer = pickle.dumps(work())
        except BaseException:
            answer = pickle.dumps(traceback.format_exc())
        with os.fdopen(writing, "wb") as file:
            file.write(answer)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        data = file.read()
    os.waitpid(child, 0)
    return pickle.loads(data) if data else "ended"


class Hunt:
    """Mutants and what kills them."""

    def __init__(self, checks: list[Killer], reach: list[Reach], tests: bool) -> None:
        self.checks = checks
        self.tests = tests
        self.answers = [r.answer for r in reach]
        order = sorted(range(len(checks)), key=lambda n: reach[n].seconds)
        self.by_line: dict[tuple[str, int], list[int]] = {}
        for n in order:
            for line in reach[n].lines:
                self.by_line.setdefault(line, []).append(n)

    def killer(self, mutation: Mutation) -> str:
        """Return the kind of check that kills the mutant; empty if it survives."""
        limit = SLOW * sum(SHARE.values()) + self.tests * TESTS_SECONDS
        found: str = in_fork(lambda: self._hunt(mutation), limit)
        return found

    def _hunt(self, mutation: Mutation) -> str:
        if not plant(mutation):
            return "not planted"
        here = self.by_line.get((str(mutation.file), mutation.line), [])
        for kind, share in SHARE.items():
            end = time.process_time() + share
            for n in here:
                if self.checks[n].kind == kind and time.process_time() < end:
                    try:
                        same = self.checks[n].check() == self.answers[n]
                    except BaseException:
                        same = False
                    if not same:
                        return kind
        return "tests" if self.tests and not _tests_pass(mutation.file) else ""


def _tests_pass(file: Path) -> bool:
    """Run the tests next to the file, and those of its room."""
    beside = TESTS / file.relative_to(PACKAGE).parent
    signal.alarm(TESTS_SECONDS)
    return pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", str(beside)]) in (0, 5)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--every", type=int, default=1, help="use each so-many-th seed and operator only")
    parser.add_argument("--tests", action="store_true", help="also run the tests of the room")
    parser.add_argument("--reach", type=Path, help="a file that keeps what the checks run, for the next time")
    parser.add_argument("--room", default="", help="only files whose path has this in it")
    options = parser.parse_args()
    end = time.monotonic() + 60 * options.minutes
    files = sorted(f for room in ROOMS for f in (PACKAGE / room).rglob("*.py") if options.room in str(f))
    chosen = [m for f in files for m in mutations(f)]
    print(f"{len(chosen)} possible faults in {len(files)} files", flush=True)
    random.Random(options.seed).shuffle(chosen)
    with tempfile.TemporaryDirectory() as folder, config.override(cache_dir=folder):
        checks = killers(options.every)
        reach = _reach(checks, options.reach)
        print(f"{len(checks)} checks, {sum(r.seconds for r in reach):.0f} s", flush=True)
        tally = _try(Hunt(checks, reach, options.tests), chosen[: options.count], end)
    killed = sum(n for kind, n in tally.items() if kind)
    print(f"{sum(tally.values())} mutants from seed {options.seed} on, {killed} killed: {dict(tally)}")
    return 0


def _reach(checks: list[Killer], file: Path | None) -> list[Reach]:
    """Return the lines that the checks run, from the cache file if it exists."""
    if file is not None and file.exists():
        kept: list[Reach] = pickle.loads(file.read_bytes())
        return kept
    reach = in_fork(lambda: reaches(checks), 7200)
    if not isinstance(reach, list):
        raise SystemExit(f"the checks do not pass without a fault: {reach}")
    if file is not None:
        file.write_bytes(pickle.dumps(reach))
    return reach


def _try(hunt: Hunt, chosen: list[Mutation], end: float) -> Counter[str]:
    """How many mutants each kind of check killed."""
    tally: Counter[str] = Counter()
    for mutation in chosen:
        if time.monotonic() > end:
            break
        by = hunt.killer(mutation)
        if by == "not planted":
            continue
        tally[by if len(by) < 20 else "error"] += 1
        if not by:
            print(f"survived: {mutation}", flush=True)
        if sum(tally.values()) % 50 == 0:
            print(dict(tally), file=sys.stderr, flush=True)
    return tally


if __name__ == "__main__":
    raise SystemExit(main())
