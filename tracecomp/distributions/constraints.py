"""Sets of valid parameters and values of distributions, under the names of ``torch.distributions.constraints``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tracecomp import linalg
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T

__all__ = [
    "Constraint", "MixtureSameFamilyConstraint", "boolean", "cat", "corr_cholesky", "dependent", "dependent_property",
    "greater_than", "greater_than_eq", "half_open_interval", "independent", "integer_interval", "interval",
    "is_dependent", "less_than", "lower_cholesky", "lower_triangular", "multinomial", "nonnegative",
    "nonnegative_integer", "one_hot", "positive", "positive_definite", "positive_integer", "positive_semidefinite",
    "real", "real_vector", "simplex", "square", "stack", "symmetric", "unit_interval",
]  # fmt: skip


class Constraint:
    """A set; ``check(x)`` returns for every event of ``event_dim`` dimensions whether it is inside."""

    is_discrete = False
    event_dim = 0

    def check(self, value: Tensor) -> Tensor:
        """Return for every event of ``value`` whether it is in the set."""
        raise NotImplementedError

    def _bounds(self) -> dict[str, Any]:
        """The bounds shown in the text."""
        return {}

    def __repr__(self) -> str:
        bounds = ", ".join(f"{name}={value}" for name, value in self._bounds().items())
        return f"{type(self).__name__.lstrip('_')}({bounds})"


class _Dependent(Constraint):
    """A set that depends on other values, so that nothing can be checked without them."""

    def __init__(self, *, is_discrete: bool | None = None, event_dim: int | None = None) -> None:
        self._is_discrete, self._event_dim = is_discrete, event_dim

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]
        if self._is_discrete is None:
            raise NotImplementedError(".is_discrete cannot be determined statically")
        return self._is_discrete

    @property
    def event_dim(self) -> int:  # type: ignore[override]
        if self._event_dim is None:
            raise NotImplementedError(".event_dim cannot be determined statically")
        return self._event_dim

    def __call__(self, *, is_discrete: bool | None = None, event_dim: int | None = None) -> _Dependent:
        """Return the same constraint with more properties."""
        return _Dependent(
            is_discrete=self._is_discrete if is_discrete is None else is_discrete,
            event_dim=self._event_dim if event_dim is None else event_dim,
        )

    def check(self, value: Tensor) -> Tensor:
        raise ValueError("Cannot determine validity of dependent constraint")


class _DependentProperty(property, _Dependent):
    """A property that returns a constraint; accessed on the class, it is a dependent constraint."""

    def __init__(
        self, fn: Callable[[Any], Any] | None = None, *, is_discrete: bool | None = None, event_dim: int | None = None
    ) -> None:
        property.__init__(self, fn)
        _Dependent.__init__(self, is_discrete=is_discrete, event_dim=event_dim)

    def __call__(self, fn: Callable[..., Any] | None = None, **known: Any) -> Any:
        return _DependentProperty(fn, is_discrete=self._is_discrete, event_dim=self._event_dim)


class _Boolean(Constraint):
    is_discrete = True

    def check(self, value: Tensor) -> Tensor:
        return (value == 0) | (value == 1)


class _OneHot(Constraint):
    is_discrete = True
    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        return ((value == 0) | (value == 1)).all(-1) & (value.sum(-1) == 1)


def _whole(x: Tensor) -> Tensor:
    return x % 1 == 0


class _IntegerInterval(Constraint):
    is_discrete = True

    def __init__(self, lower_bound: Tensor | float, upper_bound: Tensor | float) -> None:
        self.lower_bound, self.upper_bound = lower_bound, upper_bound

    def check(self, value: Tensor) -> Tensor:
        return _whole(value) & (value >= self.lower_bound) & (value <= self.upper_bound)

    def _bounds(self) -> dict[str, Any]:
        return {"lower_bound": self.lower_bound, "upper_bound": self.upper_bound}


class _IntegerGreaterThan(Constraint):
    is_discrete = True

    def __init__(self, lower_bound: Tensor | float) -> None:
        self.lower_bound = lower_bound

    def check(self, value: Tensor) -> Tensor:
        return _whole(value) & (value >= self.lower_bound)

    def _bounds(self) -> dict[str, Any]:
        return {"lower_bound": self.lower_bound}


class _Real(Constraint):
    def check(self, value: Tensor) -> Tensor:
        return value == value  # false for NaN alone


class _GreaterThan(Constraint):
    def __init__(self, lower_bound: Tensor | float) -> None:
        self.lower_bound = lower_bound

    def check(self, value: Tensor) -> Tensor:
        return value > self.lower_bound

    def _bounds(self) -> dict[str, Any]:
        return {"lower_bound": self.lower_bound}


class _GreaterThanEq(_GreaterThan):
    def check(self, value: Tensor) -> Tensor:
        return value >= self.lower_bound


class _LessThan(Constraint):
    def __init__(self, upper_bound: Tensor | float) -> None:
        self.upper_bound = upper_bound

    def check(self, value: Tensor) -> Tensor:
        return value < self.upper_bound

    def _bounds(self) -> dict[str, Any]:
        return {"upper_bound": self.upper_bound}


class _Interval(Constraint):
    def __init__(self, lower_bound: Tensor | float, upper_bound: Tensor | float) -> None:
        self.lower_bound, self.upper_bound = lower_bound, upper_bound

    def check(self, value: Tensor) -> Tensor:
        return (value >= self.lower_bound) & (value <= self.upper_bound)

    def _bounds(self) -> dict[str, Any]:
        return {"lower_bound": self.lower_bound, "upper_bound": self.upper_bound}


class _HalfOpenInterval(_Interval):
    def check(self, value: Tensor) -> Tensor:
        return (value >= self.lower_bound) & (value < self.upper_bound)


class _Simplex(Constraint):
    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        return (value >= 0).all(-1) & ((value.sum(-1) - 1).abs() < 1e-6)


class _Multinomial(Constraint):
    is_discrete = True
    event_dim = 1

    def __init__(self, upper_bound: Tensor | float) -> None:
        self.upper_bound = upper_bound

    def check(self, value: Tensor) -> Tensor:
        return (value >= 0).all(-1) & (value.sum(-1) <= self.upper_bound)


class _LowerTriangular(Constraint):
    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        return (value.tril() == value).flatten(-2).all(-1)


class _LowerCholesky(_LowerTriangular):
    def check(self, value: Tensor) -> Tensor:
        return super().check(value) & (value.diagonal(dim1=-2, dim2=-1) > 0).all(-1)


class _CorrCholesky(_LowerCholesky):
    def check(self, value: Tensor) -> Tensor:
        tolerance = T.finfo(value.dtype).eps * value.size(-1) * 10
        rows = (value * value).sum(-1).sqrt()
        return super().check(value) & ((rows - 1).abs() <= tolerance).all(-1)


class _Square(Constraint):
    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        return T.full(value.shape[:-2], value.shape[-2] == value.shape[-1], dtype=T.tensor(True).dtype)


class _Symmetric(_Square):
    def check(self, value: Tensor) -> Tensor:
        return super().check(value) & T.isclose(value, value.mT, atol=1e-6).flatten(-2).all(-1)


class _PositiveSemidefinite(_Symmetric):
    def check(self, value: Tensor) -> Tensor:
        return super().check(value) & (linalg.eigvalsh(value) >= 0).all(-1)


class _PositiveDefinite(_Symmetric):
    def check(self, value: Tensor) -> Tensor:
        return super().check(value) & (linalg.cholesky_ex(value).info == 0)


class _IndependentConstraint(Constraint):
    """``base_constraint`` for all elements of the last ``reinterpreted_batch_ndims`` dimensions."""

    def __init__(self, base_constraint: Constraint, reinterpreted_batch_ndims: int) -> None:
        self.base_constraint, self.reinterpreted_batch_ndims = base_constraint, reinterpreted_batch_ndims

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]
        return self.base_constraint.is_discrete

    @property
    def event_dim(self) -> int:  # type: ignore[override]
        return self.base_constraint.event_dim + self.reinterpreted_batch_ndims

    def check(self, value: Tensor) -> Tensor:
        found = self.base_constraint.check(value)
        if found.ndim < self.reinterpreted_batch_ndims:
            raise ValueError(
                f"Expected value.dim() >= {self.base_constraint.event_dim + self.reinterpreted_batch_ndims} but got "
                f"{value.dim()}"
            )
        count = self.reinterpreted_batch_ndims
        return found.flatten(-count).all(-1) if count else found

    def __repr__(self) -> str:
        return f"IndependentConstraint({self.base_constraint!r}, {self.reinterpreted_batch_ndims})"


class MixtureSameFamilyConstraint(Constraint):
    """Constraint of a mixture's values: that of its components, checked without their dimension."""

    def __init__(self, base_constraint: Constraint) -> None:
        self.base_constraint = base_constraint

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]
        return self.base_constraint.is_discrete

    @property
    def event_dim(self) -> int:  # type: ignore[override]
        return self.base_constraint.event_dim

    def check(self, value: Tensor) -> Tensor:
        place = value.ndim - self.event_dim
        return self.base_constraint.check(value.unsqueeze(place)).all(-1)


