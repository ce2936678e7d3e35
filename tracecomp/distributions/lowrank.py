"""Normal vectors whose covariance is of low rank plus a diagonal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from tracecomp import linalg
from tracecomp.distributions import constraints
from tracecomp.distributions.constraints import Constraint
from tracecomp.distributions.distribution import Distribution
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T


class LowRankMultivariateNormal(Distribution):
    """Normal vectors of size n with covariance ``cov_factor @ cov_factor.T + diag(cov_diag)``.

    ``cov_factor`` is (..., n, rank). Only matrices of the rank's size are factored (Woodbury's identity). ValueError
    for shapes that do not fit.
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "loc": constraints.real_vector, "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }  # fmt: skip
    has_rsample = True

    def __init__(self, loc: Tensor, cov_factor: Any, cov_diag: Any, validate_args: bool | None = None) -> None:
        if loc.ndim < 1:
            raise ValueError("loc must be at least one-dimensional.")
        event = tuple(loc.shape[-1:])
        if cov_factor.ndim < 2:
            raise ValueError("cov_factor must be at least two-dimensional, with optional leading batch dimensions")
        if tuple(cov_factor.shape[-2:-1]) != event:
            raise ValueError(f"cov_factor must be a batch of matrices with shape {event[0]} x m")
        if tuple(cov_diag.shape[-1:]) != event:
            raise ValueError(f"cov_diag must be a batch of vectors with shape {event}")
        try:
            batch = T.broadcast_shapes(loc.shape[:-1], cov_factor.shape[:-2], cov_diag.shape[:-1])
        except RuntimeError:
            raise ValueError(
                f"Incompatible batch shapes: loc {loc.shape}, cov_factor {cov_factor.shape}, cov_diag {cov_diag.shape}"
            ) from None
        self.loc: Any = loc.expand(*batch, *event)
        self.cov_factor: Any = cov_factor.expand(*batch, *cov_factor.shape[-2:])
        self.cov_diag: Any = cov_diag.expand(*batch, *event)
        super().__init__(batch, event, validate_args)
        self._scaled = self.cov_factor / self.cov_diag.unsqueeze(-1)
        inner = self.cov_factor.mT @ self._scaled
        self._tril = linalg.cholesky(inner + T.eye(inner.shape[-1], dtype=inner.dtype))

    @property
    def support(self) -> Constraint:
        return constraints.real_vector

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return (self.cov_factor**2).sum(-1) + self.cov_diag

    @property
    def covariance_matrix(self) -> Tensor:
        return self.cov_factor @ self.cov_factor.mT + T.diag_embed(self.cov_diag)

    @property
    def scale_tril(self) -> Tensor:
        return linalg.cholesky(self.covariance_matrix)

    @property
    def precision_matrix(self) -> Tensor:
        half = linalg.solve_triangular(self._tril, self._scaled.mT, upper=False)
        return T.diag_embed(self.cov_diag.reciprocal()) - half.mT @ half

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        inner = T.randn((*shape[:-1], self.cov_factor.shape[-1], 1), dtype=self.loc.dtype)
        own = T.randn(shape, dtype=self.loc.dtype)
        return self.loc + T.matmul(self.cov_factor, inner).squeeze(-1) + T.sqrt(self.cov_diag) * own

    def _log_det(self) -> Any:
        return 2 * T.log(T.diagonal(self._tril, dim1=-2, dim2=-1)).sum(-1) + T.log(self.cov_diag).sum(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        away = value - self.loc
        batch = tuple(away.shape[:-1])
        inner = T.matmul(self._scaled.mT, away.unsqueeze(-1))
        tril = self._tril.expand(*batch, *self._tril.shape[-2:])
        white = linalg.solve_triangular(tril, inner, upper=False).squeeze(-1)
        distance = (away**2 / self.cov_diag).sum(-1) - (white**2).sum(-1)
        return -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + self._log_det() + distance)

    def entropy(self) -> Tensor:
        return 0.5 * (self._event_shape[0] * (1 + math.log(2 * math.pi)) + self._log_det())
