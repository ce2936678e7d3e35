"""The server's handle on a worker process: it starts it, sends it batches, and starts it again if it dies."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from tracecomp.serve import frames
from tracecomp.serve.errors import KINDS, ServeError, Unavailable
from tracecomp.serve.repository import Entry
from tracecomp.serve.signature import Signature
from tracecomp.serve.spawner import SPAWNER, Child
from tracecomp.serve.tensors import TensorData

Take = Callable[[Sequence[TensorData]], bool]
"""Receives one answer of a stream; returns whether the client wants more."""
Done = Callable[[Sequence[TensorData], Exception | None], None]
"""Receives the outputs of a batch, or the error that it ended with."""
_MOST_FAILURES = 5
"""Processes in a row that may end before their model is ready."""
_PAUSES = (0.0, 0.1, 0.5, 1.0)
"""Seconds before each new start of a worker that has just died; a worker that was ready starts at once."""


class WorkerDied(Exception):
    """The worker process ended while it computed. The request may be sent again."""


class WorkerHung(Exception):
    """The worker process exceeded the model's limit of time, and was killed."""


class _Worker:
    """A process whose model is ready. It computes one batch at a time."""

    def __init__(self, channel: frames.ServerChannel, process: Child, limit: float | None) -> None:
        self._channel, self._process, self._limit = channel, process, limit
        self._loop = asyncio.get_running_loop()
        self._alarm: asyncio.TimerHandle | None = None
        self._deadline: float | None = None  # of the next answer
        self._failure: Exception = WorkerDied()
        self._take: Take | None = None
        self._done: Done

    def run(self, parts: frames.Parts, wanted: Sequence[str], take: Take | None, done: Done) -> None:
        """``WorkerProcess.run``."""
        self._take, self._done = take, done
        self._ask({"wanted": (*wanted,), "stream": take is not None}, parts)

    def forget_alarm(self) -> None:
        """Stop watching the time."""
        if self._alarm is not None:
            self._alarm.cancel()

    def _ask(self, told: frames.Header, parts: frames.Parts = ()) -> None:
        if self._limit is not None:
            self._deadline = self._loop.time() + self._limit
            if self._alarm is None:  # one alarm serves many batches: most end long before it
                self._alarm = self._loop.call_at(self._deadline, self._check_time)
        self._channel.ask(told, parts, self._answered)

    def _answered(self, message: frames.Message | None) -> None:
        self._deadline = None
        if message is None:
            self._done((), self._failure)
            return
        header, body = message
        if "error" in header:
            self._done((), _error(header["error"]))
            return
        try:
            outputs = frames.unpack(header, body)
        except Exception:  # a message that cannot be read ends the process
            self._channel.close()
            self._done((), self._failure)
            return
        if self._take is not None and "more" in header:
            self._ask({"next": True} if self._take(outputs) else {"stop": True})
        else:
            self._done(outputs, None)

    def _check_time(self) -> None:
        self._alarm = None
        if self._deadline is None:
            return
        if self._loop.time() < self._deadline:
            self._alarm = self._loop.call_at(self._deadline, self._check_time)
            return
        self._failure = WorkerHung(f"the model exceeded its limit of {self._limit:g} s")
        self._process.kill()  # it does not read the connection while it computes
        self._channel.close()


