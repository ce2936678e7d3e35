"""Errors of capture under PyTorch's names."""

from __future__ import annotations

from enum import Enum, auto

from tracecomp.base.errors import CaptureError

__all__ = ["TorchDynamoException", "Unsupported", "UserError", "UserErrorType"]

Unsupported = CaptureError  # what ``fullgraph=True`` raises


class TorchDynamoException(RuntimeError):
    """Base of what capture raises."""


class UserErrorType(Enum):
    """What a program or its caller has asked for that cannot be."""

    DYNAMIC_CONTROL_FLOW = auto()
    ANTI_PATTERN = auto()
    STANDARD_LIBRARY = auto()
    CONSTRAINT_VIOLATION = auto()
    DYNAMIC_DIM = auto()
    INVALID_INPUT = auto()
    INVALID_OUTPUT = auto()
    UNSUPPORTED_ALIASED_MUTATED_DYNAMIC_INPUTS = auto()


class UserError(TorchDynamoException):
    """A program that runs, and cannot be captured as it was asked for; ``error_type`` says of which kind."""

    def __init__(self, error_type: UserErrorType, msg: str, case_name: str | None = None) -> None:
        super().__init__(msg)
        self.error_type, self.message, self.case_name = error_type, msg, case_name
