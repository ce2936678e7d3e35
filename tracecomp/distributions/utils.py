"""The names of ``torch.distributions.utils``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import update_wrapper
from typing import Any

from tracecomp.eager.device import Device
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.functional.default_dtype import default_dtype
from tracecomp.ir.types import DType

__all__ = [
    "broadcast_all", "clamp_probs", "lazy_property", "logits_to_probs", "probs_to_logits", "tril_matrix_to_vec",
    "vec_to_tril_matrix",
]  # fmt: skip

euler_constant = 0.57721566490153286060


def broadcast_all(*values: Any) -> list[Tensor]:
    """Convert numbers and tensors to tensors of one shape; numbers take the dtype of the first tensor.

    ValueError for other operands.
    """
    if not all(isinstance(v, Tensor | int | float | bool) or hasattr(v, "__torch_function__") for v in values):
        raise ValueError("Input arguments must all be instances of Number, torch.Tensor or objects implementing it.")
    dtype = next((v.dtype for v in values if isinstance(v, Tensor)), default_dtype())
    tensors = [v if hasattr(v, "__torch_function__") else T.tensor(v, dtype=dtype) for v in values]
    return list(T.broadcast_tensors(*tensors))


def _standard_normal(shape: Sequence[int], dtype: DType, device: Device) -> Tensor:
    """Numbers drawn from the standard normal distribution."""
    found: Tensor = T.randn(shape, dtype=dtype)
    return found


def sum_rightmost(value: Tensor, dim: int) -> Any:
    """The sum over the last ``dim`` dimensions."""
    return value if dim == 0 else value.reshape((*value.shape[:-dim], -1)).sum(-1)


_sum_rightmost = sum_rightmost


def clamp_probs(probs: Tensor) -> Tensor:
    """``probs`` kept away from 0 and 1 by the resolution of their type."""
    eps = T.finfo(probs.dtype).eps
    found: Tensor = probs.clamp(min=eps, max=1 - eps)
    return found


def probs_to_logits(probs: Tensor, is_binary: bool = False) -> Tensor:
    """Logarithms of probabilities; of odds for binary ones."""
    clamped = clamp_probs(probs)
    found: Tensor = T.log(clamped) - T.log1p(-clamped) if is_binary else T.log(clamped)
    return found


def logits_to_probs(logits: Tensor, is_binary: bool = False) -> Tensor:
    """Probabilities from their logarithms up to a constant; from log-odds for binary ones."""
    found: Tensor = T.sigmoid(logits) if is_binary else T.softmax(logits, -1)
    return found


class lazy_property:
    """A property that is computed on first access, and then an attribute."""

    def __init__(self, wrapped: Callable[[Any], object]) -> None:
        self.wrapped = wrapped
        update_wrapper(self, wrapped)  # type: ignore[arg-type]

    def __get__(self, instance: object, obj_type: object = None) -> Any:
        if instance is None:
            return property(self.wrapped)
        value = self.wrapped(instance)
        setattr(instance, self.wrapped.__name__, value)
        return value


def tril_matrix_to_vec(mat: Tensor, diag: int = 0) -> Tensor:
    """The elements on and below a diagonal of a square matrix, row by row; ValueError if the diagonal does not
    exist."""
    size = mat.shape[-1]
    if diag < -size or diag >= size:
        raise ValueError(f"diag ({diag}) provided is outside [{-size}, {size - 1}].")
    rows, columns = T.tril_indices(size, size, diag)
    return mat[..., rows, columns]


def vec_to_tril_matrix(vec: Tensor, diag: int = 0) -> Tensor:
    """The square matrix with ``vec`` on and below a diagonal; ValueError when no size fits."""
    count = vec.shape[-1]
    exact = (-(1 + 2 * diag) + ((1 + 2 * diag) ** 2 + 8 * count + 4 * abs(diag) * (diag + 1)) ** 0.5) / 2
    size = round(exact)
    if abs(size - exact) > 1e-6:
        raise ValueError(
            f"The size of last dimension is {count} which cannot be expressed as the lower triangular part "
            "of a square D x D matrix."
        )
    rows, columns = T.tril_indices(size, size, diag)
    places = rows * size + columns
    flat = vec.new_zeros((*vec.shape[:-1], size * size)).index_copy(-1, places, vec)
    found: Tensor = flat.reshape((*vec.shape[:-1], size, size))
    return found
