"""``record``, by which programs mark their entry point."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

__all__ = ["ChildFailedError", "ProcessFailure", "record"]


@dataclass(frozen=True)
class ProcessFailure:
    """The end of a failed process of a job."""

    local_rank: int
    pid: int
    exitcode: int
    error_file: str
    message: str = ""
    timestamp: int = 0


class ChildFailedError(Exception):
    """Processes of the job ``name`` failed: ``failures`` by rank."""

    def __init__(self, name: str, failures: Mapping[int, ProcessFailure]) -> None:
        if not failures:
            raise AssertionError("a ChildFailedError needs at least one failure")
        self.name, self.failures = name, failures
        rank, first = self.get_first_failure()
        super().__init__(f"{name} FAILED: rank {rank} ended with status {first.exitcode} {first.message}".rstrip())

    def get_first_failure(self) -> tuple[int, ProcessFailure]:
        """The rank that failed first, and how."""
        rank = min(self.failures, key=lambda r: self.failures[r].timestamp)
        return rank, self.failures[rank]


Function = TypeVar("Function", bound=Callable[..., Any])


def record(fn: Function, error_handler: object = None) -> Function:
    """Return ``fn``: exceptions of a process reach the launcher and the other ranks anyway."""
    return fn
