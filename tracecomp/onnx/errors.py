"""Errors of exporting and reading models, under the names of ``torch.onnx.errors``."""

from __future__ import annotations

from tracecomp.base.errors import CaptureError

__all__ = ["OnnxExporterError", "RecordingError", "UnsupportedError", "UnsupportedOperatorError"]


class OnnxExporterError(RuntimeError):
    """A model cannot be exported, or was exported wrong."""


class UnsupportedError(OnnxExporterError, NotImplementedError):
    """A model has operators, types or forms that cannot be run or written; names all of them at once."""


class RecordingError(OnnxExporterError, CaptureError):
    """A model does what no graph of ONNX does: says what, and where."""


UnsupportedOperatorError = UnsupportedError
"""PyTorch's name for it."""
