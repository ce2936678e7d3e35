"""Padding layers."""

from __future__ import annotations

from tracecomp.eager.tensor import Tensor
from tracecomp.functional.dims import Sizes
from tracecomp.nn import functional as F
from tracecomp.nn.functional.conv import ntuple
from tracecomp.nn.module import Module


class _PadNd(Module):
    """Common part of paddings: ``padding`` is one amount or (before, after) from the last axis on."""

    rank: int
    mode: str

    def __init__(self, padding: Sizes) -> None:
        super().__init__()
        self.padding = ntuple(padding, 2 * self.rank)

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, self.mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPadNd(Module):
    """Common part of constant paddings."""

    rank: int

    def __init__(self, padding: Sizes, value: float) -> None:
        super().__init__()
        self.padding = ntuple(padding, 2 * self.rank)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPadNd):
    """Pads the last 1 axes by ``value``."""

    rank = 1


class ConstantPad2d(_ConstantPadNd):
    """Pads the last 2 axes by ``value``."""

    rank = 2


class ConstantPad3d(_ConstantPadNd):
    """Pads the last 3 axes by ``value``."""

    rank = 3


class ZeroPad1d(_PadNd):
    """Pads the last 1 axes by zeros."""

    rank, mode = 1, "constant"


class ZeroPad2d(_PadNd):
    """Pads the last 2 axes by zeros."""

    rank, mode = 2, "constant"


class ZeroPad3d(_PadNd):
    """Pads the last 3 axes by zeros."""

    rank, mode = 3, "constant"


class ReflectionPad1d(_PadNd):
    """Pads the last 1 axes by its reflection."""

    rank, mode = 1, "reflect"


class ReflectionPad2d(_PadNd):
    """Pads the last 2 axes by its reflection."""

    rank, mode = 2, "reflect"


class ReflectionPad3d(_PadNd):
    """Pads the last 3 axes by its reflection."""

    rank, mode = 3, "reflect"


class ReplicationPad1d(_PadNd):
    """Pads the last 1 axes by its edge."""

    rank, mode = 1, "replicate"


class ReplicationPad2d(_PadNd):
    """Pads the last 2 axes by its edge."""

    rank, mode = 2, "replicate"


class ReplicationPad3d(_PadNd):
    """Pads the last 3 axes by its edge."""

    rank, mode = 3, "replicate"


class CircularPad1d(_PadNd):
    """Pads the last 1 axes by its other end."""

    rank, mode = 1, "circular"


class CircularPad2d(_PadNd):
    """Pads the last 2 axes by its other end."""

    rank, mode = 2, "circular"


class CircularPad3d(_PadNd):
    """Pads the last 3 axes by its other end."""

    rank, mode = 3, "circular"
