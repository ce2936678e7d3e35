"""Random training programs that become ready at a random call: ``python -m tests.fuzz.ready --count 1000``.

Programs are those of ``training``. Nothing compiles in the background but ``deliver``, which this module calls between
two calls: each job waits for 0 to 3 calls. All that ``training`` compares must have the bits of eager mode.
"""

from __future__ import annotations

import pickle
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import patch

from tests.fuzz import training
from tests.fuzz.command import by_command
from tracecomp.base import config
from tracecomp.compiled import background, compile_worker
from tracecomp.compiled.background import Job
from tracecomp.runtime import program_cache

WAITS = (0, 0, 1, 1, 2, 3)
"""Calls between the beginning of a job and its end."""
counts = {"jobs": 0, "calls that ran eagerly meanwhile": 0}


def deliver(job: Job) -> None:
    """Do what the thread and the worker do."""
    for request in job.requests:
        sent = pickle.loads(pickle.dumps(request))
        answer = pickle.loads(pickle.dumps(compile_worker._answer(sent)))
        job.found[request.key], job.error = answer.program, job.error or answer.error
    job.done.set()


@contextmanager
def deliveries(seed: int) -> Iterator[Callable[[int], None]]:
    """A function that delivers the jobs that are due before call ``n``; all programs compile in the background."""
    r = random.Random(seed)
    due: list[tuple[int, Job]] = []
    now = 0

    def add(job: Job) -> bool:
        due.append((now + r.choice(WAITS), job))
        return True

    def before_call(n: int) -> None:
        nonlocal now
        now = n
        for when, job in due:
            if when <= n and not job.done.is_set():
                deliver(job)

    with (
        config.override(wait=False),
        patch.object(background, "LEAST_SECONDS", 0.0),
        patch.object(background._compiler, "add", add),
        patch.object(program_cache, "holds", lambda key: False),
    ):
        yield before_call
    counts["jobs"] += len(due)
    counts["calls that ran eagerly meanwhile"] += sum(job.calls for _, job in due)


def difference(seed: int) -> str | None:
    """Return the first difference from eager mode in the program of a seed; None if all bits agree."""
    p = training.generate(seed)
    p = replace(p, calls=p.calls + p.calls[2:])  # repeated calls use the ready programs
    with deliveries(seed) as before_call:
        found = training.check(p, exact=True, before_call=before_call)
    return found and f"seed {seed}: {p.layers} {p.optimizer} {p.scheduler}\n{p.text()}    {p.calls}\n    {found}"


if __name__ == "__main__":
    failed = by_command(__doc__ or "", "programs", difference)
    print(", ".join(f"{n} {what}" for what, n in counts.items()))
    sys.exit(failed)
