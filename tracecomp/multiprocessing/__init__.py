"""Python's ``multiprocessing`` and ``spawn`` under the names of ``torch.multiprocessing``.

Tensors travel by pickling. Those that ``share_memory_`` has moved to shared memory arrive as that memory; the process
that sends one has to run until it has arrived. Others arrive as copies.
"""

from __future__ import annotations

import multiprocessing
import signal
import traceback
from collections.abc import Callable, Sequence
from multiprocessing import *  # noqa: F403
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import Any, Protocol

from tracecomp.multiprocessing import reductions

__all__ = [
    *multiprocessing.__all__,
    "ProcessContext", "ProcessException", "ProcessExitedException", "ProcessRaisedException",
    "get_all_sharing_strategies", "get_sharing_strategy", "reductions", "set_sharing_strategy", "spawn",
    "start_processes",
]  # fmt: skip


def get_all_sharing_strategies() -> set[str]:
    """The ways of sharing memory: by descriptors of files, which leave nothing behind."""
    return {"file_descriptor"}


def get_sharing_strategy() -> str:
    return "file_descriptor"


def set_sharing_strategy(new_strategy: str) -> None:
    """Accept PyTorch's strategies, both of which share by descriptors here. AssertionError for other names."""
    if new_strategy not in ("file_system", "file_descriptor"):
        raise AssertionError(
            f"invalid sharing strategy {new_strategy!r}, expected one of {get_all_sharing_strategies()}"
        )


class ProcessException(Exception):
    """A process that ``spawn`` started has failed."""

    def __init__(self, msg: str, error_index: int, pid: int) -> None:
        super().__init__(msg)
        self.msg, self.error_index, self.pid = msg, error_index, pid


class ProcessRaisedException(ProcessException):
    """It raised an exception."""


class ProcessExitedException(ProcessException):
    """It ended with a code or by a signal."""

    def __init__(self, msg: str, error_index: int, error_pid: int, exit_code: int, signal_name: str | None = None):
        super().__init__(msg, error_index, error_pid)
        self.exit_code, self.signal_name = exit_code, signal_name


def _run(fn: Callable[..., None], i: int, args: tuple[object, ...], errors: Any) -> None:
    try:
        fn(i, *args)
    except KeyboardInterrupt:
        pass
    except Exception:  # of the program: its text goes to the parent, which raises it
        errors.put(traceback.format_exc())
        raise SystemExit(1) from None


class Errors(Protocol):
    """A queue of what went wrong, as text."""

    def empty(self) -> bool: ...

    def get(self) -> str: ...


class ProcessContext:
    """The processes that ``start_processes`` started."""

    def __init__(self, processes: Sequence[BaseProcess], errors: Sequence[Errors]) -> None:
        self.processes, self.error_queues = list(processes), list(errors)

    def pids(self) -> list[int | None]:
        return [p.pid for p in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Whether all have ended; ends all and raises when one has failed."""
        running = {p.sentinel: i for i, p in enumerate(self.processes) if p.is_alive() or p.exitcode != 0}
        for sentinel in wait(list(running), timeout=timeout) if running else ():
            self.processes[running[sentinel]].join()  # type: ignore[index]
        failed = next((i for i, p in enumerate(self.processes) if p.exitcode not in (None, 0)), None)
        if failed is None:
            return not any(p.is_alive() for p in self.processes)
        for p in self.processes:
            if p.is_alive():
                p.terminate()
            p.join(grace_period)
        self._raise(failed)
        return True

    def _raise(self, i: int) -> None:
        process, errors = self.processes[i], self.error_queues[i]
        code, pid = process.exitcode or 0, process.pid or 0
        if not errors.empty():
            text = f"\n\n-- Process {i} terminated with the following error:\n{errors.get()}"
            raise ProcessRaisedException(text, i, pid)
        if code < 0:
            name = signal.Signals(-code).name
            raise ProcessExitedException(f"process {i} terminated with signal {name}", i, pid, code, name)
        raise ProcessExitedException(f"process {i} terminated with exit code {code}", i, pid, code)


def start_processes(
    fn: Callable[..., None], args: tuple[object, ...] = (), nprocs: int = 1, join: bool = True, daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:  # fmt: skip
    """Run ``fn(i, *args)`` in ``nprocs`` processes; with ``join``, wait for them and raise what they raised."""
    context: Any = multiprocessing.get_context(start_method)
    errors = [context.SimpleQueue() for _ in range(nprocs)]
    processes = [
        context.Process(target=_run, args=(fn, i, args, errors[i]), daemon=daemon) for i in range(nprocs)
    ]  # fmt: skip
    for process in processes:
        process.start()
    running = ProcessContext(processes, errors)
    if not join:
        return running
    while not running.join():
        pass
    return None


def spawn(
    fn: Callable[..., None], args: tuple[object, ...] = (), nprocs: int = 1, join: bool = True, daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:  # fmt: skip
    """``start_processes`` with fresh interpreters."""
    return start_processes(fn, args, nprocs, join, daemon, start_method)
