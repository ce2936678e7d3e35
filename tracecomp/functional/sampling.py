"""Random tensors, composed from ``random_bits`` so that compiled programs draw the eager numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, overload

import numpy as np

from tracecomp.eager import rng
from tracecomp.eager.device import Device, Layout, MemoryFormat
from tracecomp.eager.modes import modes
from tracecomp.eager.rng import Generator, Stream
from tracecomp.eager.tensor import Tensor, own, wrap
from tracecomp.functional.creation.creation import finish
from tracecomp.functional.default_dtype import default_dtype
from tracecomp.functional.dims import Shape, Sizes, as_index, new_shape
from tracecomp.functional.dtype_support import ALL, FLOATS
from tracecomp.functional.elementwise.arithmetic import add, mul
from tracecomp.functional.memory_formats import copied
from tracecomp.functional.primitives import prim
from tracecomp.functional.promotion import cast, not_implemented, with_zero_gradient
from tracecomp.functional.publish import function, often
from tracecomp.functional.shape.shaping import to_shape
from tracecomp.functional.value_checks import is_fraction, is_not_negative, required
from tracecomp.ir.arrays import at_line
from tracecomp.ir.types import DType, broadcast_shapes, float32, float64, int64, type_word

_BITS = {"float16": 11, "bfloat16": 8, "float32": 24}


Draw: TypeAlias = Callable[..., Tensor]
"""A function that computes numbers from a stream of bits, a shape, and further arguments."""


def _drawn_at(draw: Draw) -> Draw:
    """``draw`` as a function of a state, which it advances, so that machine code can serve it."""

    @often
    def at(state: Tensor, shape: Shape, *more: Any) -> Tensor:
        return draw(Stream(state), shape, *more)

    return at


def _drawn_from(generator: Generator | None, draw: Draw, shape: Shape, *more: Any) -> Tensor:
    """The numbers of ``draw`` from ``generator``, or the default one."""
    stream = rng.source(generator)
    if modes.recorder is not None or modes.place is not None:
        return draw(stream, shape, *more)
    if isinstance(stream, Generator):
        rng.refuse_trial_run()
    return _AT[draw](stream.state, shape, *more)


def uniform(shape: Shape, dtype: DType, generator: Generator | None = None) -> Tensor:
    """Numbers of [0, 1), with as many bits as the dtype's significand."""
    return _drawn_from(generator, _uniform_from, shape, dtype)


def _uniform_from(source: Stream, shape: Shape, dtype: DType) -> Tensor:
    if dtype is float64:
        high, low = (_low_bits(source, shape, n) for n in (26, 27))
        exact = prim.add(prim.mul(prim.cast(high, dtype=float64), 2.0**27), prim.cast(low, dtype=float64))
        return prim.mul(exact, 2.0**-53)
    bits = _BITS[dtype.name]
    return cast(prim.mul(prim.cast(_low_bits(source, shape, bits), dtype=float32), 2.0**-bits), dtype)


def kept(shape: Shape, p: float, drawn: DType, dtype: DType) -> Tensor:
    """Factors of ``dtype`` for dropout: 0 with probability ``p``, which numbers of type ``drawn`` decide, else
    ``1 / (1 - p)``."""
    return _drawn_from(None, _kept_from, shape, p, drawn, dtype)


def _kept_from(source: Stream, shape: Shape, p: float, drawn: DType, dtype: DType) -> Tensor:
    mask = cast(prim.ge(_uniform_from(source, shape, drawn), p), dtype)
    return mul(mask, 1.0 / (1.0 - p) if p < 1 else 0.0)


def _low_bits(source: Stream, shape: Shape, count: int) -> Tensor:
    return prim.bitwise_and(source.bits(shape), (1 << count) - 1)


def gaussian(shape: Shape, dtype: DType, generator: Generator | None = None) -> Tensor:
    """Standard normal numbers: the inverse of the distribution function at uniform points."""
    return _drawn_from(generator, _gaussian_from, shape, dtype)


