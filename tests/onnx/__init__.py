"""Tests of tracecomp.onnx."""
