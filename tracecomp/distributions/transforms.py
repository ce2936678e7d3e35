"""Invertible transforms with known derivatives: of single numbers here, of vectors and matrices in ``mappings``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

from tracecomp.distributions import constraints
from tracecomp.distributions.constraints import Constraint
from tracecomp.distributions.utils import sum_rightmost
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.functional.elementwise.pointwise import magnitude

__all__ = [
    "AbsTransform", "AffineTransform", "ComposeTransform", "ExpTransform", "PowerTransform", "SigmoidTransform",
    "SoftplusTransform", "TanhTransform", "Transform", "identity_transform",
]  # fmt: skip


class Transform:
    """A transform with a known derivative: subclasses define ``_call`` and ``_inverse``.

    ``domain`` and ``codomain`` are the sets; ``bijective`` is whether every value has one origin; ``sign`` is that of
    the derivative, for transforms of single numbers. With ``cache_size=1`` the inverse of the last result is the
    original tensor, unaffected by rounding (a ``tanh`` that is 1). ValueError for sizes other than 0 and 1.
    """

    domain: Constraint = constraints.real
    codomain: Constraint = constraints.real
    bijective = False

    def __init__(self, cache_size: int = 0) -> None:
        if cache_size not in (0, 1):
            raise ValueError("cache_size must be 0 or 1")
        self._cache_size = cache_size
        self._cached: tuple[Any, Any] = (None, None)

    @property
    def event_dim(self) -> int:
        """The dimensions of an event, if domain and codomain have the same number."""
        if self.domain.event_dim == self.codomain.event_dim:
            return self.domain.event_dim
        raise ValueError("Please use either .domain.event_dim or .codomain.event_dim")

    @property
    def inv(self) -> Transform:
        """Return the inverse transform."""
        return _InverseTransform(self)

    @property
    def sign(self) -> Any:
        raise NotImplementedError

    def with_cache(self, cache_size: int = 1) -> Transform:
        """Return the same transform with another cache size."""
        if self._cache_size == cache_size:
            return self
        if type(self).__init__ is Transform.__init__:
            return type(self)(cache_size=cache_size)
        raise NotImplementedError(f"{type(self)}.with_cache is not implemented")

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __call__(self, x: Tensor) -> Any:
        if not self._cache_size:
            return self._call(x)
        if x is self._cached[0]:
            return self._cached[1]
        return self._kept(x, self._call(x))[1]

    def _inv_call(self, y: Tensor) -> Any:
        if not self._cache_size:
            return self._inverse(y)
        if y is self._cached[1]:
            return self._cached[0]
        return self._kept(self._inverse(y), y)[0]

    def _kept(self, x: Tensor, y: Tensor) -> tuple[Any, Any]:
        self._cached = x, y
        return x, y

    def _call(self, x: Tensor) -> Any:
        raise NotImplementedError

    def _inverse(self, y: Tensor) -> Any:
        raise NotImplementedError

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Any:
        """``log |det dy/dx|`` for every event."""
        raise NotImplementedError

    def forward_shape(self, shape: Sequence[int]) -> Any:
        """The shape of results for values of ``shape``."""
        return shape

    def inverse_shape(self, shape: Sequence[int]) -> Any:
        return shape

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_cached": (None, None)}


class _InverseTransform(Transform):
    """The inverse of ``transform``."""

    def __init__(self, transform: Transform) -> None:
        super().__init__(transform._cache_size)
        self._inv = transform

    @property
    def domain(self) -> Constraint:  # type: ignore[override]
        return self._inv.codomain

    @property
    def codomain(self) -> Constraint:  # type: ignore[override]
        return self._inv.domain

    @property
    def bijective(self) -> bool:  # type: ignore[override]
        return self._inv.bijective

    @property
    def sign(self) -> Any:
        return self._inv.sign

    @property
    def inv(self) -> Transform:
        return self._inv

    def with_cache(self, cache_size: int = 1) -> Transform:
        return self._inv.with_cache(cache_size).inv

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _InverseTransform) and self._inv == other._inv

    def __hash__(self) -> int:
        return hash(("inverse", self._inv))

    def __call__(self, x: Tensor) -> Any:
        return self._inv._inv_call(x)

    def _inv_call(self, y: Tensor) -> Any:
        return self._inv(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Any:
        return -self._inv.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape: Sequence[int]) -> Any:
        return self._inv.inverse_shape(shape)

    def inverse_shape(self, shape: Sequence[int]) -> Any:
        return self._inv.forward_shape(shape)

    def __repr__(self) -> str:
        return f"_InverseTransform({self._inv!r})"


class ComposeTransform(Transform):
    """``parts`` in sequence."""

    def __init__(self, parts: Sequence[Transform], cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.parts = [part.with_cache(cache_size) for part in parts] if cache_size else list(parts)

    def _wide(self, first: bool) -> Constraint:
        """The set at the beginning or the end, with the event dimensions that the parts need together."""
        if not self.parts:
            return constraints.real
        parts = self.parts[::-1] if first else self.parts
        end = parts[-1].domain if first else parts[-1].codomain
        dims = parts[0].codomain.event_dim if first else parts[0].domain.event_dim
        for part in parts:
            before, after = part.domain.event_dim, part.codomain.event_dim
            dims = max(dims + (before - after if first else after - before), before if first else after)
        return constraints.independent(end, dims - end.event_dim) if dims > end.event_dim else end

    @property
    def domain(self) -> Constraint:  # type: ignore[override]
        return self._wide(True)

    @property
    def codomain(self) -> Constraint:  # type: ignore[override]
        return self._wide(False)

    @property
    def bijective(self) -> bool:  # type: ignore[override]
        return all(part.bijective for part in self.parts)

    @property
    def sign(self) -> Any:
        sign: Any = 1
        for part in self.parts:
            sign = sign * part.sign
        return sign

    @property
    def inv(self) -> Transform:
        return ComposeTransform([part.inv for part in reversed(self.parts)])

    def with_cache(self, cache_size: int = 1) -> Transform:
        return self if self._cache_size == cache_size else ComposeTransform(self.parts, cache_size)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ComposeTransform) and self.parts == other.parts

    def __hash__(self) -> int:
        return hash(tuple(self.parts))

    def __call__(self, x: Tensor) -> Any:
        for part in self.parts:
            x = part(x)
        return x

    def _inv_call(self, y: Tensor) -> Any:
        for part in reversed(self.parts):
            y = part._inv_call(y)
        return y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Any:
        total: Any = T.zeros_like(x) if not self.parts else 0
        dims = self.domain.event_dim
        for i, part in enumerate(self.parts):
            after = y if i == len(self.parts) - 1 else part(x)
            slope = part.log_abs_det_jacobian(x, after)
            total = total + sum_rightmost(slope, dims - part.domain.event_dim)
            dims += part.codomain.event_dim - part.domain.event_dim
            x = after
        return total

    def forward_shape(self, shape: Sequence[int]) -> Any:
        for part in self.parts:
            shape = part.forward_shape(shape)
        return shape

    def inverse_shape(self, shape: Sequence[int]) -> Any:
        for part in reversed(self.parts):
            shape = part.inverse_shape(shape)
        return shape

    def __repr__(self) -> str:
        return "ComposeTransform(\n    " + ",\n    ".join(map(repr, self.parts)) + "\n)"


identity_transform = ComposeTransform([])


class _Plain(Transform):
    """An increasing bijection of numbers without settings."""

    bijective = True

    @property
    def sign(self) -> Any:
        return 1

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self)

    def __hash__(self) -> int:
        return hash(type(self))


class ExpTransform(_Plain):
    """``y = exp(x)``."""

    codomain = constraints.positive

    def _call(self, x: Tensor) -> Any:
        return T.exp(x)

    def _inverse(self, y: Tensor) -> Any:
        return T.log(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Any:
        return x


class SoftplusTransform(_Plain):
    """``y = log(1 + exp(x))``."""

    codomain = constraints.positive

    def _call(self, x: Tensor) -> Any:
        return T.where(x > 20, x, T.log1p(T.exp(x.clamp(max=20))))

    def _inverse(self, y: Tensor) -> Any:
        return T.log(-T.expm1(-y)) + y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Any:
        return -self._call(-x)


class SigmoidTransform(_Plain):
    """``y = 1 / (1 + exp(-x))``."""

    codomain = constraints.unit_interval

    def _call(self, x: Tensor) -> Any:
        return T.sigmoid(x)

    def _inverse(self, y: Tensor) -> Any:
        return T.log(y) - T.log1p(-y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Any:
        size = magnitude(x)
        return -T.log1p(T.exp(-size)) * 2 - size


class TanhTransform(_Plain):
    """``y = tanh(x)``."""

    codomain = constraints.interval(-1.0, 1.0)

    def _call(self, x: Tensor) -> Any:
        return T.tanh(x)

    def _inverse(self, y: Tensor) -> Any:
        return T.atanh(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Any:
        size = magnitude(x)
        return 2 * (math.log(2) - size - T.log1p(T.exp(-2 * size)))


class AbsTransform(Transform):
    """``y = |x|``, whose inverse is defined as ``y``."""

    codomain = constraints.positive

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AbsTransform)

    def __hash__(self) -> int:
        return hash(AbsTransform)

    def _call(self, x: Tensor) -> Any:
        return x.abs()

    def _inverse(self, y: Tensor) -> Any:
        return y


class AffineTransform(Transform):
    """``y = loc + scale * x``, for events of ``event_dim`` dimensions."""

    bijective = True

    def __init__(self, loc: Tensor | float, scale: Tensor | float, event_dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.loc, self.scale, self._event_dim = loc, scale, event_dim

    @property
    def event_dim(self) -> int:
        return self._event_dim

    @property
    def domain(self) -> Constraint:  # type: ignore[override]
        return constraints.independent(constraints.real, self._event_dim) if self._event_dim else constraints.real

    codomain = domain

    @property
    def sign(self) -> Any:
        return T.sign(self.scale) if isinstance(self.scale, Tensor) else int(math.copysign(1, self.scale))

    def with_cache(self, cache_size: int = 1) -> Transform:
        same = self._cache_size == cache_size
        return self if same else AffineTransform(self.loc, self.scale, self._event_dim, cache_size)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AffineTransform):
            return False
        pairs = ((self.loc, other.loc), (self.scale, other.scale))
        return all(bool((a == b).all()) if isinstance(a, Tensor) else bool(a == b) for a, b in pairs)

    __hash__ = Transform.__hash__

    def _call(self, x: Tensor) -> Any:
        return self.loc + self.scale * x

    def _inverse(self, y: Tensor) -> Any:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Any:
        if isinstance(self.scale, Tensor):
            slope = T.log(T.abs(self.scale)).expand(x.shape)
        else:
            slope = T.full_like(x, math.log(abs(self.scale)))
        return sum_rightmost(slope, self._event_dim)


class PowerTransform(Transform):
    """``y = x ** exponent`` of positive x."""

    domain = codomain = constraints.positive
    bijective = True

    def __init__(self, exponent: Tensor | float, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.exponent = exponent

    @property
    def sign(self) -> Any:
        return T.sign(self.exponent) if isinstance(self.exponent, Tensor) else int(math.copysign(1, self.exponent))

    def with_cache(self, cache_size: int = 1) -> Transform:
        return self if self._cache_size == cache_size else PowerTransform(self.exponent, cache_size)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PowerTransform) and bool(cast(Any, self.exponent) == other.exponent)

    __hash__ = Transform.__hash__

    def _call(self, x: Any) -> Any:
        return x**self.exponent

    def _inverse(self, y: Any) -> Any:
        return y ** (1 / self.exponent)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return T.log(T.abs(self.exponent * y / x))
