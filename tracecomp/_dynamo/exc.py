"""Errors of capture under PyTorch's names."""

from __future__ import annotations

from enum import Enum, auto

from tracecomp.base.errors import CaptureError

__all__ = ["TorchDynamoException", "Unsupported", "UserError", "UserErrorType"]

Unsupported = CaptureError  # raised with ``fullgraph=True``


class TorchDynamoException(RuntimeError):
    """Base class of errors of capture."""


class TensorifyScalarRestartAnalysis(TorchDynamoException):
    """A capture that begins again in PyTorch; never raised here."""


class UserErrorType(Enum):
    """Kinds of impossible requests by a program or its caller."""

    DYNAMIC_CONTROL_FLOW = auto()
    ANTI_PATTERN = auto()
    STANDARD_LIBRARY = auto()
    CONSTRAINT_VIOLATION = auto()
    DYNAMIC_DIM = auto()
    INVALID_INPUT = auto()
    INVALID_OUTPUT = auto()
    UNSUPPORTED_ALIASED_MUTATED_DYNAMIC_INPUTS = auto()


class UserError(TorchDynamoException):
    """Raised for a program that runs, but cannot be captured as requested; ``error_type`` is its kind."""

    def __init__(self, error_type: UserErrorType, msg: str, case_name: str | None = None) -> None:
        super().__init__(msg)
        self.error_type, self.message, self.case_name = error_type, msg, case_name
