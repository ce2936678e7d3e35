"""Distributions that are transforms of simpler ones, with closed forms where they exist."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from tracecomp import special
from tracecomp.distributions import constraints
from tracecomp.distributions.constraints import Constraint
from tracecomp.distributions.continuous import EULER, Cauchy, Exponential, Normal, Uniform
from tracecomp.distributions.gamma import Gamma
from tracecomp.distributions.transformed import TransformedDistribution
from tracecomp.distributions.transforms import AbsTransform, AffineTransform, ExpTransform, PowerTransform
from tracecomp.distributions.utils import broadcast_all, clamp_probs
from tracecomp.eager.modes import no_grad
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T


class Half(TransformedDistribution):
    """The absolute value of a number from ``base_dist``, which is symmetric around 0."""

    arg_constraints: ClassVar[dict[str, Constraint]] = {"scale": constraints.positive}
    base_dist: Any

    def __init__(self, base: Any, validate_args: bool | None = None) -> None:
        super().__init__(base, AbsTransform(), validate_args)

    @property
    def scale(self) -> Any:
        return self.base_dist.scale

    @property
    def support(self) -> Constraint:
        return constraints.nonnegative

    @property
    def mode(self) -> Tensor:
        return T.zeros_like(self.scale)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return T.where(value >= 0, self.base_dist.log_prob(value) + math.log(2), -math.inf)

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return 2 * self.base_dist.cdf(value) - 1

    def icdf(self, value: Tensor) -> Tensor:
        return self.base_dist.icdf((value + 1) / 2)

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() - math.log(2)


class HalfNormal(Half):
    """The absolute value of a normal number of mean 0."""

    def __init__(self, scale: Tensor | float, validate_args: bool | None = None) -> None:
        super().__init__(Normal(0, scale, validate_args=False), validate_args)

    @property
    def mean(self) -> Tensor:
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def variance(self) -> Tensor:
        return self.scale**2 * (1 - 2 / math.pi)


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


class Gumbel(TransformedDistribution):
    """Density ``exp(-z - exp(-z)) / scale`` for ``z = (x - loc) / scale``."""

    arg_constraints: ClassVar[dict[str, Constraint]] = {"loc": constraints.real, "scale": constraints.positive}
    loc: Any
    scale: Any

    def __init__(self, loc: Tensor | float, scale: Tensor | float, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        info = T.finfo(self.loc.dtype)
        inside = T.full_like(self.loc, info.tiny), T.full_like(self.loc, 1 - info.eps)
        steps = [ExpTransform().inv, AffineTransform(0, -1), ExpTransform().inv, AffineTransform(self.loc, -self.scale)]
        super().__init__(Uniform(*inside, validate_args=False), steps, validate_args)

    @property
    def support(self) -> Constraint:
        return constraints.real

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def mean(self) -> Tensor:
        return self.loc + self.scale * EULER

    @property
    def variance(self) -> Tensor:
        return math.pi**2 / 6 * self.scale**2

    def _place(self, value: Tensor) -> Any:
        self._validate_sample(value)
        return (value - self.loc) / self.scale

    def log_prob(self, value: Tensor) -> Tensor:
        z = self._place(value)
        return -z - T.exp(-z) - T.log(self.scale)

    def cdf(self, value: Tensor) -> Tensor:
        return T.exp(-T.exp(-self._place(value)))

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc - self.scale * T.log(-T.log(value))

    def entropy(self) -> Tensor:
        return T.log(self.scale) + (1 + EULER)


class Weibull(TransformedDistribution):
    """Density ``k / s (x / s)**(k - 1) exp(-(x / s)**k)`` for ``k = concentration`` and ``s = scale``."""

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "scale": constraints.positive, "concentration": constraints.positive,
    }  # fmt: skip
    scale: Any
    concentration: Any

    def __init__(self, scale: Tensor | float, concentration: Tensor | float, validate_args: bool | None = None) -> None:
        self.scale, self.concentration = broadcast_all(scale, concentration)
        base = Exponential(T.ones_like(self.scale), validate_args=False)
        bent = PowerTransform(self.concentration.reciprocal())
        super().__init__(base, [bent, AffineTransform(0, self.scale)], validate_args)

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


class Pareto(TransformedDistribution):
    """Density ``a s**a / x**(a + 1)`` above ``s = scale``, for ``a = alpha``."""

    arg_constraints: ClassVar[dict[str, Constraint]] = {"alpha": constraints.positive, "scale": constraints.positive}
    scale: Any
    alpha: Any

    def __init__(self, scale: Tensor | float, alpha: Tensor | float, validate_args: bool | None = None) -> None:
        self.scale, self.alpha = broadcast_all(scale, alpha)
        base = Exponential(self.alpha, validate_args=False)
        super().__init__(base, [ExpTransform(), AffineTransform(0, self.scale)], validate_args)

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


class InverseGamma(TransformedDistribution):
    """The distribution of ``1 / x`` for x of a gamma distribution."""

    arg_constraints: ClassVar[dict[str, Constraint]] = Gamma.arg_constraints
    concentration: Any
    rate: Any

    def __init__(self, concentration: Tensor | float, rate: Tensor | float, validate_args: bool | None = None) -> None:
        base = Gamma(concentration, rate, validate_args=False)
        self.concentration, self.rate = base.concentration, base.rate
        super().__init__(base, PowerTransform(-1), validate_args)

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


class Kumaraswamy(TransformedDistribution):
    """Density ``a b x**(a-1) (1 - x**a)**(b-1)`` on [0, 1], ``a = concentration1``, ``b = concentration0``."""

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "concentration1": constraints.positive, "concentration0": constraints.positive,
    }  # fmt: skip
    concentration1: Any
    concentration0: Any

    def __init__(
        self, concentration1: Tensor | float, concentration0: Tensor | float, validate_args: bool | None = None
    ) -> None:
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        base = Uniform(T.zeros_like(self.concentration0), T.ones_like(self.concentration0), validate_args=False)
        b, a = self.concentration0.reciprocal(), self.concentration1.reciprocal()
        super().__init__(base, [PowerTransform(b), AffineTransform(1, -1), PowerTransform(a)], validate_args)

    @property
    def support(self) -> Constraint:
        return constraints.unit_interval

    def _moment(self, n: int) -> Any:
        over, b = 1 + n / self.concentration1, self.concentration0
        return T.exp(T.log(b) + T.lgamma(over) + T.lgamma(b) - T.lgamma(over + b))

    @property
    def mean(self) -> Tensor:
        return self._moment(1)

    @property
    def mode(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        return T.where((a >= 1) & (b >= 1), ((a - 1) / (a * b - 1)) ** a.reciprocal(), math.nan)

    @property
    def variance(self) -> Tensor:
        return self._moment(2) - self._moment(1) ** 2

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with no_grad():
            uniform = clamp_probs(T.rand(self._extended_shape(sample_shape), dtype=self.concentration0.dtype))
        return self.icdf(uniform)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        a, b = self.concentration1, self.concentration0
        return T.log(a) + T.log(b) + T.xlogy(a - 1, value) + special.xlog1py(b - 1, -(value**a))

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return 1 - (1 - value**self.concentration1) ** self.concentration0

    def icdf(self, value: Tensor) -> Tensor:
        return (1 - (1 - value) ** self.concentration0.reciprocal()) ** self.concentration1.reciprocal()

    def entropy(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        harmonic = T.digamma(b + 1) + EULER
        return 1 - b.reciprocal() + (1 - a.reciprocal()) * harmonic - T.log(a) - T.log(b)
