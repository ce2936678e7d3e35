"""Common part of all learning-rate schedules."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tracecomp.base.errors import type_name
from tracecomp.base.user_warnings import warn_as_pytorch
from tracecomp.eager.modes import modes, no_grad
from tracecomp.eager.tensor import Tensor
from tracecomp.optim.optimizer import Optimizer, Scalar, State
from tracecomp.optim.options import Group


def host_step(step: Callable[..., object]) -> Callable[..., Any]:
    """Keep a schedule's step in Python: a compiled call makes it after its graph has run."""

    @functools.wraps(step)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        recorder = modes.recorder
        if recorder is None:
            return step(self, *args, **kwargs)
        return recorder.python.step(step, self, args, kwargs, self.optimizer.param_groups)

    run.is_unwatched = True  # type: ignore[attr-defined]
    return run


def set_lr(group: Group, lr: Scalar) -> None:
    """Set the learning rate of a group; a tensor is written in place."""
    if isinstance(group["lr"], Tensor):
        with no_grad():
            group["lr"].fill_(float(lr))
    else:
        group["lr"] = lr


def check_optimizer(value: object) -> None:
    """TypeError unless ``value`` is an optimizer."""
    if not isinstance(value, Optimizer):
        raise TypeError(f"{type_name(value)} is not an Optimizer")


def spread(name: str, value: object, optimizer: Optimizer) -> list[Any]:
    """``value`` once per group. ValueError for a list of another length."""
    check_optimizer(optimizer)
    groups = len(optimizer.param_groups)
    if not isinstance(value, list | tuple):
        return [value] * groups
    if len(value) != groups:
        raise ValueError(
            f"{name} must have the same length as optimizer.param_groups. Expected {groups}, got {len(value)}"
        )
    return list(value)


class LRScheduler:
    """Set ``lr`` of every group in every ``step()`` to the values of ``get_lr()``."""

    _step_count: int = 0

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        check_optimizer(optimizer)
        self.optimizer = optimizer
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                lr = group["lr"]
                group.setdefault("initial_lr", lr.clone() if isinstance(lr, Tensor) else lr)
            elif "initial_lr" not in group:
                raise KeyError(
                    f"param 'initial_lr' is not specified in param_groups[{i}] when resuming scheduler with "
                    f"last_epoch >= 0."
                )
        self.base_lrs = [float(group["initial_lr"]) for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._first_step()

    def _first_step(self) -> None:
        self._step_count = 0
        self.step()

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer."""
        return {k: v for k, v in self.__dict__.items() if k != "optimizer"}

    def load_state_dict(self, state_dict: State) -> None:
        """Load a saved schedule."""
        self.__dict__.update(state_dict)

    def get_last_lr(self) -> list[Any]:
        """Return the rates that the last step set."""
        return self._last_lr

    def get_lr(self) -> list[Any]:
        """Return the rates of ``last_epoch``."""
        raise NotImplementedError

    def _closed_form(self) -> list[Any]:
        """Return the rates of ``last_epoch`` independently of the current ones, if there is a formula."""
        return self.get_lr()

    def _rates(self) -> list[Any]:
        return [float(g["lr"]) if isinstance(g["lr"], Tensor) else g["lr"] for g in self.optimizer.param_groups]

    def _apply(self, rates: list[Any]) -> None:
        for group, lr in zip(self.optimizer.param_groups, rates, strict=True):
            set_lr(group, lr)
        self._last_lr = self._rates()

    @host_step
    def step(self, epoch: int | None = None) -> None:
        """Go to the next epoch. UserWarning when no optimizer step precedes the second call."""
        if self._step_count == 1 and not self.optimizer._opt_called:
            warn_as_pytorch(
                "Detected call of `lr_scheduler.step()` before `optimizer.step()`: call them in the opposite order, "
                "or the first value of the learning rate schedule is skipped. See "
                "https://pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate",
            )
        self._step_count += 1
        if epoch is None:
            self.last_epoch += 1
            self._apply(self.get_lr())
        else:
            warn_as_pytorch("The epoch parameter in `scheduler.step()` is deprecated.")
            self.last_epoch = epoch
            self._apply(self._closed_form())
