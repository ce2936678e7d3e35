"""``python -m tracecomp.utils.bottleneck script.py [args]``: where a script spends its time.

Runs the script twice: under Python's profiler, and under the profiler of operators.
"""

from __future__ import annotations

import cProfile
import pstats
import runpy
import sys
from typing import Any

from tracecomp.autograd.profiler import profile

ROWS = 15
"""Rows of each table, as PyTorch prints them."""


def run(script: str, args: list[str]) -> tuple[Any, profile]:
    """Statistics of Python functions and of operators."""
    before = sys.argv
    sys.argv = [script, *args]
    try:
        python = cProfile.Profile()
        python.runcall(runpy.run_path, script, run_name="__main__")
        with profile() as operators:
            runpy.run_path(script, run_name="__main__")
    finally:
        sys.argv = before
    return python, operators


def main(argv: list[str] | None = None) -> int:
    """Print both tables; returns the exit status."""
    given = sys.argv[1:] if argv is None else argv
    if not given or given[0] in ("-h", "--help"):
        print(__doc__)
        return 0 if given else 2
    python, operators = run(given[0], given[1:])
    print(f"\nPython functions, the {ROWS} most expensive:")
    pstats.Stats(python).sort_stats("tottime").print_stats(ROWS)
    print(f"Operators, the {ROWS} most expensive:")
    print(operators.table(sort_by="self_cpu_time_total", row_limit=ROWS))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
