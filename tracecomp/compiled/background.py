"""Programs compiled by another process, while calls run eagerly.

One worker process (``compile_worker``) compiles the graphs of large programs, one after the other. A thread passes them
on, first the one whose calls have spent the most time in eager mode. Eager and compiled calls give the same bits, so
only their times differ. The worker starts with the first program. It ends with this process, or after some time without
work. A forked child begins without one.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection, Pipe
from typing import Any

from tracecomp.base import config, logs, progress
from tracecomp.base.forks import in_child
from tracecomp.base.gc_pause import without_collecting
from tracecomp.base.locks import Lock
from tracecomp.base.progress import Steps
from tracecomp.base.user_warnings import from_here, warn_user
from tracecomp.communication.world import world
from tracecomp.compiled import hot_modules
from tracecomp.compiled.backends import Backend, RunByEager, native_graphs
from tracecomp.compiled.compile_worker import Answer, Request
from tracecomp.ir.graph import Graph
from tracecomp.passes.cost.machine import host
from tracecomp.runtime import program_cache

SECONDS_PER_NODE = 1e-3
"""Compile time per node of a recorded graph, measured on training steps of networks (AMD EPYC, Zen 4)."""
LEAST_SECONDS = 0.3
"""Shorter compilations, as estimated, are not worth another process."""
_SHOW_SECONDS = 0.1
"""Seconds between two updates of the bar of a job."""
MOST_ATTEMPTS = 3
"""Workers that may die with one program before its function stays eager."""

_WORKER = """
import sys
sys.path[:] = sys.argv[2:]
from tracecomp.compiled.compile_worker import main
main(int(sys.argv[1]))
"""


@dataclass(eq=False)
class Job:
    """Programs that one recording needs, compiled together.

    ``waited`` are the seconds that calls have spent in eager mode meanwhile. ``found`` maps the keys of the programs to
    what the worker made of them. ``error`` says why it failed; ``found`` is empty without an error if the program has
    to be compiled in place. ``steps`` are those that the worker has told. ``seconds`` passed until the job was done;
    the worker took ``worked`` of them.
    """

    name: str
    requests: list[Request]
    waited: float = 0.0
    calls: int = 0
    attempts: int = 0
    found: dict[str, bytes] = field(default_factory=dict)
    error: str = ""
    steps: Steps = field(default_factory=Steps)
    begun: float = field(default_factory=time.perf_counter)
    seconds: float = 0.0
    worked: float = 0.0
    done: threading.Event = field(default_factory=threading.Event)
    process: int = field(default_factory=os.getpid)

    @property
    def lost(self) -> bool:
        """Whether this process is a child, forked while the job was under way."""
        return self.process != os.getpid() and not self.done.is_set()

    @property
    def says(self) -> str:
        """Say how far the job is, and what calls did meanwhile."""
        how = "was" if self.done.is_set() else "is being"
        seconds = self.seconds or time.perf_counter() - self.begun
        meanwhile = f"{self.calls} call{'s' * (self.calls != 1)} ran eagerly meanwhile"
        return f"{how} compiled in another process, for {seconds:.1f} s; {meanwhile}"

    def wait(self) -> None:
        """Return when the job is done, or lost; show its steps on a terminal."""
        if self.lost:
            return
        with progress.bar(f"compiling {self.name} in another process") as bar:
            while not self.done.wait(None if bar is None else _SHOW_SECONDS):
                if bar is not None:
                    bar.show(self.steps)

    def delivered(self) -> AbstractContextManager[None]:
        """Wait for the job; a block in which its programs are found."""
        self.wait()
        return program_cache.given(self.found)

    def eagerly(self, fn: Callable[..., Any], args: tuple[object, ...], kwargs: Mapping[str, object]) -> Any:
        """Make a call that does not wait for the job."""
        start = time.perf_counter()
        result = fn(*args, **kwargs)
        self.waited += time.perf_counter() - start
        self.calls += 1
        return result


def begin(name: str, graph: Graph, aliases: Mapping[int, int], frozen: Set[int]) -> Job | None:
    """Start to compile ``graph`` in the background; None where it is as well compiled in place.

    That is so if it is small or in the cache, and if a setting shows or checks the steps. If modules compile
    themselves, small programs do not make them wait either. In a process group, all processes must make the same
    communications, so all of them switch to compiled code at the same call.
    """
    settings = config.current()
    if settings.wait or settings.verify or settings.check or settings.dump or world.messenger is not None:
        return None
    return without_collecting(partial(_begin, name, graph, aliases, frozen))


def _begin(name: str, graph: Graph, aliases: Mapping[int, int], frozen: Set[int]) -> Job | None:
    parts = native_graphs(graph, aliases, frozen)
    least = 0.0 if hot_modules.switch.on else LEAST_SECONDS
    if sum(_nodes(g) for g, *_ in parts) * SECONDS_PER_NODE < least:
        return None
    missing = [(g, a, f) for g, a, f in parts if not program_cache.holds(program_cache.key_of(g, host(), a, f))]
    if not missing:
        return None
    job = Job(name, [Request.of(*part) for part in missing])
    return job if _compiler.add(job) else None


class Later:
    """The backend of a graph that runs operator by operator, as in eager mode, until ``job`` has compiled it.

    ``make`` then loads the program.
    """

    frozen: Sequence[int] = ()
    says = "runs operator by operator as in eager mode, while it is compiled"

    def __init__(self, graph: Graph, job: Job, make: Callable[[Graph, Mapping[int, int], Set[int]], Any]) -> None:
        self.graph = graph
        self.job = job
        self._make = make
        self._eager = RunByEager(graph, {}, None, frozenset())
        self.run = self._eager.run

    def latest(self, waits: bool = False) -> Backend | Later:
        """The program, if it is ready or to be waited for; else this object."""
        if not (waits or self.job.lost or self.job.done.is_set()):
            return self
        with self.job.delivered():
            if self.job.error:
                failed(self.job)
                return self._eager
            return self._make(self.graph, {}, frozenset())  # type: ignore[no-any-return]


def failed(job: Job) -> str:
    """Warn that a program could not be compiled; the reason."""
    reason = f"{job.name} cannot be compiled: {job.error}"
    warn_user(reason, "Its calls run eagerly", "Please report this, with the script if one is named")
    return reason


def _nodes(graph: Graph) -> int:
    bodies = (value for node in graph.nodes for value in node.attrs.values() if isinstance(value, Graph))
    return len(graph.nodes) + sum(map(_nodes, bodies))


class _Compiler:
    """The jobs of this process, the thread that hands them on, and the worker."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._waiting: list[Job] = []
        self._thread: threading.Thread | None = None
        self._worker: _Worker | None = None
        self._unavailable = False
        self._ending = threading.Event()

    def add(self, job: Job) -> bool:
        """Queue a job; False if no process or thread can be started."""
        with self._lock:
            if self._unavailable or self._ending.is_set():
                return False
            self._waiting.append(job)
            if self._thread is None:
                self._thread = threading.Thread(target=from_here(self._work), name="tracecomp compiling", daemon=True)
                try:
                    self._thread.start()
                except RuntimeError:  # no thread available, or interpreter shutdown
                    self._thread = None
                    self._waiting.remove(job)
                    return False
        return True

    def end(self) -> None:
        """Drop all work and end the worker."""
        self._ending.set()
        if self._worker is not None:
            self._worker.end()

    def leave(self) -> None:
        """Let go of the worker, which belongs to the parent of this forked process."""
        if self._worker is not None:
            self._worker.connection.close()

    def _work(self) -> None:
        """Hand on the jobs. The thread ends when there are none."""
        while True:
            with self._lock:
                if not self._waiting or self._ending.is_set():
                    self._thread = None
                    return
                job = max(self._waiting, key=lambda job: job.waited)
                self._waiting.remove(job)
            start = time.perf_counter()
            try:
                self._compile(job)
            except OSError as error:  # no process can be started: the calls compile in place
                self._unavailable = True
                warn_user(f"programs cannot be compiled in another process: {error}", "Calls wait for the compiler",
                          "Set TRACECOMP_WAIT=1 to silence this", RuntimeWarning)  # fmt: skip
            except Exception as error:  # a fault here must not leave other jobs without a thread
                job.error = f"{type(error).__name__}: {error}"
            finally:
                end = time.perf_counter()
                job.seconds, job.worked = end - job.begun, end - start
                job.done.set()
            _log(job)

    def _compile(self, job: Job) -> None:
        for request in job.requests:
            answer = self._answer(job, request)
            if answer is None:
                return
            if answer.error or not answer.program:
                job.found.clear()
                job.error = answer.error
                return
            job.found[request.key] = answer.program

    def _answer(self, job: Job, request: Request) -> Answer | None:
        """The worker's answer; None if this process ends. A worker that has died is replaced."""
        before = job.steps
        while not self._ending.is_set():
            worker = self._worker
            if worker is None or not worker.is_alive():
                worker = self._worker = _Worker()
            try:
                worker.connection.send(request)
                return _received(worker.connection, job, before)
            except (EOFError, OSError):
                code = worker.end()
                self._worker = None
            if self._ending.is_set():
                return None
            job.attempts += code != 0  # a worker without work ends with 0
            if job.attempts >= MOST_ATTEMPTS:
                return Answer(error=f"the process that compiled it has ended {job.attempts} times, last with {code}")
        return None


