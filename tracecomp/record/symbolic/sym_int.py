"""Sizes for dynamic shapes (SymInt): ints that know their formula in the sizes of arguments.

While a program is recorded for every size, shapes contain such ints. Sums, products and quotients are such ints again.
A comparison returns its current answer and restricts the sizes for which the recording is valid. A query that has no
symbolic form fixes the size. The recording is therefore right for the sizes that its ``Conditions`` admit.
"""

from __future__ import annotations

import operator
import sys
import weakref
from collections.abc import Sequence
from types import CodeType
from typing import Any

import numpy as np

from tracecomp.base.code_origin import is_user_file
from tracecomp.eager.modes import modes, no_grad
from tracecomp.ir.graph import Graph, Node, Value
from tracecomp.ir.op import Attrs, Op
from tracecomp.ir.types import STORAGE_DTYPES, TensorType
from tracecomp.record.context import RecordingContext
from tracecomp.record.size_forms import Form
from tracecomp.record.symbolic.sym_scalar import KNOWS_PLAIN, SymScalar, arithmetic


class SymInt:
    """The value of a formula of sizes.

    It is not an int, although ``isinstance`` says so: C code, such as ``range``, requests an int by ``__index__``,
    which fixes the size.
    """

    __slots__ = ("__weakref__", "form", "recorder", "value")

    def __init__(self, recorder: RecordingContext, form: Form) -> None:
        recorder.sized_ints.append(weakref.ref(self))
        self.recorder = recorder
        self.form = form
        self.value = form.at(recorder.conditions.values)

    __class__ = property(lambda self: int)

    @property
    def live(self) -> bool:
        """Whether its recording is what runs."""
        return modes.recorder is self.recorder and self.recorder.open

    def fix(self) -> int:
        """The plain int; the recording holds for this size only, unless a text is made that every call makes again."""
        if self.live and not self.recorder.quiet:
            for number in self.form.sizes():
                self.recorder.conditions.ranges[number].fix()
                self.recorder.conditions.ranges[number].note_reader(_reader())
        return self.value

    def number(self) -> Any:
        """The same as a followed number."""
        return SymScalar(self.recorder, self.tensor, self.value)

    @property
    def tensor(self) -> Any:
        """Its value in the graph."""
        with no_grad():
            return self.form.evaluate(self.recorder.size_tensor)

    def __tracecomp_tensor__(self) -> Any:
        return self.tensor if self.live else None

    def __reduce__(self) -> Any:
        return int, (self.fix(),)

    def __copy__(self) -> SymInt:
        return self

    def __deepcopy__(self, memo: object) -> SymInt:
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self.value if name.startswith("_") else self.fix(), name)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.array(self.fix(), dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: object, **options: object) -> Any:
        return getattr(ufunc, method)(*map(plain, inputs), **options)  # a Python number, which widens no array

    @property
    def __graph_key__(self) -> Any:
        """Distinguishes it from other attributes of operators."""
        return ("size", self.form)

    def __index__(self) -> int:
        return self.fix()

    def __hash__(self) -> int:
        return hash(self.fix())

    def __add__(self, other: object) -> Any:
        return _sum(self, other, 1, 1)

    __radd__ = __add__

    def __sub__(self, other: object) -> Any:
        return _sum(self, other, 1, -1)

    def __rsub__(self, other: object) -> Any:
        return _sum(self, other, -1, 1)

    def __mul__(self, other: object) -> Any:
        if _is_number(other) and self.live:
            return _scaled(self, other)
        if isinstance(other, KNOWS_PLAIN):
            return self.fix() * other
        found = self.form.times(form_of(other, self.recorder)) if isinstance(other, int) and self.live else None
        return _plainly("mul", self, other) if found is None else made(self.recorder, found)

    __rmul__ = __mul__

    def __neg__(self) -> Any:
        return self * -1

    def __abs__(self) -> Any:
        return -self if _compare("lt", self, 0) else self

    def __floordiv__(self, other: object) -> Any:
        return _divided(self, other)[0]

    def __mod__(self, other: object) -> Any:
        return _divided(self, other)[1]

    def __divmod__(self, other: object) -> Any:
        return _divided(self, other)

    def __rfloordiv__(self, other: object) -> Any:
        return _divided_by(other, self)[0]

    def __rmod__(self, other: object) -> Any:
        return _divided_by(other, self)[1]

    def __rdivmod__(self, other: object) -> Any:
        return _divided_by(other, self)

    def __truediv__(self, other: object) -> Any:
        return _quotient(self, other) if self.live else _plainly("truediv", self, other)

    def __rtruediv__(self, other: object) -> Any:
        return _quotient(other, self) if self.live else _plainly("rtruediv", self, other)

    def __pos__(self) -> Any:
        return self

    __ceil__ = __floor__ = __trunc__ = __pos__

    def __round__(self, digits: Any = None) -> Any:
        digits = plain(digits)
        return self if digits is None or digits >= 0 else round(self.fix(), digits)

    def __pow__(self, other: Any, modulus: Any = None) -> Any:
        return _plainly("pow", self, other) if modulus is None else pow(self.fix(), plain(other), plain(modulus))

    def __bool__(self) -> bool:
        return bool(_compare("ne", self, 0))

    def __repr__(self) -> str:
        return repr(self._told())

    def _told(self) -> int:
        """The plain int for a text: a message of this package, or one of the program, which then depends on it."""
        return self.fix() if is_user_file(sys._getframe(2).f_code.co_filename) else self.value

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(self._told(), spec)


