"""Automatic mixed precision under the names of torch.amp."""

from tracecomp.amp.autocast import (
    autocast,
    custom_bwd,
    custom_fwd,
    get_autocast_cpu_dtype,
    get_autocast_dtype,
    get_autocast_gpu_dtype,
    is_autocast_available,
    is_autocast_cpu_enabled,
    is_autocast_enabled,
)
from tracecomp.amp.grad_scaler import GradScaler

__all__ = [
    "GradScaler", "autocast", "custom_bwd", "custom_fwd", "get_autocast_cpu_dtype", "get_autocast_dtype",
    "get_autocast_gpu_dtype", "is_autocast_available", "is_autocast_cpu_enabled", "is_autocast_enabled",
]  # fmt: skip
