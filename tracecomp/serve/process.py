"""The server's handle on a worker process: it starts it, sends it batches, and starts it again if it dies."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from tempfile import TemporaryDirectory

from tracecomp.serve import frames
from tracecomp.serve.errors import KINDS, ServeError, Unavailable
from tracecomp.serve.repository import Entry
from tracecomp.serve.signature import Signature
from tracecomp.serve.spawner import SPAWNER, Child
from tracecomp.serve.tensors import TensorData

Take = Callable[[list[TensorData]], bool]
"""Receives one answer of a stream; returns whether the client wants more."""
_MOST_FAILURES = 5
"""Processes in a row that may end before their model is ready."""
_PAUSES = (0.0, 0.1, 0.5, 1.0)
"""Seconds before each new start of a worker that has just died; a worker that was ready starts at once."""


class WorkerDied(Exception):
    """The worker process ended while it computed. The request may be sent again."""


class WorkerHung(Exception):
    """The worker process exceeded the model's limit of time, and was killed."""


class WorkerProcess:
    """One model version's process. While the model is not ready, ``signature`` is None and ``failure`` is the reason.

    ``changed`` is called when they change, and ``started`` at each start. If ``is_given_up``, no process will start.
    """

    def __init__(self, entry: Entry, changed: Callable[[], None], started: Callable[[], None]) -> None:
        self.signature: Signature | None = None
        self.failure = "the model is loading"
        self.is_given_up = False
        self.pid: int | None = None
        self._entry, self._settings, self._changed, self._started = entry, entry.settings, changed, started
        self._channel: frames.ServerChannel | None = None
        self._process: Child | None = None
        self._keeper: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the process, and again whenever it dies, until ``close``."""
        self._keeper = asyncio.get_running_loop().create_task(self._keep())

    async def close(self) -> None:
        """End the process."""
        if self._keeper is not None:
            self._keeper.cancel()
            with suppress(asyncio.CancelledError):
                await self._keeper

    async def run(self, parts: frames.Parts, wanted: Sequence[str]) -> list[TensorData]:
        """The outputs for a batch. WorkerDied if the process ends meanwhile; WorkerHung if it takes more than the
        model's ``max_seconds``; ServeError for a failed run.

        Only one call at a time is allowed, of this method or ``stream``. A cancelled call would leave its answer to the
        next one, so callers shield it.
        """
        return (await self._exchange({"wanted": [*wanted], "stream": False}, parts))[1]

    async def stream(self, parts: frames.Parts, wanted: Sequence[str], take: Take) -> None:
        """Give each answer for a request to ``take``, until there are no more or it returns False.

        Errors are those of ``run``; ``max_seconds`` limits the time of one answer.
        """
        has_more, outputs = await self._exchange({"wanted": [*wanted], "stream": True}, parts)
        while has_more:
            told = {"next": True} if take(outputs) else {"stop": True}
            has_more, outputs = await self._exchange(told)

    async def _exchange(self, told: frames.Header, parts: frames.Parts = ()) -> tuple[bool, list[TensorData]]:
        """Send a message; return whether more answers follow, and the tensors of this one."""
        channel = self._channel
        if channel is None:
            raise WorkerDied
        try:
            async with asyncio.timeout(self._settings.max_seconds):
                await channel.send(told, parts)
                header, body = await channel.receive()
            outputs = [] if "error" in header else frames.unpack(header, body)
        except TimeoutError:
            channel.close()
            if self._process is not None:
                self._process.kill()  # it does not read the connection while it computes
            raise WorkerHung(f"the model exceeded its limit of {self._settings.max_seconds:g} s") from None
        except OSError:
            raise WorkerDied from None
        except Exception:  # a message that cannot be read ends the process
            channel.close()
            raise WorkerDied from None
        if "error" in header:
            raise _error(header["error"])
        return "more" in header, outputs

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
            told = {"path": str(self._entry.path), "settings": self._settings.to_json(), "folder": folder}
            await channel.send({**told, "allow_code": self._entry.allow_code})
            header, _ = await channel.receive()
            if "error" in header:
                self.failure = header["error"][1]
                return False, True
            self._channel = channel
            self._become(Signature.from_json(header["signature"]), "")
            await process.wait()
            return True, False
        except OSError:
            return False, False
        finally:
            self._channel = None
            if self.signature is not None:
                self._become(None, "the model's process has ended and is starting again")
            self._process = None
            channel.close()
            process.kill()  # it may still compute
            await process.wait()
            process.close()

    async def _spawn(self) -> tuple[Child, frames.ServerChannel]:
        here, there = socket.socketpair()
        try:
            process = await SPAWNER.spawn(there)
        except BaseException:
            here.close()
            raise
        self._started()
        self._process, self.pid = process, process.pid
        return process, frames.ServerChannel(here)

    def _give_up(self, reason: str) -> None:
        self.is_given_up = True
        self._become(None, reason)

    def _become(self, signature: Signature | None, failure: str) -> None:
        self.signature, self.failure = signature, failure
        self._changed()


def _error(told: Sequence[str]) -> ServeError:
    return KINDS.get(told[0], Unavailable)(told[1])
