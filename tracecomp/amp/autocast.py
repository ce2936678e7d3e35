"""``autocast``: products in a low precision inside, losses in float32 (the lists are in ``functional.autocast``)."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

from tracecomp.ir.types import DType, bfloat16, float16
from tracecomp.modes import modes

_DEVICES = ("cpu", "cuda", "mps", "xpu")


class autocast:
    """Context and decorator. ``dtype`` is bfloat16 (the default) or float16; other devices than the CPU disable it."""

    def __init__(
        self, device_type: str, dtype: DType | None = None, enabled: bool = True, cache_enabled: bool | None = None
    ) -> None:
        if not isinstance(device_type, str):
            raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
        if device_type not in _DEVICES:
            raise RuntimeError(f"User specified an unsupported autocast device_type '{device_type}'")
        if device_type != "cpu" and enabled:
            warnings.warn(
                f"User provided device_type of '{device_type}', but there is no such device. Disabling", stacklevel=2
            )
            enabled = False
        self.device = device_type
        self.fast_dtype = dtype or bfloat16
        if enabled and self.fast_dtype not in (bfloat16, float16):
            warnings.warn(
                "In CPU autocast, but the target dtype is not supported. Disabling autocast. CPU Autocast only "
                "supports dtype of bfloat16, float16 currently.",
                stacklevel=2,
            )
            enabled = False
        self._enabled = enabled
        self._before: list[Any] = []

    def __enter__(self) -> autocast:
        self._before.append(modes.autocast)
        if self.device == "cpu":
            modes.autocast = self.fast_dtype if self._enabled else None
        return self

    def __exit__(self, *error: object) -> None:
        modes.autocast = self._before.pop()

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def run(*args: Any, **kwargs: Any) -> Any:
            with self:
                return fn(*args, **kwargs)

        return run


def is_autocast_available(device_type: str) -> bool:
    return device_type == "cpu"


def is_autocast_enabled(device_type: str = "cpu") -> bool:
    return device_type == "cpu" and modes.autocast is not None


def get_autocast_dtype(device_type: str = "cpu") -> DType:
    """The dtype that autocast would use."""
    return modes.autocast or bfloat16
