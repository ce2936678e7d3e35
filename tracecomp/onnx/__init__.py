"""ONNX models as modules that run, train and compile. Needs the package onnx: ``pip install 'tracecomp[onnx]'``.

The marks that programs set for PyTorch's exporter are here too, and need nothing.
"""

from tracecomp.base.lazy_names import later as _later
from tracecomp.onnx import symbolic_helper
from tracecomp.onnx.export_marks import (
    is_in_onnx_export,
    register_custom_op_symbolic,
    unregister_custom_op_symbolic,
)

__getattr__ = _later(__name__, {"OnnxModule": "module", "UnsupportedError": "model", "load": "module"})

__all__ = [
    "OnnxModule", "UnsupportedError", "is_in_onnx_export", "load", "register_custom_op_symbolic", "symbolic_helper",
    "unregister_custom_op_symbolic",
]  # fmt: skip
