"""``Variable``: PyTorch's former wrapper of differentiable tensors."""

from __future__ import annotations

from tracecomp.base.errors import type_name
from tracecomp.eager.tensor import Tensor


class _VariableMeta(type):
    def __instancecheck__(cls, x: object) -> bool:
        return isinstance(x, Tensor)

    def __call__(cls, data: Tensor, requires_grad: bool = False, volatile: bool | None = None) -> Tensor:
        """Return a tensor that shares the memory of ``data``; TypeError unless it is a tensor."""
        if not isinstance(data, Tensor):
            raise TypeError(f"Variable data has to be a tensor, but got {type_name(data)}")
        return data.detach().requires_grad_(requires_grad)


class Variable(metaclass=_VariableMeta):
    """``Variable(t, requires_grad)`` is a tensor that shares ``t``'s memory; every tensor is an instance."""
