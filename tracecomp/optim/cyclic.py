"""Cyclic schedules: warm restarts, cycles, one cycle."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tracecomp.optim.optimizer import Optimizer, Rates
from tracecomp.optim.options import Group
from tracecomp.optim.schedule import LRScheduler, host_step, set_lr, spread


class CosineAnnealingWarmRestarts(LRScheduler):
    """Cosine annealing that starts again after ``T_0``, ``T_0 * T_mult``, ... epochs."""

    def __init__(
        self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        if T_0 <= 0 or not isinstance(T_0, int):
            raise ValueError(f"Expected positive integer T_0, but got {T_0}")
        if T_mult < 1 or not isinstance(T_mult, int):
            raise ValueError(f"Expected integer T_mult >= 1, but got {T_mult}")
        if not isinstance(eta_min, float | int):
            raise ValueError(f"Expected float or int eta_min, but got {eta_min} of type {type(eta_min)}")
        self.T_0 = self.T_i = T_0
        self.T_mult = T_mult
        self.eta_min = eta_min
        self.T_cur: float = last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        height = (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (base - self.eta_min) * height for base in self.base_lrs]

    @host_step
    def step(self, epoch: float | None = None) -> None:
        """Go to the next epoch, or to ``epoch``, which may be a fraction. ValueError if it is negative."""
        if epoch is None and self.last_epoch < 0:
            epoch = 0
        if epoch is None:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur -= self.T_i
                self.T_i *= self.T_mult
        else:
            if epoch < 0:
                raise ValueError(f"Expected non-negative epoch, but got {epoch}")
            self._locate(epoch)
        self.last_epoch = math.floor(epoch)
        self._apply(self.get_lr())

    def _locate(self, epoch: float) -> None:
        if epoch < self.T_0:
            self.T_i, self.T_cur = self.T_0, epoch
        elif self.T_mult == 1:
            self.T_cur = epoch % self.T_0
        else:
            n = int(math.log(epoch / self.T_0 * (self.T_mult - 1) + 1, self.T_mult))
            self.T_cur = epoch - self.T_0 * (self.T_mult**n - 1) / (self.T_mult - 1)
            self.T_i = self.T_0 * self.T_mult**n


class _MomentumLR(LRScheduler):
    """A schedule that can vary momentum (or Adam's first beta) inversely to the learning rate."""

    use_beta1: bool

    def _check_momentum(self, optimizer: Optimizer) -> None:
        """ValueError when the optimizer has no momentum to vary."""
        if "momentum" not in optimizer.defaults and "betas" not in optimizer.defaults:
            raise ValueError("optimizer must support momentum or beta1 with `cycle_momentum` option enabled")
        self.use_beta1 = "betas" in optimizer.defaults

    def _set_momentum(self, group: Group, momentum: float) -> None:
        if self.use_beta1:
            group["betas"] = (momentum, *group["betas"][1:])
        else:
            group["momentum"] = momentum


class CyclicLR(_MomentumLR):
    """A triangle between ``base_lr`` and ``max_lr`` (Smith 2017); momentum varies inversely."""

    def __init__(
        self, optimizer: Optimizer, base_lr: Rates, max_lr: Rates, step_size_up: int = 2000,
        step_size_down: int | None = None, mode: str = "triangular", gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None, scale_mode: str = "cycle", cycle_momentum: bool = True,
        base_momentum: Rates = 0.8, max_momentum: Rates = 0.9, last_epoch: int = -1,
    ) -> None:  # fmt: skip
        rates = spread("base_lr", base_lr, optimizer)
        if last_epoch == -1:
            for lr, group in zip(rates, optimizer.param_groups, strict=True):
                set_lr(group, lr)
        self.max_lrs = spread("max_lr", max_lr, optimizer)
        up = float(step_size_up)
        down = up if step_size_down is None else float(step_size_down)
        self.total_size = up + down
        self.step_ratio = up / self.total_size
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ValueError("mode is invalid and scale_fn is None")
        self.mode = mode
        self.gamma = gamma
        self.scale_mode = "iterations" if scale_fn is None and mode == "exp_range" else scale_mode
        self._scale_fn = scale_fn
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self._start_momentum(optimizer, base_momentum, max_momentum, last_epoch)
        super().__init__(optimizer, last_epoch)
        self.base_lrs = rates

    def _start_momentum(self, optimizer: Optimizer, base: object, most: object, last_epoch: int) -> None:
        self._check_momentum(optimizer)
        self.base_momentums = spread("base_momentum", base, optimizer)
        self.max_momentums = spread("max_momentum", most, optimizer)
        if last_epoch == -1:
            for momentum, group in zip(self.max_momentums, optimizer.param_groups, strict=True):
                self._set_momentum(group, momentum)
        for group in optimizer.param_groups:
            group["base_momentum"], group["max_momentum"] = base, most

    def scale_fn(self, x: float) -> float:
        """The factor of the amplitude."""
        if self._scale_fn is not None:
            return self._scale_fn(x)
        if self.mode == "exp_range":
            return float(self.gamma**x)
        return 1.0 if self.mode == "triangular" else 1 / 2.0 ** (x - 1)

    def get_lr(self) -> list[Any]:
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        height = x / self.step_ratio if x <= self.step_ratio else (x - 1) / (self.step_ratio - 1)
        scale = self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            ends = zip(self.base_momentums, self.max_momentums, self.optimizer.param_groups, strict=True)
            for low, high, group in ends:
                self._set_momentum(group, high - (high - low) * height * scale)
        return [low + (high - low) * height * scale for low, high in zip(self.base_lrs, self.max_lrs, strict=True)]

    def state_dict(self) -> dict[str, Any]:
        """Return everything but the optimizer and a custom function."""
        return {k: v for k, v in super().state_dict().items() if k != "_scale_fn"}


class OneCycleLR(_MomentumLR):
    """Up to ``max_lr`` and down to almost nothing (Smith and Topin 2017). ValueError for invalid sizes."""

    def __init__(
        self, optimizer: Optimizer, max_lr: Rates, total_steps: int | None = None, epochs: int | None = None,
        steps_per_epoch: int | None = None, pct_start: float = 0.3, anneal_strategy: str = "cos",
        cycle_momentum: bool = True, base_momentum: Rates = 0.85,
        max_momentum: Rates = 0.95, div_factor: float = 25.0,
        final_div_factor: float = 1e4, three_phase: bool = False, last_epoch: int = -1,
    ) -> None:  # fmt: skip
        self.optimizer = optimizer
        self.total_steps = self._total(total_steps, epochs, steps_per_epoch)
        if isinstance(pct_start, bool) or not isinstance(pct_start, float | int) or not 0 <= pct_start <= 1:
            raise ValueError(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        rise, end = float(pct_start * self.total_steps) - 1, self.total_steps - 1
        ends: tuple[float, ...] = (rise, end)
        rates: tuple[tuple[str, str], ...] = (("initial_lr", "max_lr"), ("max_lr", "min_lr"))
        moments: tuple[tuple[str, str], ...] = (("max_momentum", "base_momentum"), ("base_momentum", "max_momentum"))
        if three_phase:
            ends = (rise, float(2 * pct_start * self.total_steps) - 2, end)
            rates = (("initial_lr", "max_lr"), ("max_lr", "initial_lr"), ("initial_lr", "min_lr"))
            moments = (*moments, ("max_momentum", "max_momentum"))
        self._phases = [(e, *lr, *m) for e, lr, m in zip(ends, rates, moments, strict=True)]
        self._anneal_func_type = anneal_strategy
        for lr, group in zip(spread("max_lr", max_lr, optimizer), optimizer.param_groups, strict=True):
            if last_epoch == -1:
                group["initial_lr"], group["max_lr"] = lr / div_factor, lr
                group["min_lr"] = group["initial_lr"] / final_div_factor
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self._start_momentum(optimizer, base_momentum, max_momentum, last_epoch)
        super().__init__(optimizer, last_epoch)

    @staticmethod
    def _total(total_steps: int | None, epochs: int | None, steps_per_epoch: int | None) -> int:
        given = {"total_steps": total_steps} if total_steps is not None else {
            "epochs": epochs, "steps_per_epoch": steps_per_epoch
        }  # fmt: skip
        if None in given.values():
            raise ValueError("You must define either total_steps OR (epochs AND steps_per_epoch)")
        for name, value in given.items():
            if not isinstance(value, int) or value <= 0:
                raise ValueError(f"Expected positive integer {name}, but got {value}")
        return math.prod(v for v in given.values() if v is not None)

    def _start_momentum(self, optimizer: Optimizer, base: object, most: object, last_epoch: int) -> None:
        self._check_momentum(optimizer)
        lows, highs = spread("base_momentum", base, optimizer), spread("max_momentum", most, optimizer)
        if last_epoch == -1:
            for low, high, group in zip(lows, highs, optimizer.param_groups, strict=True):
                self._set_momentum(group, high)
                group["max_momentum"], group["base_momentum"] = high, low

    def _anneal(self, start: float, end: float, done: float) -> float:
        if self._anneal_func_type == "linear":
            return (end - start) * done + start
        return end + (start - end) / 2.0 * (math.cos(math.pi * done) + 1)

    def get_lr(self) -> list[Any]:
        step = self.last_epoch
        if step > self.total_steps:
            raise ValueError(f"Tried to step {step} times. The specified number of total steps is {self.total_steps}")
        rates = []
        for group in self.optimizer.param_groups:
            start = 0.0
            for i, (end, lr0, lr1, m0, m1) in enumerate(self._phases):
                if step <= end or i == len(self._phases) - 1:
                    done = (step - start) / (end - start)
                    rates.append(self._anneal(group[lr0], group[lr1], done))
                    if self.cycle_momentum:
                        self._set_momentum(group, self._anneal(group[m0], group[m1], done))
                    break
                start = end
        return rates
