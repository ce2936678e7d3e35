"""ONNX both ways: models as modules that train and compile, recorded graphs as models."""

try:
    import onnx as _onnx  # noqa: F401
except ImportError as error:
    raise ImportError("tracecomp.onnx needs the package onnx: pip install 'tracecomp[onnx]'") from error

from tracecomp.onnx.exporter import export
from tracecomp.onnx.model import UnsupportedError
from tracecomp.onnx.module import OnnxModule, load

__all__ = ["OnnxModule", "UnsupportedError", "export", "load"]
