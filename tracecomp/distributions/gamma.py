"""The gamma distribution and its derived ones: Chi2, Beta, Dirichlet, StudentT."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from tracecomp import special
from tracecomp.autograd.function import Function
from tracecomp.distributions import constraints
from tracecomp.distributions.constraints import Constraint
from tracecomp.distributions.distribution import Distribution, one_hot
from tracecomp.distributions.utils import broadcast_all
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.functional.elementwise.conversion import finfo
from tracecomp.ir.types import float64

# A proposal is accepted with probability above 0.95 for every shape from 1 on, so not all of that many fail.
PROPOSALS = 10


def draw_standard_gamma(alpha: Tensor) -> Tensor:
    """Draw gamma numbers of shape ``alpha`` and rate 1 (Marsaglia and Tsang 2000), with a fixed number of proposals."""
    boosted = T.where(alpha < 1, alpha + 1, alpha).double()
    d = boosted - 1 / 3
    c = 1 / (3 * T.sqrt(d))
    found = d
    for _ in range(PROPOSALS):
        x = T.randn(alpha.shape, dtype=float64)
        v = (1 + c * x) ** 3
        u = T.rand(alpha.shape, dtype=float64)
        accepted = (v > 0) & (T.log(1 - u) < 0.5 * x**2 + d - d * v + d * T.log(v.clamp_min(1e-300)))
        found = T.where(accepted, d * v, found)
    lift = T.where(alpha < 1, (1 - T.rand(alpha.shape, dtype=float64)) ** (1 / alpha.double()), 1.0)
    return (found * lift).to(alpha.dtype).clamp_min(finfo(alpha.dtype).tiny)


class StandardGamma(Function):
    """Gamma numbers whose gradient is implicit: ``dz/dalpha = -(dF/dalpha) / p(z)`` (Figurnov et al. 2018)."""

    generate_vmap_rule = True

    @staticmethod
    def forward(alpha: Tensor) -> Tensor:
        return draw_standard_gamma(alpha)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[object, ...], output: object) -> None:
        ctx.save_for_backward(*inputs, output)
        ctx.save_for_forward(*inputs, output)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Tensor:
        alpha, z = (t.double() for t in ctx.saved_tensors)
        step = 1e-5 * alpha
        slope = (T.igamma(alpha + step, z) - T.igamma(alpha - step, z)) / (2 * step)
        density = T.exp((alpha - 1) * T.log(z) - z - T.lgamma(alpha))
        return (-slope / density).to(grad.dtype) * grad

    @staticmethod
    def jvp(ctx: object, tangent: Tensor) -> Tensor:
        return StandardGamma.backward(ctx, tangent)  # element by element, so that it is its own transpose


class Gamma(Distribution):
    """Density ``rate**a x**(a-1) exp(-rate x) / gamma(a)`` for ``a = concentration``."""

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "concentration": constraints.positive, "rate": constraints.positive,
    }  # fmt: skip
    has_rsample = True
    concentration: Any
    rate: Any

    def __init__(self, concentration: Tensor | float, rate: Tensor | float, validate_args: bool | None = None) -> None:
        self.concentration, self.rate = broadcast_all(concentration, rate)
        super().__init__(self.concentration.shape, validate_args=validate_args)

    @property
    def support(self) -> Constraint:
        return constraints.nonnegative

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.rate

    @property
    def mode(self) -> Tensor:
        return ((self.concentration - 1) / self.rate).clamp_min(0)

    @property
    def variance(self) -> Tensor:
        return self.concentration / self.rate**2

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return StandardGamma.apply(self.concentration.expand(shape)) / self.rate.expand(shape)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        a = self.concentration
        return T.xlogy(a, self.rate) + T.xlogy(a - 1, value) - self.rate * value - T.lgamma(a)

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return T.igamma(self.concentration, self.rate * value)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a - T.log(self.rate) + T.lgamma(a) + (1 - a) * T.digamma(a)


class Chi2(Gamma):
    """Gamma of shape ``df / 2`` and rate 1/2."""

    arg_constraints: ClassVar[dict[str, Constraint]] = {"df": constraints.positive}

    def __init__(self, df: Tensor | float, validate_args: bool | None = None) -> None:
        (df,) = broadcast_all(df)
        super().__init__(0.5 * df, 0.5, validate_args)

    @property
    def df(self) -> Tensor:
        return self.concentration * 2


class Dirichlet(Distribution):
    """Density over the simplex proportional to ``prod x**(concentration - 1)``."""

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "concentration": constraints.independent(constraints.positive, 1)
    }
    has_rsample = True

    def __init__(self, concentration: Tensor, validate_args: bool | None = None) -> None:
        if concentration.ndim < 1:
            raise ValueError("`concentration` parameter must be at least one-dimensional.")
        self.concentration: Any = concentration
        super().__init__(concentration.shape[:-1], concentration.shape[-1:], validate_args)

    @property
    def support(self) -> Constraint:
        return constraints.simplex

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.concentration.sum(-1, keepdim=True)

    @property
    def mode(self) -> Tensor:
        a = (self.concentration - 1).clamp_min(0)
        mode = a / a.sum(-1, keepdim=True)
        several = (self.concentration < 1).all(-1, keepdim=True)
        best = one_hot(mode.nan_to_num().argmax(-1), mode.shape[-1], mode.dtype)
        return T.where(several, best, mode)

    @property
    def variance(self) -> Tensor:
        total = self.concentration.sum(-1, keepdim=True)
        return self.concentration * (total - self.concentration) / (total**2 * (total + 1))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        g = StandardGamma.apply(self.concentration.expand(self._extended_shape(sample_shape)))
        return g / g.sum(-1, keepdim=True)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        a = self.concentration
        return T.xlogy(a - 1, value).sum(-1) + T.lgamma(a.sum(-1)) - T.lgamma(a).sum(-1)

    def entropy(self) -> Tensor:
        a, k = self.concentration, self.concentration.shape[-1]
        total = a.sum(-1)
        norm = T.lgamma(a).sum(-1) - T.lgamma(total)
        return norm - (k - total) * T.digamma(total) - ((a - 1) * T.digamma(a)).sum(-1)


class Beta(Distribution):
    """Density ``x**(a-1) (1-x)**(b-1) / B(a, b)`` for ``a = concentration1``, ``b = concentration0``."""

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "concentration1": constraints.positive, "concentration0": constraints.positive,
    }  # fmt: skip
    has_rsample = True
    concentration1: Any
    concentration0: Any

    def __init__(
        self, concentration1: Tensor | float, concentration0: Tensor | float, validate_args: bool | None = None
    ) -> None:
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        super().__init__(self.concentration1.shape, validate_args=validate_args)

    @property
    def support(self) -> Constraint:
        return constraints.unit_interval

    @property
    def _total(self) -> Any:
        return self.concentration1 + self.concentration0

    @property
    def mean(self) -> Tensor:
        return self.concentration1 / self._total

    @property
    def mode(self) -> Tensor:
        both = T.stack([self.concentration1, self.concentration0], -1)
        return Dirichlet(both, validate_args=False).mode[..., 0]

    @property
    def variance(self) -> Tensor:
        total = self._total
        return self.concentration1 * self.concentration0 / (total**2 * (total + 1))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        one, other = (StandardGamma.apply(c.expand(shape)) for c in (self.concentration1, self.concentration0))
        return one / (one + other)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        a, b = self.concentration1, self.concentration0
        norm = T.lgamma(a) + T.lgamma(b) - T.lgamma(a + b)
        return T.xlogy(a - 1, value) + special.xlog1py(b - 1, -value) - norm

    def entropy(self) -> Tensor:
        a, b, total = self.concentration1, self.concentration0, self._total
        norm = T.lgamma(a) + T.lgamma(b) - T.lgamma(total)
        weighted = (a - 1) * T.digamma(a) + (b - 1) * T.digamma(b)
        return norm - weighted + (total - 2) * T.digamma(total)


class StudentT(Distribution):
    """``loc + scale * t`` for Student's t with ``df`` degrees of freedom."""

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "df": constraints.positive, "loc": constraints.real, "scale": constraints.positive,
    }  # fmt: skip
    has_rsample = True
    df: Any
    loc: Any
    scale: Any

    def __init__(
        self,
        df: Tensor | float,
        loc: Tensor | float = 0.0,
        scale: Tensor | float = 1.0,
        validate_args: bool | None = None,
    ) -> None:
        self.df, self.loc, self.scale = broadcast_all(df, loc, scale)
        super().__init__(self.df.shape, validate_args=validate_args)

    @property
    def support(self) -> Constraint:
        return constraints.real

    @property
    def mean(self) -> Tensor:
        return T.where(self.df > 1, self.loc, math.nan)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        finite = self.scale**2 * self.df / (self.df - 2)
        return T.where(self.df > 2, finite, T.where(self.df > 1, math.inf, math.nan))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        chi2 = 2 * StandardGamma.apply((0.5 * self.df).expand(shape))
        return self.loc + self.scale * T.randn(shape, dtype=self.df.dtype) * T.rsqrt(chi2 / self.df)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        z = (value - self.loc) / self.scale
        norm = T.log(self.scale) + 0.5 * T.log(self.df) + 0.5 * math.log(math.pi)
        norm = norm + T.lgamma(0.5 * self.df) - T.lgamma(0.5 * (self.df + 1))
        return -0.5 * (self.df + 1) * T.log1p(z**2 / self.df) - norm

    def entropy(self) -> Tensor:
        df = self.df
        norm = T.lgamma(0.5 * df) + math.lgamma(0.5) - T.lgamma(0.5 * (1 + df))
        half = 0.5 * (df + 1) * (T.digamma(0.5 * (df + 1)) - T.digamma(0.5 * df))
        return T.log(self.scale) + half + 0.5 * T.log(df) + norm
