"""Invertible maps of single numbers, whose derivatives are known."""

from __future__ import annotations

import math
from typing import Any

from tracecomp.distributions import constraints
from tracecomp.distributions.constraints import Constraint
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.functional.elementwise.pointwise import magnitude


class Transform:
    """An invertible map of single numbers with a known derivative: subclasses give ``_call`` and ``_inverse``.

    With ``cache_size=1`` the inverse of the last result is the very tensor that it was made of, which rounding (a
    ``tanh`` that is 1) cannot spoil. ValueError for other sizes than 0 and 1.
    """

    domain: Constraint = constraints.real
    codomain: Constraint = constraints.real
    sign = 1

    def __init__(self, cache_size: int = 0) -> None:
        if cache_size not in (0, 1):
            raise ValueError("cache_size must be 0 or 1")
        self._cache_size = cache_size
        self._last: tuple[Any, Any] = (None, None)

    def __call__(self, x: Any) -> Any:
        if x is self._last[0]:
            return self._last[1]
        return self._kept(x, self._call(x))[1]

    def inv(self, y: Any) -> Any:
        """The x that is mapped to ``y``."""
        if y is self._last[1]:
            return self._last[0]
        return self._kept(self._inverse(y), y)[0]

    def _kept(self, x: Any, y: Any) -> tuple[Any, Any]:
        if self._cache_size:
            self._last = x, y
        return x, y

    def _call(self, x: Any) -> Any:
        raise NotImplementedError

    def _inverse(self, y: Any) -> Any:
        raise NotImplementedError

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """``log |dy/dx|``."""
        raise NotImplementedError


class ExpTransform(Transform):
    """``y = exp(x)``."""

    codomain = constraints.positive

    def _call(self, x: Any) -> Any:
        return T.exp(x)

    def _inverse(self, y: Any) -> Any:
        return T.log(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return x


class AffineTransform(Transform):
    """``y = loc + scale * x``."""

    def __init__(self, loc: Any, scale: Any, *, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.loc, self.scale = loc, scale

    @property
    def sign(self) -> Any:  # type: ignore[override]
        return T.sign(self.scale) if isinstance(self.scale, Tensor) else math.copysign(1, self.scale)

    def _call(self, x: Any) -> Any:
        return self.loc + self.scale * x

    def _inverse(self, y: Any) -> Any:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        if isinstance(self.scale, Tensor):
            return T.log(T.abs(self.scale)).expand(x.shape)
        return T.full_like(x, math.log(abs(self.scale)))


class SigmoidTransform(Transform):
    """``y = 1 / (1 + exp(-x))``."""

    codomain = constraints.unit_interval

    def _call(self, x: Any) -> Any:
        return T.sigmoid(x)

    def _inverse(self, y: Any) -> Any:
        return T.log(y) - T.log1p(-y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        size = magnitude(x)
        return -T.log1p(T.exp(-size)) * 2 - size


class TanhTransform(Transform):
    """``y = tanh(x)``."""

    codomain = constraints.interval(-1.0, 1.0)

    def _call(self, x: Any) -> Any:
        return T.tanh(x)

    def _inverse(self, y: Any) -> Any:
        return T.atanh(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        size = magnitude(x)
        return 2 * (math.log(2) - size - T.log1p(T.exp(-2 * size)))


class PowerTransform(Transform):
    """``y = x ** exponent`` of positive x."""

    domain = codomain = constraints.positive

    def __init__(self, exponent: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.exponent = exponent

    def _call(self, x: Any) -> Any:
        return x**self.exponent

    def _inverse(self, y: Any) -> Any:
        return y ** (1 / self.exponent)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return T.log(T.abs(self.exponent * y / x))
