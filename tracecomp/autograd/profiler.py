"""Time per operator of eager code and per kernel of compiled code: ``with profile() as prof: ...; print(prof)``."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from tracecomp.eager.grad_fn import OpNode
from tracecomp.eager.overrides import unwatch_calls, watch_calls
from tracecomp.eager.tensor import Tensor


@dataclass
class EventAvg:
    """All calls of one operator. Times of devices and sizes of memory are not measured: zeros."""

    cuda_time_total: ClassVar[float] = 0.0
    self_cuda_time_total: ClassVar[float] = 0.0
    device_time_total: ClassVar[float] = 0.0
    self_device_time_total: ClassVar[float] = 0.0
    cpu_memory_usage: ClassVar[int] = 0
    self_cpu_memory_usage: ClassVar[int] = 0
    key: str
    count: int = 0
    cpu_time_total: float = 0.0  # microseconds
    self_cpu_time_total: float = 0.0

    @property
    def cpu_time(self) -> float:
        return self.cpu_time_total / self.count


@dataclass(frozen=True)
class Event:
    """One call of an operator, in microseconds."""

    name: str
    start: float
    cpu_time_total: float


class EventList(list[EventAvg]):
    """Events, most expensive first; ``table()`` shows them."""

    def table(self, sort_by: str | None = None, row_limit: int = 100, **options: Any) -> str:
        """The first ``row_limit`` events in PyTorch's layout; ``sort_by`` is a field, such as "cpu_time_total"."""
        if not self:
            return ""
        rows = sorted(self, key=lambda e: getattr(e, sort_by), reverse=True) if sort_by else self
        total = sum(e.self_cpu_time_total for e in self) or 1.0
        width = min(max(len(e.key) for e in self) + 4, _NAME_WIDTH)
        rule = _row("-" * width, ["-" * _WIDTH] * len(_HEAD), width)
        lines = [rule, _row("Name", _HEAD, width), rule]
        for e in rows[:row_limit]:
            shares = [f"{100 * t / total:.2f}%" for t in (e.self_cpu_time_total, e.cpu_time_total)]
            times = [_shown(t) for t in (e.self_cpu_time_total, e.cpu_time_total, e.cpu_time)]
            cells = [shares[0], times[0], shares[1], times[1], times[2], str(e.count)]
            lines.append(_row(e.key if len(e.key) < width else f"{e.key[: width - 3]}...", cells, width))
        return "\n".join([*lines, rule, f"Self CPU time total: {_shown(total)}", ""])

    def __str__(self) -> str:
        return self.table()


_HEAD = ["Self CPU %", "Self CPU", "CPU total %", "CPU total", "CPU time avg", "# of Calls"]
_WIDTH = 12
"""Characters of a column: a time with its unit, as in PyTorch's table."""
_NAME_WIDTH = 55
"""Characters of a name before it is truncated, PyTorch's default."""


def _row(name: str, cells: list[str], width: int) -> str:
    return "".join(f"{text:>{size}}  " for text, size in [(name, width), *((cell, _WIDTH) for cell in cells)])


def _shown(microseconds: float) -> str:
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if microseconds >= size:
            return f"{microseconds / size:.3f}{unit}"
    return f"{microseconds:.3f}us"


_entered: list[profile] = []
watchers: list[Callable[[], None]] = []
"""Callbacks for the first entered profile, and for the end of the last: compiled functions register them."""


def watching() -> bool:
    """Whether a profile is active."""
    return bool(_entered)


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
        self._events: dict[str, EventAvg] = {}
        self._calls: list[Event] = []
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
        if self.enabled:
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
        self._calls.append(Event(key, start * 1e6, spent))
        event = self._events.setdefault(key, EventAvg(key))
        event.count += 1
        event.cpu_time_total += spent
        event.self_cpu_time_total += own

    def key_averages(self, **options: Any) -> EventList:
        """One entry per operator."""
        return EventList(sorted(self._events.values(), key=lambda e: -e.self_cpu_time_total))

    def events(self) -> list[Event]:
        """Every call, in the order in which they ended."""
        return list(self._calls)

    def export_chrome_trace(self, path: str) -> None:
        """Write every call to ``path``, in the format of Chrome's trace viewer."""
        calls = [
            {"name": e.name, "ph": "X", "pid": 0, "tid": 0, "ts": e.start, "dur": e.cpu_time_total} for e in self._calls
        ]
        Path(path).write_text(json.dumps({"traceEvents": calls}))

    def table(self, sort_by: str | None = None, row_limit: int = 100, **options: Any) -> str:
        return self.key_averages().table(sort_by, row_limit)

    @property
    def self_cpu_time_total(self) -> float:
        return sum(e.self_cpu_time_total for e in self._events.values())

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
