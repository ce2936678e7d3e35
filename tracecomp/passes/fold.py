"""Constant folding: what depends on constants only is computed once, by the operators' numpy meaning.

Results that are one number everywhere become ``full``. Others become constant inputs when they are small and cost
something: positions and masks, a few instructions on an index, are cheaper computed where they are used than loaded.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracecomp.ir.graph import Graph, Value
from tracecomp.ir.op import KINDS
from tracecomp.ir.types import TensorType
from tracecomp.passes.rewrite import Application, Log, Replacement, Rewriter, Rules, rewrite

Array = np.ndarray[Any, Any]

KNOWN_LIMIT = 1 << 18
"""Largest value, in elements, that is looked at."""

STORED_LIMIT = 4096
"""Largest constant, in elements, that folding makes."""

_LEFT = ("creation", "random", "control")


def fold_constants(graph: Graph, log: Log) -> Graph:
    """``graph`` with what depends on constants only computed."""
    rules = Rules()
    rules.on_kind(*(kind for kind in KINDS if kind not in _LEFT))(_Folder().constant_result)
    return rewrite(graph, rules, log, "fold")


class _Folder:
    """Remembers the elements of values that are known."""

    def __init__(self) -> None:
        self._arrays: dict[Value, Array | None] = {}

    def constant_result(self, g: Rewriter, a: Application) -> Replacement:
        """exp(full(0.0)) -> full(1.0); small results whose elements differ become constant inputs"""
        results = self._results(g, a)
        if results is None:
            return None
        if all(_is_uniform(r) for r in results):
            return [g.full(r.flat[0].item(), t.shape, t.dtype) for r, t in zip(results, a.types, strict=True)]
        if _is_cheap(g, a) or sum(r.size for r in results) > STORED_LIMIT:
            return None
        return [_stored(g, r, t) for r, t in zip(results, a.types, strict=True)]

    def _results(self, g: Rewriter, a: Application) -> list[Array] | None:
        """The results of ``a`` when its operands are known."""
        if sum(t.numel for t in a.types) > KNOWN_LIMIT or a.op.kind in ("random", "control"):
            return None
        arrays = [self._known(g, v) for v in a.inputs]
        if any(array is None for array in arrays):
            return None
        with np.errstate(all="ignore"):
            found = a.op.impl(*arrays, **a.attrs)
        found = found if isinstance(found, tuple) else (found,)
        return [np.asarray(r, t.dtype.numpy) for r, t in zip(found, a.types, strict=True)]

    def _known(self, g: Rewriter, value: Value) -> Array | None:
        if value not in self._arrays:
            self._arrays[value] = self._find(g, value)
        return self._arrays[value]

    def _find(self, g: Rewriter, value: Value) -> Array | None:
        node = value.node
        if value.type.numel > KNOWN_LIMIT:
            return None
        if node is None:
            given = g.graph.inputs[value.index]
            return given.data if given.role == "constant" else None
        results = self._results(g, Application(node.op, node.inputs, node.attrs))
        return None if results is None else results[value.index]


def _is_uniform(array: Array) -> bool:
    return array.size > 0 and array.tobytes() == array.flat[0].tobytes() * array.size


def _is_cheap(g: Rewriter, a: Application) -> bool:
    """Whether computing the result where it is used is no dearer than loading it."""
    if a.op.kind == "view":
        return True
    loads = any(v.node is None for v in a.inputs)
    return a.op.kind == "elementwise" and "costly" not in a.op.traits and not loads


def _stored(g: Rewriter, array: Array, type: TensorType) -> Value:
    if _is_uniform(array):
        return g.full(array.flat[0].item(), type.shape, type.dtype)
    return g.constant(array, type)
