"""Sizes that outlive their recording, such as those in the context of an own Function, compute like plain ints."""

from __future__ import annotations

import operator
from collections.abc import Callable
from decimal import Decimal, DecimalException
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tracecomp.record.size_forms import Form
from tracecomp.record.symbolic.sym_int import SymInt

OTHERS = (
    0, 3, -2, 0.0, -0.0, 1.5, float("nan"), True, 2j, Decimal("1.5"), Fraction(1, 3), np.float32(2), np.int64(3), "a",
    [1], None,
)  # fmt: skip
BINARY: tuple[Callable[[Any, Any], Any], ...] = (
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, divmod, operator.pow,
    operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift, operator.lt, operator.le, operator.gt,
    operator.ge, operator.eq, operator.ne,
)  # fmt: skip


def size_after_its_recording(value: int) -> Any:
    recorder: Any = SimpleNamespace(sized_ints=[], conditions=SimpleNamespace(values=[value]), open=False, quiet=False)
    return SymInt(recorder, Form.of_size(0))


def outcome(op: Callable[[Any, Any], Any], a: object, b: object) -> str:
    """The text of a result, or the type of the error."""
    try:
        return repr(op(a, b))
    except DecimalException:  # its type differs between ``//`` and ``divmod``
        return "DecimalException"
    except Exception as error:  # any error of Python's operators
        return type(error).__name__


@pytest.mark.parametrize("op", BINARY, ids=lambda op: op.__name__)
@pytest.mark.parametrize("value", [0, 3])
def test_operators_give_what_plain_ints_give(op: Callable[[Any, Any], Any], value: int) -> None:
    size = size_after_its_recording(value)
    for other in OTHERS:
        assert outcome(op, size, other) == outcome(op, value, other), other
        assert outcome(op, other, size) == outcome(op, other, value), other
    assert outcome(op, size, size) == outcome(op, value, value)
