"""The base of all distributions: shapes, validation, sampling without and with gradients."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import getattr_static
from typing import Any, ClassVar

from tracecomp.autograd import grad
from tracecomp.base import switches
from tracecomp.base.errors import type_name
from tracecomp.distributions.constraints import Constraint, is_dependent
from tracecomp.eager.modes import modes, no_grad
from tracecomp.eager.size import Size
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.ir.types import DType


def one_hot(index: Tensor, classes: int, dtype: DType) -> Tensor:
    """1 at ``index`` along a new last dimension, else 0."""
    return (index.unsqueeze(-1) == T.arange(classes)).to(dtype)


_defaults = switches.register({"validate_args": True})


class _Default:
    """The setting of the process, for distributions without an explicit ``validate_args``."""

    def __get__(self, owner: object, kind: type | None = None) -> bool:
        return bool(_defaults["validate_args"])


class Distribution:
    """``batch_shape`` independent distributions over events of ``event_shape``.

    ``arg_constraints`` has the sets of valid parameters. They are checked in eager calls and in the recorded call, not
    in compiled ones (ValueError).
    """

    has_rsample = False
    has_enumerate_support = False
    arg_constraints: ClassVar[dict[str, Constraint]] = {}
    _validate_args: bool | _Default = _Default()

    def __init__(
        self, batch_shape: Sequence[int] = (), event_shape: Sequence[int] = (), validate_args: bool | None = None
    ) -> None:
        self._batch_shape = Size(tuple(batch_shape))
        self._event_shape = Size(tuple(event_shape))
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            for name, constraint in self.arg_constraints.items():
                given = name in self.__dict__ or isinstance(getattr_static(type(self), name, None), property)
                if given and not is_dependent(constraint):
                    self._check_parameter(name, constraint)

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        _defaults["validate_args"] = value

    def _check_parameter(self, name: str, constraint: Constraint) -> None:
        value = getattr(self, name)
        if not _holds(constraint, value):
            raise ValueError(
                f"Expected parameter {name} (Tensor of shape {tuple(value.shape)}) of distribution {self!r} to satisfy "
                f"the constraint {constraint!r}, but found invalid values:\n{value}"
            )

    @property
    def batch_shape(self) -> Size:
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        return self._event_shape

    @property
    def support(self) -> Constraint:
        """The set of possible values."""
        raise NotImplementedError

    @property
    def mean(self) -> Tensor:
        raise NotImplementedError

    @property
    def mode(self) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} does not implement mode")

    @property
    def variance(self) -> Tensor:
        raise NotImplementedError

    @property
    def stddev(self) -> Tensor:
        return T.sqrt(self.variance)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draw values of shape sample + batch + event, without gradient."""
        with no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draw values that are differentiable functions of the parameters."""
        raise NotImplementedError

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the logarithm of the density or probability at ``value``."""
        raise NotImplementedError

    def cdf(self, value: Tensor) -> Tensor:
        raise NotImplementedError

    def icdf(self, value: Tensor) -> Tensor:
        raise NotImplementedError

    def entropy(self) -> Tensor:
        raise NotImplementedError

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """Return all values of a discrete distribution, along a new first dimension."""
        raise NotImplementedError

    def perplexity(self) -> Tensor:
        return T.exp(self.entropy())

    def expand(self, batch_shape: Sequence[int], _instance: Distribution | None = None) -> Distribution:
        """Return the same distributions with every parameter expanded to ``batch_shape``.

        A subclass that creates the new object itself passes it as ``_instance``; its attributes are kept.
        """
        new: Distribution = object.__new__(type(self)) if _instance is None else _instance
        old = len(self._batch_shape)
        for name, value in self.__dict__.items():
            if name in new.__dict__:
                continue
            if isinstance(value, Tensor):
                setattr(new, name, value.expand(tuple(batch_shape) + tuple(value.shape[old:])))
            elif isinstance(value, Distribution):
                setattr(new, name, value.expand(tuple(batch_shape) + tuple(value.batch_shape[old:])))
            else:
                new.__dict__[name] = value
        new._batch_shape = Size(tuple(batch_shape))
        return new

    def _get_checked_instance(self, cls: type, _instance: Distribution | None = None) -> Any:
        """Return the object that ``expand`` of ``cls`` fills: ``_instance``, or a new one without parameters.

        NotImplementedError if a subclass overrides ``__init__``, which would not run.
        """
        if _instance is None and type(self).__init__ is not cls.__init__:  # type: ignore[misc]
            raise NotImplementedError(
                f"Subclass {type(self).__name__} of {cls.__name__} that defines a custom __init__ method must also "
                f"define a custom .expand() method."
            )
        return object.__new__(type(self)) if _instance is None else _instance

    def _extended_shape(self, sample_shape: Sequence[int] = ()) -> tuple[int, ...]:
        return (*tuple(sample_shape), *self._batch_shape, *self._event_shape)

    def _validate_sample(self, value: Tensor) -> None:
        if not self._validate_args:
            return
        if not isinstance(value, Tensor):
            raise ValueError(f"The value argument to log_prob must be a Tensor, not {type_name(value)}")
        whole = self._extended_shape()
        if any(1 not in (m, n) and m != n for m, n in zip(value.shape[::-1], whole[::-1], strict=False)):
            raise ValueError(
                f"Value is not broadcastable with batch_shape+event_shape: {value.shape} vs {Size(whole)}."
            )
        if not _holds(self.support, value):
            raise ValueError(
                f"Expected value argument (Tensor of shape {tuple(value.shape)}) to be within the support "
                f"({self.support!r}) of the distribution {self!r}, but found invalid values:\n{value}"
            )

    def __repr__(self) -> str:
        shown = []
        for name in self.arg_constraints:
            value = self.__dict__.get(name)
            if value is not None:
                shown.append(f"{name}: {value if value.numel() == 1 else value.size()}")
        return f"{type(self).__name__}({', '.join(shown)})"


class ExponentialFamily(Distribution):
    """Distributions whose logarithm is linear in ``_natural_params``, up to ``_log_normalizer`` of these.

    Subclasses that define both get the entropy from a derivative of the latter.
    """

    _mean_carrier_measure = 0.0

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        raise NotImplementedError

    def _log_normalizer(self, *natural_params: Any) -> Any:
        raise NotImplementedError

    def entropy(self) -> Tensor:
        params = [p.detach().requires_grad_() for p in self._natural_params]
        normalizer = self._log_normalizer(*params)
        slopes = grad(normalizer.sum(), params, create_graph=True)
        found: Any = -self._mean_carrier_measure + normalizer
        for p, slope in zip(params, slopes, strict=True):
            found = found - (p * slope).reshape((*self._batch_shape, -1)).sum(-1)
        return found


def _holds(constraint: Constraint, value: Tensor) -> bool:
    """Whether all of ``value`` is in the set; evaluated outside any recording."""
    recorder, modes.recorder = modes.recorder, None
    try:
        with no_grad():
            return bool(constraint.check(value.detach()).all())
    finally:
        modes.recorder = recorder
