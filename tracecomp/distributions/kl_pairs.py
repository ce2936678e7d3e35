"""Kullback-Leibler divergences between distributions of two kinds, and fallbacks without a rule in ``kl``.

Most are ``-H(p) - E_p[log q]``. The logarithm of q's density needs few expectations under p: its mean and variance,
those of ``log(x)`` and ``log(1 - x)``, and that of ``exp(-x / s)``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tracecomp import linalg
from tracecomp.autograd import grad
from tracecomp.distributions.bounded import ContinuousBernoulli
from tracecomp.distributions.continuous import EULER, Cauchy, Exponential, Laplace, Normal, Uniform
from tracecomp.distributions.derived import Gumbel, HalfNormal, Pareto
from tracecomp.distributions.discrete import Bernoulli, Binomial, Poisson, softplus
from tracecomp.distributions.distribution import Distribution, ExponentialFamily
from tracecomp.distributions.gamma import Beta, Gamma
from tracecomp.distributions.kl import kl_divergence, register_kl
from tracecomp.distributions.lowrank import LowRankMultivariateNormal
from tracecomp.distributions.matrices import Wishart
from tracecomp.distributions.transformed import MultivariateNormal, TransformedDistribution
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T

__all__ = ["kl_divergence", "register_kl"]
Expectation = Callable[..., Any]


def _infinite(p: Distribution, q: Distribution) -> Tensor:
    """Infinity, for pairs in which p has mass outside the support of q."""
    found: Tensor = T.full(tuple(T.broadcast_shapes(tuple(p.batch_shape), tuple(q.batch_shape))), math.inf)
    return found


_WIDER: dict[type, tuple[type, ...]] = {
    Beta: (Pareto,),
    ContinuousBernoulli: (Pareto,),
    Exponential: (Beta, ContinuousBernoulli, Pareto, Uniform),
    Gamma: (Beta, ContinuousBernoulli, Pareto, Uniform),
    Gumbel: (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform),
    Laplace: (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform),
    Normal: (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform),
    Pareto: (Beta, ContinuousBernoulli, Uniform),
    Poisson: (Bernoulli, Binomial),
}
"""Distributions whose support is never a subset of the other's."""
for _p, _others in _WIDER.items():
    for _q in _others:
        register_kl(_p, _q)(_infinite)


def _from(limit: float | Tensor, p: Distribution, found: Tensor) -> Any:
    """Return ``found``; infinity if a uniform p extends below ``limit``."""
    return T.where(p.low < limit, math.inf, found) if isinstance(p, Uniform) else found


def _expected(table: dict[type, Expectation], p: Distribution, *more: Tensor) -> Any:
    return next(rule for kind, rule in table.items() if isinstance(p, kind))(p, *more)


def _normal(p: Distribution, q: Normal) -> Any:
    spread = T.where(p.variance == math.inf, math.inf, p.variance + (p.mean - q.loc) ** 2)
    return -p.entropy() + T.log(q.scale) + 0.5 * math.log(2 * math.pi) + spread / (2 * q.scale**2)


def _exponential(p: Distribution, q: Exponential) -> Any:
    return _from(0.0, p, -p.entropy() - T.log(q.rate) + q.rate * p.mean)


def _continuous_bernoulli(p: Distribution, q: ContinuousBernoulli) -> Any:
    found = -p.entropy() - p.mean * q.logits + softplus(q.logits) - q._log_norm()
    return T.where((p.low <= 0) | (p.high >= 1), math.inf, found) if isinstance(p, Uniform) else found


def _gamma(p: Distribution, q: Gamma) -> Any:
    a, rate = q.concentration, q.rate
    density = a * T.log(rate) - T.lgamma(a) + (a - 1) * _expected(_LOG, p) - rate * p.mean
    return _from(0.0, p, -p.entropy() - density)


def _gumbel(p: Distribution, q: Gumbel) -> Any:
    place = q.loc / q.scale
    return -p.entropy() + p.mean / q.scale - place + T.exp(place) * _expected(_DECAY, p, q.scale) + T.log(q.scale)


def _uniform(p: Distribution, q: Uniform) -> Any:
    outside = (q.low > 0) | (q.high < 1)
    if isinstance(p, ContinuousBernoulli):  # PyTorch counts the bounds themselves as outside
        outside = (q.low >= 0) | (q.high <= 1)
    return T.where(outside, math.inf, -p.entropy() + T.log(q.high - q.low))


def _log_of_uniform(p: Uniform) -> Any:
    return (T.xlogy(p.high, p.high) - T.xlogy(p.low, p.low)) / (p.high - p.low) - 1


