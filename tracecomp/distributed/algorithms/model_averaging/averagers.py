"""``torch.distributed.algorithms.model_averaging.averagers``."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable

from tracecomp.communication.group import Group
from tracecomp.distributed.algorithms.model_averaging import utils
from tracecomp.eager.tensor import Tensor


class ModelAverager(ABC):
    """Average a model's parameters over ``process_group`` in some calls; ``step`` counts the calls."""

    def __init__(self, process_group: Group | None = None) -> None:
        self.process_group = process_group
        self.step = 0

    @abstractmethod
    def average_parameters(self, params: Iterable[Tensor] | Iterable[dict[str, object]]) -> None:
        """Average the parameters, if this call is due."""


class PeriodicModelAverager(ModelAverager):
    """Average in every ``period``-th call, from the call ``warmup_steps`` on (McDonald et al. 2010). 2010).

    ValueError for ``warmup_steps`` below 0 and a ``period`` below 1.
    """

    def __init__(self, period: int, warmup_steps: int = 0, process_group: Group | None = None) -> None:
        super().__init__(process_group)
        if warmup_steps < 0:
            raise ValueError("Arg ``warmup_steps`` must be a non-negative number.")
        if period < 1:
            raise ValueError("Arg ``period`` must be a positive value.")
        if period == 1:
            warnings.warn(
                "period=1 averages after every step, like DistributedDataParallel at the same cost. Increase period",
                stacklevel=2,
            )
        self.warmup_steps, self.period = warmup_steps, period

    def average_parameters(self, params: Iterable[Tensor] | Iterable[dict[str, object]]) -> None:
        """Average parameters, or those of an optimizer's groups, if this call is due."""
        if self.step >= self.warmup_steps and (self.step - self.warmup_steps) % self.period == 0:
            utils.average_parameters_or_parameter_groups(params, self.process_group)
        self.step += 1
