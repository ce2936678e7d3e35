"""A function with a wrong gradient, which checks must find."""

from __future__ import annotations

from typing import Any

import tracecomp as torch


class Double(torch.autograd.Function):
    """Two times x, with three as its derivative."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * 3