def _received(connection: Connection, job: Job, before: Steps) -> Answer:
    """The answer to a request of ``job``; the steps that arrive first follow those of ``before``."""
    while not isinstance(received := connection.recv(), Answer):
        job.steps = received.after(before)
    return received


class _Worker:
    """The worker process, and the connection to it."""

    def __init__(self) -> None:
        self.connection, there = Pipe()
        with there:
            command = [_python(), "-c", _WORKER, str(there.fileno()), *sys.path]
            self._process = subprocess.Popen(
                command, pass_fds=[there.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL, start_new_session=True,  # Ctrl-C and a terminal's end are for the program
            )  # fmt: skip

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def end(self) -> int:
        """End the process, if it still runs; its exit code."""
        with suppress(OSError):
            self._process.kill()
        self.connection.close()
        return self._process.wait()


def _python() -> str:
    """The interpreter. OSError for a program that contains it."""
    if not sys.executable or getattr(sys, "frozen", False):
        raise OSError("this program contains its Python interpreter")
    return sys.executable


def _log(job: Job) -> None:
    if logs.wanted("compile"):
        logs.log("compile", f"{job.name} {job.error or job.says}")


_compiler = _Compiler()
atexit.register(lambda: _compiler.end())


@in_child
def begin_again() -> None:
    """Begin with no jobs and no worker, as a forked child does."""
    global _compiler
    _compiler.leave()
    _compiler = _Compiler()