def _gaussian_from(source: Stream, shape: Shape, dtype: DType) -> Tensor:
    wide = float64 if dtype is float64 else float32
    bits = 52 if wide is float64 else 23
    if wide is float64:
        high, low = (prim.cast(_low_bits(source, shape, 26), dtype=float64) for _ in range(2))
        place = prim.add(prim.mul(high, 2.0**26), low)
    else:
        place = prim.cast(_low_bits(source, shape, bits), dtype=float32)
    odd = prim.add(prim.mul(place, 2.0 ** (1 - bits)), 2.0**-bits - 1.0)
    return cast(prim.mul(prim.erfinv(odd), math.sqrt(2.0)), dtype)


def integers(shape: Shape, low: int, high: int, generator: Generator | None = None) -> Tensor:
    """Integers of [low, high) in int64."""
    if low >= high:
        raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
    return _drawn_from(generator, _integers_from, shape, low, high)


def _integers_from(source: Stream, shape: Shape, low: int, high: int) -> Tensor:
    draw = prim.bitwise_and(prim.cast(source.bits(shape), dtype=int64), 0xFFFFFFFF)
    if high - low > 1 << 32:
        upper = prim.bitwise_and(prim.cast(source.bits(shape), dtype=int64), 0x7FFFFFFF)
        draw = prim.bitwise_or(prim.shift_left(upper, 32), draw)
    return prim.add(prim.remainder(draw, high - low), low)


def _order_from(source: Stream, shape: Shape, dtype: DType) -> Tensor:
    keys = prim.shift_left(prim.cast(source.bits(shape), dtype=int64), 32)
    keys = prim.bitwise_xor(keys, prim.cast(source.bits(shape), dtype=int64))
    return cast(prim.sort(keys, axis=0, descending=False)[1], dtype)


def _below_from(source: Stream, shape: Shape, p: float | Tensor, dtype: DType) -> Tensor:
    kind = _kind_below(p)
    bound = cast(p, kind) if isinstance(p, Tensor) else p
    return cast(prim.lt(_uniform_from(source, shape, kind), bound), dtype)


def _kind_below(p: float | Tensor) -> DType:
    """The dtype of numbers that are compared with ``p``."""
    return p.dtype if isinstance(p, Tensor) and p.dtype is float64 else float32


def _with_replacement_from(source: Stream, shape: Shape, weights: Tensor) -> Tensor:
    """Indices, by rows, of the elements in whose range of the row's cumulative sum the numbers are."""
    p = cast(weights, float64)
    (rows, samples), count = shape, p.shape[1]
    running = prim.cumsum(p, axis=1)
    total = prim.slice(running, starts=(0, count - 1), stops=(rows, count), steps=(1, 1))
    u = prim.mul(_uniform_from(source, shape, float64), total)
    passed = prim.le(prim.reshape(running, shape=(rows, 1, count)), prim.reshape(u, shape=(rows, samples, 1)))
    place = prim.sum(prim.cast(passed, dtype=int64), axes=(2,))
    return prim.minimum(place, count - 1)


def _without_from(source: Stream, shape: Shape, weights: Tensor) -> Tensor:
    """Indices, by rows, with the largest of p / exponential noise first."""
    p = cast(weights, float64)
    noise = prim.neg(prim.log1p(prim.neg(_uniform_from(source, shape, float64))))
    order: Tensor = prim.sort(prim.div(p, prim.add(noise, 1e-300)), axis=1, descending=True)[1]
    return order


_AT = {
    draw: _drawn_at(draw)
    for draw in (
        _uniform_from, _gaussian_from, _integers_from, _order_from, _below_from, _kept_from, _with_replacement_from,
        _without_from,
    )
}  # fmt: skip


def need_float(dtype: DType, kernel: str) -> DType:
    if not dtype.is_floating_point:
        raise not_implemented(kernel, dtype)
    return dtype


