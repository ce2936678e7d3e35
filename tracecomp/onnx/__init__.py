"""The names of ``torch.onnx`` that programs use while they run. Nothing here exports: marks for it are only noted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracecomp.onnx import symbolic_helper

__all__ = ["is_in_onnx_export", "register_custom_op_symbolic", "symbolic_helper", "unregister_custom_op_symbolic"]

_symbolic: dict[tuple[str, int], Callable[..., Any]] = {}


def is_in_onnx_export() -> bool:
    """Whether the call that asks is being exported."""
    return False


def register_custom_op_symbolic(symbolic_name: str, symbolic_fn: Callable[..., Any], opset_version: int) -> None:
    """Note how an operator is to be exported. ValueError unless the name is like ``"space::name"``."""
    if "::" not in symbolic_name:
        raise ValueError(f"Failed to register operator {symbolic_name}: it must be of the form 'space::name'")
    _symbolic[symbolic_name, opset_version] = symbolic_fn


def unregister_custom_op_symbolic(symbolic_name: str, opset_version: int) -> None:
    """Forget it."""
    _symbolic.pop((symbolic_name, opset_version), None)
