"""Tensors filled with random numbers in place: ``uniform_``, ``normal_``, ``exponential_`` and the like."""

from __future__ import annotations

import functools
import math
from typing import Any

from tracecomp.eager.device import use
from tracecomp.eager.meta import place_of_call, placed
from tracecomp.eager.modes import no_grad
from tracecomp.eager.rng import Generator
from tracecomp.eager.tensor import Tensor, assign_
from tracecomp.functional.plain_arguments import need_tensor
from tracecomp.functional.primitives import prim
from tracecomp.functional.promotion import cast
from tracecomp.functional.publish import often_drawn, publish
from tracecomp.functional.sampling import below, gaussian, integers, need_float, of_dtype, uniform
from tracecomp.ir.types import float64


def _publish_inplace(name: str, draw: Any, doc: str, floats: bool = True) -> None:
    """Publish ``x.name_(...)``, which overwrites ``x`` with random numbers of ``draw(x, ...)``."""

    @functools.wraps(draw)
    def run(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        need_tensor(f"{name}_", input)
        if floats and not (name in ("uniform", "normal") and input.dtype.is_complex):
            need_float(input.dtype, f"{name}_cpu")
        with no_grad(), placed(place_of_call(name, False, (input,), {}) if use.begun else None):
            drawn = cast(draw(input, *args, **kwargs), input.dtype)
        assign_(input, drawn)
        return input

    @functools.wraps(draw)
    def fresh(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return run(prim.cast(input.detach(), dtype=input.dtype), *args, **kwargs)

    run.__name__, run.__doc__ = f"{name}_", doc
    fresh.__name__, fresh.__doc__ = name, doc
    run.__qualname__, fresh.__qualname__ = run.__name__, name
    publish(often_drawn(run, draw), f"Tensor.{name}_")
    if name not in ("normal", "bernoulli", "random"):
        publish(fresh, f"Tensor.{name}")


def _uniform(
    x: Tensor, from_: float = 0.0, to: float = 1.0, *, generator: Generator | None = None, **named: float
) -> Tensor:
    low = named.get("from", from_)
    if low > to:
        raise RuntimeError(f"uniform_ expects to return a [from, to) range, but found from={low} > to={to}")
    if x.dtype.is_complex:  # both parts, each from the same range
        pair = uniform((*x.shape, 2), x.dtype.to_real(), generator)
        return prim.view_as_complex(prim.add(prim.mul(pair, to - low), low))
    return prim.add(prim.mul(uniform(tuple(x.shape), x.dtype, generator), to - low), low)


def _normal(x: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    if std < 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")
    drawn = of_dtype(gaussian, tuple(x.shape), x.dtype, "normal_cpu", generator)
    return prim.add(prim.mul(drawn, float(std)), float(mean))


def _open_log(x: Tensor, generator: Generator | None) -> Tensor:
    """log(1 - u) for uniform u."""
    return prim.log1p(prim.neg(uniform(tuple(x.shape), x.dtype, generator)))


def _exponential(x: Tensor, lambd: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    if lambd <= 0:
        raise RuntimeError(f"exponential_ expects lambda > 0.0, but found lambda={lambd}")
    return prim.div(prim.neg(_open_log(x, generator)), float(lambd))


def _cauchy(x: Tensor, median: float = 0.0, sigma: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    if sigma <= 0:
        raise RuntimeError(f"cauchy_ expects sigma > 0.0, but found sigma={sigma}")
    turn = prim.mul(prim.sub(uniform(tuple(x.shape), x.dtype, generator), 0.5), math.pi)
    return prim.add(prim.mul(prim.tan(turn), float(sigma)), float(median))


def _log_normal(x: Tensor, mean: float = 1.0, std: float = 2.0, *, generator: Generator | None = None) -> Tensor:
    if std <= 0:
        raise RuntimeError(f"log_normal_ expects std > 0.0, but found std={std}")
    return prim.exp(_normal(x, mean, std, generator=generator))


def _geometric(x: Tensor, p: float, *, generator: Generator | None = None) -> Tensor:
    if not 0 < p < 1:
        raise RuntimeError(f"geometric_ expects p to be in (0, 1), but got p={p}")
    noise = prim.log1p(prim.neg(uniform(tuple(x.shape), float64, generator)))
    return prim.maximum(prim.ceil(prim.div(noise, math.log1p(-p))), 1.0)


def _bernoulli(x: Tensor, p: float | Tensor = 0.5, *, generator: Generator | None = None) -> Tensor:
    return below(tuple(x.shape), p, x.dtype, generator)


def _random(
    x: Tensor, from_: int | None = None, to: int | None = None, *, generator: Generator | None = None, **named: int
) -> Tensor:
    low = named.get("from", from_)
    if to is None and low is not None:
        low, to = 0, low
    if to is None:
        bits = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53, "bool": 1}.get(x.dtype.name)
        to = 1 << (x.dtype.itemsize * 8 - x.dtype.signed if bits is None else bits)
        to = to if to < 1 << 63 else (1 << 63) - 1
    return integers(tuple(x.shape), low or 0, to, generator)


_publish_inplace("uniform", _uniform, "Uniform numbers of [from, to).")
_publish_inplace("normal", _normal, "Normal numbers.")
_publish_inplace("exponential", _exponential, "Exponential numbers of rate ``lambd``.")
_publish_inplace("cauchy", _cauchy, "Cauchy numbers.")
_publish_inplace("log_normal", _log_normal, "Numbers whose logarithm is normal.")
_publish_inplace("geometric", _geometric, "How many trials a first success takes.", floats=False)
_publish_inplace("bernoulli", _bernoulli, "1 with probability ``p``, else 0.", floats=False)
_publish_inplace("random", _random, "Uniform integers of [from, to), by default all the dtype holds.", floats=False)
