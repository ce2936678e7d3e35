"""Distributions of numbers in an interval and of angles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from tracecomp import special
from tracecomp.distributions import constraints
from tracecomp.distributions.constraints import Constraint
from tracecomp.distributions.discrete import clamp_probs, softplus
from tracecomp.distributions.distribution import Distribution
from tracecomp.distributions.utils import broadcast_all
from tracecomp.eager.modes import no_grad
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.ir.types import bool_


class ContinuousBernoulli(Distribution):
    """Density proportional to ``probs**x (1 - probs)**(1-x)`` on [0, 1] (Loaiza-Ganem and Cunningham 2019).

    Parametrized by ``probs`` or ``logits``. Between ``lims``, where the exact forms cancel, series are used.
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "probs": constraints.unit_interval, "logits": constraints.real,
    }  # fmt: skip
    has_rsample = True

    def __init__(
        self, probs: Any = None, logits: Tensor | None = None, lims: tuple[float, float] = (0.499, 0.501),
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        if (probs is None) == (logits is None):
            raise ValueError("Either `probs` or `logits` must be specified, but not both.")
        if probs is not None:
            (self.probs,) = broadcast_all(probs)
            super().__init__(self.probs.shape, validate_args=validate_args)
            self.probs = clamp_probs(self.probs)
            self.logits: Any = T.log(self.probs) - T.log1p(-self.probs)
        else:
            (self.logits,) = broadcast_all(logits)
            super().__init__(self.logits.shape, validate_args=validate_args)
            self.probs = clamp_probs(T.sigmoid(self.logits))
        self._lims = lims

    @property
    def support(self) -> Constraint:
        return constraints.unit_interval

    def _apart(self) -> tuple[Any, Any]:
        """A mask for the exact forms, and probabilities for which they are finite everywhere."""
        exact = (self.probs <= self._lims[0]) | (self.probs > self._lims[1])
        return exact, T.where(exact, self.probs, self._lims[0])

    def _log_norm(self) -> Any:
        exact, p = self._apart()
        formula = T.log((T.log1p(-p) - T.log(p)) / (1 - 2 * p))
        square = (self.probs - 0.5) ** 2
        return T.where(exact, formula, math.log(2) + (4 / 3 + 104 / 45 * square) * square)

    @property
    def mean(self) -> Tensor:
        exact, p = self._apart()
        away = self.probs - 0.5
        formula = p / (2 * p - 1) + (T.log1p(-p) - T.log(p)).reciprocal()
        return T.where(exact, formula, 0.5 + (1 / 3 + 16 / 45 * away**2) * away)

    @property
    def variance(self) -> Tensor:
        exact, p = self._apart()
        square = (self.probs - 0.5) ** 2
        formula = p * (p - 1) / (1 - 2 * p) ** 2 + (T.log1p(-p) - T.log(p)) ** -2
        return T.where(exact, formula, 1 / 12 - (1 / 15 - 128 / 945 * square) * square)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with no_grad():
            uniform = clamp_probs(T.rand(self._extended_shape(sample_shape), dtype=self.probs.dtype))
        return self.icdf(uniform)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return value * self.logits - softplus(self.logits) + self._log_norm()

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        exact, p = self._apart()
        formula = (p**value * (1 - p) ** (1 - value) + p - 1) / (2 * p - 1)
        inside = T.where(exact, formula, value)
        return T.where(value <= 0, 0.0, T.where(value >= 1, 1.0, inside))

    def icdf(self, value: Tensor) -> Tensor:
        exact, p = self._apart()
        formula = (T.log1p(-p + value * (2 * p - 1)) - T.log1p(-p)) / (T.log(p) - T.log1p(-p))
        return T.where(exact, formula, value)

    def entropy(self) -> Tensor:
        return softplus(self.logits) - self.mean * self.logits - self._log_norm()


class VonMises(Distribution):
    """Angles with density proportional to ``exp(concentration * cos(x - loc))``; moments are the circular ones.

    Samples by rejection (Best and Fisher 1979), in float64.
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "loc": constraints.real, "concentration": constraints.positive,
    }  # fmt: skip
    loc: Any
    concentration: Any

    def __init__(self, loc: Tensor | float, concentration: Tensor | float, validate_args: bool | None = None) -> None:
        self.loc, self.concentration = broadcast_all(loc, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @property
    def support(self) -> Constraint:
        return constraints.real

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return 1 - special.i1e(self.concentration) / special.i0e(self.concentration)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        k = self.concentration
        return k * (T.cos(value - self.loc) - 1) - math.log(2 * math.pi) - T.log(special.i0e(k))

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with no_grad():
            shape = self._extended_shape(sample_shape)
            k = self.concentration.double().expand(shape)
            tau = 1 + T.sqrt(1 + 4 * k**2)
            rho = (tau - T.sqrt(2 * tau)) / (2 * k)
            r = T.where(k < 1e-5, k.reciprocal() + k, (1 + rho**2) / (2 * rho))
            angle, done = T.zeros_like(k), T.zeros_like(k, dtype=bool_)
            while not bool(done.all()):
                u1, u2, u3 = T.rand((3, *shape), dtype=k.dtype).unbind()
                z = T.cos(math.pi * u1)
                f = (1 + r * z) / (r + z)
                c = k * (r - f)
                accepted = (c * (2 - c) > u2) | (T.log(c / u2) + 1 - c >= 0)
                angle = T.where(accepted & ~done, T.sign(u3 - 0.5) * T.acos(f), angle)
                done = done | accepted
            return (T.remainder(angle + math.pi + self.loc, 2 * math.pi) - math.pi).to(self.loc.dtype)
