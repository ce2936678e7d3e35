"""Parameters as one vector and back."""

from __future__ import annotations

from collections.abc import Iterable

from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All elements in one vector."""
    return T.cat([p.reshape(-1) for p in parameters])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Copy each part of ``vec`` into its parameter. TypeError unless a tensor."""
    if not isinstance(vec, Tensor):
        raise TypeError(f"expected torch.Tensor, but got: {type(vec).__name__}")
    start = 0
    for p in parameters:
        p.data = vec[start : start + p.numel()].reshape(*p.shape).data
        start += p.numel()
