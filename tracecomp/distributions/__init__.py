"""Probability distributions under the names of torch.distributions."""

from __future__ import annotations

import sys

from tracecomp.distributions import (
    bounded,
    constraint_registry,
    constraints,
    continuous,
    counts,
    derived,
    discrete,
    distribution,
    gamma,
    kl,
    lowrank,
    mappings,
    matrices,
    positive,
    relaxed,
    transformed,
    transforms,
    utils,
)
from tracecomp.distributions.bounded import ContinuousBernoulli, VonMises
from tracecomp.distributions.constraint_registry import biject_to, transform_to
from tracecomp.distributions.continuous import Cauchy, Exponential, Laplace, Normal, Uniform
from tracecomp.distributions.counts import Multinomial, NegativeBinomial
from tracecomp.distributions.derived import (
    Gumbel,
    HalfCauchy,
    HalfNormal,
    InverseGamma,
    Kumaraswamy,
    Pareto,
    Weibull,
)  # fmt: skip
from tracecomp.distributions.discrete import (
    Bernoulli,
    Binomial,
    Categorical,
    Geometric,
    OneHotCategorical,
    OneHotCategoricalStraightThrough,
    Poisson,
)  # fmt: skip
from tracecomp.distributions.distribution import Distribution, ExponentialFamily
from tracecomp.distributions.gamma import Beta, Chi2, Dirichlet, Gamma, StudentT
from tracecomp.distributions.kl_pairs import kl_divergence, register_kl
from tracecomp.distributions.lowrank import LowRankMultivariateNormal
from tracecomp.distributions.mappings import (
    CatTransform,
    CorrCholeskyTransform,
    CumulativeDistributionTransform,
    IndependentTransform,
    LowerCholeskyTransform,
    PositiveDefiniteTransform,
    ReshapeTransform,
    SoftmaxTransform,
    StackTransform,
    StickBreakingTransform,
)
from tracecomp.distributions.matrices import LKJCholesky, LogisticNormal, Wishart
from tracecomp.distributions.positive import FisherSnedecor, GeneralizedPareto
from tracecomp.distributions.relaxed import RelaxedBernoulli, RelaxedOneHotCategorical
from tracecomp.distributions.transformed import (
    Independent,
    LogNormal,
    MixtureSameFamily,
    MultivariateNormal,
    TransformedDistribution,
)  # fmt: skip
from tracecomp.distributions.transforms import (
    AbsTransform,
    AffineTransform,
    ComposeTransform,
    ExpTransform,
    PowerTransform,
    SigmoidTransform,
    SoftplusTransform,
    TanhTransform,
    Transform,
    identity_transform,
)  # fmt: skip

# torch's file names: ``torch.distributions.beta.Beta``.
_FILES = {
    "normal": continuous, "laplace": continuous, "cauchy": continuous, "gumbel": derived, "uniform": continuous,
    "exponential": continuous, "half_normal": derived, "bernoulli": discrete, "binomial": discrete,
    "categorical": discrete, "geometric": discrete, "one_hot_categorical": discrete, "poisson": discrete,
    "multinomial": counts, "negative_binomial": counts, "half_cauchy": derived, "inverse_gamma": derived,
    "pareto": derived, "weibull": derived, "fishersnedecor": positive, "generalized_pareto": positive,
    "continuous_bernoulli": bounded, "kumaraswamy": derived, "von_mises": bounded,
    "lowrank_multivariate_normal": lowrank,
    "relaxed_bernoulli": relaxed, "relaxed_categorical": relaxed,
    "beta": gamma, "chi2": gamma, "dirichlet": gamma, "studentT": gamma, "independent": transformed,
    "log_normal": transformed, "mixture_same_family": transformed, "multivariate_normal": transformed,
    "transforms": transforms, "transformed_distribution": transformed, "wishart": matrices, "lkj_cholesky": matrices,
    "logistic_normal": matrices, "exp_family": distribution,
}  # fmt: skip
globals().update(_FILES)
sys.modules.update({f"{__name__}.{name}": file for name, file in _FILES.items()})

__all__ = [
    "AbsTransform",
    "AffineTransform",
    "Bernoulli",
    "Beta",
    "Binomial",
    "CatTransform",
    "Categorical",
    "Cauchy",
    "Chi2",
    "ComposeTransform",
    "ContinuousBernoulli",
    "CorrCholeskyTransform",
    "CumulativeDistributionTransform",
    "Dirichlet",
    "Distribution",
    "ExpTransform",
    "Exponential",
    "ExponentialFamily",
    "FisherSnedecor",
    "Gamma",
    "GeneralizedPareto",
    "Geometric",
    "Gumbel",
    "HalfCauchy",
    "HalfNormal",
    "Independent",
    "IndependentTransform",
    "InverseGamma",
    "Kumaraswamy",
    "LKJCholesky",
    "Laplace",
    "LogNormal",
    "LogisticNormal",
    "LowRankMultivariateNormal",
    "LowerCholeskyTransform",
    "MixtureSameFamily",
    "Multinomial",
    "MultivariateNormal",
    "NegativeBinomial",
    "Normal",
    "OneHotCategorical",
    "OneHotCategoricalStraightThrough",
    "Pareto",
    "Poisson",
    "PositiveDefiniteTransform",
    "PowerTransform",
    "RelaxedBernoulli",
    "RelaxedOneHotCategorical",
    "ReshapeTransform",
    "SigmoidTransform",
    "SoftmaxTransform",
    "SoftplusTransform",
    "StackTransform",
    "StickBreakingTransform",
    "StudentT",
    "TanhTransform",
    "Transform",
    "TransformedDistribution",
    "Uniform",
    "VonMises",
    "Weibull",
    "Wishart",
    "biject_to",
    "constraint_registry",
    "constraints",
    "distribution",
    "identity_transform",
    "kl",
    "kl_divergence",
    "register_kl",
    "transform_to",
    "utils",
]  # fmt: skip

# Transforms of vectors and matrices are in the same file in torch.
transforms.__all__ += [name for name in mappings.__all__ if name not in transforms.__all__]
vars(transforms).update({name: getattr(mappings, name) for name in mappings.__all__})
