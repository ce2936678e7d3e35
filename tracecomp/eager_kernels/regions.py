"""Operators with regions, whose bodies run operator by operator as in eager programs.

Sums that a program moves after a scan (``passes/graph/scan_accumulators.py``) come after it here too.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from tracecomp.eager_kernels.programs import served
from tracecomp.ir.graph import Graph
from tracecomp.ir.interpret import Evaluate, Interpreter
from tracecomp.ir.op import Attrs, Op
from tracecomp.ir.types import TensorType, from_numpy_dtype
from tracecomp.passes.graph.scan_accumulators import sum_after_scans
from tracecomp.passes.steps import Log

Array = np.ndarray[Any, Any]
Kinds: TypeAlias = tuple[tuple[Any, tuple[int, ...]], ...]


def run_region(op: Op, arrays: Sequence[Array], attrs: Attrs, evaluate: Evaluate) -> Any:
    """Run ``op``, with ``evaluate`` for all operators of its bodies."""
    if op.name != "scan":
        return op.impl(*arrays, **attrs, evaluate=evaluate)

    def eager(given: Sequence[Array]) -> tuple[Array, ...]:
        kinds = tuple([(x.dtype, x.shape) for x in given])
        apart = _summed_after(op, kinds, tuple(attrs.items()))
        found = op.impl(*given, **attrs, evaluate=evaluate) if apart is None else apart.run(given, evaluate=evaluate)
        return tuple(found)

    return served(op, arrays, attrs, eager) or eager(arrays)


@lru_cache(256)
def _summed_after(op: Op, kinds: Kinds, attrs: tuple[tuple[str, object], ...]) -> Interpreter | None:
    """Return the scan and the sums after it; None if there are none."""
    graph = Graph(op.name)
    types = [TensorType(from_numpy_dtype(dtype), shape) for dtype, shape in kinds]
    operands = [graph.add_input(t, f"in{n}") for n, t in enumerate(types)]
    results = graph.add(op, operands, dict(attrs))
    for value in results:
        graph.add_output(value)
    log = Log()
    made = sum_after_scans(graph, log)
    return Interpreter(made) if log.hits["sum_over_steps"] else None
