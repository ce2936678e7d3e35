"""Transforms of vectors and matrices, and compositions of transforms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tracecomp.distributions import constraints
from tracecomp.distributions.constraints import Constraint
from tracecomp.distributions.distribution import Distribution
from tracecomp.distributions.transforms import Transform
from tracecomp.distributions.utils import sum_rightmost, tril_matrix_to_vec, vec_to_tril_matrix
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T

__all__ = [
    "CatTransform", "CorrCholeskyTransform", "CumulativeDistributionTransform", "IndependentTransform",
    "LowerCholeskyTransform", "PositiveDefiniteTransform", "ReshapeTransform", "SoftmaxTransform", "StackTransform",
    "StickBreakingTransform",
]  # fmt: skip


class _Alike(Transform):
    """A transform without settings: all its objects are equal."""

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self)

    def __hash__(self) -> int:
        return hash(type(self))


class IndependentTransform(Transform):
    """``base_transform``, with more batch dimensions as part of the event."""

    def __init__(self, base_transform: Transform, reinterpreted_batch_ndims: int, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.base_transform = base_transform.with_cache(cache_size) if cache_size else base_transform
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    def with_cache(self, cache_size: int = 1) -> Transform:
        same = self._cache_size == cache_size
        return self if same else IndependentTransform(self.base_transform, self.reinterpreted_batch_ndims, cache_size)

    @property
    def domain(self) -> Constraint:  # type: ignore[override]
        return constraints.independent(self.base_transform.domain, self.reinterpreted_batch_ndims)

    @property
    def codomain(self) -> Constraint:  # type: ignore[override]
        return constraints.independent(self.base_transform.codomain, self.reinterpreted_batch_ndims)

    @property
    def bijective(self) -> bool:  # type: ignore[override]
        return self.base_transform.bijective

    @property
    def sign(self) -> Any:
        return self.base_transform.sign

    def _call(self, x: Tensor) -> Any:
        return self.base_transform(x)

    def _inverse(self, y: Tensor) -> Any:
        return self.base_transform.inv(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        slope = self.base_transform.log_abs_det_jacobian(x, y)
        return sum_rightmost(slope, self.reinterpreted_batch_ndims)

    def forward_shape(self, shape: Sequence[int]) -> Any:
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape: Sequence[int]) -> Any:
        return self.base_transform.inverse_shape(shape)

    def __repr__(self) -> str:
        return f"IndependentTransform({self.base_transform!r}, {self.reinterpreted_batch_ndims})"


class ReshapeTransform(Transform):
    """Events of ``in_shape`` as events of ``out_shape``; ValueError if the numbers of elements differ."""

    bijective = True

    def __init__(self, in_shape: Sequence[int], out_shape: Sequence[int], cache_size: int = 0) -> None:
        self.in_shape, self.out_shape = T.empty(*in_shape).shape, T.empty(*out_shape).shape
        if self.in_shape.numel() != self.out_shape.numel():
            raise ValueError("in_shape, out_shape have different numbers of elements")
        super().__init__(cache_size)

    @property
    def domain(self) -> Constraint:  # type: ignore[override]
        return constraints.independent(constraints.real, len(self.in_shape))

    @property
    def codomain(self) -> Constraint:  # type: ignore[override]
        return constraints.independent(constraints.real, len(self.out_shape))

    def with_cache(self, cache_size: int = 1) -> Transform:
        return self if self._cache_size == cache_size else ReshapeTransform(self.in_shape, self.out_shape, cache_size)

    def _call(self, x: Tensor) -> Any:
        return x.reshape(x.shape[: x.dim() - len(self.in_shape)] + self.out_shape)

    def _inverse(self, y: Tensor) -> Any:
        return y.reshape(y.shape[: y.dim() - len(self.out_shape)] + self.in_shape)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return x.new_zeros(x.shape[: x.dim() - len(self.in_shape)])

    def forward_shape(self, shape: Any) -> Any:
        return shape[: len(shape) - len(self.in_shape)] + self.out_shape

    def inverse_shape(self, shape: Any) -> Any:
        return shape[: len(shape) - len(self.out_shape)] + self.in_shape


class CumulativeDistributionTransform(Transform):
    """``y = distribution.cdf(x)``."""

    bijective = True
    codomain = constraints.unit_interval

    def __init__(self, distribution: Distribution, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.distribution = distribution

    @property
    def domain(self) -> Constraint:  # type: ignore[override]
        found: Constraint = self.distribution.support
        return found

    @property
    def sign(self) -> Any:
        return 1

    def with_cache(self, cache_size: int = 1) -> Transform:
        same = self._cache_size == cache_size
        return self if same else CumulativeDistributionTransform(self.distribution, cache_size)

    def _call(self, x: Any) -> Any:
        return self.distribution.cdf(x)

    def _inverse(self, y: Any) -> Any:
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return self.distribution.log_prob(x)


class SoftmaxTransform(_Alike):
    """Vectors to the simplex by ``exp`` and normalization; not bijective, the inverse is the logarithm."""

    domain = constraints.real_vector
    codomain = constraints.simplex

    def _call(self, x: Tensor) -> Any:
        return T.softmax(x, -1)

    def _inverse(self, y: Tensor) -> Any:
        return y.log()


class StickBreakingTransform(_Alike):
    """Vectors to the simplex with one more element: each takes a share of the rest.

    Source: https://mc-stan.org/docs/reference-manual/transforms.html#simplex-transform.section
    """

    domain = constraints.real_vector
    codomain = constraints.simplex
    bijective = True

    @staticmethod
    def _offset(count: int, like: Tensor) -> Any:
        """Logarithms of the number of remaining elements, so that zeros give equal shares."""
        return T.arange(count, 0, -1, dtype=like.dtype).log()

    def _call(self, x: Tensor) -> Any:
        share = T.sigmoid(x - self._offset(x.shape[-1], x))
        left = (1 - share).cumprod(-1)
        one = T.ones_like(x[..., :1])
        return T.cat([share, one], -1) * T.cat([one, left], -1)

    def _inverse(self, y: Tensor) -> Any:
        head = y[..., :-1]
        left = (1 - head.cumsum(-1)).clamp(min=T.finfo(y.dtype).tiny)
        return head.log() - left.log() + self._offset(head.shape[-1], y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        shifted = x - self._offset(x.shape[-1], x)
        log_share = -T.where(-shifted > 20, -shifted, T.log1p(T.exp((-shifted).clamp(max=20))))
        return (log_share - shifted + y[..., :-1].log()).sum(-1)

    def forward_shape(self, shape: Sequence[int]) -> Any:
        return (*shape[:-1], shape[-1] + 1)

    def inverse_shape(self, shape: Sequence[int]) -> Any:
        return (*shape[:-1], shape[-1] - 1)


class LowerCholeskyTransform(_Alike):
    """Matrices to lower triangular ones with positive diagonal: the exponential of the diagonal."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.lower_cholesky

    def _call(self, x: Tensor) -> Any:
        return x.tril(-1) + x.diagonal(dim1=-2, dim2=-1).exp().diag_embed()

    def _inverse(self, y: Tensor) -> Any:
        return y.tril(-1) + y.diagonal(dim1=-2, dim2=-1).log().diag_embed()


