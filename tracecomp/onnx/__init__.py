"""ONNX both ways: models as modules that train and compile, recorded graphs as models. Needs the package onnx.

The marks that programs set for PyTorch's exporter are here too, and need nothing.
"""

from typing import Any

from tracecomp.base.lazy_names import later as _later
from tracecomp.onnx import errors, symbolic_helper
from tracecomp.onnx.errors import OnnxExporterError, UnsupportedError
from tracecomp.onnx.export_marks import (
    OperatorExportTypes,
    TrainingMode,
    is_in_onnx_export,
    register_custom_op_symbolic,
    unregister_custom_op_symbolic,
)

_late = _later(
    __name__,
    {
        "ONNXProgram": "program",
        "OnnxModule": "module",
        "export": "exporter",
        "load": "module",
    },
)


def __getattr__(name: str) -> Any:
    try:
        return _late(name)
    except ImportError as error:
        raise ImportError("tracecomp.onnx needs the package onnx: pip install 'tracecomp[onnx]'") from error


__all__ = [
    "ONNXProgram", "OnnxExporterError", "OnnxModule", "OperatorExportTypes", "TrainingMode", "UnsupportedError",
    "errors", "export", "is_in_onnx_export", "load", "register_custom_op_symbolic", "symbolic_helper",
    "unregister_custom_op_symbolic",
]  # fmt: skip
