"""Values of a model that is being written, as things to compute with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

from tracecomp.onnx.export_rules.emitter import Emitter


class Term:
    """A value of the model with elements of ``dtype``; arithmetic with it writes nodes. Numbers take its dtype."""

    def __init__(self, e: Emitter, name: str, dtype: Any) -> None:
        self.e, self.name, self.dtype = e, name, np.dtype(dtype)

    def of(self, op: str, *others: Term | float, dtype: object = None, **attrs: Any) -> Term:
        """The result of an operator on this value and ``others``."""
        names = [self.name, *[o.name if isinstance(o, Term) else self.e.constant(o, self.dtype) for o in others]]
        return Term(self.e, self.e.node(op, names, **attrs), dtype or self.dtype)

    def number(self, value: float) -> Term:
        """A constant of this dtype."""
        return Term(self.e, self.e.constant(value, self.dtype), self.dtype)

    def cast(self, dtype: Any) -> Term:
        """Converted."""
        if np.dtype(dtype) == self.dtype:
            return self
        return self.of("Cast", dtype=np.dtype(dtype), to=onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def where(self, a: Term | float, b: Term | float) -> Term:
        """``a`` where this holds, else ``b``; one of them is a value."""
        like = a if isinstance(a, Term) else b
        assert isinstance(like, Term)
        a, b = (v if isinstance(v, Term) else like.number(v) for v in (a, b))
        return Term(self.e, self.e.node("Where", [self.name, a.name, b.name]), like.dtype)

    def __add__(self, other: Term | float) -> Term:
        return self.of("Add", other)

    def __sub__(self, other: Term | float) -> Term:
        return self.of("Sub", other)

    def __mul__(self, other: Term | float) -> Term:
        return self.of("Mul", other)

    def __truediv__(self, other: Term | float) -> Term:
        return self.of("Div", other)

    def __rsub__(self, other: float) -> Term:
        return self.number(other) - self

    def __rtruediv__(self, other: float) -> Term:
        return self.number(other) / self

    def __neg__(self) -> Term:
        return self.of("Neg")

    def __abs__(self) -> Term:
        return self.of("Abs")

    def __lt__(self, other: Term | float) -> Term:
        return self.of("Less", other, dtype=np.bool_)

    def __ge__(self, other: Term | float) -> Term:
        return self.of("GreaterOrEqual", other, dtype=np.bool_)

    def __gt__(self, other: Term | float) -> Term:
        return self.of("Greater", other, dtype=np.bool_)

    def __or__(self, other: Term) -> Term:
        return self.of("Or", other, dtype=np.bool_)

    def __and__(self, other: Term) -> Term:
        return self.of("And", other, dtype=np.bool_)

    def equals(self, other: Term | float) -> Term:
        """Elementwise equality."""
        return self.of("Equal", other, dtype=np.bool_)

    def is_nan(self) -> Term:
        """Whether it is NaN."""
        return self.of("IsNaN", dtype=np.bool_)

    def is_negative(self) -> Term:
        """Whether the sign is set, including that of zeros."""
        return (self < 0.0) | (1.0 / self < 0.0)

    def with_sign_of(self, other: Term) -> Term:
        """The absolute value with another's sign."""
        size = abs(self)
        return other.is_negative().where(-size, size)

    def polynomial(self, coefficients: Sequence[float]) -> Term:
        """Its value here, the highest coefficient first."""
        total = self.number(coefficients[0])
        for c in coefficients[1:]:
            total = total * self + c
        return total
