"""Distributions of real numbers with location and scale, and the uniform and exponential ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from tracecomp.distributions import constraints
from tracecomp.distributions.constraints import Constraint
from tracecomp.distributions.distribution import Distribution
from tracecomp.distributions.utils import broadcast_all
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.functional.elementwise.conversion import finfo

EULER = 0.57721566490153286060
"""Euler's constant: the mean of a standard Gumbel distribution."""


class LocationScale(Distribution):
    """``loc + scale * z`` for z of the standard form, which subclasses define."""

    arg_constraints: ClassVar[dict[str, Constraint]] = {"loc": constraints.real, "scale": constraints.positive}
    has_rsample = True
    loc: Any
    scale: Any

    def __init__(self, loc: Tensor | float, scale: Tensor | float, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @property
    def support(self) -> Constraint:
        return constraints.real

    @property
    def mode(self) -> Tensor:
        return self.loc

    def _standard(self, shape: tuple[int, ...]) -> Tensor:
        raise NotImplementedError

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        z = self._standard(self._extended_shape(sample_shape))
        return self.loc + self.scale * z

    def _place(self, value: Tensor) -> Any:
        self._validate_sample(value)
        return (value - self.loc) / self.scale

    def _uniform(self, shape: tuple[int, ...]) -> Any:
        """Draw numbers from the open interval (0, 1)."""
        tiny = finfo(self.loc.dtype)
        return T.rand(shape, dtype=self.loc.dtype).clamp(tiny.tiny, 1 - tiny.eps / 2)


class Normal(LocationScale):
    """Normal with mean ``loc`` and standard deviation ``scale``."""

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def stddev(self) -> Tensor:
        return self.scale

    @property
    def variance(self) -> Tensor:
        return self.scale**2

    def _standard(self, shape: tuple[int, ...]) -> Tensor:
        return T.randn(shape, dtype=self.loc.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        z = self._place(value)
        return -0.5 * z**2 - T.log(self.scale) - 0.5 * math.log(2 * math.pi)

    def cdf(self, value: Tensor) -> Tensor:
        return 0.5 * (1 + T.erf(self._place(value) / math.sqrt(2)))

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc + self.scale * T.erfinv(2 * value - 1) * math.sqrt(2)

    def entropy(self) -> Tensor:
        return 0.5 + 0.5 * math.log(2 * math.pi) + T.log(self.scale)


class Laplace(LocationScale):
    """Density ``exp(-|x - loc| / scale) / (2 scale)``."""

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return 2 * self.scale**2

    def _standard(self, shape: tuple[int, ...]) -> Tensor:
        u = self._uniform(shape) - 0.5
        return -u.sign() * T.log1p(-2 * u.abs())

    def log_prob(self, value: Tensor) -> Tensor:
        return -T.log(2 * self.scale) - T.abs(self._place(value))

    def cdf(self, value: Tensor) -> Tensor:
        z = self._place(value)
        return 0.5 - 0.5 * z.sign() * T.expm1(-z.abs())

    def icdf(self, value: Tensor) -> Tensor:
        term = value - 0.5
        return self.loc - self.scale * term.sign() * T.log1p(-2 * term.abs())

    def entropy(self) -> Tensor:
        return 1 + T.log(2 * self.scale)


class Cauchy(LocationScale):
    """Density ``1 / (pi scale (1 + z**2))``; mean and variance are not defined."""

    @property
    def mean(self) -> Tensor:
        return T.full_like(self.loc, math.nan)

    @property
    def variance(self) -> Tensor:
        return T.full_like(self.loc, math.inf)

    def _standard(self, shape: tuple[int, ...]) -> Tensor:
        return T.tan(math.pi * (self._uniform(shape) - 0.5))

    def log_prob(self, value: Tensor) -> Tensor:
        return -math.log(math.pi) - T.log(self.scale) - T.log1p(self._place(value) ** 2)

    def cdf(self, value: Tensor) -> Tensor:
        return T.atan(self._place(value)) / math.pi + 0.5

    def icdf(self, value: Tensor) -> Tensor:
        return T.tan(math.pi * (value - 0.5)) * self.scale + self.loc

    def entropy(self) -> Tensor:
        return math.log(4 * math.pi) + T.log(self.scale)


class Uniform(Distribution):
    """Constant density on [low, high)."""

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "low": constraints.dependent, "high": constraints.dependent,
    }  # fmt: skip
    has_rsample = True
    low: Any
    high: Any

    def __init__(self, low: Tensor | float, high: Tensor | float, validate_args: bool | None = None) -> None:
        self.low, self.high = broadcast_all(low, high)
        super().__init__(self.low.shape, validate_args=validate_args)
        if self._validate_args and not bool((self.low._data < self.high._data).all()):
            raise ValueError("Uniform is not defined when low>= high")

    @property
    def support(self) -> Constraint:
        return constraints.interval(self.low, self.high)

    @property
    def mean(self) -> Tensor:
        return (self.high + self.low) / 2

    @property
    def mode(self) -> Tensor:
        return T.full_like(self.high, math.nan)

    @property
    def variance(self) -> Tensor:
        return (self.high - self.low) ** 2 / 12

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        u = T.rand(self._extended_shape(sample_shape), dtype=self.low.dtype)
        return self.low + u * (self.high - self.low)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        inside = self.low.le(value) & self.high.gt(value)
        return T.log(inside.type_as(self.low)) - T.log(self.high - self.low)

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return ((value - self.low) / (self.high - self.low)).clamp(0, 1)

    def icdf(self, value: Tensor) -> Tensor:
        return value * (self.high - self.low) + self.low

    def entropy(self) -> Tensor:
        return T.log(self.high - self.low)


class Exponential(Distribution):
    """Density ``rate exp(-rate x)``."""

    arg_constraints: ClassVar[dict[str, Constraint]] = {"rate": constraints.positive}
    has_rsample = True
    rate: Any

    def __init__(self, rate: Tensor | float, validate_args: bool | None = None) -> None:
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.shape, validate_args=validate_args)

    @property
    def support(self) -> Constraint:
        return constraints.nonnegative

    @property
    def mean(self) -> Tensor:
        return self.rate.reciprocal()

    @property
    def mode(self) -> Tensor:
        return T.zeros_like(self.rate)

    @property
    def variance(self) -> Tensor:
        return self.rate.pow(-2)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        u = T.rand(self._extended_shape(sample_shape), dtype=self.rate.dtype)
        return -T.log1p(-u) / self.rate

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return T.log(self.rate) - self.rate * value

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return 1 - T.exp(-self.rate * value)

    def icdf(self, value: Tensor) -> Tensor:
        return -T.log1p(-value) / self.rate

    def entropy(self) -> Tensor:
        return 1.0 - T.log(self.rate)
