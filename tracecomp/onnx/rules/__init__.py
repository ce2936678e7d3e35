"""The meaning of each ONNX operator in terms of tensors. Importing the package fills ``registry.RULES``."""

from tracecomp.onnx.rules import (
    control,
    elementwise,
    image,
    indexing,
    matrix,
    normalization,
    quantization,
    random,
    recurrent,
    reduction,
    sequence,
    shape,
    signal,
    window,
)

__all__ = [
    "control", "elementwise", "image", "indexing", "matrix", "normalization", "quantization", "random", "recurrent",
    "reduction", "sequence", "shape", "signal", "window",
]  # fmt: skip
