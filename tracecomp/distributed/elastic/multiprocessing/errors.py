"""``record``, by which programs mark their entry point, and the error files that torchrun's agents read."""

from __future__ import annotations

import functools
import json
import os
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

__all__ = ["ChildFailedError", "ErrorHandler", "ProcessFailure", "record"]


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


class ErrorHandler:
    """Write the exception of a process to the file ``TORCHELASTIC_ERROR_FILE`` as JSON, in PyTorch's format.

    Subclasses may override ``initialize`` and ``record_exception``.
    """

    def initialize(self) -> None:
        """Prepare, before the entry point runs: nothing by default."""

    def record_exception(self, e: BaseException) -> None:
        """Write ``e`` with its traceback, if the variable names a file."""
        file = os.environ.get("TORCHELASTIC_ERROR_FILE")
        if file:
            extra = {"py_callstack": traceback.format_exc(), "timestamp": str(int(time.time()))}
            message = {"message": f"{type(e).__name__}: {e}", "extraInfo": extra}
            Path(file).write_text(json.dumps({"message": message}))


Function = TypeVar("Function", bound=Callable[..., Any])


def record(fn: Function, error_handler: ErrorHandler | None = None) -> Function:
    """Return ``fn`` with its exceptions also written to the error file of the process (``ErrorHandler``).

    As in PyTorch, a ``SystemExit`` with status 0 ends ``fn`` only, and other ones are not written.
    """
    handler = error_handler or ErrorHandler()

    @functools.wraps(fn)
    def run(*args: Any, **kwargs: Any) -> Any:
        handler.initialize()
        try:
            return fn(*args, **kwargs)
        except SystemExit as ending:
            if ending.code == 0:
                return None
            raise
        except Exception as error:  # any error of the program, which is raised again
            handler.record_exception(error)
            raise

    return cast("Function", run)
