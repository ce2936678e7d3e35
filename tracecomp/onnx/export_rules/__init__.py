"""Export rules of primitives: one rule for each, by name; ``refused`` has the reasons for primitives without one."""

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