class PositiveDefiniteTransform(_Alike):
    """Matrices to positive-definite ones: the product of their ``LowerCholeskyTransform`` with its transpose."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.positive_definite

    def _call(self, x: Tensor) -> Any:
        lower = LowerCholeskyTransform()(x)
        return lower @ lower.mT

    def _inverse(self, y: Tensor) -> Any:
        return LowerCholeskyTransform().inv(T.cholesky(y))


class CorrCholeskyTransform(_Alike):
    """Vectors to Cholesky factors of correlation matrices: rows of norm 1, filled by shares of the rest.

    Source: https://mc-stan.org/docs/reference-manual/transforms.html#cholesky-factors-of-correlation-matrices
    """

    domain = constraints.real_vector
    codomain = constraints.corr_cholesky
    bijective = True

    def _call(self, x: Tensor) -> Any:
        tiny = T.finfo(x.dtype).eps
        r = vec_to_tril_matrix(T.tanh(x).clamp(-1 + tiny, 1 - tiny), diag=-1)
        left = (1 - r * r).sqrt().cumprod(-1)
        r = r + T.eye(r.shape[-1], dtype=x.dtype)
        return r * T.cat([T.ones_like(left[..., :1]), left[..., :-1]], -1)

    def _inverse(self, y: Tensor) -> Any:
        left = 1 - (y * y).cumsum(-1)
        shifted = T.cat([T.ones_like(left[..., :1]), left[..., :-1]], -1)
        share = tril_matrix_to_vec(y, diag=-1) / tril_matrix_to_vec(shifted, diag=-1).sqrt()
        return (share.log1p() - (-share).log1p()) / 2

    def log_abs_det_jacobian(self, x: Any, y: Tensor) -> Any:
        left = 1 - (y * y).cumsum(-1)
        of_rows = 0.5 * tril_matrix_to_vec(left, diag=-2).log().sum(-1)
        size = x.abs()
        return of_rows - 2 * (size + T.log1p(T.exp(-2 * size)) - math.log(2)).sum(-1)

    def forward_shape(self, shape: Sequence[int]) -> Any:
        count = shape[-1]
        size = round((0.25 + 2 * count) ** 0.5 + 0.5)
        if size * (size - 1) // 2 != count:
            raise ValueError("Input is not a flattened lower-diagonal number")
        return (*shape[:-1], size, size)

    def inverse_shape(self, shape: Sequence[int]) -> Any:
        return (*shape[:-2], shape[-1] * (shape[-1] - 1) // 2)


class _Joined(Transform):
    """Several maps for parts of a dimension."""

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.transforms = [t.with_cache(cache_size) for t in tseq] if cache_size else list(tseq)
        self.dim = dim

    @property
    def bijective(self) -> bool:  # type: ignore[override]
        return all(t.bijective for t in self.transforms)

    def _parts(self, x: Tensor) -> Sequence[Any]:
        raise NotImplementedError

    @staticmethod
    def _joined(parts: Sequence[object], dim: int) -> Any:
        raise NotImplementedError

    def _call(self, x: Tensor) -> Any:
        return self._joined([t(v) for t, v in zip(self.transforms, self._parts(x), strict=True)], self.dim)

    def _inverse(self, y: Tensor) -> Any:
        return self._joined([t.inv(v) for t, v in zip(self.transforms, self._parts(y), strict=True)], self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Any:
        parts = zip(self.transforms, self._parts(x), self._parts(y), strict=True)
        return self._joined([t.log_abs_det_jacobian(a, b) for t, a, b in parts], self.dim)


class CatTransform(_Joined):
    """Maps for pieces of the given ``lengths`` along a dimension."""

    def __init__(
        self, tseq: Sequence[Transform], dim: int = 0, lengths: Sequence[int] | None = None, cache_size: int = 0
    ) -> None:
        super().__init__(tseq, dim, cache_size)
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)

    @property
    def length(self) -> int:
        return sum(self.lengths)

    @property
    def event_dim(self) -> int:
        return max(t.event_dim for t in self.transforms)

    @property
    def domain(self) -> Constraint:  # type: ignore[override]
        return constraints.cat([t.domain for t in self.transforms], self.dim, self.lengths)

    @property
    def codomain(self) -> Constraint:  # type: ignore[override]
        return constraints.cat([t.codomain for t in self.transforms], self.dim, self.lengths)

    def _parts(self, x: Tensor) -> Sequence[Any]:
        parts: Sequence[Any] = x.split(self.lengths, self.dim)
        return parts

    @staticmethod
    def _joined(parts: Sequence[Any], dim: int) -> Any:
        return T.cat(parts, dim)


class StackTransform(_Joined):
    """One map for each index along a dimension."""

    @property
    def domain(self) -> Constraint:  # type: ignore[override]
        return constraints.stack([t.domain for t in self.transforms], self.dim)

    @property
    def codomain(self) -> Constraint:  # type: ignore[override]
        return constraints.stack([t.codomain for t in self.transforms], self.dim)

    def _parts(self, x: Tensor) -> Sequence[Any]:
        return [x.select(self.dim, i) for i in range(x.size(self.dim))]

    @staticmethod
    def _joined(parts: Sequence[Any], dim: int) -> Any:
        return T.stack(parts, dim)
