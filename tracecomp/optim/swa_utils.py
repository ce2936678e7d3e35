"""Averages of weights over training (Izmailov et al. 2018)."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from typing import Any

from tracecomp.eager.modes import no_grad
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.ir.types import int64
from tracecomp.nn.module import Module
from tracecomp.nn.norm import _BatchNorm
from tracecomp.optim.optimizer import Optimizer, Rates
from tracecomp.optim.schedule import LRScheduler, spread

Average = Callable[[Tensor, Tensor, Any], Tensor]
ManyAverages = Callable[[list[Tensor], list[Tensor], Any], None]


def get_swa_avg_fn() -> Average:
    """Return the running mean."""
    return lambda average, value, count: average + (value - average) / (count + 1)


def get_ema_avg_fn(decay: float = 0.999) -> Average:
    """Return the exponential moving average. ValueError unless ``decay`` is in [0, 1]."""
    if not 0.0 <= decay <= 1.0:
        raise ValueError(f"Invalid decay value {decay} provided. Please provide a value in [0,1] range.")
    return lambda average, value, count: average * decay + value * (1 - decay)


def _multi(average: Average) -> ManyAverages:
    def run(averages: list[Tensor], values: list[Tensor], count: object) -> None:
        with no_grad():
            for old, new in zip(averages, values, strict=True):
                old.copy_(average(old, new, count))  # integers, such as counts of batches, lose fractions

    return run


def get_swa_multi_avg_fn() -> ManyAverages:
    """The running mean of lists of tensors, in place."""
    return _multi(get_swa_avg_fn())


def get_ema_multi_avg_fn(decay: float = 0.999) -> ManyAverages:
    """The exponential moving average of lists of tensors, in place."""
    return _multi(get_ema_avg_fn(decay))


class AveragedModel(Module):
    """A copy of a model whose parameters are averages; ``use_buffers`` averages buffers too."""

    def __init__(
        self, model: Module, device: object = None, avg_fn: Average | None = None,
        multi_avg_fn: ManyAverages | None = None, use_buffers: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = copy.deepcopy(model)
        self.register_buffer("n_averaged", T.tensor(0, dtype=int64))
        self.avg_fn = avg_fn
        self.multi_avg_fn = multi_avg_fn
        self.use_buffers = use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def _tensors(self, model: Module) -> list[Tensor]:
        return [*model.parameters(), *(model.buffers() if self.use_buffers else ())]

    def update_parameters(self, model: Module) -> None:
        """Add the current weights of ``model`` to the average; the first time, copy them."""
        own, new = self._tensors(self.module), [t.detach() for t in self._tensors(model)]
        with no_grad():
            first = bool(self.n_averaged == 0)
            if first:
                for old, value in zip(own, new, strict=True):
                    old.copy_(value)
            else:
                average = self.multi_avg_fn or _multi(self.avg_fn or get_swa_avg_fn())
                # A user's function may treat a list by the dtype of its first tensor.
                for dtype in dict.fromkeys(t.dtype for t in own):
                    pairs = [(old.detach(), value) for old, value in zip(own, new, strict=True) if old.dtype == dtype]
                    average([old for old, _ in pairs], [value for _, value in pairs], self.n_averaged)
            if not self.use_buffers:
                for old, value in zip(self.module.buffers(), model.buffers(), strict=True):
                    old.detach().copy_(value.detach())
            self.n_averaged.add_(1)


def update_bn(loader: Iterable[object], model: Module, device: object = None) -> None:
    """Recompute the running statistics of every batch normalisation from one pass over ``loader``."""
    norms = [m for m in model.modules() if isinstance(m, _BatchNorm)]
    if not norms:
        return
    momenta = [m.momentum for m in norms]
    was_training = model.training
    for module in norms:
        module.reset_running_stats()
        module.momentum = None
    model.train()
    with no_grad():
        for batch in loader:
            model(batch[0] if isinstance(batch, list | tuple) else batch)
    for module, momentum in zip(norms, momenta, strict=True):
        module.momentum = momentum
    model.train(was_training)


class SWALR(LRScheduler):
    """Anneals every group to ``swa_lr`` in ``anneal_epochs`` and keeps it there."""

    def __init__(
        self, optimizer: Optimizer, swa_lr: Rates, anneal_epochs: int = 10, anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ) -> None:  # fmt: skip
        for lr, group in zip(spread("swa_lr", swa_lr, optimizer), optimizer.param_groups, strict=True):
            group["swa_lr"] = lr
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must by one of 'cos' or 'linear', instead got {anneal_strategy}")
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        self.anneal_strategy = anneal_strategy
        self.anneal_epochs = anneal_epochs
        super().__init__(optimizer, last_epoch)

    def _share(self, step: int) -> float:
        """Fraction of the annealing that is done."""
        done = max(0.0, min(1.0, step / max(1, self.anneal_epochs)))
        return (1 - math.cos(math.pi * done)) / 2 if self.anneal_strategy == "cos" else done

    def get_lr(self) -> list[Any]:
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = self._share(max(0, step - 1)), self._share(step)
        rates = []
        for group, lr in zip(self.optimizer.param_groups, self._rates(), strict=True):
            start = group["swa_lr"] if before == 1 else (lr - before * group["swa_lr"]) / (1 - before)
            rates.append(group["swa_lr"] * now + start * (1 - now))
        return rates
