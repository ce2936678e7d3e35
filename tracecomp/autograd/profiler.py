"""Time per operator of eager code and per kernel of compiled code: ``with profile() as prof: ...; print(prof)``."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

from tracecomp.autograd.profiler_util import EventList as EventList
from tracecomp.autograd.profiler_util import FunctionEvent as FunctionEvent
from tracecomp.autograd.profiler_util import FunctionEventAvg
from tracecomp.eager.grad_fn import OpNode
from tracecomp.eager.overrides import unwatch_calls, watch_calls
from tracecomp.eager.tensor import Tensor

_entered: list[profile] = []
watchers: list[Callable[[], None]] = []
"""Callbacks for the first entered profile, and for the end of the last: compiled functions register them."""


def watching() -> bool:
    """Whether a profile is active."""
    return bool(_entered)


def _profiler_enabled() -> bool:
    """Whether a profile is entered."""
    return watching()


def _disable_profiler() -> None:
    """End the profiles that are entered, the last one first."""
    while _entered:
        _entered[-1].__exit__()


def kernels_ran(seconds: Sequence[tuple[str, float]]) -> None:
    """Record the kernels of a compiled program that has just ended, and their times, in the active profiles."""
    for owner in _entered:
        at = time.perf_counter() - sum(s for _, s in seconds)
        for name, spent in seconds:
            owner._add(name, at, spent * 1e6, spent * 1e6)
            owner._inner[-1] += spent * 1e6
            at += spent


class profile:
    """Measure every primitive and every backward step while active; ``enabled=False`` disables it.

    A compiled call is an entry ``compiled NAME``, and its kernels are entries under their names. While a profile is
    active, compiled calls run through Python.
    """

    def __init__(self, enabled: bool = True, **options: Any) -> None:
        self.enabled = enabled
        self._forget()

    def _forget(self) -> None:
        self._calls: list[FunctionEvent] = []
        self._inner = [0.0]

    def __enter__(self) -> profile:
        if self.enabled:
            self._apply, self._backward = Tensor.__tracecomp_apply__, OpNode.backward
            timed = self._timed(self._apply, lambda op, *rest: op.name)
            Tensor.__tracecomp_apply__ = staticmethod(timed)  # type: ignore[method-assign]
            OpNode.backward = self._timed(self._backward, lambda node, *rest: node.name())  # type: ignore[method-assign]
            _entered.append(self)
            watch_calls()
            self._tell()
        return self

    def _tell(self) -> None:
        if len(_entered) <= 1:
            for tell in watchers:
                tell()

    def __exit__(self, *error: object) -> None:
        if self in _entered:
            unwatch_calls()
            _entered.remove(self)
            self._tell()
            Tensor.__tracecomp_apply__ = staticmethod(self._apply)  # type: ignore[method-assign]
            OpNode.backward = self._backward  # type: ignore[method-assign]

    def _timed(self, fn: Callable[..., object], key: Callable[..., str]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            with _Span(self, key(*args)):
                return fn(*args)

        return run

    def _add(self, key: str, start: float, spent: float, own: float) -> None:
        """Count a call that began at ``start`` (seconds) and took ``spent`` microseconds, ``own`` of them excluding
        nested calls."""
        self._calls.append(FunctionEvent(key, start * 1e6, spent, own))

    def events(self) -> EventList[FunctionEvent]:
        """Every call, in the order in which they ended."""
        return EventList(self._calls)

    @property
    def function_events(self) -> EventList[FunctionEvent]:
        return self.events()

    def key_averages(self, **options: Any) -> EventList[FunctionEventAvg]:
        """One entry per operator."""
        return self.events().key_averages()

    def total_average(self) -> FunctionEventAvg:
        """One entry for everything."""
        return self.events().total_average()

    def export_chrome_trace(self, path: str) -> None:
        """Write every call to ``path``, in the format of Chrome's trace viewer."""
        self.events().export_chrome_trace(path)

    def table(self, sort_by: str | None = None, row_limit: int = 100, **options: Any) -> str:
        return self.key_averages().table(sort_by, row_limit)

    @property
    def self_cpu_time_total(self) -> float:
        return self.events().self_cpu_time_total

    def step(self) -> None:
        """Accepted between the steps of a loop, without effect."""

    def __str__(self) -> str:
        return self.table()


class _Span:
    """The time between entering and leaving, without that of nested spans."""

    def __init__(self, owner: profile, key: str) -> None:
        self.owner, self.key = owner, key

    def __enter__(self) -> None:
        self.inner = self.owner._inner
        self.inner.append(0.0)
        self.start = time.perf_counter()

    def __exit__(self, *error: object) -> None:
        if self.owner._inner is not self.inner:
            return  # the owner has restarted
        spent = (time.perf_counter() - self.start) * 1e6
        self.owner._add(self.key, self.start, spent, spent - self.inner.pop())
        self.inner[-1] += spent


class record_function:
    """Context and decorator: the code inside is an entry ``name`` of the active profiles."""

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name = name
        self._spans: list[_Span] = []

    def __enter__(self) -> record_function:
        self._spans = [_Span(owner, self.name) for owner in _entered]
        for span in self._spans:
            span.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        for span in reversed(self._spans):
            span.__exit__()

    def __call__(self, fn: Callable[..., object]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def run(*args: Any, **kwargs: Any) -> Any:
            with record_function(self.name):
                return fn(*args, **kwargs)

        return run
