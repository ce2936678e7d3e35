"""Sizes that calls may change: ints that know how they follow from the first size of an argument.

While a program is recorded for every size, shapes hold such ints. Sums and products with plain numbers are such ints
again; comparisons give the answer and narrow the sizes for which the recording holds; what cannot be said of other
sizes fixes the one at hand. So the recording is right for the sizes in its ``Range``. The field calls them dynamic
shapes, and such a size a SymInt.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from tracecomp.eager.modes import modes, no_grad
from tracecomp.ir.graph import Graph, Node, Value
from tracecomp.ir.op import Op
from tracecomp.ir.types import TensorType
from tracecomp.record.context import RecordingContext
from tracecomp.record.symbolic.sym_scalar import SymScalar, arithmetic


class SymInt(int):
    """``factor`` times a size, the one in ``leaf``, plus ``offset``."""

    recorder: RecordingContext
    leaf: int
    factor: int
    offset: int

    def __new__(cls, recorder: RecordingContext, leaf: int, factor: int, offset: int) -> SymInt:
        made = super().__new__(cls, factor * recorder.ranges[leaf].value + offset)
        made.recorder, made.leaf, made.factor, made.offset = recorder, leaf, factor, offset
        return made

    @property
    def value(self) -> int:
        """The plain int."""
        return self.real

    @property
    def live(self) -> bool:
        """Whether its recording is what runs."""
        return modes.recorder is self.recorder and self.recorder.open

    def at(self, size: int) -> int:
        """What it is when the size is ``size``."""
        return self.factor * size + self.offset

    def fix(self) -> int:
        """The plain int; the recording holds for this size only."""
        if self.live:
            self.recorder.ranges[self.leaf].fix()
        return self.value

    def number(self) -> Any:
        """The same as a followed number."""
        return SymScalar(self.recorder, self.tensor, self.value)

    @property
    def tensor(self) -> Any:
        """Its value in the graph."""
        with no_grad():
            size = self.recorder.size_tensor(self.leaf)
            return size * self.factor + self.offset

    def __tracecomp_tensor__(self) -> Any:
        return self.tensor if self.live else None

    def __reduce__(self) -> Any:
        return int, (self.value,)

    def __hash__(self) -> int:
        return int.__hash__(self)

    def __add__(self, other: Any) -> Any:
        return _sum(self, other, 1, 1)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return _sum(self, other, 1, -1)

    def __rsub__(self, other: Any) -> Any:
        return _sum(self, other, -1, 1)

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, float) and self.live:
            return self.number() * other
        if type(other) is SymInt and self.live:
            return self.fix() * other.fix()
        if not isinstance(other, int) or not self.live:
            return _plainly("mul", self, other)
        return _form(self, self.factor * other, self.offset * other)

    __rmul__ = __mul__

    def __neg__(self) -> Any:
        return self * -1

    def __abs__(self) -> Any:
        return self if self >= 0 else -self

    def __floordiv__(self, other: Any) -> Any:
        return _divided(self, other)[0]

    def __mod__(self, other: Any) -> Any:
        return _divided(self, other)[1]

    def __divmod__(self, other: Any) -> Any:
        return _divided(self, other)

    def __truediv__(self, other: Any) -> Any:
        return _quotient(self, other) if self.live else _plainly("truediv", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return _quotient(other, self) if self.live else _plainly("rtruediv", self, other)

    def __pos__(self) -> Any:
        return self

    __ceil__ = __floor__ = __trunc__ = __pos__

    def __round__(self, digits: Any = None) -> Any:
        return self

    def __bool__(self) -> bool:
        return bool(self != 0)

    def __repr__(self) -> str:
        return repr(self.value)

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(self.value, spec)


def _plainly(name: str, x: SymInt, other: Any) -> Any:
    """A method of ``int``, after fixing what stands for sizes."""
    if type(other) is SymInt:
        other = other.fix()
    return getattr(int, f"__{name}__")(x.fix(), other)


def _form(x: SymInt, factor: int, offset: int) -> Any:
    return SymInt(x.recorder, x.leaf, factor, offset) if factor else offset


def _sum(x: SymInt, other: Any, sign: int, of_other: int) -> Any:
    if isinstance(other, float) and x.live:
        return x.number() * sign + other * of_other
    if not isinstance(other, int):
        return NotImplemented
    if not x.live:
        return sign * x.value + of_other * other.real
    if type(other) is not SymInt:
        return _form(x, sign * x.factor, sign * x.offset + of_other * other)
    if other.leaf != x.leaf or other.recorder is not x.recorder:
        return sign * x.fix() + of_other * other.fix()
    return _form(x, sign * x.factor + of_other * other.factor, sign * x.offset + of_other * other.offset)


def _quotient(a: Any, b: Any) -> Any:
    if not b:
        raise ZeroDivisionError("division by zero")
    return arithmetic(operator.truediv, a, b)


def _divided(x: SymInt, other: Any) -> Any:
    """Quotient and remainder, where the divisor divides what depends on the size."""
    if not isinstance(other, int):
        return NotImplemented, NotImplemented
    if x.live and type(other) is SymInt and other.leaf == x.leaf and not x.offset and not other.offset:
        if x.factor % other.factor == 0:
            return x.factor // other.factor, 0
    elif x.live and type(other) is not SymInt and other > 0 and x.factor % other == 0:
        return _form(x, x.factor // other, x.offset // other), x.offset % other
    return divmod(x.fix(), other.fix() if type(other) is SymInt else other)


def _compare(name: str, x: SymInt, other: Any) -> Any:
    """A comparison; the recording holds for the sizes that give the same answer."""
    op = getattr(operator, name)
    if not isinstance(other, int):
        return getattr(int, f"__{name}__")(x, other)
    found = op(x.value, other.real)
    if not x.live:
        return found
    difference = _sum(x, other, 1, -1)
    if type(difference) is not SymInt:
        return found
    factor, offset, sizes = difference.factor, difference.offset, x.recorder.ranges[x.leaf]
    if name in ("eq", "ne"):
        if found == (name == "eq"):
            sizes.fix()
        elif offset % factor == 0:
            sizes.without.add(-offset // factor)
    elif (name in ("ge", "gt")) == found:  # the difference is large
        sizes.narrow(factor, offset, int(name in ("gt", "le")))
    else:
        sizes.narrow(-factor, -offset, int(name in ("lt", "ge")))
    return found


def _define() -> None:
    for name in ("lt", "le", "gt", "ge", "eq", "ne"):
        setattr(SymInt, f"__{name}__", lambda self, other, name=name: _compare(name, self, other))
    for name in ("rfloordiv", "rmod", "rdivmod", "pow", "rpow", "lshift", "rshift", "and", "or", "xor", "rand", "ror"):
        setattr(SymInt, f"__{name}__", lambda self, other, name=name: _plainly(name, self, other))
    for name in ("float", "int", "invert"):
        setattr(SymInt, f"__{name}__", lambda self, name=name: getattr(int, f"__{name}__")(self.fix()))


_define()


class SizedGraph(Graph):
    """A graph that also knows how shapes and attributes depend on sizes, where they do."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.shapes: dict[Value, tuple[int, ...]] = {}
        self.attrs: dict[Node, dict[str, Any]] = {}
        self.unclear = False

    def shape(self, value: Value) -> tuple[int, ...]:
        """The shape of ``value``, with SymInts."""
        return self.shapes.get(value, value.shape)

    def add(
        self, op: Op, inputs: Any, attrs: dict[str, Any], types: Sequence[TensorType] | None = None
    ) -> tuple[Value, ...]:
        inputs = tuple(inputs)
        plain = {k: without(v) for k, v in attrs.items()}
        before = len(self._interned)
        found = super().add(op, inputs, plain, None if types is None else [_plain_type(t) for t in types])
        node = found[0].node
        assert node is not None
        depends = any(_depends(v) for v in attrs.values())
        if not depends and not any(v in self.shapes for v in inputs):
            self.unclear |= node in self.attrs
            return found
        known = [TensorType(v.dtype, self.shape(v)) for v in inputs]
        shapes = [t.shape for t in op.result_types(known, attrs)]
        if len(self._interned) == before:
            self.unclear |= forms(attrs) != forms(self.attrs.get(node, node.attrs))
            return found
        if depends:
            self.attrs[node] = attrs
        self.shapes.update((v, s) for v, s in zip(found, shapes, strict=True) if _depends(s))
        return found


def _plain_type(t: TensorType) -> TensorType:
    return TensorType(t.dtype, without(t.shape))


def _depends(x: Any) -> bool:
    return (type(x) is SymInt and x.live) or (isinstance(x, tuple) and any(map(_depends, x)))


def without(x: Any) -> Any:
    """``x`` with plain ints in place of SymInts."""
    if type(x) is SymInt:
        return x.value
    return tuple(map(without, x)) if isinstance(x, tuple) else x


def evaluated(x: Any, leaf: int, size: int) -> Any:
    """``x`` with plain ints in place of SymInts, when the size in ``leaf`` is ``size``."""
    if type(x) is SymInt:
        return x.at(size) if x.leaf == leaf else x.value
    return tuple(evaluated(item, leaf, size) for item in x) if isinstance(x, tuple) else x


def forms(x: Any) -> Any:
    """``x`` with something comparable in place of SymInts."""
    if type(x) is SymInt:
        return ("size", x.leaf, x.factor, x.offset)
    if isinstance(x, dict):
        return {k: forms(v) for k, v in x.items()}
    return tuple(map(forms, x)) if isinstance(x, tuple) else x
