"""The names of ``torch.utils.dlpack``: memory shared with other libraries."""

from __future__ import annotations

from typing import Any

from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T


def to_dlpack(tensor: Tensor) -> Any:
    """A capsule for ``from_dlpack`` of another library."""
    return tensor.__dlpack__()


def from_dlpack(ext_tensor: Any) -> Tensor:
    """A tensor over the memory of another library's array."""
    found: Tensor = T.from_dlpack(ext_tensor)
    return found
