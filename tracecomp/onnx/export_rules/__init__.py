"""How each primitive is written in ONNX: one rule for each, found by name; ``refused`` says what has none, and why."""

from tracecomp.onnx.export_rules import (
    contraction,
    control,
    cumulative,
    elementwise,
    indexing,
    random,
    recurrent,
    reduction,
    view,
)
from tracecomp.onnx.export_rules.emitter import RULES, Emitter, missing, number_of, shown
from tracecomp.onnx.export_rules.refused import REFUSED

__all__ = [
    "REFUSED", "RULES", "Emitter", "contraction", "control", "cumulative", "elementwise", "indexing", "missing",
    "number_of", "random", "recurrent", "reduction", "shown", "view",
]  # fmt: skip
