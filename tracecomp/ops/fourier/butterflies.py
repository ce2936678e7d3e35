"""Discrete Fourier transforms of a few complex numbers, as unrolled scalar expressions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tracecomp.ir.loops import Const, Expr, Let, Read, Stmt
from tracecomp.ir.scalars import call
from tracecomp.ops.fourier.roots import roots_of_unity
from tracecomp.ops.statements import Names

Complex = tuple[Expr, Expr]
LARGEST = 19
"""The largest prime number of points that is unrolled."""


class Writer:
    """Statements under construction, each of which binds the value of one operation."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self.stmts: list[Stmt] = []

    def let(self, expr: Expr) -> Expr:
        """Bind ``expr`` to a name."""
        if isinstance(expr, Read | Const):
            return expr
        name = self._names.let()
        self.stmts.append(Let(name, expr))
        return Read(name, expr.dtype, frozenset(expr.vars()))

    def pair(self, value: Complex) -> Complex:
        return self.let(value[0]), self.let(value[1])

    def op(self, name: str, *args: Expr) -> Expr:
        return self.let(call(name, *args))

    def add(self, a: Complex, b: Complex) -> Complex:
        return self.op("add", a[0], b[0]), self.op("add", a[1], b[1])

    def sub(self, a: Complex, b: Complex) -> Complex:
        return self.op("sub", a[0], b[0]), self.op("sub", a[1], b[1])

    def scaled(self, a: Complex, factor: float) -> Complex:
        if factor == 1.0:
            return a
        number = Const(factor, a[0].dtype)
        return self.op("mul", a[0], number), self.op("mul", a[1], number)

    def times(self, a: Complex, b: Complex) -> Complex:
        """The product, each part one multiplication and one multiply-add."""
        (ar, ai), (br, bi) = a, b
        re = self.op("fma", ar, br, call("neg", call("mul", ai, bi)))
        return re, self.op("fma", ar, bi, call("mul", ai, br))


def butterfly(w: Writer, xs: Sequence[Complex]) -> list[Complex]:
    """``y[k] = sum of xs[j] * exp(-2 pi i j k / n)`` of a power of two or an odd number of points."""
    if len(xs) == 1:
        return list(xs)
    return _odd(w, xs) if len(xs) % 2 else _even(w, xs)


def _even(w: Writer, xs: Sequence[Complex]) -> list[Complex]:
    n = len(xs)
    even, odd = butterfly(w, xs[0::2]), butterfly(w, xs[1::2])
    turned = [_turned(w, x, k, n) for k, x in enumerate(odd)]
    pairs = list(zip(even, turned, strict=True))
    return [*(w.add(a, b) for a, b in pairs), *(w.sub(a, b) for a, b in pairs)]


def _turned(w: Writer, x: Complex, k: int, n: int) -> Complex:
    """``x * exp(-2 pi i k / n)`` for ``k`` below half of ``n``."""
    re, im = x
    if k == 0:
        return x
    if 4 * k == n:
        return im, w.op("neg", re)
    if 8 * k in (n, 3 * n):
        root = Const(math.sqrt(0.5), re.dtype)
        plus, minus = w.op("add", re, im), w.op("sub", im, re)
        if 8 * k == n:
            return w.op("mul", plus, root), w.op("mul", minus, root)
        return w.op("mul", minus, root), w.op("neg", w.op("mul", plus, root))
    cos, sin = roots_of_unity(np.array(k), n)
    return w.times(x, (Const(float(cos), re.dtype), Const(float(sin), re.dtype)))


def _odd(w: Writer, xs: Sequence[Complex]) -> list[Complex]:
    """Sums and differences of opposite points, weighted with cosines and sines."""
    n, half = len(xs), len(xs) // 2
    sums = [w.add(xs[j], xs[n - j]) for j in range(1, half + 1)]
    differences = [w.sub(xs[j], xs[n - j]) for j in range(1, half + 1)]
    total = xs[0]
    for s in sums:
        total = w.add(total, s)
    found: list[Complex] = [total] * n
    for k in range(1, half + 1):
        cos, sin = roots_of_unity(np.arange(1, half + 1) * k, n)
        (ar, ai) = (_weighted(w, [s[part] for s in sums], cos, xs[0][part]) for part in range(2))
        (br, bi) = (_weighted(w, [d[part] for d in differences], sin) for part in range(2))
        found[k] = w.op("sub", ar, bi), w.op("add", ai, br)
        found[n - k] = w.op("add", ar, bi), w.op("sub", ai, br)
    return found


def _weighted(w: Writer, values: Sequence[Expr], weights: np.ndarray, total: Expr | None = None) -> Expr:
    for value, weight in zip(values, weights, strict=True):
        factor = Const(float(weight), value.dtype)
        total = w.op("mul", value, factor) if total is None else w.op("fma", value, factor, total)
    assert total is not None
    return total
