"""Counts of several classes, and of trials until a number of failures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from tracecomp.distributions import constraints
from tracecomp.distributions.constraints import Constraint
from tracecomp.distributions.discrete import Binary, Binomial, Categorical, OfCategorical, softplus
from tracecomp.distributions.gamma import Gamma
from tracecomp.eager.modes import no_grad
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T


class NegativeBinomial(Binary):
    """Successes before ``total_count`` failures, each trial being one with probability ``probs``."""

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "total_count": constraints.greater_than_eq(0), **Binary.arg_constraints,
    }  # fmt: skip
    total_count: Any

    def __init__(
        self,
        total_count: Tensor | float,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        super().__init__(probs, logits, validate_args)
        given = self.probs if logits is None else self.logits
        count = total_count if isinstance(total_count, Tensor) else T.tensor(float(total_count), dtype=given.dtype)
        self.total_count, given = T.broadcast_tensors(count.to(given.dtype), given)
        setattr(self, "probs" if logits is None else "logits", given)
        self._batch_shape = given.shape
        if self._validate_args:
            self._check_parameter("total_count", constraints.greater_than_eq(0))

    @property
    def support(self) -> Constraint:
        return constraints.nonnegative_integer

    @property
    def mean(self) -> Tensor:
        return self.total_count * T.exp(self.logits)

    @property
    def mode(self) -> Tensor:
        return ((self.total_count - 1) * T.exp(self.logits)).floor().clamp_min(0)

    @property
    def variance(self) -> Tensor:
        return self.mean / T.sigmoid(-self.logits)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with no_grad():
            return T.poisson(Gamma(self.total_count, T.exp(-self.logits), validate_args=False).sample(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        n, logits = self.total_count, self.logits
        weight = -n * softplus(logits) - value * softplus(-logits)
        ways = T.lgamma(n + value) - T.lgamma(1 + value) - T.lgamma(n)
        return weight + T.where(n + value == 0, 0, ways)


class Multinomial(OfCategorical):
    """How often each class was drawn in ``total_count`` draws."""

    def __init__(
        self,
        total_count: int = 1,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        if not isinstance(total_count, int):
            raise NotImplementedError("inhomogeneous total_count is not supported")
        self.total_count = total_count
        self._categorical = Categorical(probs, logits, validate_args=False)
        shape = self._categorical.param_shape
        super().__init__(shape[:-1], shape[-1:], validate_args)

    @property
    def support(self) -> Constraint:
        return constraints.independent(constraints.integer_interval(0, self.total_count), 1)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.probs

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with no_grad():
            drawn = self._categorical.sample((self.total_count, *sample_shape)).unsqueeze(-1)
            return (drawn == T.arange(self._event_shape[0])).sum(0).to(self.probs.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        logits, value = T.broadcast_tensors(self.logits, value)
        ways = T.lgamma(value.sum(-1) + 1) - T.lgamma(value + 1).sum(-1)
        return ways + T.where((value == 0) & (logits == -math.inf), 0, value * logits).sum(-1)

    def entropy(self) -> Tensor:
        n = self.total_count
        each = Binomial(n, probs=self.probs, validate_args=False)
        counts = each.enumerate_support(expand=False)[1:]
        ways = (T.exp(each.log_prob(counts)) * T.lgamma(counts + 1)).sum((0, -1))
        return n * self._categorical.entropy() - math.lgamma(n + 1) + ways
