"""``torch.profiler`` for eager programs: what ``autograd.profiler`` measures, in steps that a schedule chooses."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from enum import Enum
from pathlib import Path
from typing import Any

from tracecomp.autograd import profiler
from tracecomp.autograd.profiler import record_function

__all__ = ["ProfilerAction", "ProfilerActivity", "profile", "record_function", "schedule", "tensorboard_trace_handler"]


def kineto_available() -> bool:
    """False: that is PyTorch's own recorder of events."""
    return False


class ProfilerActivity(Enum):
    """Profiled activities; here that is always the CPU."""

    CPU = 0
    XPU = 1
    MTIA = 2
    CUDA = 3
    HPU = 4


class ProfilerAction(Enum):
    """The action of a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0, skip_first_wait: int = 0
) -> Callable[[int], ProfilerAction]:
    """Steps in cycles of ``wait``, ``warmup`` and ``active``, ``repeat`` times or (0) for ever."""
    if min(wait, warmup, repeat, skip_first) < 0 or active <= 0:
        raise AssertionError("Invalid profiler schedule arguments")
    length = wait + warmup + active

    def action(step: int) -> ProfilerAction:
        step -= skip_first
        if step < 0:
            return ProfilerAction.NONE
        step += wait if skip_first_wait else 0
        cycle, place = divmod(step, length)
        if (0 < repeat <= cycle) or place < wait:
            return ProfilerAction.NONE
        if place < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD if place < length - 1 else ProfilerAction.RECORD_AND_SAVE

    return action


def tensorboard_trace_handler(
    dir_name: str, worker_name: str | None = None, use_gzip: bool = False
) -> Callable[[profile], None]:
    """A handler that writes each trace into ``dir_name``, as Chrome's trace viewer reads it."""

    def handle(found: profile) -> None:
        folder = Path(dir_name)
        folder.mkdir(parents=True, exist_ok=True)
        found.export_chrome_trace(str(folder / f"{worker_name or 'worker'}.{time.time_ns()}.pt.trace.json"))

    return handle


class profile(profiler.profile):
    """Measures between ``start`` and ``stop`` (or in a ``with``), in the steps that ``schedule`` chooses if given.

    ``on_trace_ready(self)`` is called after each row of recorded steps. Other options of torch's are accepted.
    """

    def __init__(
        self, *, activities: Iterable[ProfilerActivity] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[[profile], Any] | None = None, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        self.schedule = schedule
        self.on_trace_ready = on_trace_ready
        self.step_num = 0
        self._running = False

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def start(self) -> None:
        """Begin with step 0."""
        self.step_num = 0
        self._follow()

    def step(self) -> None:
        """The next step begins."""
        complete = self._action() is ProfilerAction.RECORD_AND_SAVE
        self.step_num += 1
        if complete:
            self._end()
        self._follow()

    def stop(self) -> None:
        """Stop, and pass the results to the handler."""
        self._end()

    def _action(self) -> ProfilerAction:
        return ProfilerAction.RECORD if self.schedule is None else self.schedule(self.step_num)

    def _follow(self) -> None:
        recording = self._action() in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)
        if recording and not self._running:
            self._forget()
            super().__enter__()
            self._running = True
        elif not recording and self._running:
            self._end()

    def _end(self) -> None:
        if self._running:
            super().__exit__()
            self._running = False
            if self.on_trace_ready is not None:
                self.on_trace_ready(self)
