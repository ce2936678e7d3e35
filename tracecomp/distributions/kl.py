"""Kullback-Leibler divergences between pairs of distributions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tracecomp import linalg
from tracecomp.distributions.continuous import Exponential, Laplace, Normal, Uniform
from tracecomp.distributions.discrete import Bernoulli, Binomial, Categorical, Geometric, OneHotCategorical, Poisson
from tracecomp.distributions.distribution import Distribution
from tracecomp.distributions.gamma import Beta, Dirichlet, Gamma
from tracecomp.distributions.transformed import Independent, LogNormal, MultivariateNormal
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T

Rule = Callable[[Any, Any], Any]
_RULES: dict[tuple[type, type], Rule] = {}


def register_kl(p: type, q: type) -> Callable[[Rule], Rule]:
    """Use the decorated function for ``kl_divergence`` of ``p`` and ``q`` and of their subclasses."""

    def decorate(rule: Rule) -> Rule:
        _RULES[p, q] = rule
        return rule

    return decorate


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """``KL(p || q)``; NotImplementedError if there is no rule for the pair."""
    for one in type(p).__mro__:
        for other in type(q).__mro__:
            rule = _RULES.get((one, other))
            if rule is not None:
                return rule(p, q)
    raise NotImplementedError(
        f"No KL(p || q) is implemented for p type {type(p).__name__} and q type {type(q).__name__}"
    )


@register_kl(Normal, Normal)
def _normal(p: Normal, q: Normal) -> Any:
    ratio = (p.scale / q.scale) ** 2
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale) ** 2 - 1 - T.log(ratio))


@register_kl(LogNormal, LogNormal)
def _log_normal(p: LogNormal, q: LogNormal) -> Any:
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(Laplace, Laplace)
def _laplace(p: Laplace, q: Laplace) -> Any:
    ratio, distance = p.scale / q.scale, T.abs(p.loc - q.loc)
    return -T.log(ratio) + distance / q.scale + ratio * T.exp(-distance / p.scale) - 1


@register_kl(Uniform, Uniform)
def _uniform(p: Uniform, q: Uniform) -> Any:
    inside = (q.low <= p.low) & (q.high >= p.high)
    return T.where(inside, T.log((q.high - q.low) / (p.high - p.low)), math.inf)


@register_kl(Exponential, Exponential)
def _exponential(p: Exponential, q: Exponential) -> Any:
    ratio = q.rate / p.rate
    return -T.log(ratio) + ratio - 1


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: Bernoulli, q: Bernoulli) -> Any:
    one, other = p.probs, q.probs
    success = T.xlogy(one, one) - T.xlogy(one, other)
    failure = T.xlogy(1 - one, 1 - one) - T.xlogy(1 - one, 1 - other)
    return success + failure


@register_kl(Binomial, Binomial)
def _binomial(p: Binomial, q: Binomial) -> Any:
    if bool((p.total_count < q.total_count).any()):
        raise NotImplementedError("KL between Binomials where q.total_count > p.total_count is not implemented")
    found = p.total_count * (p.probs * (p.logits - q.logits) + T.log1p(-p.probs) - T.log1p(-q.probs))
    return T.where(p.total_count > q.total_count, math.inf, found)


@register_kl(Geometric, Geometric)
def _geometric(p: Geometric, q: Geometric) -> Any:
    return -p.entropy() - T.log1p(-q.probs) / p.probs - q.logits


@register_kl(Poisson, Poisson)
def _poisson(p: Poisson, q: Poisson) -> Any:
    return p.rate * (T.log(p.rate) - T.log(q.rate)) - (p.rate - q.rate)


@register_kl(Categorical, Categorical)
def _categorical(p: Categorical, q: Categorical) -> Any:
    terms = p.probs * (p.logits - q.logits)
    terms = T.where((q.probs == 0).expand(terms.shape), math.inf, terms)
    return T.where((p.probs == 0).expand(terms.shape), 0, terms).sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hot(p: OneHotCategorical, q: OneHotCategorical) -> Any:
    return _categorical(p._categorical, q._categorical)


@register_kl(Gamma, Gamma)
def _gamma(p: Gamma, q: Gamma) -> Any:
    a, b = p.concentration, q.concentration
    rates = b * T.log(p.rate / q.rate) + a * (q.rate / p.rate - 1)
    return rates + T.lgamma(b) - T.lgamma(a) + (a - b) * T.digamma(a)


@register_kl(Beta, Beta)
def _beta(p: Beta, q: Beta) -> Any:
    a, b, c, d = p.concentration1, p.concentration0, q.concentration1, q.concentration0
    norms = T.lgamma(c) + T.lgamma(d) + T.lgamma(a + b) - T.lgamma(c + d) - T.lgamma(a) - T.lgamma(b)
    return norms + (a - c) * T.digamma(a) + (b - d) * T.digamma(b) + (c + d - a - b) * T.digamma(a + b)


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p: Dirichlet, q: Dirichlet) -> Any:
    a, b = p.concentration, q.concentration
    total = a.sum(-1)
    norms = T.lgamma(total) - T.lgamma(b.sum(-1)) + (T.lgamma(b) - T.lgamma(a)).sum(-1)
    return norms + ((a - b) * (T.digamma(a) - T.digamma(total).unsqueeze(-1))).sum(-1)


@register_kl(MultivariateNormal, MultivariateNormal)
def _multivariate_normal(p: MultivariateNormal, q: MultivariateNormal) -> Any:
    n = p.event_shape[0]
    batch = T.broadcast_shapes(tuple(p.batch_shape), tuple(q.batch_shape))
    one, other = (d.scale_tril.expand(*batch, n, n) for d in (p, q))
    spread = (linalg.solve_triangular(other, one, upper=False) ** 2).flatten(-2).sum(-1)
    away = (q.loc - p.loc).expand(*batch, n).unsqueeze(-1)
    distance = (linalg.solve_triangular(other, away, upper=False) ** 2).flatten(-2).sum(-1)
    return q._half_log_det() - p._half_log_det() + 0.5 * (spread + distance - n)


@register_kl(Independent, Independent)
def _independent(p: Independent, q: Independent) -> Any:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError("KL of Independents with different reinterpreted_batch_ndims")
    return p._summed(kl_divergence(p.base_dist, q.base_dist))


@register_kl(Uniform, Normal)
def _uniform_normal(p: Uniform, q: Normal) -> Any:
    width = p.high - p.low
    away = ((p.high + p.low - 2 * q.loc) / 2) ** 2
    return T.log(math.sqrt(2 * math.pi) * q.scale / width) + (width**2 / 12 + away) / (2 * q.scale**2)
