"""Convolutions and their transposes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tracecomp.eager.modes import scope
from tracecomp.eager.tensor import Tensor
from tracecomp.functional.autocast import casts
from tracecomp.functional.dims import Sizes, as_index, check_memory
from tracecomp.functional.dtype_support import COMPLEX, NUMBERS
from tracecomp.functional.elementwise.complexes import parts
from tracecomp.functional.memory_formats import following
from tracecomp.functional.primitives import prim
from tracecomp.functional.promotion import is_half, rounded, wide
from tracecomp.functional.publish import function
from tracecomp.ir.types import float64
from tracecomp.nn.functional.padding import constant_pad


def ntuple(value: Any, n: int, name: str = "size") -> tuple[int, ...]:
    """``value`` once per spatial axis. RuntimeError for a sequence of another length."""
    if isinstance(value, int):
        return (as_index(value),) * n
    try:
        ints = [int(v) for v in value]
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be an int or a sequence of ints, not {value!r}") from None
    values = tuple(map(as_index, ints))
    if len(values) == 1:
        return values * n
    if len(values) != n:
        raise RuntimeError(
            f"expected {name} to be a single integer value or a list of {n} values, but got {list(values)}"
        )
    return values


def batched(input: Tensor, n: int, name: str) -> tuple[Tensor, bool]:
    """``input`` with a batch axis, and whether it was added. RuntimeError for another rank."""
    if input.ndim == n + 2:
        return input, False
    if input.ndim == n + 1:
        return input.unsqueeze(0), True
    raise RuntimeError(
        f"Expected {n + 1}D (unbatched) or {n + 2}D (batched) input to {name}, "
        f"but got input of size: {list(input.shape)}"
    )


def _check(name: str, input: Tensor, weight: Tensor, bias: Tensor | None, channels: int, groups: int, n: int) -> None:
    if weight.ndim != n + 2:
        raise RuntimeError(
            f"expected {n + 2}-dimensional weight for {n + 2}-dimensional input {list(input.shape)}, "
            f"but got {weight.ndim}-dimensional weight of size {list(weight.shape)} instead"
        )
    if groups <= 0:
        raise RuntimeError("non-positive groups is not supported")
    if weight.shape[0] < groups:
        raise RuntimeError(
            f"Given groups={groups}, expected weight to be at least {groups} at dimension 0, "
            f"but got weight of size {list(weight.shape)} instead"
        )
    if input.shape[1] != channels:
        raise RuntimeError(
            f"Given groups={groups}, weight of size {list(weight.shape)}, expected input{list(input.shape)} "
            f"to have {channels} channels, but got {input.shape[1]} channels instead"
        )
    if weight.shape[0] % groups:
        raise RuntimeError(
            f"Given groups={groups}, expected weight to be divisible by {groups} at dimension 0, "
            f"but got weight of size {list(weight.shape)} instead"
        )
    if 0 in input.shape[2:]:
        raise RuntimeError(f"Only zero batch or zero channel inputs are supported, but got input {list(input.shape)}")
    if input.dtype is not weight.dtype:
        raise RuntimeError(f"Input type ({input.dtype}) and weight type ({weight.dtype}) should be the same ({name})")
    if bias is not None and bias.dtype is not input.dtype:
        raise RuntimeError(f"Input type ({input.dtype}) and bias type ({bias.dtype}) should be the same")


def _positive(**values: Sequence[int]) -> None:
    for name, value in values.items():
        if any(v <= 0 for v in value):
            raise RuntimeError(f"non-positive {name} is not supported")


def _paddings(
    padding: Sizes | str, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> tuple[tuple[int, int], ...]:
    n = len(kernel)
    if isinstance(padding, str):
        if padding == "valid":
            return ((0, 0),) * n
        if padding != "same":
            raise RuntimeError(f"Invalid padding string: '{padding}'")
        if any(s != 1 for s in stride):
            raise RuntimeError("padding='same' is not supported for strided convolutions")
        totals = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
        return tuple((t // 2, t - t // 2) for t in totals)
    pads = ntuple(padding, n, "padding")
    if any(p < 0 for p in pads):
        raise RuntimeError("negative padding is not supported")
    return tuple((p, p) for p in pads)


@casts
def convolution(
    n: int, input: Tensor, weight: Tensor, bias: Tensor | None, stride: Sizes, padding: Sizes | str, dilation: Sizes,
    groups: int,
) -> Tensor:  # fmt: skip
    """``n``-dimensional convolution (cross-correlation) of (N, C, spatial) with (O, C / groups, kernel)."""
    name = f"conv{n}d"
    x, single = batched(input, n, name)
    _check(name, x, weight, bias, weight.shape[1] * groups if weight.ndim > 1 else 0, groups, n)
    strides, dilations = ntuple(stride, n, "stride"), ntuple(dilation, n, "dilation")
    kernel = weight.shape[2:]
    _positive(stride=strides, dilation=dilations, kernel=kernel)
    pads = _paddings(padding, kernel, strides, dilations)
    padded = [size + low + high for size, (low, high) in zip(x.shape[2:], pads, strict=True)]
    spans = [d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True)]
    if any(size < span for size, span in zip(padded, spans, strict=True)):
        raise RuntimeError(
            f"Calculated padded input size per channel: ({' x '.join(map(str, padded))}). "
            f"Kernel size: ({' x '.join(map(str, spans))}). Kernel size can't be greater than actual input size"
        )
    sizes = [(size - span) // s + 1 for size, span, s in zip(padded, spans, strides, strict=True)]
    check_memory(x, (x.shape[0], weight.shape[0], *sizes))
    with scope(name):
        run = partial(prim.conv, stride=strides, padding=pads, dilation=dilations, groups=groups)
        return _finish(_product(run, x, weight, bias), bias, n, single, (x, weight))


def _product(run: Callable[[Tensor, Tensor], Tensor], x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``run(x, weight)``; for half types in float32 if ``bias`` is added, so that the sum is rounded once."""
    if is_half(x, weight, bias):
        x, weight = wide(x), wide(weight)
    return _by_parts(run, x, weight)


