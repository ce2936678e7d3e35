"""What programs written for PyTorch ask and tell its exporter; nothing here exports, so it is only noted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_symbolic: dict[tuple[str, int], Callable[..., Any]] = {}


def is_in_onnx_export() -> bool:
    """Whether the call that asks is being exported."""
    return False


def register_custom_op_symbolic(symbolic_name: str, symbolic_fn: Callable[..., object], opset_version: int) -> None:
    """Note how an operator is to be exported. ValueError unless the name is like ``"space::name"``."""
    if "::" not in symbolic_name:
        raise ValueError(f"Failed to register operator {symbolic_name}: it must be of the form 'space::name'")
    _symbolic[symbolic_name, opset_version] = symbolic_fn


def unregister_custom_op_symbolic(symbolic_name: str, opset_version: int) -> None:
    """Forget it."""
    _symbolic.pop((symbolic_name, opset_version), None)