def _reader() -> CodeType:
    """The code that has asked for a size as a plain number: the caller of this module, and of ``Tensor.__len__``."""
    frame = sys._getframe(2)
    while frame.f_back is not None and (frame.f_code.co_filename == __file__ or frame.f_code.co_name == "__len__"):
        frame = frame.f_back
    return frame.f_code


def _is_size(x: object) -> bool:
    return type(x) is SymInt


def _plainly(name: str, x: SymInt, other: object) -> Any:
    """The result of Python's operator on plain numbers, on which the recording then depends."""
    if not isinstance(other, int | float | KNOWS_PLAIN):
        return NotImplemented
    if name in _REFLECTED:
        return _REFLECTED[name](plain(other), x.fix())
    return getattr(operator, _OPERATORS.get(name, name))(x.fix(), plain(other))


_OPERATORS = {"and": "and_", "or": "or_"}
_REFLECTED: dict[str, Any] = {
    "rtruediv": operator.truediv, "rpow": operator.pow, "rand": operator.and_, "ror": operator.or_,
    "rlshift": operator.lshift, "rrshift": operator.rshift, "rxor": operator.xor,
}  # fmt: skip


def plain(x: object) -> Any:
    """Return ``x``, or its plain number, on which the recording then depends."""
    return x.fix() if type(x) is SymInt else x


def shown(x: object) -> Any:
    """Return ``x``, or its plain number."""
    return x.value if type(x) is SymInt or type(x) is SymScalar else x


def _is_number(x: object) -> bool:
    """Whether arithmetic of a size with ``x`` is that of followed numbers."""
    return isinstance(x, float) or type(x) is SymScalar


def form_of(x: object, recorder: RecordingContext) -> Form:
    """The formula of a size of this recording, or of a plain number."""
    return x.form if type(x) is SymInt and x.recorder is recorder else Form.constant(shown(x))


def made(recorder: RecordingContext, form: Form) -> Any:
    """The value of ``form``: a plain int if it is constant."""
    return form.at(()) if form.is_constant else SymInt(recorder, form)


def _sum(x: SymInt, other: Any, sign: int, of_other: int) -> Any:
    if isinstance(other, KNOWS_PLAIN) or (not x.live and isinstance(other, int | float)):
        return _added(x.fix(), shown(other), sign, of_other)
    if _is_number(other) and x.live:
        return _added(x.number(), other, sign, of_other)
    if not isinstance(other, int):
        return NotImplemented
    return made(x.recorder, Form.constant(0).plus(x.form, sign).plus(form_of(other, x.recorder), of_other))


def _added(a: Any, b: Any, of_a: int, of_b: int) -> Any:
    """``a`` and ``b`` with their signs, at most one negative, by one operator: a product loses the sign of a zero."""
    return b - a if of_a < 0 else a - b if of_b < 0 else a + b


def _quotient(a: object, b: object) -> Any:
    if not b:
        raise ZeroDivisionError("division by zero")
    if isinstance(a, KNOWS_PLAIN) or isinstance(b, KNOWS_PLAIN):
        return plain(a) / plain(b)
    found = arithmetic(operator.truediv, a, b)
    if _is_size(a) and type(b) is int and type(found) is SymScalar and a > 0 and b > 0:  # type: ignore[operator]
        # Quotients of integers below 2**53 round to whole numbers only where they are whole.
        found.ratio = (a, b)
    return found


def _scaled(x: SymInt, factor: Any) -> Any:
    """A size times a float."""
    found = x.number() * factor
    if type(factor) is float and type(found) is SymScalar and 0 < factor < _EXACT and _compare("gt", x, 0):
        over, by = factor.as_integer_ratio()
        if over < _EXACT and by < _EXACT:  # the product is exact
            found.ratio = (x * over, by)
    return found