def _by_parts(run: Callable[[Tensor, Tensor], Tensor], x: Tensor, weight: Tensor) -> Tensor:
    """A bilinear function of real tensors for complex ones, too."""
    if not x.dtype.is_complex:
        return run(x, weight)
    (a, b), (c, d) = parts(x), parts(weight)
    return prim.complex(prim.sub(run(a, c), run(b, d)), prim.add(run(a, d), run(b, c)))


def _finish(out: Tensor, bias: Tensor | None, n: int, single: bool, operands: Sequence[Tensor]) -> Tensor:
    if bias is not None:
        if bias.shape != out.shape[1:2]:
            raise RuntimeError(
                f"expected bias to be 1-dimensional with {out.shape[1]} elements, "
                f"but got bias of size {list(bias.shape)} instead"
            )
        out = rounded(out + wide(bias).reshape(-1, *[1] * n), bias)
    if n == 2 or out.dtype is not float64:  # as in PyTorch, which has no kernel for volumes of doubles
        out = following(out, *operands)
    return out.squeeze(0) if single else out


@function(to="nn.functional torch", takes=NUMBERS + COMPLEX)
def conv1d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None,
    stride: Sizes = 1, padding: Sizes | str = 0, dilation: Sizes = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """(N, C, L) with (O, C / groups, K) -> (N, O, L'); ``padding`` may be ``"same"`` or ``"valid"``."""
    return convolution(1, input, weight, bias, stride, padding, dilation, groups)


@function(to="nn.functional torch", takes=NUMBERS + COMPLEX)
def conv2d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None,
    stride: Sizes = 1, padding: Sizes | str = 0, dilation: Sizes = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """(N, C, H, W) with (O, C / groups, KH, KW) -> (N, O, H', W'); ``padding`` may be ``"same"`` or ``"valid"``."""
    return convolution(2, input, weight, bias, stride, padding, dilation, groups)


@function(to="nn.functional torch", takes=NUMBERS + COMPLEX)
def conv3d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None,
    stride: Sizes = 1, padding: Sizes | str = 0, dilation: Sizes = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """(N, C, D, H, W) with (O, C / groups, KD, KH, KW) -> (N, O, D', H', W')."""
    return convolution(3, input, weight, bias, stride, padding, dilation, groups)


