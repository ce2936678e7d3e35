"""Rows of a matrix whose gradient is sparse: it holds the rows that were read, each as often as it was."""

from __future__ import annotations

from typing import Any

from tracecomp.autograd.function import Function
from tracecomp.base.capture_guide import Section
from tracecomp.eager.modes import modes
from tracecomp.eager.tensor import Tensor
from tracecomp.ir.types import int64
from tracecomp.sparse.tensors import coo


class _Rows(Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(index)
        ctx.save_for_forward(index)
        ctx.size = tuple(weight.shape)
        return weight[index]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (index,) = ctx.saved_tensors
        return coo(index.to(int64)[None], grad, ctx.size), None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, index: Tensor | None) -> Tensor:
        (at,) = ctx.saved_tensors
        return tangent[at]


def rows_with_sparse_gradient(weight: Tensor, index: Tensor) -> Tensor:
    """``weight[index]`` for a vector ``index``; the gradient of ``weight`` is a COO tensor, not coalesced."""
    if modes.recorder is not None and modes.grad and weight.requires_grad:
        modes.recorder.refuse_here("reads rows whose gradient is sparse", Section.EXCLUDE, "Use sparse=False")
    found: Tensor = _Rows.apply(weight, index)
    return found
