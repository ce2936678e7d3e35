"""The number of logical shards of a job, ``TRACECOMP_SHARDS``, and the variables that a program sees then.

A job with S logical shards computes what S processes of PyTorch compute, in any number of processes up to S. Programs
therefore see S as the world size.
"""

from __future__ import annotations

import os

SHARDS, PROCESSES = "TRACECOMP_SHARDS", "TRACECOMP_PROCESSES"
"""The variables with the number of shards and, if WORLD_SIZE is the number of shards, of processes."""


def requested() -> int | None:
    """The number of logical shards, or None. ValueError unless it is a positive integer."""
    text = os.environ.get(SHARDS)
    if not text:
        return None
    if not text.isdecimal() or not int(text):
        raise ValueError(f"{SHARDS}={text} is not a positive integer")
    return int(text)


def variables(shards: int | None, processes: int) -> dict[str, int]:
    """The variables of a program in ``processes`` processes."""
    if shards is None:
        return {"WORLD_SIZE": processes}
    return {"WORLD_SIZE": shards, SHARDS: shards, PROCESSES: processes}


def announce() -> None:
    """Make WORLD_SIZE the number of shards, unless the launcher has done so: programs read it as the world size."""
    shards, size = requested(), os.environ.get("WORLD_SIZE")
    if shards is not None and size is not None and PROCESSES not in os.environ:
        os.environ.update({name: str(value) for name, value in variables(shards, int(size)).items()})


def processes(shards: int, world_size: int) -> int:
    """The number of processes of a program that asks for ``world_size``; -1 if its launcher knows.

    ValueError if ``world_size`` is not the number of shards.
    """
    if world_size not in (-1, shards):
        raise ValueError(
            f"init_process_group(): world_size is {world_size}, but {SHARDS} is {shards}. Start the program with "
            f"`python -m tracecomp.distributed.run --shards {shards}`, and pass WORLD_SIZE or no world_size"
        )
    return int(os.environ.get(PROCESSES, world_size))
