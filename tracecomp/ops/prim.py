"""Applying primitives: ``prim.exp(x)`` runs, records or builds, depending on the kind of ``x``.

Derivative rules are written with these calls, so one rule serves eager autograd, recording, and differentiating a
graph. An operand class takes part by defining ``__tracecomp_apply__(op, operands, attrs)``.
"""

from __future__ import annotations

from typing import Any

from tracecomp.ir.op import OPS, Attrs, Number, Op, Operand


def apply(op: Op, operands: tuple[Operand | Number, ...], attrs: Attrs, like: Operand | None = None) -> Any:
    """Return the result (a tuple for several results) of ``op``; Python scalars among elementwise operands are
    constants.

    ``like`` replaces the operands of a creation operator: it determines the kind of the result.
    """
    for operand in (*operands, like):
        handler = getattr(operand, "__tracecomp_apply__", None)
        if handler is not None:
            return handler(op, operands, attrs)
    raise TypeError(f"{op.name}: no tensor among the operands {operands!r}")


class Primitive:
    """A registered operator as a function: ``Primitive(op)(x, y, attr=...)``."""

    __slots__ = ("op",)

    def __init__(self, op: Op) -> None:
        self.op = op

    def __call__(self, *operands: Any, like: Operand | None = None, **attrs: Any) -> Any:
        for operand in operands:  # inlined ``apply``, to save a call
            handler = getattr(operand, "__tracecomp_apply__", None)
            if handler is not None:
                return handler(self.op, operands, attrs)
        return apply(self.op, (), attrs, like)


class _Namespace:
    """``prim.<name>``: every registered operator."""

    def __getattr__(self, name: str) -> Primitive:
        op = OPS.get(name)
        if op is None:
            raise AttributeError(f"no primitive operator {name!r}")
        found = Primitive(op)
        setattr(self, name, found)
        return found


prim = _Namespace()
