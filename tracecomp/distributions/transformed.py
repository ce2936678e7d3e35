"""Distributions of transformed values, and events of several dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from tracecomp import linalg
from tracecomp.distributions import constraints
from tracecomp.distributions.constraints import Constraint
from tracecomp.distributions.continuous import Normal
from tracecomp.distributions.discrete import Categorical
from tracecomp.distributions.distribution import Distribution
from tracecomp.distributions.transforms import ComposeTransform, ExpTransform, Transform
from tracecomp.distributions.utils import lazy_property, sum_rightmost
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T


class TransformedDistribution(Distribution):
    """The distribution of values of ``base_distribution`` after ``transforms`` in sequence."""

    def __init__(
        self, base_distribution: Distribution, transforms: Transform | Sequence[Transform],
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        listed = [transforms] if isinstance(transforms, Transform) else transforms
        if not isinstance(listed, list | tuple) or not all(isinstance(t, Transform) for t in listed):
            raise ValueError(f"transforms must be a Transform or a list of Transforms, got {transforms!r}")
        self.transforms = list(listed)
        whole = ComposeTransform(self.transforms)
        batch, event = base_distribution.batch_shape, base_distribution.event_shape
        shape, dims = tuple(whole.forward_shape(batch + event)), whole.codomain.event_dim
        taken = whole.domain.event_dim - len(event)  # batch dimensions that the transforms add to the event
        dims += max(len(event) - whole.domain.event_dim, 0)
        self.base_dist = Independent(base_distribution, taken) if taken > 0 else base_distribution
        split = len(shape) - dims
        super().__init__(shape[:split], shape[split:], validate_args)

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        return self.base_dist.has_rsample

    @property
    def support(self) -> Constraint:
        last = self.transforms[-1].codomain if self.transforms else self.base_dist.support
        more = len(self._event_shape) - last.event_dim
        return constraints.independent(last, more) if more > 0 else last

    def _through_transforms(self, x: Tensor) -> Tensor:
        for transform in self.transforms:
            x = transform(x)
        return x

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self._through_transforms(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self._through_transforms(self.base_dist.rsample(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        total: Any = 0.0
        y: Any = value
        dims = len(self._event_shape)
        for transform in reversed(self.transforms):
            x = transform.inv(y)
            dims += transform.domain.event_dim - transform.codomain.event_dim
            slope = transform.log_abs_det_jacobian(x, y)
            total = total - sum_rightmost(slope, dims - transform.domain.event_dim)
            y = x
        return sum_rightmost(self.base_dist.log_prob(y), dims - len(self.base_dist.event_shape)) + total

    def icdf(self, value: Tensor) -> Tensor:
        sign: Any = 1
        for transform in self.transforms:
            sign = sign * transform.sign
        return self._through_transforms(self.base_dist.icdf((value - 0.5) * sign + 0.5))

    def cdf(self, value: Tensor) -> Tensor:
        sign: Any = 1
        for transform in reversed(self.transforms):
            value = transform.inv(value)
            sign = sign * transform.sign
        below: Any = self.base_dist.cdf(value)
        return sign * (below - 0.5) + 0.5


class LogNormal(TransformedDistribution):
    """The exponential of a normal number."""

    arg_constraints: ClassVar[dict[str, Constraint]] = {"loc": constraints.real, "scale": constraints.positive}

    def __init__(self, loc: Tensor | float, scale: Tensor | float, validate_args: bool | None = None) -> None:
        super().__init__(Normal(loc, scale, validate_args), ExpTransform(), validate_args)

    @property
    def loc(self) -> Any:
        return self.base_dist.loc  # type: ignore[attr-defined]

    @property
    def scale(self) -> Any:
        return self.base_dist.scale  # type: ignore[attr-defined]

    @property
    def mean(self) -> Tensor:
        return T.exp(self.loc + self.scale**2 / 2)

    @property
    def mode(self) -> Tensor:
        return T.exp(self.loc - self.scale**2)

    @property
    def variance(self) -> Tensor:
        s2 = self.scale**2
        return T.expm1(s2) * T.exp(2 * self.loc + s2)

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() + self.loc


class Independent(Distribution):
    """The last ``reinterpreted_batch_ndims`` batch dimensions of a distribution as part of the event."""

    def __init__(
        self, base_distribution: Distribution, reinterpreted_batch_ndims: int, validate_args: bool | None = None
    ) -> None:
        n, batch = reinterpreted_batch_ndims, tuple(base_distribution.batch_shape)
        if n > len(batch):
            raise ValueError(
                f"Expected reinterpreted_batch_ndims <= len(base_distribution.batch_shape), actual {n} vs {len(batch)}"
            )
        self.base_dist = base_distribution
        self.reinterpreted_batch_ndims = n
        split = len(batch) - n
        super().__init__(batch[:split], batch[split:] + tuple(base_distribution.event_shape), validate_args)

    def __repr__(self) -> str:
        return f"Independent({self.base_dist}, {self.reinterpreted_batch_ndims})"

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        return self.base_dist.has_rsample

    @property
    def support(self) -> Constraint:
        return constraints.independent(self.base_dist.support, self.reinterpreted_batch_ndims)

    @property
    def mean(self) -> Tensor:
        return self.base_dist.mean

    @property
    def mode(self) -> Tensor:
        return self.base_dist.mode

    @property
    def variance(self) -> Tensor:
        return self.base_dist.variance

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.base_dist.rsample(sample_shape)

    def expand(self, batch_shape: Sequence[int], _instance: Distribution | None = None) -> Distribution:
        new: Any = object.__new__(type(self)) if _instance is None else _instance
        inner = tuple(self._event_shape[: self.reinterpreted_batch_ndims])
        new.base_dist = self.base_dist.expand(tuple(batch_shape) + inner)
        return super().expand(batch_shape, new)

    def _summed(self, x: Tensor) -> Tensor:
        n = self.reinterpreted_batch_ndims
        return x.flatten(-n).sum(-1) if n else x

    def log_prob(self, value: Tensor) -> Tensor:
        return self._summed(self.base_dist.log_prob(value))

    def entropy(self) -> Tensor:
        return self._summed(self.base_dist.entropy())


class MultivariateNormal(Distribution):
    """Normal vectors with mean ``loc`` and a covariance, its inverse or its Cholesky factor."""

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "loc": constraints.real_vector, "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite, "scale_tril": constraints.lower_cholesky,
    }  # fmt: skip
    has_rsample = True

    def __init__(
        self, loc: Tensor, covariance_matrix: Any = None, precision_matrix: Any = None, scale_tril: Any = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        given = {"covariance_matrix": covariance_matrix, "precision_matrix": precision_matrix, "scale_tril": scale_tril}
        found = [(name, m) for name, m in given.items() if m is not None]
        if len(found) != 1:
            raise ValueError("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
        if loc.ndim < 1:
            raise ValueError("loc must be at least one-dimensional.")
        name, matrix = found[0]
        if matrix.ndim < 2:
            raise ValueError(f"{name} must be at least two-dimensional, with optional leading batch dimensions")
        batch = T.broadcast_shapes(tuple(matrix.shape[:-2]), tuple(loc.shape[:-1]))
        n = loc.shape[-1]
        self.loc: Any = loc.expand(*batch, n)
        setattr(self, name, matrix.expand(*batch, n, n))
        super().__init__(batch, (n,), validate_args)
        # Factored before it is expanded: the same matrix need not be factored again for every mean.
        if name == "precision_matrix":
            matrix = linalg.inv(matrix)
        self._unbroadcasted_scale_tril: Any = matrix if name == "scale_tril" else linalg.cholesky(matrix)

    def _expanded(self, matrix: Any) -> Any:
        return matrix.expand(*self._batch_shape, *self._event_shape, *self._event_shape)

    @lazy_property
    def scale_tril(self) -> Any:
        return self._expanded(self._unbroadcasted_scale_tril)

    @lazy_property
    def covariance_matrix(self) -> Any:
        return self._expanded(self._unbroadcasted_scale_tril @ self._unbroadcasted_scale_tril.mT)

    @lazy_property
    def precision_matrix(self) -> Any:
        return self._expanded(T.cholesky_inverse(self._unbroadcasted_scale_tril))

    def expand(self, batch_shape: Sequence[int], _instance: Distribution | None = None) -> Distribution:
        new: Any = object.__new__(type(self)) if _instance is None else _instance
        new._unbroadcasted_scale_tril = self._unbroadcasted_scale_tril
        return super().expand(batch_shape, new)

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
        found: Tensor = (self._unbroadcasted_scale_tril**2).sum(-1).expand(*self._batch_shape, *self._event_shape)
        return found

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        z = T.randn(self._extended_shape(sample_shape), dtype=self.loc.dtype)
        return self.loc + T.matmul(self._unbroadcasted_scale_tril, z.unsqueeze(-1)).squeeze(-1)

    def _half_log_det(self) -> Any:
        return T.log(T.diagonal(self._unbroadcasted_scale_tril, dim1=-2, dim2=-1)).sum(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        away = (value - self.loc).unsqueeze(-1)
        batch = tuple(away.shape[:-2])
        tril = self._unbroadcasted_scale_tril
        tril = tril.expand(*batch, *tril.shape[-2:])
        white = linalg.solve_triangular(tril, away, upper=False).squeeze(-1)
        n = self._event_shape[0]
        return -0.5 * (n * math.log(2 * math.pi) + (white**2).sum(-1)) - self._half_log_det()

    def entropy(self) -> Tensor:
        n = self._event_shape[0]
        found = 0.5 * n * (1 + math.log(2 * math.pi)) + self._half_log_det()
        return found.expand(self._batch_shape)


class MixtureSameFamily(Distribution):
    """A mixture of the distributions along the last batch dimension of ``component_distribution``."""

    def __init__(
        self, mixture_distribution: Categorical, component_distribution: Distribution, validate_args: bool | None = None
    ) -> None:
        for value, kind in ((mixture_distribution, Categorical), (component_distribution, Distribution)):
            if not isinstance(value, kind):
                raise ValueError(f"MixtureSameFamily: expected a {kind.__name__}, got {type(value).__name__}")
        self._mixture, self._component = mixture_distribution, component_distribution
        weights, parts = int(mixture_distribution.param_shape[-1]), tuple(component_distribution.batch_shape)
        if not parts or weights != parts[-1]:
            raise ValueError(
                f"`mixture_distribution component` ({weights}) does not equal `component_distribution.batch_shape[-1]` "
                f"({parts[-1] if parts else None})"
            )
        batch, event = tuple(component_distribution.batch_shape[:-1]), component_distribution.event_shape
        super().__init__(batch, event, validate_args)

    def __repr__(self) -> str:
        return f"MixtureSameFamily(\n  {self._mixture},\n  {self._component})"

    @property
    def support(self) -> Constraint:
        return self._component.support

    def _weights(self) -> Any:
        return self._mixture.probs.reshape(*self._mixture.probs.shape, *(1,) * len(self._event_shape))

    @property
    def _axis(self) -> int:
        return -1 - len(self._event_shape)

    @property
    def mean(self) -> Tensor:
        return (self._weights() * self._component.mean).sum(self._axis)

    @property
    def variance(self) -> Tensor:
        away = self._component.mean - self.mean.unsqueeze(self._axis)
        return (self._weights() * (self._component.variance + away**2)).sum(self._axis)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        index = self._mixture.sample(sample_shape)
        values: Any = self._component.sample(sample_shape)
        event = tuple(self._event_shape)
        index = index.reshape(*index.shape, *(1,) * (1 + len(event))).expand(*index.shape, 1, *event)
        return values.gather(self._axis, index).squeeze(self._axis)

    def log_prob(self, value: Any) -> Tensor:
        log_prob = self._component.log_prob(value.unsqueeze(self._axis))
        return T.logsumexp(log_prob + T.log_softmax(self._mixture.logits, -1), -1)

    def cdf(self, value: Any) -> Tensor:
        return (self._component.cdf(value.unsqueeze(-1)) * self._mixture.probs).sum(-1)