_LOG: dict[type, Expectation] = {
    Beta: lambda p: T.digamma(p.concentration1) - T.digamma(p.concentration1 + p.concentration0),
    Exponential: lambda p: -T.log(p.rate) - EULER,
    Pareto: lambda p: T.log(p.scale) + p.alpha.reciprocal(),
    Uniform: _log_of_uniform,
}
"""The mean of ``log(x)``."""
_DECAY: dict[type, Expectation] = {
    Exponential: lambda p, s: p.rate * s / (p.rate * s + 1),
    Gamma: lambda p, s: (1 + 1 / (p.rate * s)) ** -p.concentration,
    Gumbel: lambda p, s: T.exp(T.lgamma(1 + p.scale / s) - p.loc / s),
    Normal: lambda p, s: T.exp(0.5 * (p.scale / s) ** 2 - p.loc / s),
    Uniform: lambda p, s: s * (T.exp(-p.low / s) - T.exp(-p.high / s)) / (p.high - p.low),
}
"""The mean of ``exp(-x / s)``."""
_OF_MANY: tuple[tuple[type, Expectation, tuple[type, ...]], ...] = (
    (Normal, _normal, (Beta, ContinuousBernoulli, Exponential, Gamma, Gumbel, Laplace, Pareto)),
    (Exponential, _exponential, (Beta, ContinuousBernoulli, Gamma, Pareto, Uniform)),
    (ContinuousBernoulli, _continuous_bernoulli, (Beta, ContinuousBernoulli, Uniform)),
    (Gamma, _gamma, tuple(_LOG)),
    (Gumbel, _gumbel, tuple(_DECAY)),
    (Uniform, _uniform, (Beta, ContinuousBernoulli)),
)
"""q, the rule, and the p for which it is valid."""
for _q, _rule, _those in _OF_MANY:
    for _p in _those:
        register_kl(_p, _q)(_rule)


@register_kl(Normal, Laplace)
def _normal_laplace(p: Normal, q: Laplace) -> Any:
    away = p.loc - q.loc
    z = away / p.scale
    distance = math.sqrt(2 / math.pi) * p.scale * T.exp(-0.5 * z**2) + away * T.erf(z * math.sqrt(0.5))
    return -p.entropy() + T.log(2 * q.scale) + distance / q.scale


@register_kl(Bernoulli, Poisson)
def _bernoulli_poisson(p: Bernoulli, q: Poisson) -> Any:
    return -p.entropy() - (p.probs * T.log(q.rate) - q.rate)


@register_kl(Uniform, Beta)
def _uniform_beta(p: Uniform, q: Beta) -> Any:
    a, b = q.concentration1, q.concentration0
    mirrored = Uniform(1 - p.high, 1 - p.low, validate_args=False)
    density = (a - 1) * _log_of_uniform(p) + (b - 1) * _log_of_uniform(mirrored)
    found = -p.entropy() - density + T.lgamma(a) + T.lgamma(b) - T.lgamma(a + b)
    return T.where((p.high > 1) | (p.low < 0), math.inf, found)


@register_kl(Uniform, Pareto)
def _uniform_pareto(p: Uniform, q: Pareto) -> Any:
    density = T.log(q.alpha) + q.alpha * T.log(q.scale) - (q.alpha + 1) * _log_of_uniform(p)
    return _from(q.scale, p, -p.entropy() - density)


@register_kl(Cauchy, Cauchy)
def _cauchy(p: Cauchy, q: Cauchy) -> Any:
    return T.log(((p.scale + q.scale) ** 2 + (p.loc - q.loc) ** 2) / (4 * p.scale * q.scale))


@register_kl(HalfNormal, HalfNormal)
def _half_normal(p: HalfNormal, q: HalfNormal) -> Any:
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(Pareto, Pareto)
def _pareto(p: Pareto, q: Pareto) -> Any:
    ratio = q.alpha / p.alpha
    found = q.alpha * T.log(p.scale / q.scale) - T.log(ratio) + ratio - 1
    return T.where(p.scale < q.scale, math.inf, found)


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p: TransformedDistribution, q: TransformedDistribution) -> Any:
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError("KL between different transforms")
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(ExponentialFamily, ExponentialFamily)
def _exponential_family(p: ExponentialFamily, q: ExponentialFamily) -> Any:
    """The Bregman divergence of the logarithm of the norm."""
    if type(p) is not type(q):
        raise NotImplementedError("KL between different exponential families")
    params = [x.detach().requires_grad_() for x in p._natural_params]
    norm = p._log_normalizer(*params)
    slopes = grad(norm.sum(), params, create_graph=True)
    found = q._log_normalizer(*q._natural_params) - norm
    for one, other, slope in zip(params, q._natural_params, slopes, strict=True):
        term = (other - one) * slope
        found = found - (term.flatten(term.ndim - len(q.event_shape)).sum(-1) if q.event_shape else term)
    return found


@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
@register_kl(LowRankMultivariateNormal, MultivariateNormal)
@register_kl(MultivariateNormal, LowRankMultivariateNormal)
def _low_rank(p: Any, q: Any) -> Any:
    if p.event_shape != q.event_shape:
        raise ValueError(
            "KL-divergence between two (Low Rank) Multivariate Normals with different event shapes cannot be computed"
        )
    whole = [
        MultivariateNormal(d.loc, d.covariance_matrix, validate_args=False)
        if isinstance(d, LowRankMultivariateNormal)
        else d
        for d in (p, q)
    ]
    return kl_divergence(*whole)


@register_kl(Wishart, Wishart)
def _wishart(p: Wishart, q: Wishart) -> Any:
    size, half = p.event_shape[-1], p.df / 2
    solved = linalg.solve_triangular(q.scale_tril, p.scale_tril, upper=False)
    log_ratio = 2 * (_log_diagonal(p.scale_tril) - _log_diagonal(q.scale_tril))
    trace = (solved**2).flatten(-2).sum(-1)
    steps = T.digamma(half.unsqueeze(-1) - T.arange(size, dtype=half.dtype) / 2).sum(-1)
    norms = T.mvlgamma(q.df / 2, size) - T.mvlgamma(half, size)
    return -q.df / 2 * log_ratio + half * (trace - size) + norms + (p.df - q.df) / 2 * steps


def _log_diagonal(tril: Tensor) -> Any:
    return T.log(T.diagonal(tril, dim1=-2, dim2=-1)).sum(-1)
