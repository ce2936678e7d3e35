"""Random matrices, and random points of the simplex from normal ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from tracecomp import linalg
from tracecomp.distributions import constraints
from tracecomp.distributions.constraints import Constraint
from tracecomp.distributions.continuous import Normal
from tracecomp.distributions.distribution import Distribution
from tracecomp.distributions.gamma import Beta, Chi2
from tracecomp.distributions.mappings import StickBreakingTransform
from tracecomp.distributions.transformed import TransformedDistribution
from tracecomp.distributions.utils import lazy_property
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T


class LogisticNormal(TransformedDistribution):
    """Points of the simplex from normal numbers by stick breaking."""

    arg_constraints: ClassVar[dict[str, Constraint]] = {"loc": constraints.real, "scale": constraints.positive}

    def __init__(self, loc: Tensor | float, scale: Tensor | float, validate_args: bool | None = None) -> None:
        base = Normal(loc, scale, validate_args=validate_args)
        if not base.batch_shape:
            base = base.expand([1])  # type: ignore[assignment]
        super().__init__(base, StickBreakingTransform(), validate_args=validate_args)

    @property
    def loc(self) -> Any:
        return self.base_dist.base_dist.loc  # type: ignore[attr-defined]

    @property
    def scale(self) -> Any:
        return self.base_dist.base_dist.scale  # type: ignore[attr-defined]


class LKJCholesky(Distribution):
    """Cholesky factors of correlation matrices, with density proportional to ``det(correlations)^(concentration - 1)``.

    Source: Lewandowski, Kurowicka and Joe, "Generating random correlation matrices based on vines and extended onion
    method", Journal of Multivariate Analysis 100 (2009), the onion method.
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {"concentration": constraints.positive}

    def __init__(self, dim: int, concentration: Tensor | float = 1.0, validate_args: bool | None = None) -> None:
        if dim < 2:
            raise ValueError(f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}.")
        self.dim = dim
        self.concentration: Any = concentration if isinstance(concentration, Tensor) else T.tensor(concentration)
        super().__init__(self.concentration.shape, (dim, dim), validate_args)
        above = T.arange(dim - 1, dtype=self.concentration.dtype)
        self._radii = Beta(above / 2 + 0.5, self.concentration.unsqueeze(-1) + 0.5 * (dim - 2) - 0.5 * above)

    @property
    def support(self) -> Constraint:
        return constraints.corr_cholesky

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Rows of norm 1: a direction drawn from the sphere, and the part of the norm left of the diagonal."""
        radii: Any = self._radii.sample(sample_shape).unsqueeze(-1)
        shape = self._extended_shape(sample_shape)
        directions = T.randn(shape, dtype=self.concentration.dtype).tril(-1)[..., 1:, :]
        directions = directions / linalg.norm(directions, dim=-1, keepdim=True)
        rows = T.cat([T.zeros_like(directions[..., :1, :]), radii.sqrt() * directions], -2)
        tiny = T.finfo(rows.dtype).tiny
        found: Tensor = rows + (1 - (rows * rows).sum(-1)).clamp(min=tiny).sqrt().diag_embed()
        return found

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        diagonal = value.diagonal(dim1=-1, dim2=-2)[..., 1:]
        order = T.arange(2, self.dim + 1, dtype=self.concentration.dtype)
        order = 2 * (self.concentration - 1).unsqueeze(-1) + self.dim - order
        below = self.dim - 1
        alpha = self.concentration + 0.5 * below
        denominator = T.lgamma(alpha) * below
        numerator = T.mvlgamma(alpha - 0.5, below)
        constant = 0.5 * below * math.log(math.pi) + numerator - denominator
        found: Tensor = (order * diagonal.log()).sum(-1) - constant
        return found


class Wishart(Distribution):
    """Positive-definite matrices: the sum of ``df`` squares of normal vectors with the given covariance.

    Samples are made of Bartlett's decomposition (M. S. Bartlett, "On the theory of statistical regression", 1933).
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "covariance_matrix": constraints.positive_definite, "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky, "df": constraints.greater_than(0),
    }  # fmt: skip
    has_rsample = True

    def __init__(
        self, df: Tensor, covariance_matrix: Any = None, precision_matrix: Any = None, scale_tril: Any = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        given = [m for m in (covariance_matrix, precision_matrix, scale_tril) if m is not None]
        if len(given) != 1:
            raise ValueError("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
        matrix = given[0]
        if matrix.ndim < 2:
            raise ValueError("scale_tril must be at least two-dimensional, with optional leading batch dimensions")
        self.df: Any = df if isinstance(df, Tensor) else T.tensor(df, dtype=matrix.dtype)
        batch, size = T.broadcast_shapes(tuple(matrix.shape[:-2]), tuple(self.df.shape)), matrix.shape[-1]
        if bool((self.df <= size - 1).any()):
            raise ValueError(f"Value of df={self.df} expected to be greater than ndim - 1 = {size - 1}.")
        self.df = self.df.expand(batch)
        matrix = matrix.expand(*batch, size, size)
        super().__init__(batch, (size, size), validate_args)
        if scale_tril is None:
            matrix = linalg.cholesky(matrix if precision_matrix is None else linalg.inv(matrix))
        self.scale_tril: Any = matrix
        self._chi2 = Chi2(self.df.unsqueeze(-1) - T.arange(size, dtype=self.df.dtype))

    @property
    def support(self) -> Constraint:
        return constraints.positive_definite

    @lazy_property
    def covariance_matrix(self) -> Any:
        return self.scale_tril @ self.scale_tril.mT

    @lazy_property
    def precision_matrix(self) -> Any:
        return linalg.inv(self.covariance_matrix)

    @property
    def mean(self) -> Tensor:
        found: Tensor = self.df.unsqueeze(-1).unsqueeze(-1) * self.covariance_matrix
        return found

    @property
    def mode(self) -> Tensor:
        factor = self.df - self._event_shape[-1] - 1
        factor = T.where(factor > 0, factor, math.nan)
        found: Tensor = factor.unsqueeze(-1).unsqueeze(-1) * self.covariance_matrix
        return found

    @property
    def variance(self) -> Tensor:
        v = self.covariance_matrix
        d = v.diagonal(dim1=-2, dim2=-1)
        found: Tensor = self.df.unsqueeze(-1).unsqueeze(-1) * (v**2 + d.unsqueeze(-1) * d.unsqueeze(-2))
        return found

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        diagonal = self._chi2.rsample(sample_shape).clamp(min=T.finfo(self.scale_tril.dtype).tiny).sqrt()
        noise = T.randn(self._extended_shape(sample_shape), dtype=self.scale_tril.dtype).tril(-1)
        factor = self.scale_tril @ (noise + diagonal.diag_embed())
        found: Tensor = factor @ factor.mT
        return found

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        nu, size = self.df, self._event_shape[-1]
        half_log_det = self.scale_tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        solved: Any = T.cholesky_solve(value, self.scale_tril)
        found: Tensor = (
            -nu * (size * math.log(2) / 2 + half_log_det) - T.mvlgamma(nu / 2, size)
            + (nu - size - 1) / 2 * linalg.slogdet(value).logabsdet
            - solved.diagonal(dim1=-2, dim2=-1).sum(-1) / 2
        )  # fmt: skip
        return found

    def entropy(self) -> Tensor:
        nu, size = self.df, self._event_shape[-1]
        half_log_det = self.scale_tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        steps = T.digamma((nu.unsqueeze(-1) - T.arange(size, dtype=nu.dtype)) / 2).sum(-1)
        found: Tensor = (
            (size + 1) * (size * math.log(2) / 2 + half_log_det) + T.mvlgamma(nu / 2, size)
            - (nu - size - 1) / 2 * steps + nu * size / 2
        )  # fmt: skip
        return found