class _Joined(Constraint):
    """Several constraints for parts of a dimension."""

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0) -> None:
        self.cseq, self.dim = list(cseq), dim

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]
        return any(c.is_discrete for c in self.cseq)

    @property
    def event_dim(self) -> int:  # type: ignore[override]
        return max(c.event_dim for c in self.cseq)


class _Cat(_Joined):
    """Constraints for pieces of the given ``lengths`` along a dimension."""

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0, lengths: Sequence[int] | None = None) -> None:
        super().__init__(cseq, dim)
        self.lengths = [1] * len(self.cseq) if lengths is None else list(lengths)

    def check(self, value: Tensor) -> Tensor:
        pieces = value.split(self.lengths, self.dim)
        return T.cat([c.check(v) for c, v in zip(self.cseq, pieces, strict=True)], self.dim)


class _Stack(_Joined):
    """One constraint for each index along a dimension."""

    @property
    def event_dim(self) -> int:  # type: ignore[override]
        inner = super().event_dim
        return inner + 1 if self.dim + inner < 0 else inner  # a stacked dimension inside the event is part of it

    def check(self, value: Tensor) -> Tensor:
        parts = [value.select(self.dim, i) for i in range(value.size(self.dim))]
        return T.stack([c.check(v) for c, v in zip(self.cseq, parts, strict=True)], self.dim)


def is_dependent(constraint: object) -> bool:
    """Whether ``constraint`` depends on other values."""
    return isinstance(constraint, _Dependent)


dependent = _Dependent()
dependent_property = _DependentProperty
independent = _IndependentConstraint
boolean = _Boolean()
one_hot = _OneHot()
nonnegative_integer = _IntegerGreaterThan(0)
positive_integer = _IntegerGreaterThan(1)
integer_interval = _IntegerInterval
real = _Real()
real_vector = independent(real, 1)
positive = _GreaterThan(0.0)
nonnegative = _GreaterThanEq(0.0)
greater_than, greater_than_eq, less_than = _GreaterThan, _GreaterThanEq, _LessThan
unit_interval = _Interval(0.0, 1.0)
interval, half_open_interval = _Interval, _HalfOpenInterval
multinomial = _Multinomial
simplex = _Simplex()
lower_triangular = _LowerTriangular()
lower_cholesky = _LowerCholesky()
corr_cholesky = _CorrCholesky()
square = _Square()
symmetric = _Symmetric()
positive_semidefinite = _PositiveSemidefinite()
positive_definite = _PositiveDefinite()
cat, stack = _Cat, _Stack