_EXACT = 2**16
"""Numerators and denominators of factors below this leave products with sizes below 2**37 exact."""


def _divided(x: SymInt, other: object) -> Any:
    """Quotient and remainder."""
    if type(other) is SymScalar and x.live:
        return divmod(x.number(), other)
    if isinstance(other, int) and x.live and other > 0:
        exact = x.form.exactly_over(form_of(other, x.recorder))
        if exact is not None:
            return made(x.recorder, exact), 0
        if not _is_size(other):
            quotient = made(x.recorder, x.form.over(other))
            return quotient, x - quotient * other
    if type(other) is int and x.live and other < 0:
        quotient = -x // -other
        return quotient, x - quotient * other
    return divmod(x.fix(), plain(other))


def _divided_by(number: Any, x: SymInt) -> Any:
    """Quotient and remainder of a plain number; the recording holds for the sizes that give the same quotient."""
    if type(number) is SymScalar and x.live:
        return divmod(number, x.number())
    if not isinstance(number, int) or not x.live or not _compare("gt", x, 0):
        return divmod(number, x.fix())
    quotient = number // x.value
    remainder = number - quotient * x
    return (quotient, remainder) if 0 <= remainder < x else divmod(number, x.fix())


def _compare(name: str, x: SymInt, other: object) -> Any:
    """A comparison; the recording holds for the sizes that give the same answer."""
    if not isinstance(other, int):
        return getattr(operator, name)(x.fix(), other) if isinstance(other, float | KNOWS_PLAIN) else NotImplemented
    if _is_number(other) and x.live:
        return getattr(operator, name)(x.number(), other)
    found = getattr(operator, name)(x.value, shown(other))
    if x.live:
        difference = x.form.plus(form_of(other, x.recorder), -1)
        if not difference.is_constant:
            x.recorder.conditions.learn(name, difference, found)
    return found


def _define() -> None:
    for name in ("lt", "le", "gt", "ge", "eq", "ne"):
        setattr(SymInt, f"__{name}__", lambda self, other, name=name: _compare(name, self, other))
    for name in (*_REFLECTED.keys() - {"rtruediv"}, "lshift", "rshift", "and", "or", "xor"):
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

    def set_shape(self, value: Value, shape: tuple[int, ...]) -> None:
        """Note the shape of ``value`` if it depends on sizes."""
        if _depends(shape):
            self.shapes[value] = shape

    def shape(self, value: Value) -> tuple[int, ...]:
        """The shape of ``value``, with SymInts."""
        return self.shapes.get(value, value.shape)

    def add(self, op: Op, inputs: Any, attrs: Attrs, types: Sequence[TensorType] | None = None) -> tuple[Value, ...]:
        inputs = tuple(inputs)
        plain = {k: without(v) for k, v in attrs.items()}
        before = len(self._interned)
        found = super().add(op, inputs, plain, None if types is None else [_plain_type(t) for t in types])
        node = found[0].node
        assert node is not None
        # The interpreter runs graphs with types without arithmetic, such as uint16. It takes no padded arrays.
        self.unclear |= any(v.dtype in STORAGE_DTYPES for v in (*inputs, *found))
        depends = any(_depends(v) for v in attrs.values())
        if not depends and not any(v in self.shapes for v in inputs):
            self.unclear |= node in self.attrs
            return found
        if any(v.dtype in STORAGE_DTYPES for v in (*inputs, *found)):
            return found  # no rule infers such a type
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


def _depends(x: object) -> bool:
    return (type(x) is SymInt and x.live) or (isinstance(x, tuple) and any(map(_depends, x)))


def without(x: object) -> Any:
    """``x`` with plain ints in place of SymInts."""
    if type(x) is SymInt:
        return x.value
    return tuple(map(without, x)) if isinstance(x, tuple) else x


def evaluated(x: object, sizes: Sequence[int]) -> Any:
    """``x`` with plain ints in place of SymInts, for ``sizes``."""
    if type(x) is SymInt:
        return x.form.at(sizes)
    return tuple(evaluated(item, sizes) for item in x) if isinstance(x, tuple) else x


def settled(attrs: Attrs, sizes: Sequence[int] | None) -> dict[str, Any]:
    """``attrs`` with plain ints in place of SymInts, for ``sizes``; without any, for the recorded ones."""
    return {k: without(x) if sizes is None else evaluated(x, sizes) for k, x in attrs.items()}


def forms(x: object) -> Any:
    """``x`` with something comparable in place of SymInts."""
    if type(x) is SymInt:
        return x.form
    if isinstance(x, dict):
        return {k: forms(v) for k, v in x.items()}
    return tuple(map(forms, x)) if isinstance(x, tuple) else x
