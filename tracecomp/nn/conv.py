"""Convolution layers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tracecomp.eager.device import Device
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.functional.dims import Sizes
from tracecomp.ir.types import DType
from tracecomp.nn import functional as F
from tracecomp.nn import init
from tracecomp.nn.functional.conv import ntuple
from tracecomp.nn.lazy import LazyModuleMixin
from tracecomp.nn.module import Module
from tracecomp.nn.parameter import Parameter, UninitializedParameter


class _ConvNd(Module):
    """Common part of convolutions. ValueError when channels and groups do not fit or an option is unknown."""

    rank: int
    transposed = False

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Sizes, stride: Sizes = 1, padding: Sizes | str = 0,
        dilation: Sizes = 1, groups: int = 1, bias: bool = True, padding_mode: str = "zeros", device: Device = None,
        dtype: DType | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if groups <= 0:
            raise ValueError("groups must be a positive integer")
        if in_channels % groups:
            raise ValueError("in_channels must be divisible by groups")
        if out_channels % groups:
            raise ValueError("out_channels must be divisible by groups")
        if isinstance(padding, str):
            if padding not in ("same", "valid"):
                raise ValueError(f"Invalid padding string {padding!r}, should be one of {{'same', 'valid'}}")
            if padding == "same" and any(s != 1 for s in ntuple(stride, self.rank)):
                raise ValueError("padding='same' is not supported for strided convolutions")
        modes = ("zeros", "reflect", "replicate", "circular")
        if padding_mode not in modes:
            raise ValueError(f"padding_mode must be one of {set(modes)}, but got padding_mode='{padding_mode}'")
        if self.transposed and padding_mode != "zeros":
            raise ValueError(f'Only "zeros" padding mode is supported for {type(self).__name__}')
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = ntuple(kernel_size, self.rank)
        self.stride = ntuple(stride, self.rank)
        self.padding: Any = padding if isinstance(padding, str) else ntuple(padding, self.rank)
        self.dilation = ntuple(dilation, self.rank)
        self.output_padding = (0,) * self.rank
        self.groups = groups
        self.padding_mode = padding_mode
        self.weight = Parameter(T.empty(*self._weight_shape(), device=device, dtype=dtype))
        self.register_parameter("bias", Parameter(T.empty(out_channels, device=device, dtype=dtype)) if bias else None)
        if in_channels:
            self.reset_parameters()

    def _weight_shape(self) -> tuple[int, ...]:
        ends = (self.in_channels, self.out_channels) if self.transposed else (self.out_channels, self.in_channels)
        return (ends[0], ends[1] // self.groups, *self.kernel_size)

    def reset_parameters(self) -> None:
        """Uniform in ``1 / sqrt(fan_in)``, as in PyTorch."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in = self.weight.shape[1] * math.prod(self.kernel_size)
            if fan_in:
                bound = 1 / math.sqrt(fan_in)
                init.uniform_(self.bias, -bound, bound)

    def extra_repr(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        zeros, ones = (0,) * self.rank, (1,) * self.rank
        for name, usual in (("padding", zeros), ("dilation", ones), ("output_padding", zeros), ("groups", 1)):
            value = getattr(self, name)
            if value != usual:
                text += f", {name}={value}"
        if self.bias is None:
            text += ", bias=False"
        return text if self.padding_mode == "zeros" else f"{text}, padding_mode={self.padding_mode}"


class _Conv(_ConvNd):
    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        padding = self.padding
        if self.padding_mode != "zeros":
            input, padding = F.pad(input, self._mode_padding(), self.padding_mode), 0
        convolve = getattr(F, f"conv{self.rank}d")
        return convolve(input, weight, bias, self.stride, padding, self.dilation, self.groups)

    def _mode_padding(self) -> list[int]:
        if self.padding == "valid":
            return [0] * (2 * self.rank)
        if self.padding == "same":
            totals = [d * (k - 1) for d, k in zip(self.dilation, self.kernel_size, strict=True)]
            return [v for t in reversed(totals) for v in (t // 2, t - t // 2)]
        return [p for p in reversed(self.padding) for _ in range(2)]

    def forward(self, input: Tensor) -> Tensor:
        return self._conv_forward(input, self.weight, self.bias)


class Conv1d(_Conv):
    """(N, C, L) -> (N, O, L'); ``padding`` may be ``"same"`` or ``"valid"``."""

    rank = 1


class Conv2d(_Conv):
    """(N, C, H, W) -> (N, O, H', W'); ``padding`` may be ``"same"`` or ``"valid"``."""

    rank = 2


class Conv3d(_Conv):
    """(N, C, D, H, W) -> (N, O, D', H', W')."""

    rank = 3


class _ConvTransposeNd(_ConvNd):
    transposed = True

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Sizes, stride: Sizes = 1, padding: Sizes | str = 0,
        output_padding: Sizes = 0, groups: int = 1, bias: bool = True, dilation: Sizes = 1, padding_mode: str = "zeros",
        device: Device = None, dtype: DType | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode, device, dtype
        )
        self.output_padding = ntuple(output_padding, self.rank)

    def _output_padding(self, input: Tensor, output_size: Sequence[int] | None) -> tuple[int, ...]:
        """The output padding for ``output_size``. ValueError when it cannot be reached."""
        if output_size is None:
            return self.output_padding
        wanted = list(output_size)
        if len(wanted) == self.rank + 2:
            wanted = wanted[2:]
        if len(wanted) != self.rank:
            raise ValueError(
                f"ConvTranspose{self.rank}D: for {input.ndim}D input, output_size must have {self.rank} or "
                f"{self.rank + 2} elements (got {len(wanted)})"
            )
        least = [
            (n - 1) * s - 2 * p + d * (k - 1) + 1
            for n, s, p, d, k in zip(
                input.shape[-self.rank :], self.stride, self.padding, self.dilation, self.kernel_size, strict=True
            )
        ]
        for want, low, s in zip(wanted, least, self.stride, strict=True):
            if not low <= want <= low + s - 1:
                raise ValueError(
                    f"requested an output size of {wanted}, but valid sizes range from {least} to "
                    f"{[v + t - 1 for v, t in zip(least, self.stride, strict=True)]} "
                    f"(for an input of {list(input.shape[2:])})"
                )
        return tuple(want - low for want, low in zip(wanted, least, strict=True))

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        extra = self._output_padding(input, output_size)
        transposed = getattr(F, f"conv_transpose{self.rank}d")
        return transposed(input, self.weight, self.bias, self.stride, self.padding, extra, self.groups, self.dilation)


class ConvTranspose1d(_ConvTransposeNd):
    """(N, C, L) -> (N, O, L'), the adjoint of a convolution."""

    rank = 1


class ConvTranspose2d(_ConvTransposeNd):
    """(N, C, H, W) -> (N, O, H', W'), the adjoint of a convolution."""

    rank = 2


class ConvTranspose3d(_ConvTransposeNd):
    """(N, C, D, H, W) -> (N, O, D', H', W'), the adjoint of a convolution."""

    rank = 3


class _LazyConvNd(LazyModuleMixin, _ConvNd):
    """A convolution that learns ``in_channels`` from its first input."""

    def _wait(self, out_channels: int, bias: bool, dtype: DType | None) -> None:
        self.out_channels = out_channels
        self.weight = UninitializedParameter(dtype=dtype)
        if bias:
            self.bias = UninitializedParameter(dtype=dtype)

    def initialize_parameters(self, input: Tensor, *args: Any, **kwargs: Any) -> None:
        if not self.has_uninitialized_params():
            return
        if input.ndim not in (self.rank + 1, self.rank + 2):
            raise RuntimeError(
                f"Expected {self.rank + 1}D (unbatched) or {self.rank + 2}D (batched) input to {type(self).__name__}, "
                f"but got input of size: {list(input.shape)}"
            )
        self.in_channels = input.shape[-self.rank - 1]
        if self.in_channels % self.groups:
            raise ValueError("in_channels must be divisible by groups")
        assert isinstance(self.weight, UninitializedParameter)
        self.weight.materialize(self._weight_shape())
        if isinstance(self.bias, UninitializedParameter):
            self.bias.materialize((self.out_channels,))
        self.reset_parameters()


class _LazyConv(_LazyConvNd):
    def __init__(
        self, out_channels: int, kernel_size: Sizes, stride: Sizes = 1, padding: Sizes | str = 0, dilation: Sizes = 1,
        groups: int = 1, bias: bool = True, padding_mode: str = "zeros", device: Device = None,
        dtype: DType | None = None,
    ) -> None:  # fmt: skip
        super().__init__(0, groups, kernel_size, stride, padding, dilation, groups, False, padding_mode, device, dtype)
        self._wait(out_channels, bias, dtype)


class _LazyConvTranspose(_LazyConvNd):
    def __init__(
        self, out_channels: int, kernel_size: Sizes, stride: Sizes = 1, padding: Sizes | str = 0,
        output_padding: Sizes = 0, groups: int = 1, bias: bool = True, dilation: Sizes = 1, padding_mode: str = "zeros",
        device: Device = None, dtype: DType | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            0, groups, kernel_size, stride, padding, output_padding, groups, False, dilation, padding_mode, device,
            dtype,
        )  # fmt: skip
        self._wait(out_channels, bias, dtype)


class LazyConv1d(_LazyConv, Conv1d):
    """``Conv1d`` that learns ``in_channels`` from its first input."""

    cls_to_become = Conv1d


class LazyConv2d(_LazyConv, Conv2d):
    """``Conv2d`` that learns ``in_channels`` from its first input."""

    cls_to_become = Conv2d


class LazyConv3d(_LazyConv, Conv3d):
    """``Conv3d`` that learns ``in_channels`` from its first input."""

    cls_to_become = Conv3d


class LazyConvTranspose1d(_LazyConvTranspose, ConvTranspose1d):
    """``ConvTranspose1d`` that learns ``in_channels`` from its first input."""

    cls_to_become = ConvTranspose1d


class LazyConvTranspose2d(_LazyConvTranspose, ConvTranspose2d):
    """``ConvTranspose2d`` that learns ``in_channels`` from its first input."""

    cls_to_become = ConvTranspose2d


class LazyConvTranspose3d(_LazyConvTranspose, ConvTranspose3d):
    """``ConvTranspose3d`` that learns ``in_channels`` from its first input."""

    cls_to_become = ConvTranspose3d