def of_dtype(draw: Any, shape: Shape, dtype: DType, kernel: str, generator: Generator | None) -> Tensor:
    """Complex numbers have independent parts; those of normal ones have variance 1/2."""
    if not dtype.is_complex:
        found: Tensor = draw(shape, need_float(dtype, kernel), generator)
        if modes.recorder is None and type(found) is Tensor:
            found._data = at_line(found._data)
        return found
    pair = draw((*shape, 2), dtype.to_real(), generator)
    return prim.view_as_complex(prim.mul(pair, math.sqrt(0.5)) if draw is gaussian else pair)


_KERNELS = {"rand": (uniform, "check_uniform_bounds"), "randn": (gaussian, "normal_kernel_cpu")}


def _publish_sampler(name: str) -> None:
    draw, kernel = _KERNELS[name]

    def sized(
        *size: Sizes, dtype: DType | None = None, generator: Generator | None = None, layout: Layout = None,
        device: Device = None, requires_grad: bool = False, pin_memory: bool = False,
    ) -> Tensor:  # fmt: skip
        shape = new_shape(size)
        return finish(of_dtype(draw, shape, dtype or default_dtype(), kernel, generator), requires_grad, device)

    def like(
        input: Tensor, *, dtype: DType | None = None, generator: Generator | None = None, layout: Layout = None,
        device: Device = None, requires_grad: bool = False, pin_memory: bool = False,
        memory_format: MemoryFormat = None,
    ) -> Tensor:  # fmt: skip
        found = of_dtype(draw, tuple(input.shape), dtype or input.dtype, kernel, generator)
        return finish(copied(input, found, memory_format), requires_grad, device)

    for fn, public in ((sized, name), (like, f"{name}_like")):
        fn.__name__ = public
        fn.__doc__ = f"{'Uniform numbers of [0, 1)' if name == 'rand' else 'Standard normal numbers'}."
        function(to="torch", takes=ALL, draws=True)(fn)


_publish_sampler("rand")
_publish_sampler("randn")


def _bounds(args: tuple[object, ...], kwargs: dict[str, object], name: str) -> tuple[int, int, tuple[Any, ...]]:
    """(low, high, the rest) where ``low`` is optional."""
    rest = list(args)
    if "high" in kwargs:
        high = kwargs.pop("high")
        low = kwargs.pop("low", None)
        low = (rest.pop(0) if rest and isinstance(rest[0], int) else 0) if low is None else low
        return as_index(low), as_index(high), tuple(rest)
    low = kwargs.pop("low", None)
    if low is None:
        low = rest.pop(0)
    if (rest and isinstance(rest[0], int | np.integer)) or (rest and isinstance(rest[0], Tensor) and not rest[0].ndim):
        return as_index(low), as_index(rest.pop(0)), tuple(rest)
    return 0, as_index(low), tuple(rest)


def _check_bounds(low: int, high: int, dtype: DType) -> None:
    """RuntimeError if integers of [low, high) do not fit ``dtype``."""
    if dtype.kind in ("int", "bool"):
        limits = np.iinfo(dtype.numpy) if dtype.kind == "int" else None
        least, most = (limits.min, limits.max) if limits else (0, 1)
        for name, value in (("from", low), ("to - 1", high - 1)):
            if type(value) is int and not least <= value <= most:  # dynamic numbers of a recording are not read
                raise RuntimeError(f"{name} is out of bounds for {dtype.name}")


