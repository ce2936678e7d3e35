"""``torch.distributed`` as in a PyTorch that was built without it: ``is_available()`` says no.

The names that programs mention before they ask are here: operations of reductions, groups, and the questions.
"""

from __future__ import annotations

import os
from enum import Enum
from typing import Any

__all__ = [
    "Backend", "ProcessGroup", "ReduceOp", "get_backend", "get_rank", "get_world_size", "group", "is_available",
    "is_gloo_available", "is_initialized", "is_mpi_available", "is_nccl_available", "is_torchelastic_launched",
]  # fmt: skip


class ReduceOp(Enum):
    """How a reduction over processes combines values."""

    SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR, PREMUL_SUM = range(9)


reduce_op = ReduceOp


class Backend(str):
    """The name of a way for processes to talk."""

    GLOO, NCCL, MPI, UCC, UNDEFINED = "gloo", "nccl", "mpi", "ucc", "undefined"


class ProcessGroup:
    """Processes that work together; there are none."""


class Work:
    """A communication under way."""


class group:
    """Groups by name."""

    WORLD: ProcessGroup | None = None


class GroupMember:
    """Groups by membership."""

    WORLD: ProcessGroup | None = None
    NON_GROUP_MEMBER = -100


def is_available() -> bool:
    """False: programs run in one process."""
    return False


def is_initialized() -> bool:
    return False


def is_gloo_available() -> bool:
    return False


def is_mpi_available() -> bool:
    return False


def is_nccl_available() -> bool:
    return False


def is_ucc_available() -> bool:
    return False


def is_xccl_available() -> bool:
    return False


def is_torchelastic_launched() -> bool:
    """Whether a launcher of PyTorch has started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def _uninitialized() -> ValueError:
    return ValueError("Default process group has not been initialized, please make sure to call init_process_group.")


def get_rank(group: Any = None) -> int:
    """ValueError: there is no group."""
    raise _uninitialized()


def get_world_size(group: Any = None) -> int:
    """ValueError: there is no group."""
    raise _uninitialized()


def get_backend(group: Any = None) -> Backend:
    """ValueError: there is no group."""
    raise _uninitialized()
