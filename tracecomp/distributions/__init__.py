"""Probability distributions under the names of torch.distributions."""

from __future__ import annotations

import sys

from tracecomp.distributions import (
    bounded,
    constraints,
    continuous,
    counts,
    discrete,
    distribution,
    gamma,
    kl,
    lowrank,
    positive,
    relaxed,
    transformed,
    transforms,
)
from tracecomp.distributions.bounded import ContinuousBernoulli, Kumaraswamy, VonMises
from tracecomp.distributions.continuous import Cauchy, Exponential, Gumbel, HalfNormal, Laplace, Normal, Uniform
from tracecomp.distributions.counts import Multinomial, NegativeBinomial
from tracecomp.distributions.discrete import (
    Bernoulli,
    Binomial,
    Categorical,
    Geometric,
    OneHotCategorical,
    OneHotCategoricalStraightThrough,
    Poisson,
)  # fmt: skip
from tracecomp.distributions.distribution import Distribution
from tracecomp.distributions.gamma import Beta, Chi2, Dirichlet, Gamma, StudentT
from tracecomp.distributions.kl import kl_divergence, register_kl
from tracecomp.distributions.lowrank import LowRankMultivariateNormal
from tracecomp.distributions.positive import (
    FisherSnedecor,
    GeneralizedPareto,
    HalfCauchy,
    InverseGamma,
    Pareto,
    Weibull,
)
from tracecomp.distributions.relaxed import RelaxedBernoulli, RelaxedOneHotCategorical
from tracecomp.distributions.transformed import (
    Independent,
    LogNormal,
    MixtureSameFamily,
    MultivariateNormal,
    TransformedDistribution,
)  # fmt: skip
from tracecomp.distributions.transforms import (
    AffineTransform,
    ExpTransform,
    PowerTransform,
    SigmoidTransform,
    TanhTransform,
    Transform,
)  # fmt: skip

# torch's file names: ``torch.distributions.beta.Beta``.
_FILES = {
    "normal": continuous, "laplace": continuous, "cauchy": continuous, "gumbel": continuous, "uniform": continuous,
    "exponential": continuous, "half_normal": continuous, "bernoulli": discrete, "binomial": discrete,
    "categorical": discrete, "geometric": discrete, "one_hot_categorical": discrete, "poisson": discrete,
    "multinomial": counts, "negative_binomial": counts, "half_cauchy": positive, "inverse_gamma": positive,
    "pareto": positive, "weibull": positive, "fishersnedecor": positive, "generalized_pareto": positive,
    "continuous_bernoulli": bounded, "kumaraswamy": bounded, "von_mises": bounded,
    "lowrank_multivariate_normal": lowrank,
    "relaxed_bernoulli": relaxed, "relaxed_categorical": relaxed,
    "beta": gamma, "chi2": gamma, "dirichlet": gamma, "studentT": gamma, "independent": transformed,
    "log_normal": transformed, "mixture_same_family": transformed, "multivariate_normal": transformed,
    "transforms": transforms, "transformed_distribution": transformed,
}  # fmt: skip
globals().update(_FILES)
sys.modules.update({f"{__name__}.{name}": file for name, file in _FILES.items()})

__all__ = [
    "AffineTransform", "Bernoulli", "Beta", "Binomial", "Categorical", "Cauchy", "Chi2", "ContinuousBernoulli",
    "Dirichlet", "Distribution", "ExpTransform", "Exponential", "FisherSnedecor", "Gamma", "GeneralizedPareto",
    "Geometric", "Gumbel", "HalfCauchy", "HalfNormal", "Independent", "InverseGamma", "Kumaraswamy", "Laplace",
    "LogNormal", "LowRankMultivariateNormal", "MixtureSameFamily", "Multinomial", "MultivariateNormal",
    "NegativeBinomial", "Normal", "OneHotCategorical", "OneHotCategoricalStraightThrough", "Pareto", "Poisson",
    "PowerTransform", "RelaxedBernoulli", "RelaxedOneHotCategorical", "SigmoidTransform", "StudentT",
    "TanhTransform", "Transform", "TransformedDistribution", "Uniform", "VonMises", "Weibull", "constraints",
    "distribution", "kl", "kl_divergence", "register_kl",
]  # fmt: skip
