"""``torch.nn.quantized`` for models in floating point: operators that quantization can observe."""

from __future__ import annotations

from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.nn.functional import relu
from tracecomp.nn.linear import Identity
from tracecomp.nn.module import Module

__all__ = ["FloatFunctional"]


class FloatFunctional(Module):
    """Operators as methods of a module; ``activation_post_process`` receives every result."""

    def __init__(self) -> None:
        super().__init__()
        self.activation_post_process = Identity()

    def forward(self, x: Tensor) -> Tensor:
        """RuntimeError: call a method."""
        raise RuntimeError("FloatFunctional is not intended to use the 'forward'. Please use the underlying operation")

    def _observed(self, result: Tensor) -> Tensor:
        observed: Tensor = self.activation_post_process(result)
        return observed

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """``x + y``."""
        return self._observed(T.add(x, y))

    def add_scalar(self, x: Tensor, y: float) -> Tensor:
        """``x + y``, which is not observed."""
        return T.add(x, y)

    def mul(self, x: Tensor, y: Tensor) -> Tensor:
        """``x * y``."""
        return self._observed(T.mul(x, y))

    def mul_scalar(self, x: Tensor, y: float) -> Tensor:
        """``x * y``, which is not observed."""
        return T.mul(x, y)

    def cat(self, x: list[Tensor], dim: int = 0) -> Tensor:
        """The tensors one after the other along ``dim``."""
        return self._observed(T.cat(x, dim=dim))

    def add_relu(self, x: Tensor, y: Tensor) -> Tensor:
        """``relu(x + y)``."""
        return self._observed(relu(T.add(x, y)))

    def matmul(self, x: Tensor, y: Tensor) -> Tensor:
        """``x @ y``."""
        return self._observed(T.matmul(x, y))
