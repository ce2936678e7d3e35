"""Inspection and control of the autograd graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracecomp.base.interrupts import before_of
from tracecomp.eager.modes import leave_modes, modes
from tracecomp.eager.tensor import Tensor
from tracecomp.eager.tensor_base import Node

__all__ = ["Node", "disable_saved_tensors_hooks", "save_on_cpu", "saved_tensors_hooks"]


class saved_tensors_hooks:
    """A context in which tensors saved for backward pass through ``pack``, and through ``unpack`` on use."""

    def __init__(self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]) -> None:
        self._hooks = (pack_hook, unpack_hook)

    def __enter__(self) -> None:
        before = before_of(self)["save_hooks"] = modes.save_hooks
        modes.save_hooks = (*before, self._hooks)

    __exit__ = leave_modes()


class save_on_cpu(saved_tensors_hooks):
    """Keep saved tensors on the CPU, where they are anyway."""

    def __init__(self, pin_memory: bool = False, device_type: str = "cpu") -> None:
        super().__init__(lambda x: x, lambda x: x)


class disable_saved_tensors_hooks:
    """A context without ``saved_tensors_hooks``."""

    def __init__(self, error_message: str = "") -> None:
        self._message = error_message

    def __enter__(self) -> None:
        before_of(self)["save_hooks"] = modes.save_hooks
        modes.save_hooks = ()

    __exit__ = leave_modes()
