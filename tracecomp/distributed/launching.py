"""Start the processes of one program, watch them, and end all when one has failed."""

from __future__ import annotations

import ctypes
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TextIO

from tracecomp.communication import logical, mpi
from tracecomp.distributed.launch_logs import ERR, OUT, RankLogs

_GRACE = 8.0
"""Seconds that the other processes have to report why they end, before they are killed."""
_SET_PARENT_DEATH_SIGNAL = 1
"""Linux's ``PR_SET_PDEATHSIG``."""
_TAG = re.compile(rb"^\[(?:\d+,)?(\d+)\]<std\w+>:? ?")
_TAGGED = re.compile(rb"^\[(\d+)\] ")
_KILLED = re.compile(rb"PID (\d+) (?:RUNNING AT|on node)")
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Plan:
    """The processes to start: ``command`` in ``each`` processes on this machine, the ``node``-th of ``nodes``.

    After a failure it restarts with one process fewer each time, but at least ``least``. A Python program is the script
    and its arguments, or ``-m``, module and arguments; others begin with their path.
    """

    command: Sequence[str]
    each: int
    least: int
    nodes: int
    node: int
    address: str
    port: int
    run_id: str
    restarts: int
    by_mpi: bool
    python: bool = True
    role: str = "default"
    shards: int | None = None

    def started(self) -> list[str]:
        """The command of one process."""
        worker = [sys.executable, "-m", "tracecomp.distributed.worker"] if self.python else []
        return [*worker, *self.command]

    def variables(self, attempt: int, port: int) -> dict[str, str]:
        """The variables that torchrun sets equally in all processes."""
        size = self.each * self.nodes
        found = {
            "MASTER_ADDR": self.address, "MASTER_PORT": port, "LOCAL_WORLD_SIZE": self.each,
            "GROUP_RANK": self.node, "GROUP_WORLD_SIZE": self.nodes, "ROLE_WORLD_SIZE": size, "ROLE_NAME": self.role,
            "TORCHELASTIC_RUN_ID": self.run_id, "TORCHELASTIC_RESTART_COUNT": attempt,
            "TORCHELASTIC_MAX_RESTARTS": self.restarts, "TORCHELASTIC_USE_AGENT_STORE": "False",
            "PYTHONUNBUFFERED": "",  # lines are written whole
            **logical.variables(self.shards, size),
        }  # fmt: skip
        threads = str(max(1, len(os.sched_getaffinity(0)) // self.each))
        defaults = {"OMP_NUM_THREADS": threads, "TRACECOMP_NUM_THREADS": threads} if self.each > 1 else {}
        return {**defaults, **os.environ, **{key: str(value) for key, value in found.items()}}


def of_rank(rank: int, local: int) -> Mapping[str, str]:
    """The variables that torchrun sets per process."""
    return {"RANK": str(rank), "LOCAL_RANK": str(local), "ROLE_RANK": str(rank)}


def find_mpiexec() -> str | None:
    """The ``mpiexec`` to use: the one next to this Python, else the first in PATH; None without mpi4py."""
    if not mpi.available():
        return None
    beside = Path(sys.executable).with_name("mpiexec")
    return str(beside) if beside.exists() else shutil.which("mpiexec")


@contextmanager
def reserved_port() -> Iterator[int]:
    """A free TCP port that the system gives to no other program in the block.

    A store can listen on it, because both sides set SO_REUSEADDR and this socket does not listen.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("", 0))
        yield holder.getsockname()[1]


def _die_with_parent() -> None:
    """In the child: request a kill when the launcher dies."""
    _libc.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)


class Deaths:
    """Record which process of ``mpiexec`` ends first: that ends all others at once, and may name one of them.

    An ``mpiexec`` may also fail to end them: then this process ends the remaining ones.
    """

    def __init__(self, notes: str, count: int) -> None:
        self._notes, self._count = Path(notes), count
        self._files: dict[int, str] = {}  # of processes; values are ranks
        self._stopped = False
        self.first: str | None = None
        self.at = float("inf")
        self.outlived = False
        self._thread = threading.Thread(target=self._watch, daemon=True)
        if hasattr(os, "pidfd_open"):
            self._thread.start()

    def _watch(self) -> None:
        with select.epoll() as poll:  # reports events in order, even if this thread comes late
            while not self._stopped:
                if len(self._files) < self._count:
                    self._open(poll)
                for file, _ in poll.poll(0.02):
                    self._ended(self._files[file])
                    poll.unregister(file)

    def _open(self, poll: select.epoll) -> None:
        known = {*self._files.values()}
        for note in self._notes.glob("rank*"):
            if note.name in known or not (text := note.read_text()):
                continue
            try:
                file = os.pidfd_open(int(text))
            except OSError:  # already gone
                self._ended(note.name)
                continue
            self._files[file] = note.name
            poll.register(file, select.EPOLLIN)

    def _ended(self, name: str) -> None:
        if self.first is None and not (self._notes / name.replace("rank", "done")).exists():
            self.first, self.at = name, time.monotonic()

    def stop(self) -> None:
        self._stopped = True
        if self._thread.is_alive():
            self._thread.join()
        for file in self._files:
            os.close(file)
        self._files.clear()

    def end_others(self) -> None:
        """End the remaining processes."""
        for file in self._files:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(file, signal.SIGKILL)


class _Process:
    """A started process, whose lines are forwarded to files and, as ``[rank] line``, to the console.

    ``local`` is its local rank, and ``rank`` its rank; both are None for ``mpiexec``, whose lines begin with ranks.
    """

    def __init__(
        self, name: str, command: Sequence[str], environment: Mapping[str, str], logs: RankLogs,
        local: int | None = None, rank: int | None = None,
    ) -> None:  # fmt: skip
        self.name, self._logs, self._local, self._rank = name, logs, local, rank
        self.killed: bytes = b""
        self.running = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
            preexec_fn=_die_with_parent,
        )  # fmt: skip
        streams = (self.running.stdout, sys.stdout, OUT), (self.running.stderr, sys.stderr, ERR)
        self._readers = [threading.Thread(target=self._pass_on, args=each, daemon=True) for each in streams]
        for reader in self._readers:
            reader.start()

    def _pass_on(self, source: IO[bytes], to: TextIO, stream: int) -> None:
        for line in source:
            told = _KILLED.search(line)
            if told:
                self.killed = told[1]
            if not line.endswith(b"\n"):
                line += b"\n"
            local, text = self._local, line if self._rank is None else b"[%d] " % self._rank + line
            if local is None:  # mpiexec starts the ranks of one machine: ranks are local ranks
                text = _TAG.sub(rb"[\1] ", line)
                tagged = _TAGGED.match(text)
                if tagged:
                    local, line = int(tagged[1]), text[tagged.end() :]
            if local is None or self._logs.write(local, stream, line):
                to.buffer.write(text)
                to.flush()

    def signal(self, number: int) -> None:
        """Send a signal to it and its descendants."""
        try:
            os.killpg(self.running.pid, number)
        except ProcessLookupError:
            return

    def finish(self) -> None:
        """Forward the last lines."""
        for reader, source in zip(self._readers, (self.running.stdout, self.running.stderr), strict=True):
            reader.join(timeout=2.0)
            if source is not None and not reader.is_alive():
                source.close()


def _alone(plan: Plan, attempt: int, port: int, notes: str, logs: RankLogs) -> list[_Process]:
    """Processes without MPI, which communicate over TCP."""
    common = {**plan.variables(attempt, port), "TRACECOMP_RUN_NOTES": notes}
    marks = {name for name in common if name in mpi.MARKS}
    common = {key: value for key, value in common.items() if key not in marks}
    first = plan.node * plan.each
    return [
        _Process(
            f"rank {first + local}", plan.started(), {**common, **of_rank(first + local, local)}, logs, local,
            first + local,
        )
        for local in range(plan.each)
    ]  # fmt: skip


def _by_mpi(plan: Plan, attempt: int, port: int, notes: str, logs: RankLogs) -> list[_Process]:
    """``mpiexec``, which starts all processes; each runs ``worker``."""
    found = find_mpiexec()
    assert found is not None
    environment = {**plan.variables(attempt, port), "TRACECOMP_RUN_NOTES": notes}
    told = subprocess.run([found, "--version"], capture_output=True, text=True, check=False).stdout
    options = ["-prepend-rank"]
    if "Open MPI" in told or "Open RTE" in told or "PRRTE" in told:
        options = ["--output", "tag", "--map-by", ":OVERSUBSCRIBE", "--bind-to", "none"]
        if not os.getuid():
            names = [f"{kind}_ALLOW_RUN_AS_ROOT{more}" for kind in ("OMPI", "PRTE") for more in ("", "_CONFIRM")]
            environment.update(dict.fromkeys(names, "1"))
    return [_Process("mpiexec", [found, *options, "-n", str(plan.each), *plan.started()], environment, logs)]


def run(plan: Plan, logs: RankLogs) -> int:
    """Start the program, again after failures as often as the plan allows; its exit status."""
    for attempt in range(plan.restarts + 1):
        logs.begin(attempt, plan.each)
        try:
            status = _attempt(plan, attempt, logs)
        finally:
            logs.end()
        if not status or attempt == plan.restarts:
            return status
        fewer = max(plan.least, plan.each - 1)
        told = f", in {fewer} processes instead of {plan.each}" if fewer < plan.each else ""
        print(f"tracecomp: restarting ({attempt + 1} of {plan.restarts}){told}", file=sys.stderr, flush=True)
        plan = replace(plan, each=fewer)
    return 1


def _attempt(plan: Plan, attempt: int, logs: RankLogs) -> int:
    with reserved_port() as free, tempfile.TemporaryDirectory(prefix="tracecomp-run-") as notes:
        port = plan.port or free
        start = _by_mpi if plan.by_mpi else _alone
        started = start(plan, attempt, port, notes, logs)
        deaths = Deaths(notes, plan.each if plan.by_mpi else 0)
        try:
            failed = _watched(started, deaths)
        except BaseException:
            _end(started, signal.SIGINT, 3.0)
            raise
        finally:
            deaths.stop()
        for process in started:
            process.finish()
        if failed is None:
            return 0
        if deaths.outlived:
            why, status = f"{_rank(deaths.first)} ended, and mpiexec did not end the others", 128 + signal.SIGKILL
        else:
            why, status = _blame(failed, notes, deaths.first)
        print(f"tracecomp: {why}; all processes have ended", file=sys.stderr, flush=True)
        return status


def _watched(started: Sequence[_Process], deaths: Deaths) -> _Process | None:
    """Return the first process that failed, once all have ended; None if none failed."""
    failed: _Process | None = None
    deadline = float("inf")
    while _running(started):
        bad = [p for p in started if p.running.returncode]
        if failed is None and bad:
            _running(started)  # the one to blame may have ended after its check, but before the others noticed
            bad = [p for p in started if p.running.returncode]
            failed = min(bad, key=lambda p: p.running.returncode)  # a signal has a negative number
            deadline = time.monotonic() + _GRACE
        if time.monotonic() > deadline:
            _end(started, signal.SIGTERM, 2.0)
        elif time.monotonic() > deaths.at + _GRACE / 2:  # no more reports: mpiexec would have ended them
            deaths.outlived = True
            _end(started, signal.SIGTERM, 1.0)
            deaths.end_others()
        time.sleep(0.02)
    bad = [p for p in started if p.running.returncode]
    return failed or (min(bad, key=lambda p: p.running.returncode) if bad else None)


def _running(started: Sequence[_Process]) -> bool:
    """Whether a process runs; ask all of them, which sets their return codes."""
    return None in [p.running.poll() for p in started]


def _end(started: Sequence[_Process], number: int, seconds: float) -> None:
    """Terminate all, then kill them."""
    for process in started:
        process.signal(number)
    deadline = time.monotonic() + seconds
    while _running(started) and time.monotonic() < deadline:
        time.sleep(0.02)
    for process in started:
        process.signal(signal.SIGKILL)
        process.running.wait()


def _blame(failed: _Process, notes: str, first: str | None) -> tuple[str, int]:
    """Describe which process failed and how, with the program's status; ``first`` is the first process of ``mpiexec``
    to end."""
    ranks = {p.read_text(): p.name for p in Path(notes).glob("rank*")}
    named, number = ranks.get(failed.killed.decode()), _signal(failed)
    ended = (first or named) if named else None
    name = _rank(ended) if ended else failed.name
    if number:
        return f"{name} was ended by {signal.Signals(number).name}", 128 + number
    failures = list(Path(notes).glob("failure*"))
    if failures:
        earliest = min(failures, key=lambda p: p.stat().st_mtime_ns)
        status, _, why = earliest.read_text().partition(" ")
        return f"rank {earliest.name.removeprefix('failure')} failed first: {why}", int(status)
    return f"{name} ended with status {failed.running.returncode}", failed.running.returncode


def _rank(note: str | None) -> str:
    """Name a process by its note."""
    return f"rank {(note or '').removeprefix('rank')}"


def _signal(failed: _Process) -> int:
    """The signal that ended it, or one that ``mpiexec`` started; 0 for a plain exit status."""
    code = failed.running.returncode
    number = -code if code < 0 else code - 128 if code > 128 else code if failed.killed else 0
    return number if number in {*signal.Signals} else 0
