"""Schedules that combine other schedules."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from tracecomp.base.user_warnings import silenced
from tracecomp.optim.optimizer import Optimizer, State
from tracecomp.optim.schedule import LRScheduler, host_step, set_lr


class SequentialLR(LRScheduler):
    """Schedulers one after another, changing at ``milestones``."""

    def __init__(
        self, optimizer: Optimizer, schedulers: list[LRScheduler], milestones: list[int], last_epoch: int = -1
    ) -> None:
        if not schedulers:
            raise ValueError(
                f"{type(self).__name__} expects at least one scheduler to be chained, but got no scheduler."
            )
        for i, scheduler in enumerate(schedulers):
            if not hasattr(scheduler, "optimizer"):
                raise TypeError(
                    f"{type(self).__name__} expects schedulers, but got {type(scheduler).__name__} at index {i}."
                )
            if scheduler.optimizer is not optimizer:
                raise ValueError(
                    f"{type(self).__name__} expects all schedulers to belong to the same optimizer, but got scheduler "
                    f"{type(scheduler).__name__} at index {i} which is different from the optimizer passed in."
                )
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(
                "Sequential Schedulers expects number of schedulers provided to be one more than the number of "
                "milestone "
                f"points, but got number of schedulers {len(schedulers)} and the number of milestones to be equal to "
                f"{len(milestones)}"
            )
        self._schedulers = schedulers
        self._milestones = milestones
        self.last_epoch = last_epoch + 1
        self.optimizer = optimizer
        for group in optimizer.param_groups:
            set_lr(group, group["initial_lr"])
        for scheduler in schedulers:
            scheduler.last_epoch -= 1
        schedulers[0]._first_step()
        self._last_lr = schedulers[0].get_last_lr()

    @host_step
    def step(self, epoch: int | None = None) -> None:
        """Step the current scheduler."""
        self.last_epoch += 1
        turn = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[turn]
        if turn > 0 and self._milestones[turn - 1] == self.last_epoch:
            with silenced(UserWarning):
                scheduler.step(0)
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()

    def state_dict(self) -> dict[str, Any]:
        """Return its own state and that of every scheduler."""
        return _with_schedulers(self)

    def load_state_dict(self, state_dict: State) -> None:
        """Load a saved schedule."""
        _load_with_schedulers(self, state_dict)


class ChainedScheduler(LRScheduler):
    """Schedulers that all step every time."""

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None) -> None:
        if not schedulers:
            raise ValueError(
                f"{type(self).__name__} expects at least one scheduler to be chained, but got no scheduler."
            )
        optimizer = optimizer or schedulers[0].optimizer
        for i, scheduler in enumerate(schedulers):
            if scheduler.optimizer is not optimizer:
                raise ValueError(
                    f"{type(self).__name__} expects all schedulers to belong to the same optimizer, but got scheduler "
                    f"{type(scheduler).__name__} at index {i} which is different from the optimizer passed in."
                )
        self._schedulers = list(schedulers)
        self.optimizer = optimizer
        self._last_lr = [group["lr"] for group in optimizer.param_groups]

    @host_step
    def step(self, epoch: int | None = None) -> None:
        """Step every scheduler."""
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """Return its own state and that of every scheduler."""
        return _with_schedulers(self)

    def load_state_dict(self, state_dict: State) -> None:
        """Load a saved schedule."""
        _load_with_schedulers(self, state_dict)


def _with_schedulers(scheduler: Any) -> dict[str, Any]:
    state = {k: v for k, v in vars(scheduler).items() if k not in ("optimizer", "_schedulers")}
    return {**state, "_schedulers": [s.state_dict() for s in scheduler._schedulers]}


def _load_with_schedulers(scheduler: Any, state_dict: State) -> None:
    state = dict(state_dict)
    for own, saved in zip(scheduler._schedulers, state.pop("_schedulers"), strict=True):
        own.load_state_dict(saved)
    vars(scheduler).update(state)
