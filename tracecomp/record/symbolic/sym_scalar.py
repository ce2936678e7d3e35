"""Python numbers that represent values of the graph while a program is recorded.

``t.item()`` and numbers in places (``guards/slots.py``) are such numbers. Arithmetic on them is recorded too, so later
calls recompute it. An operation that needs the value itself (``if``, ``float``, ``round``, ``range``) makes it a
predicate.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import numpy as np

from tracecomp.base.errors import user_source
from tracecomp.eager.modes import modes, no_grad
from tracecomp.eager.tensor import Tensor
from tracecomp.ir.types import FOLLOWED_BELOW, DType, float64, int64
from tracecomp.record.context import RecordingContext

KNOWS_PLAIN = complex | Decimal | timedelta
"""Operands that compute with plain numbers alone."""


class SymScalar:
    """A Python int or float whose value is that of a 0-d int64 or float64 tensor of a recording.

    ``ratio`` is a positive size and a number: the whole numbers next to the value are those next to their quotient.
    """

    __slots__ = ("__weakref__", "ratio", "recorder", "source", "tensor", "value")

    def __init__(self, recorder: RecordingContext, tensor: Tensor, value: int | float) -> None:
        self.recorder = recorder
        self.tensor = tensor
        self.value = value
        self.ratio: tuple[Any, int] | None = None
        self.source = user_source()
        recorder.note_number(self)

    __class__ = property(lambda self: type(self.value))  # isinstance answers as for that

    def seen(self) -> Any:
        """The plain number, on whose value the recording depends from now on."""
        if self.recorder.open and not self.recorder.quiet:
            self.recorder.observe(self.tensor, self.value)
        return self.value

    def __tracecomp_tensor__(self) -> Tensor | None:
        """The tensor to compute with in the recording, if that is what runs now."""
        return self.tensor if modes.recorder is self.recorder else None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.seen(), name)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.array(self.seen(), dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: object, **options: object) -> Any:
        return getattr(ufunc, method)(*map(_seen, inputs), **options)  # a Python number, which widens no array

    def __reduce__(self) -> Any:
        return type(self.value), (self.seen(),)

    def __float__(self) -> float:
        return float(self.seen())

    def __int__(self) -> int:
        return int(self.seen())

    def __index__(self) -> int:
        return operator.index(self.seen())

    def __bool__(self) -> bool:
        return bool(_compare(operator.ne, self, 0))

    def __hash__(self) -> int:
        return hash(self.seen())

    def __repr__(self) -> str:
        return repr(self.seen())

    def __str__(self) -> str:
        return str(self.seen())

    def __format__(self, spec: str) -> str:
        return format(self.seen(), spec)

    def __round__(self, digits: int | None = None) -> Any:
        return round(self.seen(), digits)

    def __floor__(self) -> Any:
        return math.floor(self.seen()) if self.ratio is None else self.ratio[0] // self.ratio[1]

    def __ceil__(self) -> Any:
        return math.ceil(self.seen()) if self.ratio is None else -(-self.ratio[0] // self.ratio[1])

    def __trunc__(self) -> Any:
        return int(self.seen()) if self.ratio is None else self.__floor__()

    def __divmod__(self, other: Any) -> tuple[Any, Any]:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> tuple[Any, Any]:
        return other // self, other % self

    def __invert__(self) -> Any:
        return operator.invert(self.seen())

    def __pow__(self, other: object, modulus: object = None) -> Any:
        if modulus is None:
            return arithmetic(operator.pow, self, other)
        return pow(self.seen(), _seen(other), _seen(modulus))

    def __rpow__(self, other: object) -> Any:
        return arithmetic(operator.pow, other, self)


def dtype_of(value: int | float) -> DType:
    """The dtype in which a Python number is followed."""
    return float64 if isinstance(value, float) else int64


def followed(value: object) -> bool:
    """Whether ``value`` is a plain number that a recording can follow."""
    return type(value) is float or (type(value) is int and -FOLLOWED_BELOW < value < FOLLOWED_BELOW)


def _tensor(x: Any, dtype: DType) -> Any:
    """An operand in ``dtype``; plain numbers stay."""
    if type(x) is not SymScalar:
        return float(x) if dtype is float64 else x
    return x.tensor if x.tensor.dtype is dtype else x.tensor.to(dtype)


def _seen(x: object) -> Any:
    return x.seen() if type(x) is SymScalar else x


def _plain(x: object) -> Any:
    return x.value if type(x) is SymScalar else x


def _number(x: Any) -> Any:
    """A size that a recording follows as a number like others; a plain number after the recording."""
    if type(x) is SymScalar or not hasattr(x, "number"):
        return x
    return x.number() if x.live else x.fix()


def _usable(*operands: Any) -> bool:
    """Whether arithmetic on ``operands`` can be recorded."""
    recorders = {id(x.recorder) for x in operands if type(x) is SymScalar}
    plain = all(type(x) is SymScalar or type(x) is bool or followed(x) for x in operands)
    return plain and recorders == {id(modes.recorder)}


def arithmetic(op: Callable[..., Any], *operands: Any) -> Any:
    """``op``, which Python and tensors have in common, on at least one SymScalar."""
    if any(isinstance(x, KNOWS_PLAIN) for x in operands):
        return op(*map(_seen, operands))
    if not all(isinstance(x, int | float) for x in operands):
        return NotImplemented
    operands = tuple(map(_number, operands))
    if not _usable(*operands):
        return op(*map(_seen, operands))
    value = op(*map(_plain, operands))
    if not followed(value):
        return op(*map(_seen, operands))
    dtype = dtype_of(value)
    with no_grad():
        tensor = op(*[_tensor(x, dtype) for x in operands])
    return SymScalar(modes.recorder, tensor, value)


def _compare(op: Callable[..., object], a: object, b: object) -> Any:
    if isinstance(b, KNOWS_PLAIN):
        return op(_seen(a), b)
    if not isinstance(b, int | float):
        return NotImplemented
    a, b = _number(a), _number(b)
    if not _usable(a, b):
        return op(_seen(a), _seen(b))
    dtype = float64 if isinstance(a, float) or isinstance(b, float) else int64
    with no_grad():
        return bool(op(_tensor(a, dtype), _tensor(b, dtype)))


def _divided(op: Callable[..., object], a: object, b: object) -> Any:
    """A quotient: whether the divisor is zero decides whether Python raises."""
    if op is not operator.truediv and (isinstance(a, float) or isinstance(b, float)):
        return op(_seen(a), _seen(b))
    b = _number(b)
    if type(b) is SymScalar:
        bool(b)
    return arithmetic(op, a, b)


def _define() -> None:
    for name in ("add", "sub", "mul"):
        _binary(name, arithmetic)
    for name in ("and_", "or_", "xor", "lshift", "rshift"):
        _binary(name, lambda op, a, b: op(_seen(a), _seen(b)))
    for name in ("truediv", "floordiv", "mod"):
        _binary(name, _divided)
    for name in ("lt", "le", "gt", "ge", "eq", "ne"):
        op = getattr(operator, name)
        setattr(SymScalar, f"__{name}__", lambda self, other, op=op: _compare(op, self, other))
    for name in ("neg", "pos", "abs"):
        op = getattr(operator, name)
        setattr(SymScalar, f"__{name}__", lambda self, op=op: arithmetic(op, self))


def _binary(name: str, apply: Callable[..., object]) -> None:
    op, name = getattr(operator, name), name.rstrip("_")
    setattr(SymScalar, f"__{name}__", lambda self, other: apply(op, self, other))
    setattr(SymScalar, f"__r{name}__", lambda self, other: apply(op, other, self))


_define()