@overload
def randint(
    high: int, size: Sequence[int], *, dtype: DType | None = None, generator: Generator | None = None,
    layout: Layout = None, device: Device = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor: ...  # fmt: skip
@overload
def randint(
    low: int, high: int, size: Sequence[int], *, dtype: DType | None = None, generator: Generator | None = None,
    layout: Layout = None, device: Device = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor: ...  # fmt: skip
@function(to="torch", draws=True)
def randint(
    *args: Any, dtype: DType | None = None, generator: Generator | None = None, device: Device = None, **kwargs: Any
) -> Tensor:  # fmt: skip
    """``randint(low=0, high, size)``: uniform integers of [low, high)."""
    low, high, rest = _bounds(args, kwargs, "randint")
    size = kwargs.pop("size") if "size" in kwargs else rest[0]
    _check_bounds(low, high, dtype or int64)
    drawn = cast(integers(new_shape((size,)), low, high, generator), dtype or int64)
    return finish(drawn, kwargs.get("requires_grad", False), device)


@overload
def randint_like(
    input: Tensor, high: int | Tensor, *, dtype: DType | None = None, generator: Generator | None = None,
    layout: Layout = None, device: Device = None, requires_grad: bool = False, pin_memory: bool = False,
    memory_format: MemoryFormat = None,
) -> Tensor: ...  # fmt: skip
@overload
def randint_like(
    input: Tensor, low: int, high: int, *, dtype: DType | None = None, generator: Generator | None = None,
    layout: Layout = None, device: Device = None, requires_grad: bool = False, pin_memory: bool = False,
    memory_format: MemoryFormat = None,
) -> Tensor: ...  # fmt: skip
@function(to="torch", draws=True)
def randint_like(input: Tensor, *args: Any, dtype: DType | None = None, **kwargs: Any) -> Tensor:
    """Uniform integers of [low, high) in the shape and dtype of ``input``."""
    low, high, _ = _bounds(args, kwargs, "randint_like")
    _check_bounds(low, high, dtype or input.dtype)
    drawn = cast(integers(tuple(input.shape), low, high, kwargs.get("generator")), dtype or input.dtype)
    drawn = copied(input, drawn, kwargs.get("memory_format"))
    return finish(drawn, kwargs.get("requires_grad", False), kwargs.get("device"))


@function(to="torch", draws=True)
def randperm(
    n: int, *, generator: Generator | None = None, dtype: DType = int64, layout: Layout = None, device: Device = None,
    requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """A random permutation of 0 ... n - 1: the order of random keys."""
    if n < 0:
        raise RuntimeError(f"n must be non-negative, got {n}")
    if dtype.kind == "int" and n > np.iinfo(dtype.numpy).max:
        raise RuntimeError(f"value cannot be converted to type {dtype.name} without overflow")
    return finish(_drawn_from(generator, _order_from, (n,), dtype), requires_grad, device)


@function(to="torch", composite=True, draws=True)
def normal(
    mean: float | Tensor = 0.0, std: float | Tensor = 1.0, size: Sequence[int] | None = None, *,
    generator: Generator | None = None, dtype: DType | None = None, layout: Layout = None, device: Device = None,
    requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Normal numbers with the given means and deviations: tensors, numbers, or numbers with a size."""
    if isinstance(std, Tensor):
        std = required(std, is_not_negative, "normal expects all elements of std >= 0.0")
    elif std < 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")
    given = [x for x in (mean, std) if isinstance(x, Tensor)]
    if given:
        shape = broadcast_shapes(*(tuple(x.shape) for x in given))
        kind = given[0].dtype
    else:
        if size is None:
            raise TypeError("normal() received an invalid combination of arguments: size is missing")
        shape, kind = new_shape((size,)), dtype or default_dtype()
    drawn = gaussian(shape, need_float(kind, "normal_kernel_cpu"), generator)
    return finish(cast(add(mul(drawn, std), mean), kind), requires_grad, device)


def below(shape: Shape, p: float | Tensor, dtype: DType, generator: Generator | None) -> Tensor:
    """Draw 1 in ``dtype`` with probability ``p``, else 0."""
    message = "Expected p_in >= 0 && p_in <= 1 to be true, but got false."
    if isinstance(p, Tensor):
        given: float | Tensor = required(p.detach(), is_fraction, message)
    else:
        given = float(p)
        if not 0 <= given <= 1:  # also if it is nan
            raise RuntimeError(message)
    return _drawn_from(generator, _below_from, shape, given, dtype)


@function(composite=True, draws=True)
def bernoulli(input: Tensor, p: float | None = None, *, generator: Generator | None = None) -> Tensor:
    """Draw 1 with the probabilities of ``input`` (or with ``p``), else 0."""
    if p is None:
        need_float(input.dtype, "bernoulli_tensor_cpu_p_")
    drawn = below(tuple(input.shape), input if p is None else p, input.dtype, generator)
    return with_zero_gradient(drawn, input)


@function(takes=FLOATS, composite=True)
def poisson(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Poisson numbers with the rates ``input``; drawn by numpy from a key of the generator."""
    rates = input._read("poisson()")
    if (rates < 0).any():
        raise RuntimeError("invalid Poisson rate, expected rate to be non-negative")
    key = rng.bits((2,), generator).numpy().astype(np.uint64)
    stream = np.random.Generator(np.random.Philox(key=int(key[0]) << 32 ^ int(key[1])))
    return wrap(np.asarray(stream.poisson(rates)).astype(rates.dtype))


@function(composite=True)
def binomial(count: Tensor, prob: Tensor, generator: Generator | None = None) -> Tensor:
    """Binomial numbers; drawn by numpy from a key of the generator.

    A negative count gives 0, and probabilities outside [0, 1] are clipped. NaN gives NaN.
    """
    for argument, x in (("count", count), ("prob", prob)):
        if not x.is_floating_point():
            raise ValueError(f"binomial(): {argument} must have a floating-point dtype, but has {type_word(x.dtype)}")
    if count.dtype is not prob.dtype:
        raise RuntimeError(f"binomial(): found dtype {type_word(prob.dtype)} but expected {type_word(count.dtype)}")
    broadcast_shapes(tuple(count.shape), tuple(prob.shape))
    key = rng.bits((2,), generator).numpy().astype(np.uint64)
    stream = np.random.Generator(np.random.Philox(key=int(key[0]) << 32 ^ int(key[1])))
    n, p = count._read("binomial()"), prob._read("binomial()")
    drawn = stream.binomial(np.maximum(np.nan_to_num(n), 0).astype(np.int64), np.clip(np.nan_to_num(p), 0, 1))
    return wrap(np.where(np.isnan(n) | np.isnan(p), math.nan, drawn).astype(count._data.dtype))


@function(composite=True, draws=True)
def multinomial(
    input: Tensor, num_samples: int, replacement: bool = False, *, generator: Generator | None = None
) -> Tensor:
    """Indices drawn with the weights of each row, with or without replacement."""
    if input.ndim not in (1, 2):
        raise RuntimeError("prob_dist must be 1 or 2 dim")
    need_float(input.dtype, "multinomial")
    count = input.shape[-1]
    if num_samples <= 0:
        raise RuntimeError("cannot sample n_sample <= 0 samples")
    if not replacement and num_samples > count:
        raise RuntimeError("cannot sample n_sample > prob_dist.size(-1) samples without replacement")
    given = required(
        input.detach(), lambda x: (x >= 0) & (x < math.inf),
        "probability tensor contains either `inf`, `nan` or element < 0",
    )  # fmt: skip
    given = required(
        given, lambda x: x.sum(-1)[..., None] > 0,
        "invalid multinomial distribution (sum of probabilities <= 0)",
    )  # fmt: skip
    rows = to_shape(given, (1, count)) if input.ndim == 1 else given
    if replacement:
        drawn = _drawn_from(generator, _with_replacement_from, (rows.shape[0], num_samples), rows)
    else:
        order = _drawn_from(generator, _without_from, tuple(rows.shape), rows)
        drawn = own(prim.slice(order, starts=(0, 0), stops=(rows.shape[0], num_samples), steps=(1, 1)))
    return to_shape(drawn, (num_samples,)) if input.ndim == 1 else drawn
