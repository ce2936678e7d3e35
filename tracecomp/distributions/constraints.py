"""Sets that parameters and values of distributions lie in, under the names of ``torch.distributions.constraints``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracecomp import linalg
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T


class Constraint:
    """A set; ``check(x)`` tells for every event whether it lies inside. ``bounds`` are shown in its text."""

    def __init__(
        self, name: str, check: Callable[[Tensor], Tensor], discrete: bool = False, event_dim: int = 0,
        bounds: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        self._bounds = bounds
        self._name = name
        self._check = check
        self.is_discrete = discrete
        self.event_dim = event_dim

    def check(self, value: Tensor) -> Tensor:
        return self._check(value)

    def __repr__(self) -> str:
        if not self._bounds:
            return self._name
        return f"{self._name}({', '.join(f'{name}={value}' for name, value in self._bounds.items())})"


class _Independent(Constraint):
    """``base`` for all elements of the last ``dims`` dimensions."""

    def __init__(self, base: Constraint, dims: int) -> None:
        super().__init__("IndependentConstraint", base.check, base.is_discrete, base.event_dim + dims)
        self.base, self.dims = base, dims

    def check(self, value: Tensor) -> Tensor:
        return self.base.check(value).flatten(-self.dims).all(-1)

    def __repr__(self) -> str:
        return f"IndependentConstraint({self.base}, {self.dims})"


def _whole(x: Tensor) -> Tensor:
    return x % 1 == 0


def _everything(x: Tensor) -> Tensor:
    return T.logical_not(T.isnan(x))


def greater_than(lower_bound: float) -> Constraint:
    return Constraint("GreaterThan", lambda x: x > lower_bound, bounds={"lower_bound": lower_bound})


def greater_than_eq(lower_bound: float) -> Constraint:
    return Constraint("GreaterThanEq", lambda x: x >= lower_bound, bounds={"lower_bound": lower_bound})


def interval(lower_bound: Tensor | float, upper_bound: Tensor | float) -> Constraint:
    bounds = {"lower_bound": lower_bound, "upper_bound": upper_bound}
    return Constraint("Interval", lambda x: (x >= lower_bound) & (x <= upper_bound), bounds=bounds)


def integer_interval(lower_bound: Tensor | int, upper_bound: Tensor | int) -> Constraint:
    bounds = {"lower_bound": lower_bound, "upper_bound": upper_bound}
    return Constraint(
        "IntegerInterval", lambda x: _whole(x) & (x >= lower_bound) & (x <= upper_bound), discrete=True, bounds=bounds
    )


def independent(base: Constraint, dims: int) -> Constraint:
    """``base`` for all elements of the last ``dims`` dimensions."""
    return _Independent(base, dims) if dims else base


def _in_simplex(x: Tensor) -> Tensor:
    return (x >= 0).all(-1) & ((x.sum(-1) - 1).abs() < 1e-6)


def _is_one_hot(x: Tensor) -> Tensor:
    return ((x == 0) | (x == 1)).all(-1) & (x.sum(-1) == 1)


def _is_lower_cholesky(x: Tensor) -> Tensor:
    lower = (T.tril(x) == x).flatten(-2).all(-1)
    return lower & (T.diagonal(x, dim1=-2, dim2=-1) > 0).all(-1)


def _is_positive_definite(x: Tensor) -> Tensor:
    symmetric = T.isclose(x, x.mT, atol=1e-6).flatten(-2).all(-1)
    return symmetric & (linalg.eigvalsh(x) > 0).all(-1)


real = Constraint("Real()", _everything)
positive = greater_than(0.0)
nonnegative = greater_than_eq(0.0)
unit_interval = interval(0.0, 1.0)
boolean = Constraint("Boolean()", lambda x: (x == 0) | (x == 1), discrete=True)
nonnegative_integer = Constraint("IntegerGreaterThan(lower_bound=0)", lambda x: _whole(x) & (x >= 0), discrete=True)
real_vector = independent(real, 1)
simplex = Constraint("Simplex()", _in_simplex, event_dim=1)
one_hot = Constraint("OneHot()", _is_one_hot, discrete=True, event_dim=1)
lower_cholesky = Constraint("LowerCholesky()", _is_lower_cholesky, event_dim=2)
positive_definite = Constraint("PositiveDefinite()", _is_positive_definite, event_dim=2)
