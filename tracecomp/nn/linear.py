"""Linear layers."""

from __future__ import annotations

import math
from typing import Any

from tracecomp.eager.device import Device
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.ir.types import DType
from tracecomp.nn import functional as F
from tracecomp.nn import init
from tracecomp.nn.lazy import LazyModuleMixin
from tracecomp.nn.module import Module
from tracecomp.nn.parameter import Parameter, UninitializedParameter


class Identity(Module):
    """Return the input; any arguments are accepted and ignored."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: object) -> Any:
        return input


class Linear(Module):
    """``y = x A^T + b``: (*, in_features) -> (*, out_features)."""

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, device: Device = None, dtype: DType | None = None
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight = Parameter(T.empty(out_features, in_features, device=device, dtype=dtype))
        self.register_parameter("bias", Parameter(T.empty(out_features, device=device, dtype=dtype)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Uniform in ``1 / sqrt(in_features)``, as in PyTorch."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(self.in_features) if self.in_features > 0 else 0
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        return F.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class NonDynamicallyQuantizableLinear(Linear):
    """``Linear`` under the name that PyTorch gives to attention's output projection."""


class LazyLinear(LazyModuleMixin, Linear):
    """``Linear`` that learns ``in_features`` from its first input."""

    cls_to_become = Linear

    def __init__(self, out_features: int, bias: bool = True, device: Device = None, dtype: DType | None = None) -> None:
        super().__init__(0, 0, False, device, dtype)
        self.out_features = out_features
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        if not self.has_uninitialized_params() and self.in_features:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:
        if not self.has_uninitialized_params():
            return
        self.in_features = input.shape[-1]
        assert isinstance(self.weight, UninitializedParameter)
        self.weight.materialize((self.out_features, self.in_features))
        if isinstance(self.bias, UninitializedParameter):
            self.bias.materialize((self.out_features,))
        self.reset_parameters()


class Bilinear(Module):
    """``y = x1^T A x2 + b``: (*, in1), (*, in2) -> (*, out)."""

    def __init__(
        self, in1_features: int, in2_features: int, out_features: int, bias: bool = True, device: Device = None,
        dtype: DType | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if in1_features <= 0:
            raise ValueError(f"in1_features must be > 0, but got {in1_features}")
        self.in1_features = in1_features
        self.in2_features = in2_features
        self.out_features = out_features
        self.weight = Parameter(T.empty(out_features, in1_features, in2_features, device=device, dtype=dtype))
        self.register_parameter("bias", Parameter(T.empty(out_features, device=device, dtype=dtype)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Uniform in ``1 / sqrt(in1_features)``, as in PyTorch."""
        bound = 1 / math.sqrt(self.in1_features)
        for parameter in self.parameters(recurse=False):
            init.uniform_(parameter, -bound, bound)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        return F.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (
            f"in1_features={self.in1_features}, in2_features={self.in2_features}, "
            f"out_features={self.out_features}, bias={self.bias is not None}"
        )
