"""Distances of every node of a graph from float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracecomp.inspect.wide import narrows, wide_array, wide_attrs
from tracecomp.ir.graph import Graph, Node
from tracecomp.ir.interpret import Interpreter

Array = np.ndarray[Any, Any]


def node_errors(graph: Graph, arrays: Sequence[Array]) -> dict[Node, float]:
    """The largest distance of each node's elements from float64, relative to the largest element; floats only.

    Both sides run from the same ``arrays``, so the distance is the rounding error up to this node. If a node has no
    float64 form (it depends on the width of its type), the wide side continues from the narrow one. An element that is
    NaN or infinite on one side only counts as 1, a total loss.
    """
    wide = {i.value: wide_array(i.data) for i in graph.inputs if i.data is not None}
    given = [i.value for i in graph.inputs if i.role != "constant"]
    wide.update((value, wide_array(array)) for value, array in zip(given, arrays, strict=True))
    interpreter = Interpreter(graph)
    errors: dict[Node, float] = {}
    dead = iter(interpreter.dead)

    def observe(node: Node, narrow: tuple[Array, ...]) -> None:
        found = _widely(node, [wide[v] for v in node.inputs], narrow)
        wide.update(zip(node.outputs, found, strict=True))
        known = [_distance(a, b) for a, b in zip(narrow, found, strict=True) if b.dtype.kind in "fc"]
        if known:
            errors[node] = max(known)
        for value in next(dead):
            del wide[value]

    interpreter.run(arrays, observe)
    return errors


def _widely(node: Node, operands: Sequence[Array], narrow: tuple[Array, ...]) -> tuple[Array, ...]:
    """Run the node in float64, by the rules of ``wide.widened``; in its own type if it has no such form."""
    attrs = wide_attrs(node.op, node.attrs)
    if node.op.name == "bitcast":  # reads the bits of a narrow number
        operands = [o.astype(v.dtype.numpy) for o, v in zip(operands, node.inputs, strict=True)]
    elif narrows(node):  # a cast to a narrower type rounds intentionally
        attrs = node.attrs
    try:
        found = node.op.impl(*operands, **attrs)
    except (TypeError, ValueError, RuntimeError, IndexError):
        return tuple(map(wide_array, narrow))
    results = tuple(map(np.asarray, found)) if isinstance(found, tuple) else (np.asarray(found),)
    if any(a.shape != b.shape for a, b in zip(narrow, results, strict=True)):
        return tuple(map(wide_array, narrow))
    return tuple(map(wide_array, results))


def _distance(narrow: Array, wide: Array) -> float:
    """The largest distance of two elements, relative to the largest of ``wide``."""
    near = wide_array(narrow)
    if not near.size:
        return 0.0
    ends = ~np.isfinite(wide)
    if (ends != ~np.isfinite(near)).any():
        return 1.0
    apart = np.abs(np.where(ends, 0, near) - np.where(ends, 0, wide)).max()
    largest = np.abs(np.where(ends, 0, wide)).max()
    return float(apart / largest) if largest else float(apart)
