"""Running a statement often enough to say how long it takes."""

from __future__ import annotations

import sys
import textwrap
import timeit
from collections.abc import Callable
from typing import Any, NoReturn

from tracecomp.utils.benchmark.measurement import Measurement, TaskSpec, set_torch_threads

timer = timeit.default_timer
"""Seconds; there is no device to wait for."""


class Timer:
    """Time ``stmt``, Python code with ``globals``, with ``num_threads`` threads; ``setup`` runs first.

    ``label``, ``sub_label``, ``description`` and ``env`` describe it in tables. NotImplementedError for code in C++.
    """

    def __init__(
        self, stmt: str = "pass", setup: str = "pass", global_setup: str = "", timer: Callable[[], float] = timer,
        globals: dict[str, object] | None = None, label: str | None = None, sub_label: str | None = None,
        description: str | None = None, env: str | None = None, num_threads: int = 1, language: object = "python",
    ) -> None:  # fmt: skip
        if not isinstance(stmt, str):
            raise ValueError("Currently only a `str` stmt is supported.")
        if str(getattr(language, "value", language)).lower() not in ("py", "python", "0"):
            raise NotImplementedError("Timer: only Python statements are supported, not C++")
        if global_setup:
            raise ValueError(
                f"global_setup is C++ only, got `{global_setup}`. Most likely this code should be in `setup`."
            )
        stmt, setup = (textwrap.dedent(text).strip("\n") for text in (stmt, setup))
        known = {} if globals is None else dict(globals)
        known.setdefault("torch", _torch())
        self._task_spec = TaskSpec(stmt, setup, global_setup, label, sub_label, description, env, num_threads)
        self._globals = known
        self._timer = timeit.Timer(stmt, setup, timer, globals=known)

    def _timeit(self, number: int) -> float:
        return max(self._timer.timeit(number), 1e-9)

    def timeit(self, number: int = 1000000) -> Measurement:
        """``number`` runs, after a few that warm up, as one measurement."""
        with set_torch_threads(self._task_spec.num_threads):
            self._timeit(max(int(number // 100), 2))
            return Measurement(number, [self._timeit(number)], self._task_spec)

    def repeat(self, repeat: int = -1, number: int = -1) -> NoReturn:
        raise NotImplementedError("See `Timer.blocked_autorange.`")

    def autorange(self, callback: Callable[[int, float], NoReturn] | None = None) -> NoReturn:
        raise NotImplementedError("See `Timer.blocked_autorange.`")

    def collect_callgrind(self, *args: object, **kwargs: object) -> NoReturn:
        raise NotImplementedError(
            "Timer.collect_callgrind(): counting instructions is not supported. Use blocked_autorange()"
        )

    def _block(self, min_run_time: float) -> int:
        """Runs of one measurement, so that the clock's overhead is a thousandth of it."""
        overhead = sorted(self._timeit(0) for _ in range(5))[2]
        number = 1
        while True:
            taken = self._timeit(number)
            part = overhead / taken
            long = (taken >= 1e-3 and part <= 1e-4) or (taken >= min_run_time / 1000 and part <= 1e-3)
            if long or taken > min_run_time:
                return number
            number *= 10

    def _measured(
        self, number: int, at_least: float, enough: Callable[[list[float]], bool], at_most: float,
        callback: Callable[[int, float], object] | None,
    ) -> list[float]:  # fmt: skip
        times: list[float] = []
        total = 0.0
        while total < at_least or (total < at_most and not enough(times)):
            times.append(self._timeit(number))
            total += times[-1]
            if callback is not None:
                callback(number, times[-1])
        return times

    def blocked_autorange(
        self, callback: Callable[[int, float], object] | None = None, min_run_time: float = 0.2
    ) -> Measurement:
        """Measurements of as many runs as keep the clock's overhead small, for ``min_run_time`` seconds altogether."""
        with set_torch_threads(self._task_spec.num_threads):
            number = self._block(min_run_time)
            times = self._measured(number, min_run_time, lambda _: True, min_run_time, callback)
            return Measurement(number, times, self._task_spec)

    def adaptive_autorange(
        self, threshold: float = 0.1, *, min_run_time: float = 0.01, max_run_time: float = 10.0,
        callback: Callable[[int, float], object] | None = None,
    ) -> Measurement:  # fmt: skip
        """Measurements until their spread is below ``threshold`` of the median, or ``max_run_time`` is over."""
        with set_torch_threads(self._task_spec.num_threads):
            number = self._block(0.05)

            def steady(times: list[float]) -> bool:
                return len(times) > 3 and Measurement(number, times, self._task_spec).meets_confidence(threshold)

            times = self._measured(number, min_run_time, steady, max_run_time, callback)
            return Measurement(number, times, self._task_spec)


def _torch() -> Any:
    """The module that statements use as torch."""
    return sys.modules.get("torch") or sys.modules["tracecomp"]
