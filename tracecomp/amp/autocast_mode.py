"""``torch.amp.autocast_mode``: automatic mixed precision, and the cast that it applies to arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tracecomp.amp.autocast import autocast, custom_bwd, custom_fwd, is_autocast_available
from tracecomp.eager.tensor import Tensor
from tracecomp.ir.types import DType, float64

__all__ = ["autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]


def _cast(value: object, device_type: str, dtype: DType) -> Any:
    """``value`` with the floating tensors of a device in ``dtype``, except those of float64; also inside containers."""
    if isinstance(value, Tensor):
        eligible = value.is_floating_point() and value.device.type == device_type and value.dtype is not float64
        return value.to(dtype) if eligible else value
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return {_cast(k, device_type, dtype): _cast(v, device_type, dtype) for k, v in value.items()}
    if isinstance(value, list | tuple):
        items = [_cast(v, device_type, dtype) for v in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value
