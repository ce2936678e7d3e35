"""Distributions of counts and classes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from tracecomp.distributions import constraints
from tracecomp.distributions.constraints import Constraint
from tracecomp.distributions.distribution import Distribution, one_hot
from tracecomp.distributions.utils import broadcast_all
from tracecomp.eager.modes import no_grad
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.functional.elementwise.conversion import finfo
from tracecomp.functional.elementwise.pointwise import magnitude
from tracecomp.ir.types import int64


def clamp_probs(probs: Tensor) -> Any:
    """Clamp probabilities away from 0 and 1 by the precision of the dtype."""
    eps = finfo(probs.dtype).eps
    return probs.clamp(eps, 1 - eps)


def softplus(x: Tensor) -> Any:
    return x.clamp_min(0) + T.log1p(T.exp(-magnitude(x)))


def _one_of(name: str, probs: object, logits: object) -> None:
    if (probs is None) == (logits is None):
        raise ValueError(f"{name}: Either `probs` or `logits` must be specified, but not both.")


class Binary(Distribution):
    """A probability of success, or its log odds."""

    arg_constraints: ClassVar[dict[str, Constraint]] = {"probs": constraints.unit_interval, "logits": constraints.real}
    probs: Any
    logits: Any

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        _one_of(type(self).__name__, probs, logits)
        name, (given,) = ("probs", broadcast_all(probs)) if logits is None else ("logits", broadcast_all(logits))
        setattr(self, name, given)
        super().__init__(given.shape, validate_args=validate_args)

    def __getattr__(self, name: str) -> Any:
        given = self.__dict__
        if name == "probs" and "logits" in given:
            return T.sigmoid(given["logits"])
        if name == "logits" and "probs" in given:
            p = clamp_probs(given["probs"])
            return T.log(p) - T.log1p(-p)
        raise AttributeError(name)


class Bernoulli(Binary):
    """1 with probability ``probs``, else 0."""

    has_enumerate_support = True

    @property
    def support(self) -> Constraint:
        return constraints.boolean

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        mode = (self.probs >= 0.5).to(self.probs.dtype)
        return T.where(self.probs == 0.5, math.nan, mode)

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with no_grad():
            return (T.rand(shape, dtype=self.probs.dtype) < self.probs).to(self.probs.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        logits, value = T.broadcast_tensors(self.logits, value)
        return value * logits - softplus(logits)

    def entropy(self) -> Tensor:
        logits = self.logits
        return softplus(logits) - self.probs * logits

    def enumerate_support(self, expand: bool = True) -> Tensor:
        values = T.arange(2, dtype=self.probs.dtype).view(-1, *(1,) * len(self._batch_shape))
        return values.expand(2, *self._batch_shape) if expand else values


class Geometric(Binary):
    """Failures before the first success."""

    @property
    def support(self) -> Constraint:
        return constraints.nonnegative_integer

    @property
    def mean(self) -> Tensor:
        return 1 / self.probs - 1

    @property
    def mode(self) -> Tensor:
        return T.zeros_like(self.probs)

    @property
    def variance(self) -> Tensor:
        return (1 / self.probs - 1) / self.probs

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with no_grad():
            u = T.rand(self._extended_shape(sample_shape), dtype=self.probs.dtype)
            return (T.log1p(-u) / T.log1p(-self.probs)).floor()

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        probs = T.where((self.probs == 1) & (value == 0), 0, self.probs)
        return value * T.log1p(-probs) + T.log(self.probs)

    def entropy(self) -> Tensor:
        p, logits = self.probs, self.logits
        return (softplus(logits) - p * logits) / p


class Binomial(Binary):
    """Successes among ``total_count`` trials."""

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "total_count": constraints.nonnegative_integer, **Binary.arg_constraints,
    }  # fmt: skip
    has_enumerate_support = True

    def __init__(
        self,
        total_count: Tensor | int = 1,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        super().__init__(probs, logits, validate_args)
        given = self.probs
        count = total_count.to(given.dtype) if isinstance(total_count, Tensor) else T.full_like(given, total_count)
        self._most = int(total_count.max()) if isinstance(total_count, Tensor) else int(total_count)
        self.total_count: Any
        self.total_count, given = T.broadcast_tensors(count, given)
        setattr(
            self, "probs" if logits is None else "logits", given if logits is None else self.logits.expand_as(given)
        )
        self._batch_shape = given.shape
        if self._validate_args:
            self._check_parameter("total_count", constraints.nonnegative_integer)

    @property
    def support(self) -> Constraint:
        return constraints.integer_interval(0, self.total_count)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.probs

    @property
    def mode(self) -> Tensor:
        return T.minimum(((self.total_count + 1) * self.probs).floor(), self.total_count)

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = (self._most, *self._extended_shape(sample_shape))
        with no_grad():
            successes = T.rand(shape, dtype=self.probs.dtype) < self.probs
            trials = T.arange(self._most).reshape(-1, *(1,) * (len(shape) - 1)) < self.total_count
            return (successes & trials).sum(0).to(self.probs.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        n, logits = self.total_count, self.logits
        ways = T.lgamma(n + 1) - T.lgamma(value + 1) - T.lgamma(n - value + 1)
        return ways + value * logits - n * softplus(logits)

    def entropy(self) -> Tensor:
        log_prob = self.log_prob(self.enumerate_support())
        return -(T.exp(log_prob) * log_prob).sum(0)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        count = 1 + self._most
        if not bool((self.total_count == self._most).all()):
            raise NotImplementedError("Inhomogeneous total count not supported by `enumerate_support`.")
        values = T.arange(count, dtype=self.probs.dtype).view(-1, *(1,) * len(self._batch_shape))
        return values.expand(count, *self._batch_shape) if expand else values


class Poisson(Distribution):
    """Counts of events at ``rate``."""

    arg_constraints: ClassVar[dict[str, Constraint]] = {"rate": constraints.nonnegative}
    rate: Any

    def __init__(self, rate: Tensor | float, validate_args: bool | None = None) -> None:
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.shape, validate_args=validate_args)

    @property
    def support(self) -> Constraint:
        return constraints.nonnegative_integer

    @property
    def mean(self) -> Tensor:
        return self.rate

    @property
    def mode(self) -> Tensor:
        return self.rate.floor()

    @property
    def variance(self) -> Tensor:
        return self.rate

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with no_grad():
            return T.poisson(self.rate.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return T.xlogy(value, self.rate) - self.rate - T.lgamma(value + 1)


class Categorical(Distribution):
    """A class number, with weights ``probs`` (normalised here) or unnormalised log weights ``logits``."""

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "probs": constraints.simplex, "logits": constraints.real_vector,
    }  # fmt: skip
    has_enumerate_support = True
    probs: Any
    logits: Any

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        _one_of(type(self).__name__, probs, logits)
        given = probs if logits is None else logits
        if given.ndim < 1:
            raise ValueError(f"`{'probs' if logits is None else 'logits'}` parameter must be at least one-dimensional.")
        if logits is None:
            self.probs = probs / probs.sum(-1, keepdim=True)
        else:
            self.logits = logits - logits.logsumexp(-1, keepdim=True)
        self._num_events = given.shape[-1]
        super().__init__(given.shape[:-1], validate_args=validate_args)

    def __getattr__(self, name: str) -> Any:
        given = self.__dict__
        if name == "probs" and "logits" in given:
            return T.softmax(given["logits"], -1)
        if name == "logits" and "probs" in given:
            return T.log(clamp_probs(given["probs"]))
        raise AttributeError(name)

    @property
    def param_shape(self) -> Any:
        return (self.probs if "probs" in self.__dict__ else self.logits).shape

    @property
    def support(self) -> Constraint:
        return constraints.integer_interval(0, self._num_events - 1)

    @property
    def mean(self) -> Tensor:
        return T.full(tuple(self._batch_shape), math.nan, dtype=self.probs.dtype)

    @property
    def mode(self) -> Tensor:
        return self.probs.argmax(-1)

    @property
    def variance(self) -> Tensor:
        return self.mean

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with no_grad():
            probs = self.probs.reshape(-1, self._num_events)
            count = math.prod(sample_shape)
            drawn = T.multinomial(probs, count, True).T if count else T.zeros((0, probs.shape[0]), dtype=int64)
            return drawn.reshape(self._extended_shape(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        index = value.long().unsqueeze(-1)
        shape = T.broadcast_shapes(tuple(index.shape[:-1]), tuple(self._batch_shape))
        logits = self.logits.expand(*shape, self._num_events)
        return logits.gather(-1, index.expand(*shape, 1)).squeeze(-1)

    def entropy(self) -> Tensor:
        logits = self.logits.clamp_min(finfo(self.logits.dtype).min)
        return -(logits * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        values = T.arange(self._num_events).view(-1, *(1,) * len(self._batch_shape))
        return values.expand(-1, *self._batch_shape) if expand else values


class OfCategorical(Distribution):
    """A distribution of draws of a :class:`Categorical`, with its parameters."""

    arg_constraints: ClassVar[dict[str, Constraint]] = Categorical.arg_constraints
    _categorical: Categorical

    @property
    def probs(self) -> Any:
        return self._categorical.probs

    @property
    def logits(self) -> Any:
        return self._categorical.logits

    @property
    def param_shape(self) -> Any:
        return self._categorical.param_shape


class OneHotCategorical(OfCategorical):
    """A class as a vector with a single 1."""

    has_enumerate_support = True

    def __init__(
        self, probs: Tensor | None = None, logits: Tensor | None = None, validate_args: bool | None = None
    ) -> None:
        self._categorical = Categorical(probs, logits, validate_args)
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args)

    @property
    def support(self) -> Constraint:
        return constraints.one_hot

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        return one_hot(self.probs.argmax(-1), self._event_shape[0], self.probs.dtype)

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return one_hot(self._categorical.sample(sample_shape), self._event_shape[0], self.probs.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return self._categorical.log_prob(value.argmax(-1))

    def entropy(self) -> Tensor:
        return self._categorical.entropy()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        n = self._event_shape[0]
        values = T.eye(n, dtype=self.probs.dtype).view(n, *(1,) * len(self._batch_shape), n)
        return values.expand(n, *self._batch_shape, n) if expand else values


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """One-hot values whose gradient is that of the probabilities (Bengio et al. 2013)."""

    has_rsample = True

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.sample(sample_shape) + (self.probs - self.probs.detach())
