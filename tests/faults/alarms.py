"""``compare`` on random programs, in which nothing is planted: ``python -m tests.faults.alarms --count 1000``.

Whatever it flags is a false alarm, or a defect.
"""

from __future__ import annotations

import sys
import warnings

import tracecomp as torch
from tests.fuzz.command import by_command
from tests.fuzz.programs import Case, generate
from tracecomp.base.errors import CaptureError
from tracecomp.inspect import compare


def alarm(seed: int) -> str | None:
    """Return the report of ``compare`` for the program of ``seed``; None if it agrees, or has no stages to compare."""
    program = generate(seed)
    case = Case(torch, program)
    given = [case._input(x, case.leaves) for n, x in enumerate(program.inputs) if n not in case.captured]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            case.fn(*given)
        except Exception:
            return None  # the program's own mistake
        case = Case(torch, program)
        given = [case._input(x, case.leaves) for n, x in enumerate(program.inputs) if n not in case.captured]
        try:
            found = compare(case.fn, *given)
        except CaptureError:
            return None
    return None if found.ok else f"seed {seed}: {found.divergence}\n    {program}"


if __name__ == "__main__":
    sys.exit(by_command(__doc__ or "", "programs compared", alarm))
