"""Initialising tensors in place; formulas and names of torch.nn.init."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from tracecomp.base.reference import document as _document
from tracecomp.base.user_warnings import warn_as_pytorch
from tracecomp.eager.foreign import check_takes
from tracecomp.eager.modes import no_grad
from tracecomp.eager.rng import Generator
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.functional.linalg.factors import qr
from tracecomp.nn.sharding import ShardedTensor

_GAINS = {
    "linear": 1.0, "conv1d": 1.0, "conv2d": 1.0, "conv3d": 1.0, "conv_transpose1d": 1.0, "conv_transpose2d": 1.0,
    "conv_transpose3d": 1.0, "sigmoid": 1.0, "tanh": 5.0 / 3, "relu": math.sqrt(2.0), "selu": 3.0 / 4,
}  # fmt: skip


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor by which an activation shrinks a standard deviation. ValueError for an unknown name."""
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        if isinstance(slope, bool) or not isinstance(slope, int | float):
            raise ValueError(f"negative_slope {param} not a valid number")
        return math.sqrt(2.0 / (1 + slope**2))
    if nonlinearity not in _GAINS:
        raise ValueError(f"Unsupported nonlinearity {nonlinearity}")
    return _GAINS[nonlinearity]


def _fans(tensor: Tensor) -> tuple[int, int]:
    if tensor.ndim < 2:
        raise ValueError("Fan in and fan out can not be computed for tensor with fewer than 2 dimensions")
    field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


_calculate_fan_in_and_fan_out = _fans


def _fan(tensor: Tensor, mode: str) -> int:
    mode = mode.lower()
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"Mode {mode} not supported, please use one of ['fan_in', 'fan_out']")
    return _fans(tensor)[mode == "fan_out"]


_calculate_correct_fan = _fan


def _initializer(fn: Callable[..., None]) -> Callable[..., Tensor]:
    """Run ``fn`` without gradients and return its tensor; an empty tensor is unchanged.

    For a sharded tensor the whole is initialised, equally in every process, and its rows are kept.
    """

    @functools.wraps(fn)
    def run(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        check_takes(fn.__name__, (type(tensor),))
        with no_grad():
            if isinstance(tensor, ShardedTensor):
                whole = T.empty(tensor.sharding.shape, dtype=tensor.dtype)
                fn(whole, *args, **kwargs)
                tensor.copy_(tensor.sharding.own(whole))
            else:
                fn(tensor, *args, **kwargs)
        return tensor

    return run


def _no_grad_uniform_(tensor: Tensor, a: float, b: float, generator: Generator | None = None) -> Tensor:
    return uniform_(tensor, a, b, generator)


def _no_grad_normal_(tensor: Tensor, mean: float, std: float, generator: Generator | None = None) -> Tensor:
    return normal_(tensor, mean, std, generator)


def _no_grad_fill_(tensor: Tensor, val: float) -> Tensor:
    return constant_(tensor, val)


def _no_grad_zero_(tensor: Tensor) -> Tensor:
    return constant_(tensor, 0)


@_initializer
def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Generator | None = None) -> None:
    """Uniform on [a, b)."""
    tensor.uniform_(a, b, generator=generator)


@_initializer
def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None) -> None:
    """Normal with the given mean and standard deviation."""
    tensor.normal_(mean, std, generator=generator)


@_initializer
def trunc_normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0,
    generator: Generator | None = None,
) -> None:  # fmt: skip
    """Normal, truncated to [a, b]: the inverse of the distribution function at uniform values."""
    if mean < a - 2 * std or mean > b + 2 * std:
        warn_as_pytorch(
            "mean is more than 2 std from [a, b] in nn.init.trunc_normal_. The distribution of values may be "
            "incorrect.",
        )
    low, high = ((1.0 + math.erf((edge - mean) / std / math.sqrt(2.0))) / 2.0 for edge in (a, b))
    tensor.uniform_(2 * low - 1, 2 * high - 1, generator=generator)
    tensor.erfinv_().mul_(std * math.sqrt(2.0)).add_(mean).clamp_(min=a, max=b)


@_initializer
def constant_(tensor: Tensor, val: float) -> None:
    """Every element ``val``."""
    tensor.fill_(val)


@_initializer
def ones_(tensor: Tensor) -> None:
    """Every element 1."""
    tensor.fill_(1.0)


@_initializer
def zeros_(tensor: Tensor) -> None:
    """Every element 0."""
    tensor.zero_()