class WorkerProcess:
    """One model version's process. While the model is not ready, ``signature`` is None and ``failure`` is the reason.

    ``changed`` is called when they change, and ``started`` at each start. If ``is_given_up``, no process will start.
    """

    def __init__(self, entry: Entry, changed: Callable[[], None], started: Callable[[], None]) -> None:
        self.signature: Signature | None = None
        self.failure = "the model is loading"
        self.is_given_up = False
        self.pid: int | None = None
        self.start_time = ""
        """When the process was started, in UTC."""
        self._entry, self._settings, self._changed, self._started = entry, entry.settings, changed, started
        self._worker: _Worker | None = None
        self._keeper: asyncio.Task[None] | None = None

    @property
    def memory_bytes(self) -> int:
        """The resident memory of the process; 0 if it does not run."""
        try:
            return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except OSError:
            return 0

    def start(self) -> None:
        """Start the process, and again whenever it dies, until ``close``."""
        self._keeper = asyncio.get_running_loop().create_task(self._keep())

    async def close(self) -> None:
        """End the process."""
        if self._keeper is not None:
            self._keeper.cancel()
            with suppress(asyncio.CancelledError):
                await self._keeper

    def run(self, parts: frames.Parts, wanted: Sequence[str], take: Take | None, done: Done) -> None:
        """Compute a batch, and call ``done`` with its outputs, or with an error: WorkerDied if the process ends
        meanwhile, WorkerHung if it takes more than the model's ``max_seconds``, ServeError for a failed run.

        With ``take``, the request is a stream: ``take`` gets each of its answers, until there are no more or it returns
        False. ``max_seconds`` limits the time of one answer. Only one batch at a time is allowed.
        """
        if self._worker is None:
            asyncio.get_running_loop().call_soon(done, (), WorkerDied())
        else:
            self._worker.run(parts, wanted, take, done)

    async def _keep(self) -> None:
        failures = 0
        while failures < _MOST_FAILURES:
            await asyncio.sleep(_PAUSES[min(failures, len(_PAUSES) - 1)])
            was_ready, is_final = await self._one_life()
            if is_final:
                self._give_up(self.failure)
                return
            failures = 0 if was_ready else failures + 1
        self._give_up(f"the model's process ended {failures} times while it loaded the model")

    async def _one_life(self) -> tuple[bool, bool]:
        """Run one process until it ends; whether it was ready, and whether the next one would fail in the same way."""
        with TemporaryDirectory(prefix="tracecomp-serve-") as folder:  # a killed worker cannot remove its files
            return await self._one_life_in(folder)

    async def _one_life_in(self, folder: str) -> tuple[bool, bool]:
        try:
            process, channel = await self._spawn()
        except OSError:
            return False, False
        try:
            header = await self._load(channel, folder)
            if header is None:
                return False, False
            if "error" in header:
                self.failure = header["error"][1]
                return False, True
            self._worker = _Worker(channel, process, self._settings.max_seconds)
            self._become(Signature.from_json(json.loads(header["signature"])), "")
            await process.wait()
            return True, False
        finally:
            if self._worker is not None:
                self._worker.forget_alarm()
            self._worker = None
            if self.signature is not None:
                self._become(None, "the model's process has ended and is starting again")
            channel.close()
            process.kill()  # it may still compute
            await process.wait()
            process.close()

    async def _load(self, channel: frames.ServerChannel, folder: str) -> frames.Header | None:
        """The worker's answer to the model that it shall load; None if it has ended."""
        loaded: asyncio.Future[frames.Message | None] = asyncio.get_running_loop().create_future()
        settings, allow_code = self._settings.to_json(), self._entry.allow_code
        told = {"path": str(self._entry.path), "settings": settings, "folder": folder, "allow_code": allow_code}
        channel.ask({"model": json.dumps(told)}, (), lambda m: None if loaded.done() else loaded.set_result(m))
        message = await loaded
        return None if message is None else message[0]

    async def _spawn(self) -> tuple[Child, frames.ServerChannel]:
        here, there = socket.socketpair()
        try:
            process = await SPAWNER.spawn(there)
        except BaseException:
            here.close()
            raise
        self._started()
        self.pid, self.start_time = process.pid, datetime.now(UTC).isoformat(timespec="milliseconds")
        return process, frames.ServerChannel(here)

    def _give_up(self, reason: str) -> None:
        self.is_given_up = True
        self._become(None, reason)

    def _become(self, signature: Signature | None, failure: str) -> None:
        self.signature, self.failure = signature, failure
        self._changed()


def _error(told: Sequence[str]) -> ServeError:
    return KINDS.get(told[0], Unavailable)(told[1])
