"""PyTorch's queries and settings of its exporter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum
from typing import Any

from tracecomp.library import recorded_through


class TrainingMode(Enum):
    """How PyTorch's older exporter treats a module. Here models are exported as they evaluate."""

    EVAL = 0
    PRESERVE = 1
    TRAINING = 2


class OperatorExportTypes(Enum):
    """PyTorch's older handling of operators that ONNX lacks. Here they raise."""

    ONNX = 0
    ONNX_ATEN = 1
    ONNX_ATEN_FALLBACK = 2
    ONNX_FALLTHROUGH = 3


_symbolic: dict[tuple[str, int], Callable[..., Any]] = {}


_EXPORTING = ContextVar("exporting", default=False)


def is_in_onnx_export() -> bool:
    """Whether the call that asks is being exported."""
    return _EXPORTING.get()


@contextmanager
def exporting() -> Iterator[None]:
    """Inside, a model is recorded for export."""
    before = _EXPORTING.set(True)
    try:
        with recorded_through():
            yield
    finally:
        _EXPORTING.reset(before)


def register_custom_op_symbolic(symbolic_name: str, symbolic_fn: Callable[..., object], opset_version: int) -> None:
    """Record how to export an operator. ValueError unless the name is like ``"space::name"``."""
    if "::" not in symbolic_name:
        raise ValueError(f"Failed to register operator {symbolic_name}: it must be of the form 'space::name'")
    _symbolic[symbolic_name, opset_version] = symbolic_fn


def unregister_custom_op_symbolic(symbolic_name: str, opset_version: int) -> None:
    """Forget it."""
    _symbolic.pop((symbolic_name, opset_version), None)
