"""Householder reflections of real matrices, with the panels and the order of ``ops/linalg/householder.py``."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracecomp.eager_kernels.panels import Block, add_product, less_product, run, solve_panel, stack
from tracecomp.ir.interpret import Evaluate
from tracecomp.ir.op import OPS
from tracecomp.ops.linalg.elimination import PANEL

Array = np.ndarray[Any, Any]


def reflections(x: Array) -> tuple[Array, Array]:
    """Reflections below the diagonal, R above it, and factors."""
    a = stack(x)
    batch, m, n = a.shape
    k = min(m, n)
    tau = np.empty((batch, k), a.dtype)
    for first in range(0, k, PANEL):
        end = min(first + PANEL, k)
        panel = np.zeros((batch, m - first, PANEL), a.dtype)
        panel[..., : end - first] = a[:, first:, first:end]
        work = batch * (m - first) * PANEL**2
        run("reflections", (panel, tau), (m - first, end - first, first * a.itemsize, k * a.itemsize, batch), work)
        a[:, first:, first:end] = panel[..., : end - first]
        if end < n:
            _apply(_vectors(panel[..., : end - first]), tau, first, a, Block.of(a).at(first, end), n - end, True)
    return a.reshape(x.shape), tau.reshape(*x.shape[:-2], k)


def reflect(a: Array, tau: Array, x: Array, *, turn: bool) -> tuple[Array]:
    """Apply the reflections to x, the last one first, or the first one if ``turn``."""
    out, vectors, factors = stack(x), stack(a), np.array(tau, order="C").reshape(-1, tau.shape[-1])
    k = tau.shape[-1]
    panels = range(0, k, PANEL)
    for first in panels if turn else reversed(panels):
        v = _vectors(vectors[:, first:, first : min(first + PANEL, k)])
        _apply(v, factors, first, out, Block.of(out).at(first, 0), out.shape[2], turn)
    return (out.reshape(x.shape),)


def geqrf(evaluate: Evaluate, x: Array) -> tuple[Array, Array]:
    """``reflections`` of matrices scaled to 1, whose squares neither overflow nor vanish."""
    most = np.max(np.abs(x), axis=(-2, -1))
    usual = np.where((most > 0) & (most < np.inf), most, x.dtype.type(1))
    size = evaluate(OPS["exp2"], [np.floor(evaluate(OPS["log2"], [usual], {}))], {})[..., None, None]
    a, tau = reflections(x / size)
    return np.where(np.tri(x.shape[-2], x.shape[-1], k=-1, dtype=bool), a, a * size), tau


def qr(evaluate: Evaluate, x: Array, *, full: bool) -> tuple[Array, Array]:
    """Q and R."""
    m, n = x.shape[-2:]
    k = m if full else min(m, n)
    a, tau = geqrf(evaluate, x)
    unit = np.zeros((*x.shape[:-1], k), x.dtype)
    unit[..., range(k), range(k)] = 1
    return *reflect(a, tau, unit, turn=False), np.triu(a[..., :k, :])


def _vectors(panel: Array) -> Array:
    """The vectors of a panel's reflections, with their ones and zeros."""
    v = np.tril(panel, -1)
    count = panel.shape[2]
    v[:, range(count), range(count)] = 1
    return v


def _apply(v: Array, tau: Array, first: int, x: Array, block: Block, columns: int, turn: bool) -> None:
    """Apply the reflections of a panel, from step ``first`` on, to a block of x."""
    batch, _, count = v.shape
    turned = np.ascontiguousarray(np.swapaxes(v, -1, -2))
    gram, inner = np.zeros((batch, count, count), v.dtype), np.zeros((batch, count, columns), v.dtype)
    add_product(turned, v, Block.of(v), gram, Block.of(gram), count)
    add_product(turned, x, block, inner, Block.of(inner), columns)
    t, rows = Block.of(gram).turned(), Block.of(inner)
    factors = first * v.itemsize, tau.strides[0], v.itemsize
    if not turn:
        t, rows = t.reversed(count, count), rows.reversed(count, 1)
        factors = (first + count - 1) * v.itemsize, tau.strides[0], -v.itemsize
    solve_panel(gram, t, tau, factors, inner, rows, (count, columns), "scaled", batch)
    less_product(v, inner, Block.of(inner), x, block, columns)
