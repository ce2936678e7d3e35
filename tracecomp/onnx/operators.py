"""``torch.onnx.operators``: sizes as tensors, which the exporter keeps dynamic."""

from __future__ import annotations

from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T

__all__ = ["reshape_from_tensor_shape", "shape_as_tensor"]


def shape_as_tensor(x: Tensor) -> Tensor:
    """The shape of ``x``, of type int64."""
    sizes: Tensor = T._shape_as_tensor(x)
    return sizes


def reshape_from_tensor_shape(x: Tensor, shape: Tensor) -> Tensor:
    """``x`` reshaped to the numbers in ``shape``."""
    return x.reshape(shape.tolist())