@casts
def transposed(
    n: int, input: Tensor, weight: Tensor, bias: Tensor | None,
    stride: Sizes, padding: Sizes | str, output_padding: Sizes, groups: int, dilation: Sizes,
) -> Tensor:  # fmt: skip
    """The adjoint of ``convolution``: (N, C, spatial) with (C, O / groups, kernel)."""
    name = f"conv_transpose{n}d"
    x, single = batched(input, n, name)
    _check(name, x, weight, bias, weight.shape[0] if weight.ndim else 0, groups, n)
    strides, dilations = ntuple(stride, n, "stride"), ntuple(dilation, n, "dilation")
    _positive(stride=strides, dilation=dilations, kernel=weight.shape[2:])
    pads, extras = ntuple(padding, n, "padding"), ntuple(output_padding, n, "output_padding")
    size, attr_pads, after = [], [], []
    for s, p, e, d, k, length in zip(strides, pads, extras, dilations, weight.shape[2:], x.shape[2:], strict=True):
        if e >= max(s, d) or e < 0:
            raise RuntimeError(
                f"output padding must be smaller than either stride or dilation, but got output_padding: {e}, "
                f"stride: {s}, dilation: {d}"
            )
        total = (length - 1) * s - 2 * p + d * (k - 1) + 1 + e
        if total <= 0:
            raise RuntimeError(f"{name}: calculated output size {total} is too small for input {list(input.shape)}")
        # Output_padding beyond the last full stride first replaces padding, then appends zeros.
        whole = e // s * s
        zeros = max(whole - p, 0)
        size.append(total - zeros)
        attr_pads.append((p, p - whole + zeros))
        after.append(zeros)
    check_memory(x, (x.shape[0], weight.shape[1] * groups, *size))
    with scope(name):
        run = partial(
            prim.conv_transpose, stride=strides, padding=tuple(attr_pads), dilation=dilations, groups=groups,
            size=tuple(size),
        )  # fmt: skip
        out = _product(run, x, weight, bias)
        if any(after):
            out = constant_pad(out, [v for zeros in reversed(after) for v in (0, zeros)])
        return _finish(out, bias, n, single, (x, weight))


@function(to="nn.functional torch", takes=NUMBERS + COMPLEX)
def conv_transpose1d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None,
    stride: Sizes = 1, padding: Sizes = 0, output_padding: Sizes = 0, groups: int = 1, dilation: Sizes = 1,
) -> Tensor:  # fmt: skip
    """(N, C, L) with (C, O / groups, K) -> (N, O, L')."""
    return transposed(1, input, weight, bias, stride, padding, output_padding, groups, dilation)


@function(to="nn.functional torch", takes=NUMBERS + COMPLEX)
def conv_transpose2d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None,
    stride: Sizes = 1, padding: Sizes = 0, output_padding: Sizes = 0, groups: int = 1, dilation: Sizes = 1,
) -> Tensor:  # fmt: skip
    """(N, C, H, W) with (C, O / groups, KH, KW) -> (N, O, H', W')."""
    return transposed(2, input, weight, bias, stride, padding, output_padding, groups, dilation)


@function(to="nn.functional torch", takes=NUMBERS + COMPLEX)
def conv_transpose3d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None,
    stride: Sizes = 1, padding: Sizes = 0, output_padding: Sizes = 0, groups: int = 1, dilation: Sizes = 1,
) -> Tensor:  # fmt: skip
    """(N, C, D, H, W) with (C, O / groups, KD, KH, KW) -> (N, O, D', H', W')."""
    return transposed(3, input, weight, bias, stride, padding, output_padding, groups, dilation)


@function(to="nn.functional torch", takes=NUMBERS + COMPLEX)
def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """(L, N, C) with (K, C, O) -> (L', N, O): :func:`conv1d` with time first and channels last."""
    if input.ndim != 3 or weight.ndim != 3 or bias.ndim != 1:
        raise RuntimeError(
            "conv_tbc: input and weight must have 3 dimensions and bias 1, "
            f"not {input.ndim}, {weight.ndim} and {bias.ndim}"
        )
    found = convolution(1, input.permute(1, 2, 0), weight.permute(2, 1, 0), bias, 1, pad, 1, 1)
    return found.permute(2, 0, 1)
