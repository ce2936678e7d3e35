"""Continuous relaxations of discrete distributions (Maddison et al. 2017, Jang et al. 2017): samples with gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from tracecomp.distributions import constraints
from tracecomp.distributions.constraints import Constraint
from tracecomp.distributions.discrete import Bernoulli, Categorical, clamp_probs
from tracecomp.distributions.distribution import Distribution
from tracecomp.eager.modes import no_grad
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T


class _Relaxed(Distribution):
    """A distribution close to the values of ``base_dist``; closer at a lower ``temperature``."""

    has_rsample = True

    def __init__(
        self, temperature: Tensor | float, base: Any, event_shape: Sequence[int], validate_args: bool | None
    ) -> None:
        self.temperature = temperature
        self.base_dist = base
        super().__init__(base.batch_shape, event_shape, validate_args)

    @property
    def probs(self) -> Any:
        return self.base_dist.probs

    @property
    def logits(self) -> Any:
        return self.base_dist.logits

    def expand(self, batch_shape: Sequence[int], _instance: Distribution | None = None) -> Distribution:
        new = super().expand(batch_shape, _instance)
        vars(new)["temperature"] = self.temperature  # one for all, or one per batch element
        return new

    def _uniform(self, sample_shape: Sequence[int]) -> Tensor:
        return clamp_probs(T.rand(self._extended_shape(sample_shape), dtype=self.logits.dtype))


class RelaxedBernoulli(_Relaxed):
    """``sigmoid((logits + logistic noise) / temperature)``: a number in (0, 1), near 0 or 1 at low temperatures."""

    arg_constraints: ClassVar[dict[str, Constraint]] = Bernoulli.arg_constraints

    def __init__(
        self,
        temperature: Tensor | float,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        super().__init__(temperature, Bernoulli(probs, logits, validate_args), (), validate_args)

    @property
    def support(self) -> Constraint:
        return constraints.unit_interval

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with no_grad():
            noise = self._uniform(sample_shape)
            noise = T.log(noise) - T.log1p(-noise)
        return T.sigmoid((self.logits + noise) / self.temperature)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        inverse = T.log(value) - T.log1p(-value)
        difference = self.logits - inverse * self.temperature
        density = _log(self.temperature) + difference - 2 * T.log1p(T.exp(difference))
        return density - T.log(value) - T.log1p(-value)


class RelaxedOneHotCategorical(_Relaxed):
    """``softmax((logits + Gumbel noise) / temperature)``: a point of the simplex, near a corner at low temperatures."""

    arg_constraints: ClassVar[dict[str, Constraint]] = Categorical.arg_constraints

    def __init__(
        self,
        temperature: Tensor | float,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        base = Categorical(probs, logits, validate_args)
        super().__init__(temperature, base, base.param_shape[-1:], validate_args)

    @property
    def support(self) -> Constraint:
        return constraints.simplex

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with no_grad():
            noise = -T.log(-T.log(self._uniform(sample_shape)))
        return T.softmax((self.logits + noise) / self.temperature, -1)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        classes = self._event_shape[0]
        scores = self.logits - T.log(value) * self.temperature
        scores = (scores - scores.logsumexp(-1, keepdim=True)).sum(-1)
        scale = math.lgamma(classes) + (classes - 1) * _log(self.temperature)
        return scores + scale - T.log(value).sum(-1)


def _log(temperature: Tensor | float) -> Any:
    return T.log(temperature) if isinstance(temperature, Tensor) else math.log(temperature)
