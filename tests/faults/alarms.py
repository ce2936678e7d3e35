"""``compare`` on programs in which nothing is planted: ``python -m tests.faults.alarms --count 1000``.

Whatever it flags is a false alarm, or a defect. ``--scripts`` compares the first call of each script of
``tests/programs`` instead of random programs.
"""

from __future__ import annotations

import functools
import sys
import warnings
from types import MethodType
from typing import Any

import tracecomp as torch
from tests.fuzz.command import by_command
from tests.fuzz.programs import Case, generate
from tests.programs.registry import Script
from tests.programs.running import seen
from tests.programs.table import SCRIPTS
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


class _Compared:
    """A function whose first call is compared; all calls run eagerly."""

    def __init__(self, fn: Any, said: list[str], changed: bool) -> None:
        self._first = [lambda args, kwargs: compare(fn, *args, changed=changed, **kwargs)]
        self._said = said
        self.fn = fn
        functools.update_wrapper(self, fn)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._first:
            try:
                found = self._first.pop()(args, kwargs)
            except CaptureError:
                pass
            else:
                if not found.ok:
                    self._said.append(str(found.divergence or found))
        return self.fn(*args, **kwargs)

    def __get__(self, owner: object, kind: type | None = None) -> Any:
        return self if owner is None else MethodType(self, owner)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["fn"], name)


def alarms_of(script: Script, changed: bool = True) -> list[str]:
    """Return the reports of ``compare`` on the functions that a script compiles; nested modules are not compared."""
    said: list[str] = []

    def compile(fn: Any = None, **options: Any) -> Any:
        return functools.partial(compile, **options) if fn is None else _Compared(fn, said, changed)

    try:
        seen(script, compile)
    except TypeError as error:
        if "as child module" not in str(error):
            raise
    return said


def main() -> int:
    if "--scripts" not in sys.argv:
        return by_command(__doc__ or "", "programs compared", alarm)
    count = 0
    for name, script in SCRIPTS.items():
        said = alarms_of(script)
        count += bool(said)
        print(f"{name}: {said or 'agrees'}", flush=True)
    print(f"{len(SCRIPTS)} scripts, {count} flagged")
    return count > 0


if __name__ == "__main__":
    sys.exit(main())
