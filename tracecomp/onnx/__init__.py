"""ONNX models as modules that run, train and compile. Needs the package onnx: ``pip install 'tracecomp[onnx]'``."""

from tracecomp.onnx.model import UnsupportedError
from tracecomp.onnx.module import OnnxModule, load

__all__ = ["OnnxModule", "UnsupportedError", "load"]
