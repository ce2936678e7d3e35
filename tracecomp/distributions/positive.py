"""Distributions of positive numbers with powers for tails."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from tracecomp.distributions import constraints
from tracecomp.distributions.constraints import Constraint
from tracecomp.distributions.continuous import EULER, Cauchy, Exponential, Half
from tracecomp.distributions.distribution import Distribution
from tracecomp.distributions.gamma import Gamma
from tracecomp.distributions.utils import broadcast_all
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T


class Weibull(Distribution):
    """Density ``k / s (x / s)**(k - 1) exp(-(x / s)**k)`` for ``k = concentration`` and ``s = scale``."""

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "scale": constraints.positive, "concentration": constraints.positive,
    }  # fmt: skip
    has_rsample = True
    scale: Any
    concentration: Any

    def __init__(self, scale: Tensor | float, concentration: Tensor | float, validate_args: bool | None = None) -> None:
        self.scale, self.concentration = broadcast_all(scale, concentration)
        super().__init__(self.scale.shape, validate_args=validate_args)

    @property
    def support(self) -> Constraint:
        return constraints.positive

    @property
    def mean(self) -> Tensor:
        return self.scale * T.exp(T.lgamma(1 + self.concentration.reciprocal()))

    @property
    def mode(self) -> Tensor:
        k = self.concentration
        return self.scale * ((k - 1) / k) ** k.reciprocal()

    @property
    def variance(self) -> Tensor:
        r = self.concentration.reciprocal()
        return self.scale**2 * (T.exp(T.lgamma(1 + 2 * r)) - T.exp(2 * T.lgamma(1 + r)))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        waited = Exponential(T.ones_like(self.scale)).rsample(sample_shape)
        return self.scale * waited ** self.concentration.reciprocal()

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        place = T.log(value / self.scale)
        k = self.concentration
        return T.log(k) - T.log(self.scale) + (k - 1) * place - T.exp(k * place)

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return -T.expm1(-((value / self.scale) ** self.concentration))

    def icdf(self, value: Tensor) -> Tensor:
        return self.scale * (-T.log1p(-value)) ** self.concentration.reciprocal()

    def entropy(self) -> Tensor:
        k = self.concentration
        return EULER * (1 - k.reciprocal()) + T.log(self.scale / k) + 1


class Pareto(Distribution):
    """Density ``a s**a / x**(a + 1)`` above ``s = scale``, for ``a = alpha``."""

    arg_constraints: ClassVar[dict[str, Constraint]] = {"alpha": constraints.positive, "scale": constraints.positive}
    has_rsample = True
    scale: Any
    alpha: Any

    def __init__(self, scale: Tensor | float, alpha: Tensor | float, validate_args: bool | None = None) -> None:
        self.scale, self.alpha = broadcast_all(scale, alpha)
        super().__init__(self.scale.shape, validate_args=validate_args)

    @property
    def support(self) -> Constraint:
        return constraints.greater_than_eq(self.scale)

    @property
    def mean(self) -> Tensor:
        a = self.alpha.clamp_min(1)
        return a * self.scale / (a - 1)

    @property
    def mode(self) -> Tensor:
        return self.scale

    @property
    def variance(self) -> Tensor:
        a = self.alpha.clamp_min(2)
        return self.scale**2 * a / ((a - 1) ** 2 * (a - 2))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.scale * T.exp(Exponential(self.alpha).rsample(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return T.log(self.alpha) + self.alpha * T.log(self.scale) - (self.alpha + 1) * T.log(value)

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return 1 - (self.scale / value) ** self.alpha

    def icdf(self, value: Tensor) -> Tensor:
        return self.scale * (1 - value) ** -self.alpha.reciprocal()

    def entropy(self) -> Tensor:
        return T.log(self.scale / self.alpha) + (1 + self.alpha.reciprocal())


class InverseGamma(Distribution):
    """What ``1 / x`` is for x of a gamma distribution."""

    arg_constraints: ClassVar[dict[str, Constraint]] = Gamma.arg_constraints
    has_rsample = True
    concentration: Any
    rate: Any

    def __init__(self, concentration: Tensor | float, rate: Tensor | float, validate_args: bool | None = None) -> None:
        self.base = Gamma(concentration, rate, validate_args=False)
        self.concentration, self.rate = self.base.concentration, self.base.rate
        super().__init__(self.base.batch_shape, validate_args=validate_args)

    @property
    def support(self) -> Constraint:
        return constraints.positive

    @property
    def mean(self) -> Tensor:
        a = self.concentration
        return T.where(a > 1, self.rate / (a - 1), math.inf)

    @property
    def mode(self) -> Tensor:
        return self.rate / (self.concentration + 1)

    @property
    def variance(self) -> Tensor:
        a = self.concentration
        return T.where(a > 2, self.rate**2 / ((a - 1) ** 2 * (a - 2)), math.inf)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.base.rsample(sample_shape).reciprocal()

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        a = self.concentration
        return T.xlogy(a, self.rate) - T.lgamma(a) - (a + 1) * T.log(value) - self.rate / value

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return T.igammac(self.concentration, self.rate / value)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a + T.log(self.rate) + T.lgamma(a) - (1 + a) * T.digamma(a)


class HalfCauchy(Half):
    """The absolute value of a Cauchy number of location 0; mean and variance are infinite."""

    def __init__(self, scale: Tensor | float, validate_args: bool | None = None) -> None:
        super().__init__(Cauchy(0, scale, validate_args=False), validate_args)

    @property
    def mean(self) -> Tensor:
        return T.full_like(self.scale, math.inf)

    @property
    def variance(self) -> Tensor:
        return T.full_like(self.scale, math.inf)


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
        """Where the tail is no exponential, and a concentration to divide by."""
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
