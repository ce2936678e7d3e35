"""``autocast``: a context with products in low precision and losses in float32 (the lists are in
``functional.autocast``)."""

from __future__ import annotations

import copy
import functools
import warnings
from collections.abc import Callable
from typing import Any

from tracecomp.base.interrupts import before_of
from tracecomp.eager.modes import leave_modes, modes
from tracecomp.eager.tensor import Tensor
from tracecomp.ir.types import DType, bfloat16, float16

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

    def __enter__(self) -> autocast:
        before_of(self)["autocast"] = modes.autocast
        if self.device == "cpu":
            modes.autocast = self.fast_dtype if self._enabled else None
        return self

    __exit__ = leave_modes()

    def __call__(self, fn: Callable[..., object]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def run(*args: Any, **kwargs: Any) -> Any:
            with copy.copy(self):
                return fn(*args, **kwargs)

        return run


def is_autocast_available(device_type: str) -> bool:
    return device_type == "cpu"


def is_autocast_enabled(device_type: str = "cpu") -> bool:
    return device_type == "cpu" and modes.autocast is not None


def get_autocast_dtype(device_type: str = "cpu") -> DType:
    """The dtype that autocast would use."""
    return modes.autocast or bfloat16


def is_autocast_cpu_enabled() -> bool:
    return is_autocast_enabled("cpu")


def get_autocast_cpu_dtype() -> DType:
    return get_autocast_dtype("cpu")


def get_autocast_gpu_dtype() -> DType:
    """float16, which autocast would use on a GPU."""
    return float16


def custom_fwd(
    fwd: Callable[..., object] | None = None, *, device_type: str = "cpu", cast_inputs: DType | None = None
) -> Callable[..., Any]:
    """Decorate an ``autograd.Function``'s ``forward``: with ``cast_inputs``, its floats are cast and autocast is off.

    ``backward``, marked by ``custom_bwd``, runs with the autocast that ``forward`` had.
    """
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def run(*args: Any, **kwargs: Any) -> Any:
        before = modes.autocast
        casting = cast_inputs is not None and before is not None and device_type == "cpu"
        args[0]._fwd_autocast = None if casting else before
        if not casting:
            return fwd(*args, **kwargs)
        modes.autocast = None
        try:
            return fwd(*(_cast(a, cast_inputs) for a in args), **{k: _cast(v, cast_inputs) for k, v in kwargs.items()})
        finally:
            modes.autocast = before

    return run


def custom_bwd(bwd: Callable[..., object] | None = None, *, device_type: str = "cpu") -> Callable[..., Any]:
    """Decorate an ``autograd.Function``'s ``backward``: it runs with the autocast that ``forward`` had."""
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def run(*args: Any, **kwargs: Any) -> Any:
        before, modes.autocast = modes.autocast, args[0]._fwd_autocast
        try:
            return bwd(*args, **kwargs)
        finally:
            modes.autocast = before

    return run


def _cast(value: Any, dtype: Any) -> Any:
    return value.to(dtype) if isinstance(value, Tensor) and value.is_floating_point() else value