@_initializer
def eye_(tensor: Tensor) -> None:
    """The identity matrix. ValueError unless 2-d."""
    if tensor.ndim != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    tensor.copy_(T.eye(*tensor.shape, dtype=tensor.dtype))


@_initializer
def dirac_(tensor: Tensor, groups: int = 1) -> None:
    """A convolution weight that keeps as many channels as possible. ValueError unless 3-d to 5-d."""
    if tensor.ndim not in (3, 4, 5):
        raise ValueError("Only tensors with 3, 4, or 5 dimensions are supported")
    if tensor.shape[0] % groups:
        raise ValueError("dim 0 must be divisible by groups")
    out = tensor.shape[0] // groups
    tensor.zero_()
    centre = tuple(n // 2 for n in tensor.shape[2:])
    for group in range(groups):
        for channel in range(min(out, tensor.shape[1])):
            tensor[(group * out + channel, channel, *centre)] = 1


@_initializer
def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> None:
    """Uniform with variance ``2 gain^2 / (fan_in + fan_out)`` (Glorot and Bengio 2010)."""
    bound = gain * math.sqrt(6.0 / sum(_fans(tensor)))
    tensor.uniform_(-bound, bound, generator=generator)


@_initializer
def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> None:
    """Normal with variance ``2 gain^2 / (fan_in + fan_out)`` (Glorot and Bengio 2010)."""
    tensor.normal_(0.0, gain * math.sqrt(2.0 / sum(_fans(tensor))), generator=generator)


@_initializer
def kaiming_uniform_(
    tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> None:  # fmt: skip
    """Uniform with variance ``gain^2 / fan`` (He et al. 2015)."""
    if 0 in tensor.shape:
        warn_as_pytorch("Initializing zero-element tensors is a no-op")
        return
    bound = calculate_gain(nonlinearity, a) * math.sqrt(3.0 / _fan(tensor, mode))
    tensor.uniform_(-bound, bound, generator=generator)


@_initializer
def kaiming_normal_(
    tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> None:  # fmt: skip
    """Normal with variance ``gain^2 / fan`` (He et al. 2015)."""
    if 0 in tensor.shape:
        warn_as_pytorch("Initializing zero-element tensors is a no-op")
        return
    tensor.normal_(0.0, calculate_gain(nonlinearity, a) / math.sqrt(_fan(tensor, mode)), generator=generator)


@_initializer
def orthogonal_(tensor: Tensor, gain: float = 1, generator: Generator | None = None) -> None:
    """Orthonormal rows or columns, times ``gain`` (Saxe et al. 2013). ValueError below two dimensions."""
    if tensor.ndim < 2:
        raise ValueError("Only tensors with 2 or more dimensions are supported")
    if tensor.numel() == 0:
        return
    rows, cols = tensor.shape[0], tensor.numel() // tensor.shape[0]
    flat = T.empty(rows, cols, dtype=tensor.dtype).normal_(0, 1, generator=generator)
    q, r = qr(flat.t() if rows < cols else flat)
    q = q * r.diagonal().sign()
    tensor.copy_((q.t() if rows < cols else q).reshape(*tensor.shape) * gain)


@_initializer
def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Generator | None = None) -> None:
    """Normal, with a fraction ``sparsity`` of each column zero (Martens 2010). ValueError unless 2-d."""
    if tensor.ndim != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    rows, cols = tensor.shape
    zeros = math.ceil(sparsity * rows)
    tensor.normal_(0, std, generator=generator)
    for column in range(cols):
        tensor[T.randperm(rows)[:zeros], column] = 0


def _older(fn: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The name without underscore, which PyTorch keeps with a warning."""
    new = fn.__name__

    def run(*args: Any, **kwargs: Any) -> Tensor:
        warn_as_pytorch(f"`nn.init.{new[:-1]}` is now deprecated in favor of `nn.init.{new}`.", FutureWarning)
        return fn(*args, **kwargs)

    run.__name__ = run.__qualname__ = new[:-1]
    run.__doc__ = f"Older name of ``{new}``."
    return run


uniform = _older(uniform_)
normal = _older(normal_)
constant = _older(constant_)
eye = _older(eye_)
dirac = _older(dirac_)
xavier_uniform = _older(xavier_uniform_)
xavier_normal = _older(xavier_normal_)
kaiming_uniform = _older(kaiming_uniform_)
kaiming_normal = _older(kaiming_normal_)
orthogonal = _older(orthogonal_)
sparse = _older(sparse_)

_document("nn.init", globals())
