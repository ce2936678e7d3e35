"""The names of ``torch.futures``: values that arrive later."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future as _Future
from typing import Any, Generic, TypeVar

__all__ = ["Future", "collect_all", "wait_all"]

T = TypeVar("T")
S = TypeVar("S")


class Future(Generic[T]):
    """A value or an exception that another thread sets."""

    def __init__(self, *, devices: object = None) -> None:
        self._future: _Future[T] = _Future()

    def done(self) -> bool:
        return self._future.done()

    def wait(self) -> T:
        """The value, once it is set; raises the exception if one was set."""
        return self._future.result()

    def value(self) -> T:
        """The value; RuntimeError while there is none."""
        if not self.done():
            raise RuntimeError("value(): the future is not done")
        return self._future.result()

    def set_result(self, result: T) -> None:
        self._future.set_result(result)

    def set_exception(self, result: BaseException) -> None:
        self._future.set_exception(result)

    def add_done_callback(self, callback: Callable[[Future[T]], None]) -> None:
        """Call ``callback(self)`` when the value is set, at once if it is."""
        self._future.add_done_callback(lambda _: callback(self))

    def then(self, callback: Callable[[Future[T]], S]) -> Future[S]:
        """A future for what ``callback(self)`` returns."""
        following: Future[S] = Future()

        def run(_: object) -> None:
            try:
                following.set_result(callback(self))
            except Exception as error:  # of the program: it belongs to who waits
                following.set_exception(error)

        self._future.add_done_callback(run)
        return following


def collect_all(futures: Sequence[Future[Any]]) -> Future[list[Future[Any]]]:
    """A future that has all of ``futures`` as its value when they are done."""
    every: Future[list[Future[Any]]] = Future()
    waiting = [len(futures)]

    def one_less(_: object) -> None:
        waiting[0] -= 1
        if waiting[0] == 0:
            every.set_result(list(futures))

    for future in futures:
        future.add_done_callback(one_less)
    if not futures:
        every.set_result([])
    return every


def wait_all(futures: Sequence[Future[Any]]) -> list[Any]:
    """The values of ``futures``, once all are done."""
    return [future.wait() for future in futures]
