"""Activation functions."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from tracecomp.eager.aliasing import before_write
from tracecomp.eager.modes import scope
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.functional.dtype_support import ALL, COMPLEX, FLOATS, NUMBERS
from tracecomp.functional.elementwise.pointwise import magnitude
from tracecomp.functional.promotion import rounded, wide
from tracecomp.functional.publish import function, store_inplace
from tracecomp.ir.types import DType, type_word

_SQRT_HALF = math.sqrt(0.5)
_SQRT_2_OVER_PI = math.sqrt(2.0 / math.pi)


def finish(input: Tensor, result: Tensor, inplace: bool) -> Tensor:
    """Return ``result`` in the type of ``input``, or overwrite ``input`` by it."""
    result = rounded(result, input)
    return store_inplace(input, result) if inplace else result


def operand(input: Tensor, inplace: bool) -> Tensor:
    """Return ``input`` for formulas, half types in float32. Derivatives may read it: `finish` may overwrite
    ``input``."""
    return wide(before_write(input, ()) if inplace else input)


@function(to="nn.functional")
def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """``max(x, 0)`` elementwise."""
    return input.relu_() if inplace else input.relu()


@function(to="nn.functional", takes=ALL)
def sigmoid(input: Tensor) -> Tensor:
    """``1 / (1 + exp(-x))`` elementwise."""
    return input.sigmoid()


@function(to="nn.functional", takes=ALL)
def tanh(input: Tensor) -> Tensor:
    """Hyperbolic tangent elementwise."""
    return input.tanh()


@function(to="nn.functional", takes=NUMBERS)
def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """``x`` limited to ``[min_val, max_val]``; the gradient is 0 on and outside the limits."""
    if min_val > max_val:
        raise ValueError("min_val cannot be greater than max_val")
    if not input.is_floating_point():
        min_val, max_val = int(min_val), int(max_val)
        if not input.dtype.is_signed and min_val < 0:
            raise RuntimeError(f"hardtanh(): the limit {min_val} is negative, but {input.dtype} is an unsigned type")
    constant = input.detach()  # a zero of the other sign than the limit is kept, without a gradient
    low = T.where(input <= min_val, T.where(input < min_val, min_val, constant), input)
    high = T.where(input > max_val, max_val, constant)
    return finish(input, T.where(input >= max_val, high, low), inplace)


@function(to="nn.functional", takes=NUMBERS)
def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """``min(max(x, 0), 6)`` elementwise."""
    return hardtanh(input, 0.0, 6.0, inplace)


@function(to="nn.functional torch", takes=NUMBERS)
def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """``x`` where it is greater than ``threshold``, else ``value``; of integers both numbers are truncated."""
    if not input.is_floating_point():
        threshold, value = int(threshold), int(value)
    return finish(input, T.where(input <= threshold, value, input), inplace)


@function(to="nn.functional", takes=FLOATS)
def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """``x`` where positive, else ``negative_slope * x``."""
    x = operand(input, inplace)
    return finish(input, T.where(x > 0, x, x * negative_slope), inplace)


@function(to="nn.functional torch", takes=FLOATS)
def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """``leaky_relu`` with a learnable slope: one, or one per channel (dimension 1).

    RuntimeError unless the number of slopes is 1 or the number of channels.
    """
    if weight.ndim > 1:
        raise RuntimeError(f"prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = {weight.ndim}")
    if weight.dtype is not input.dtype:
        raise RuntimeError(
            f"prelu: Type promoting not supported. Got {type_word(input.dtype)} and {type_word(weight.dtype)}"
        )
    if weight.numel() != 1:
        channels = input.shape[1] if input.ndim > 1 else 1
        if input.ndim == 0:
            raise RuntimeError("Not allow zero-dim input tensor.")
        if weight.numel() != channels:
            raise RuntimeError(
                "Mismatch of parameter numbers and input channel size. "
                f"Found parameter numbers = {weight.numel()} and channel size = {channels}."
            )
        weight = weight.reshape(-1, *[1] * (input.ndim - 2))
    elif input.ndim:
        weight = weight.reshape(*[1] * input.ndim)
    else:
        weight = weight.reshape(())
    x = wide(input)
    return rounded(T.where(x > 0, x, x * wide(weight)), input)


@function(to="nn.functional torch", takes=FLOATS, draws=True)
def rrelu(
    input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False, inplace: bool = False
) -> Tensor:
    """``leaky_relu`` with a slope drawn from ``[lower, upper]`` per element in training, else their mean."""
    if lower > upper:
        raise RuntimeError(f"Lower bound should be less than or equal to the upper bound, but got {lower} and {upper}")
    if not training:
        return leaky_relu(input, (lower + upper) / 2, inplace)
    slope = T.rand_like(input) * (upper - lower) + lower
    x = operand(input, inplace)
    return finish(input, T.where(x > 0, x, x * slope), inplace)


@function(to="nn.functional", takes=FLOATS)
def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """``x`` where positive, else ``alpha * (exp(x) - 1)``."""
    return finish(input, _elu(operand(input, inplace), alpha, 1.0), inplace)


def _elu(input: Tensor, alpha: float, scale: float, input_scale: float = 1.0) -> Tensor:
    # The argument of expm1 is at most 0, so that the unused branch cannot overflow into the gradient.
    positive = input > 0
    below = T.where(positive, 0.0, input)
    if input_scale != 1.0:
        below = below * input_scale
    above = input * scale if scale != 1.0 else input
    return T.where(positive, above, below.expm1() * (alpha * scale))


@function(to="nn.functional torch", takes=FLOATS)
def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """Scaled ELU (Klambauer et al. 2017)."""
    x = operand(input, inplace)
    return finish(input, _elu(x, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946), inplace)


@function(to="nn.functional torch", takes=FLOATS)
def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """``max(0, x) + min(0, alpha * (exp(x / alpha) - 1))``; RuntimeError if ``alpha`` is 0."""
    if alpha == 0:
        raise RuntimeError("ZeroDivisionError: alpha cannot be 0 for CELU")
    return finish(input, _elu(operand(input, inplace), alpha, 1.0, 1.0 / alpha), inplace)


@function(to="nn.functional", takes=FLOATS)
def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """``x * Phi(x)``, with erf or (``approximate="tanh"``) by the tanh formula of Hendrycks and Gimpel 2016."""
    with scope("gelu"):
        x = wide(input)
        if approximate == "tanh":
            inner = (x + x * x * x * 0.044715) * _SQRT_2_OVER_PI
            return rounded(x * 0.5 * (inner.tanh() + 1.0), input)
        if approximate != "none":
            raise RuntimeError(f"approximate argument must be either none or tanh, got {approximate!r}")
        return rounded(x * 0.5 * ((x * _SQRT_HALF).erf() + 1.0), input)


@function(to="nn.functional", takes=FLOATS + COMPLEX)
def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """``x * sigmoid(x)``."""
    x = operand(input, inplace)
    return finish(input, x * x.sigmoid(), inplace)


@function(to="nn.functional", takes=FLOATS)
def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """``x * tanh(softplus(x))``."""
    x = operand(input, inplace)
    return finish(input, x * softplus(x).tanh(), inplace)


@function(to="nn.functional", takes=FLOATS)
def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """``log(1 + exp(beta * x)) / beta``; ``x`` itself where ``beta * x > threshold``."""
    x = wide(input)
    scaled = x * beta if beta != 1 else x
    linear = scaled > threshold
    smooth = T.where(linear, 0.0, scaled).exp().log1p()
    return rounded(T.where(linear, x, smooth / beta if beta != 1 else smooth), input)


@function(to="nn.functional", takes=FLOATS)
def logsigmoid(input: Tensor) -> Tensor:
    """``log(sigmoid(x))`` without overflow: ``min(x, 0) - log1p(exp(-|x|))``."""
    x = wide(input)
    return rounded(T.where(x < 0, x, 0.0) - (-magnitude(x)).exp().log1p(), input)


@function(to="nn.functional", takes=ALL)
def softsign(input: Tensor) -> Tensor:
    """``x / (1 + |x|)``."""
    x = wide(input)
    return rounded(x / (x.abs() + 1), input)


@function(to="nn.functional", takes=ALL)
def tanhshrink(input: Tensor) -> Tensor:
    """``x - tanh(x)``."""
    x = wide(input)
    return rounded(x - x.tanh(), input)


@function(to="nn.functional", takes=FLOATS)
def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """``x`` moved towards 0 by ``lambd``; RuntimeError if ``lambd`` is negative."""
    if lambd < 0:
        raise RuntimeError(f"lambda must be greater or equal to 0, but found to be {lambd}.")
    x = wide(input)
    return rounded(T.where(x > lambd, x - lambd, T.where(x < -lambd, x + lambd, x * 0.0)), input)


@function(to="nn.functional torch", takes=FLOATS)
def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """``x``, or 0 where ``|x| <= lambd``."""
    return T.where((input >= -lambd) & (input <= lambd), 0.0, input)


@function(to="nn.functional", takes=FLOATS)
def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """``min(max(x + 3, 0), 6) / 6``."""
    return finish(input, relu6(operand(input, inplace) + 3.0) / 6.0, inplace)


@function(to="nn.functional", takes=FLOATS)
def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """``x * min(max(x + 3, 0), 6) / 6``."""
    x = operand(input, inplace)
    return finish(input, x * relu6(x + 3.0) / 6.0, inplace)


@function(to="nn.functional", takes=FLOATS)
def glu(input: Tensor, dim: int = -1) -> Tensor:
    """First half times sigmoid of the second half along ``dim``; RuntimeError if it cannot be halved."""
    if input.ndim == 0:
        raise RuntimeError("glu does not support 0-dimensional tensors")
    if input.shape[dim] % 2:
        raise RuntimeError(
            f"Halving dimension must be even, but dimension {dim % input.ndim} is size {input.shape[dim]}"
        )
    first, second = wide(input).chunk(2, dim)
    return rounded(first * second.sigmoid(), input)


def _softmax_dim(dim: int | None, ndim: int) -> int:
    if dim is not None:
        return dim
    return 0 if ndim in (0, 1, 3) else 1


@function(to="nn.functional", takes=ALL)
def softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DType | None = None) -> Tensor:
    """``exp(x)`` over its sum along ``dim``."""
    return T.softmax(input, _softmax_dim(dim, input.ndim), dtype=dtype)


@function(to="nn.functional", takes=ALL)
def log_softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DType | None = None) -> Tensor:
    """Logarithm of ``softmax``."""
    return T.log_softmax(input, _softmax_dim(dim, input.ndim), dtype=dtype)


@function(to="nn.functional", takes=ALL)
def softmin(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DType | None = None) -> Tensor:
    """``softmax`` of ``-x``."""
    return softmax(-input, dim, dtype=dtype)


@function(to="nn.functional", draws=True)
def gumbel_softmax(logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    """A sample of the Gumbel-softmax distribution (Jang et al. 2017); one-hot with a soft gradient if ``hard``."""
    noise = -T.empty_like(logits).exponential_().log()
    soft = softmax((logits + noise) / tau, dim)
    if not hard:
        return soft
    index = soft.max(dim, keepdim=True)[1]
    one_hot = T.zeros_like(logits).scatter(dim, index, 1.0)
    return one_hot - soft.detach() + soft


@function(to="nn.functional", takes=ALL)
def normalize(
    input: Tensor, p: float = 2.0, dim: int | Sequence[int] | None = 1, eps: float = 1e-12, out: Tensor | None = None
) -> Tensor:
    """``x`` over its p-norm along ``dim``, the norm at least ``eps``."""
    norm = T.norm(input, p, dim, keepdim=True).clamp_min(eps)
    return T.div(input, norm.expand_as(input), out=out)


def _publish_in_place(fn: Callable[..., Tensor], to: str) -> None:
    """Publish the in-place variant of ``fn``, which calls it with ``inplace=True``."""

    @functools.wraps(fn)
    def run(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return fn(input, *args, **kwargs, inplace=True)

    run.__name__, run.__doc__ = fn.__name__ + "__", f"In-place form of ``{fn.__name__}``."
    function(to=to)(run)


_HERE: tuple[Callable[..., Tensor], ...] = (hardtanh, elu, leaky_relu, relu)
_IN_TORCH: tuple[Callable[..., Tensor], ...] = (threshold, rrelu, selu, celu)
for _fn in _HERE:
    _publish_in_place(_fn, "nn.functional")
for _fn in _IN_TORCH:
    _publish_in_place(_fn, "nn.functional torch")
