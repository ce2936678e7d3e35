"""Time per operator of eager programs: ``with profile() as prof: ...; print(prof)``."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tracecomp.node import OpNode
from tracecomp.tensor import Tensor


@dataclass
class EventAvg:
    """All calls of one operator."""

    key: str
    count: int = 0
    cpu_time_total: float = 0.0  # microseconds
    self_cpu_time_total: float = 0.0

    @property
    def cpu_time(self) -> float:
        return self.cpu_time_total / self.count


class EventList(list[EventAvg]):
    """Events, most expensive first; ``table()`` shows them."""

    def table(self, sort_by: str | None = None, row_limit: int = 100, **options: Any) -> str:
        rows = sorted(self, key=lambda e: getattr(e, sort_by), reverse=True) if sort_by else self
        total = sum(e.self_cpu_time_total for e in self) or 1.0
        width = max([len(e.key) for e in self] + [4])
        columns = f"{'Self CPU %':>10}  {'Self CPU':>12}  {'CPU total':>12}  {'CPU avg':>12}  {'Calls':>7}"
        head = f"{'Name':<{width}}  {columns}"
        rule = "-" * len(head)
        lines = [rule, head, rule]
        for e in rows[:row_limit]:
            lines.append(
                f"{e.key:<{width}}  {100 * e.self_cpu_time_total / total:>9.2f}%  {_shown(e.self_cpu_time_total):>12}  "
                f"{_shown(e.cpu_time_total):>12}  {_shown(e.cpu_time):>12}  {e.count:>7}"
            )
        return "\n".join([*lines, rule, f"Self CPU time total: {_shown(total)}", ""])

    def __str__(self) -> str:
        return self.table()


def _shown(microseconds: float) -> str:
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if microseconds >= size:
            return f"{microseconds / size:.3f}{unit}"
    return f"{microseconds:.3f}us"


class profile:
    """Measures every primitive and every backward step while entered; ``enabled=False`` measures nothing.

    Only eager work is seen: a compiled call is one native program (``Compiled.explain``, ``python -m tracecomp``).
    """

    def __init__(self, enabled: bool = True, **options: Any) -> None:
        self.enabled = enabled
        self._events: dict[str, EventAvg] = {}
        self._inner = [0.0]

    def __enter__(self) -> profile:
        if self.enabled:
            self._apply, self._backward = Tensor.__tracecomp_apply__, OpNode.backward
            timed = self._timed(self._apply, lambda op, *rest: op.name)
            Tensor.__tracecomp_apply__ = staticmethod(timed)  # type: ignore[method-assign]
            OpNode.backward = self._timed(self._backward, lambda node, *rest: node.name())  # type: ignore[method-assign]
        return self

    def __exit__(self, *error: object) -> None:
        if self.enabled:
            Tensor.__tracecomp_apply__ = staticmethod(self._apply)  # type: ignore[method-assign]
            OpNode.backward = self._backward  # type: ignore[method-assign]

    def _timed(self, fn: Callable[..., Any], key: Callable[..., str]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            with _Span(self, key(*args)):
                return fn(*args)

        return run

    def key_averages(self, **options: Any) -> EventList:
        """One entry per operator."""
        return EventList(sorted(self._events.values(), key=lambda e: -e.self_cpu_time_total))

    def table(self, sort_by: str | None = None, row_limit: int = 100, **options: Any) -> str:
        return self.key_averages().table(sort_by, row_limit)

    @property
    def self_cpu_time_total(self) -> float:
        return sum(e.self_cpu_time_total for e in self._events.values())

    def step(self) -> None:
        """Accepted between the steps of a loop."""

    def __str__(self) -> str:
        return self.table()


class _Span:
    """The time between entering and leaving, without that of spans inside."""

    def __init__(self, owner: profile, key: str) -> None:
        self.owner, self.key = owner, key

    def __enter__(self) -> None:
        self.owner._inner.append(0.0)
        self.start = time.perf_counter()

    def __exit__(self, *error: object) -> None:
        spent = (time.perf_counter() - self.start) * 1e6
        event = self.owner._events.setdefault(self.key, EventAvg(self.key))
        event.count += 1
        event.cpu_time_total += spent
        event.self_cpu_time_total += spent - self.owner._inner.pop()
        self.owner._inner[-1] += spent
