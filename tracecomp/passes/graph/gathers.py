"""Gathers and scatters whose index is the same for whole slices. The rules keep every bit."""

from __future__ import annotations

from tracecomp.ir.graph import Value
from tracecomp.passes.graph.rewrite import Application, Replacement, Rewriter, Rules, made_by

RULES = Rules()


@RULES.on("gather")
def gather_of_slices(g: Rewriter, a: Application) -> Replacement:
    """gather(x, expand(i)) -> take(x, i)"""
    x, index = a.inputs
    flat = _of_slices(g, index, x, a.attrs["axis"])
    return g.apply("take", x, flat, axis=a.attrs["axis"]) if flat else None


@RULES.on("scatter")
def scatter_of_slices(g: Rewriter, a: Application) -> Replacement:
    """scatter(base, expand(i), src) -> put(base, i, src)"""
    base, index, src = a.inputs
    flat = _of_slices(g, index, base, a.attrs["axis"])
    return g.apply("put", base, flat, src, **a.attrs) if flat else None


def _of_slices(g: Rewriter, index: Value, base: Value, axis: int) -> Value | None:
    """The index along ``axis`` if it is repeated along all other axes of ``base``, which it covers."""
    inner = made_by(index, "expand")
    # Every other axis has to be covered in full; otherwise some elements would not be written.
    if inner is None or any(n != index.shape[d] for d, n in enumerate(base.shape) if d != axis):
        return None
    x = inner.inputs[0]
    once = (1,) * (index.ndim - x.ndim) + x.shape
    # The index must vary along its axis alone.
    if index.ndim < 2 or any(n != 1 for d, n in enumerate(once) if d != axis) or once[axis] != index.shape[axis]:
        return None
    return g.reshape(x, (once[axis],))
