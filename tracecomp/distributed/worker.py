"""One process of the launcher: ``python -m tracecomp.distributed.worker script.py ...``, or ``-m module ...``.

It sets the variables of its rank, runs the program in itself, and reports failures to the launcher and the other ranks.
"""

from __future__ import annotations

import os
import runpy
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from tracecomp.communication import groups
from tracecomp.communication.mpi import started_by_mpi
from tracecomp.communication.world import world
from tracecomp.distributed.launching import of_rank


def _first(*names: str) -> int:
    """The value of the first of these variables that is set."""
    return int(next(os.environ[name] for name in names if name in os.environ))


def _run(command: Sequence[str]) -> None:
    """Run a script or, after ``-m``, a module in this process."""
    if command[0] == "-m":
        sys.argv = [*command[1:]]
        sys.path[0] = os.getcwd()
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
        return
    sys.argv = [*command]
    sys.path[0] = str(Path(command[0]).resolve().parent)
    runpy.run_path(command[0], run_name="__main__")


def main(command: Sequence[str]) -> None:
    """Run ``command``; its exceptions end all ranks."""
    rank = _first("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "RANK")
    local = _first("MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "LOCAL_RANK", "PMI_RANK", "PMIX_RANK")
    os.environ.update(of_rank(rank, local))
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    notes = Path(os.environ["TRACECOMP_RUN_NOTES"])
    (notes / f"rank{rank}").write_text(str(os.getpid()))
    try:
        _run(command)
        (notes / f"done{rank}").touch()
    except SystemExit as ending:
        if ending.code in (None, 0):
            (notes / f"done{rank}").touch()
            raise
        _fail(notes, rank, f"it ended with status {ending.code}", ending.code if isinstance(ending.code, int) else 1)
    except BaseException as error:  # of the program, including SystemExit: the launcher reports why it ended
        traceback.print_exc()
        _fail(notes, rank, f"{type(error).__name__}: {error}", 1)


def _fail(notes: Path, rank: int, why: str, status: int) -> None:
    """Report to launcher and ranks, and end without waiting for them.

    An ``mpiexec`` ends the other ranks at once, so they get time to report their state.
    """
    (notes / f"failure{rank}").write_text(f"{status} {why}")
    sys.stderr.flush()
    sys.stdout.flush()
    if world.default is not None:
        groups.end(f"died of {why}")
    if started_by_mpi():
        time.sleep(1.0)
    os._exit(status)


if __name__ == "__main__":
    main(sys.argv[1:])
