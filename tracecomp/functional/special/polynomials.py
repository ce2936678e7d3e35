"""Orthogonal polynomials by their three-term recurrences, the degree given per element."""

from __future__ import annotations

import math
from collections.abc import Callable

from tracecomp.eager.tensor import Tensor, create
from tracecomp.functional.elementwise.arithmetic import two
from tracecomp.functional.primitives import prim
from tracecomp.functional.promotion import Operand, common_float
from tracecomp.functional.publish import function

Start = Callable[[Tensor], Tensor]
Step = Callable[[int, Tensor, Tensor, Tensor], Tensor]
_MOST = 1 << 20
"""The highest degree: each takes a step over all elements."""


def _scale(x: Tensor, factor: float, shift: float = 0.0) -> Tensor:
    scaled = prim.mul(x, factor) if factor != 1.0 else x
    return prim.add(scaled, shift) if shift else scaled


def _doubling(k: int, x: Tensor, now: Tensor, before: Tensor) -> Tensor:
    return prim.sub(prim.mul(prim.mul(x, 2.0), now), before)


def _hermite(k: int, x: Tensor, now: Tensor, before: Tensor) -> Tensor:
    return prim.sub(prim.mul(prim.mul(x, 2.0), now), prim.mul(before, 2.0 * k))


def _probabilists(k: int, x: Tensor, now: Tensor, before: Tensor) -> Tensor:
    return prim.sub(prim.mul(x, now), prim.mul(before, float(k)))


def _laguerre(k: int, x: Tensor, now: Tensor, before: Tensor) -> Tensor:
    up = prim.mul(prim.sub(2.0 * k + 1.0, x), now)
    return prim.div(prim.sub(up, prim.mul(before, float(k))), k + 1.0)


def _legendre(k: int, x: Tensor, now: Tensor, before: Tensor) -> Tensor:
    up = prim.mul(prim.mul(x, 2.0 * k + 1.0), now)
    return prim.div(prim.sub(up, prim.mul(before, float(k))), k + 1.0)


_FAMILIES: dict[str, tuple[Start, Step]] = {
    "chebyshev_polynomial_t": (lambda x: x, _doubling),
    "chebyshev_polynomial_u": (lambda x: _scale(x, 2.0), _doubling),
    "chebyshev_polynomial_v": (lambda x: _scale(x, 2.0, -1.0), _doubling),
    "chebyshev_polynomial_w": (lambda x: _scale(x, 2.0, 1.0), _doubling),
    "hermite_polynomial_h": (lambda x: _scale(x, 2.0), _hermite),
    "hermite_polynomial_he": (lambda x: x, _probabilists),
    "laguerre_polynomial_l": (lambda x: prim.sub(1.0, x), _laguerre),
    "legendre_polynomial_p": (lambda x: x, _legendre),
}


def _publish(name: str, first: Start, step: Step, shifted: bool) -> None:
    def run(input: Operand, n: Operand) -> Tensor:
        x, degree = common_float(*two(name, input, n))
        if not isinstance(x, Tensor):
            x = create("full", value=x, shape=(), dtype=degree.dtype)
        if not isinstance(degree, Tensor):
            degree = create("full", value=degree, shape=(), dtype=x.dtype)
        # PyTorch converts NaN and infinity to a negative integer.
        degree = prim.where(prim.lt(prim.abs(degree), math.inf), prim.trunc(degree), -1.0)
        x = _scale(x, 2.0, -1.0) if shifted else x
        top = int(degree.max()) if degree.numel() else 0
        if top > _MOST:
            raise RuntimeError(f"{name}(): degrees up to {_MOST} are supported, but got {top}")
        before, now = prim.add(prim.mul(x, 0.0), 1.0), first(x)
        result = prim.where(prim.lt(degree, 0.0), 0.0, before)
        for k in range(1, top + 1):
            result = prim.where(prim.eq(degree, float(k)), now, result)
            before, now = now, step(k, x, now, before)
        return result

    run.__name__ = name
    run.__doc__ = f"{name.replace('_', ' ').capitalize()} of degree ``n`` at ``input``; 0 for negative degrees."
    function(to="special", composite=True)(run)


for _name, (_first, _step) in _FAMILIES.items():
    _publish(_name, _first, _step, False)
    if _name.startswith("chebyshev"):
        _publish(f"shifted_{_name}", _first, _step, True)
