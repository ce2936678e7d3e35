"""Running operations, and the thread of a group that serializes them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

from tracecomp import futures
from tracecomp.communication.errors import DistBackendError

Task = Callable[[], Any]


class Work:
    """An operation that may still run: the result of ``async_op=True``.

    The first waiting thread runs ``then`` with its value, so that only the owner changes tensors.
    """

    def __init__(self, value: Future[Any], then: Callable[[Any], Any] | None = None) -> None:
        self._value, self._then = value, then
        self._result: Any = None
        self._lock = threading.Lock()

    @classmethod
    def done(cls, value: object) -> Work:
        """Return a completed operation."""
        future: Future[Any] = Future()
        future.set_result(value)
        work = cls(future)
        work._result = value
        return work

    def is_completed(self) -> bool:
        """Whether the operation is complete; its results are then in place."""
        return self._value.done() and (self._value.exception() is not None or self.wait())

    def is_success(self) -> bool:
        return self.is_completed() and self._value.exception() is None

    def exception(self) -> BaseException | None:
        return self._value.exception() if self._value.done() else None

    def wait(self, timeout: timedelta | float | None = None) -> bool:
        """Wait until the operation is complete and its results are in place; return True, or raise its error.

        DistBackendError when it takes longer than ``timeout`` (a ``timedelta``, or seconds).
        """
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        try:
            value = self._value.result(seconds or None)
        except TimeoutError as error:
            raise DistBackendError(f"an operation still ran after {seconds:g} s") from error
        with self._lock:
            if self._then is not None:
                self._result, self._then = self._then(value), None
        return True

    synchronize = wait

    def result(self) -> Any:
        """The result of the operation."""
        self.wait()
        return self._result

    def source_rank(self) -> int:
        """The sender of the message of a receive without a source."""
        return int(self.result())

    def get_future(self) -> Any:
        """A ``torch.futures.Future`` of the list of results, which are in place when it is done."""
        found: futures.Future[Any] = futures.Future()

        def finish(value: Future[object]) -> None:
            error = value.exception()
            if error is not None:
                found.set_exception(error)
            else:
                found.set_result(self.result())

        self._value.add_done_callback(finish)
        return found


class Worker:
    """Run tasks of one group in order: at once if none is pending, else on a separate thread."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: queue.SimpleQueue[tuple[Future[Any], Task] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._last: Future[Any] | None = None

    def run(self, task: Task) -> Any:
        """Run ``task`` after everything submitted earlier, and return its result."""
        waiting = self._last is not None and not self._last.done()
        if waiting and threading.current_thread() is not self._thread:
            return self.submit(task).result()
        return task()

    def submit(self, task: Task) -> Future[Any]:
        """Submit ``task`` to the thread; return its future."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
            self._thread.start()
        future = self._last = Future[Any]()
        self._tasks.put((future, task))
        return future

    def _serve(self) -> None:
        while (entry := self._tasks.get()) is not None:
            future, task = entry
            try:
                future.set_result(task())
            except BaseException as error:  # raised by the waiting thread
                future.set_exception(error)

    def stop(self) -> None:
        """End the thread after the submitted tasks."""
        if self._thread is not None:
            self._tasks.put(None)
            self._thread.join(timeout=5.0)
