"""Distributions of positive numbers with power tails."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from tracecomp.distributions import constraints
from tracecomp.distributions.constraints import Constraint
from tracecomp.distributions.distribution import Distribution
from tracecomp.distributions.gamma import Gamma
from tracecomp.distributions.utils import broadcast_all
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T


class FisherSnedecor(Distribution):
    """The ratio of two Chi2 variables, each over its degrees of freedom, ``df1`` and ``df2``."""

    arg_constraints: ClassVar[dict[str, Constraint]] = {"df1": constraints.positive, "df2": constraints.positive}
    has_rsample = True
    df1: Any
    df2: Any

    def __init__(self, df1: Tensor | float, df2: Tensor | float, validate_args: bool | None = None) -> None:
        self.df1, self.df2 = broadcast_all(df1, df2)
        super().__init__(self.df1.shape, validate_args=validate_args)

    @property
    def support(self) -> Constraint:
        return constraints.positive

    @property
    def mean(self) -> Tensor:
        return T.where(self.df2 > 2, self.df2 / (self.df2 - 2), math.nan)

    @property
    def mode(self) -> Tensor:
        found = (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)
        return T.where(self.df1 > 2, found, math.nan)

    @property
    def variance(self) -> Tensor:
        a, b = self.df1, self.df2
        return T.where(b > 4, 2 * b**2 * (a + b - 2) / (a * (b - 2) ** 2 * (b - 4)), math.nan)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        above, below = (Gamma(df * 0.5, df).rsample(sample_shape) for df in (self.df1, self.df2))
        tiny = T.finfo(below.dtype).tiny
        return (above / below.clamp_min(tiny)).clamp_min(tiny)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        a, b, ratio = self.df1 * 0.5, self.df2 * 0.5, self.df1 / self.df2
        norm = T.lgamma(a + b) - T.lgamma(a) - T.lgamma(b)
        return norm + a * T.log(ratio) + (a - 1) * T.log(value) - (a + b) * T.log1p(ratio * value)


class GeneralizedPareto(Distribution):
    """Tails: ``P(X > x) = (1 + c z)**(-1/c)`` for ``z = (x - loc) / scale`` and ``c = concentration``."""

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "loc": constraints.real, "scale": constraints.positive, "concentration": constraints.real,
    }  # fmt: skip
    has_rsample = True
    loc: Any
    scale: Any
    concentration: Any

    def __init__(
        self,
        loc: Tensor | float,
        scale: Tensor | float,
        concentration: Tensor | float,
        validate_args: bool | None = None,
    ) -> None:
        self.loc, self.scale, self.concentration = broadcast_all(loc, scale, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @property
    def support(self) -> Constraint:
        end = T.where(self.concentration < 0, self.loc - self.scale / self.concentration, math.inf)
        return constraints.interval(self.loc, end)

    def _curved(self) -> tuple[Any, Any]:
        """A mask of non-exponential tails, and a nonzero concentration to divide by."""
        curved = T.logical_not(T.isclose(self.concentration, T.zeros_like(self.concentration)))
        return curved, T.where(curved, self.concentration, 1.0)

    @property
    def mean(self) -> Tensor:
        c = self.concentration
        return T.where(c < 1, self.loc + self.scale / (1 - c), math.nan)

    @property
    def variance(self) -> Tensor:
        c = self.concentration
        return T.where(c < 0.5, self.scale**2 / ((1 - c) ** 2 * (1 - 2 * c)), math.nan)

    @property
    def mode(self) -> Tensor:
        return self.loc

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.icdf(T.rand(self._extended_shape(sample_shape), dtype=self.loc.dtype))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        curved, c = self._curved()
        z = (value - self.loc) / self.scale
        return -T.log(self.scale) - T.where(curved, (1 / c + 1) * T.log1p(c * z), z)

    def log_survival_function(self, value: Tensor) -> Tensor:
        """``log P(X > value)``."""
        self._validate_sample(value)
        curved, c = self._curved()
        z = (value - self.loc) / self.scale
        return T.where(curved, -T.log1p(c * z) / c, -z)

    def log_cdf(self, value: Tensor) -> Tensor:
        """``log P(X <= value)``."""
        return T.log1p(-T.exp(self.log_survival_function(value)))

    def cdf(self, value: Tensor) -> Tensor:
        return T.exp(self.log_cdf(value))

    def icdf(self, value: Tensor) -> Tensor:
        curved, c = self._curved()
        above = T.log1p(-value)
        return self.loc + self.scale * T.where(curved, T.expm1(-c * above) / c, -above)

    def entropy(self) -> Tensor:
        return T.log(self.scale) + self.concentration + 1
