"""Dead code and constant folding. Common subexpressions need no pass: a graph interns its nodes."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracecomp.ir.graph import Graph, Value
from tracecomp.ir.op import KINDS
from tracecomp.ir.types import TensorType
from tracecomp.passes.rewrite import Application, Log, Replacement, Rewriter, Rules, rewrite

Array = np.ndarray[Any, Any]

FOLD_LIMIT = 4096
"""Largest result, in elements, that is computed at compile time."""

FOLDING = Rules()

NOT_FOLDED = ("creation", "view", "random", "control")


def fold_constants(graph: Graph, log: Log) -> Graph:
    """Compute what depends on constants only, by the operators' numpy meaning."""
    return rewrite(graph, FOLDING, log, "fold")


@FOLDING.on_kind(*(kind for kind in KINDS if kind not in NOT_FOLDED))
def constant_result(g: Rewriter, a: Application) -> Replacement:
    """exp(full(0.0)) -> full(1.0); results whose elements differ become constant inputs"""
    arrays = [_constant_array(g, v) for v in a.inputs]
    if any(array is None for array in arrays) or sum(t.numel for t in a.types) > FOLD_LIMIT:
        return None
    with np.errstate(all="ignore"):
        results = a.op.impl(*arrays, **a.attrs)
    results = results if isinstance(results, tuple) else (results,)
    values = [_constant_value(g, np.asarray(r, t.dtype.numpy), t) for r, t in zip(results, a.types, strict=True)]
    return None if None in values else [v for v in values if v is not None]


def _constant_array(g: Rewriter, value: Value) -> Array | None:
    """The elements of ``value`` when they are known and few."""
    if value.type.numel > FOLD_LIMIT:
        return None
    if value.node is None:
        given = g.graph.inputs[value.index]
        return given.data if given.role == "constant" else None
    if value.node.op.kind == "creation":
        return np.asarray(value.node.op.impl(**value.node.attrs))
    return None


def _constant_value(g: Rewriter, array: Array, type: TensorType) -> Value | None:
    """A ``full`` when all elements have the same bits, else a constant input (which a region cannot have)."""
    if array.size and array.tobytes() == array.flat[0].tobytes() * array.size:
        return g.full(array.flat[0].item(), type.shape, type.dtype)
    return None if g.is_region else g.constant(array, type)
