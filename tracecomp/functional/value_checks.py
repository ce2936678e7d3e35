"""Checks of tensors' values, such as probabilities: eager calls make them, and so does every call of a graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tracecomp.eager.evaluate import quietly
from tracecomp.eager.modes import modes, no_grad
from tracecomp.eager.tensor import Tensor, create
from tracecomp.functional.primitives import prim
from tracecomp.ir.types import int32


def required(x: Tensor, valid: Callable[[Any], Any], message: str) -> Tensor:
    """Return ``x``; RuntimeError with ``message`` unless ``valid``, a function of arrays and tensors, holds everywhere.

    Graphs repeat the check for the result: an integer quotient has a zero divisor for an invalid element. A compiled
    call that fails runs eagerly again, so its message is this one.
    """
    if x.is_meta:
        return x
    # By numpy: modes are not shown operators that PyTorch does not run.
    if not np.all(quietly(valid, (x._data,), {})):
        raise RuntimeError(message)
    if modes.recorder is None:
        return x
    with no_grad():
        one = create("full", shape=(), value=1, dtype=int32)
        known = prim.ne(prim.floor_divide(one, prim.cast(valid(x.detach()), dtype=int32)), 0)
    return prim.where(known, x, 0)


def is_fraction(x: Any) -> Any:
    """Whether each element is in [0, 1]; false for nan."""
    return (x >= 0) & (x <= 1)


def is_not_negative(x: Any) -> Any:
    """Whether each element is not below 0; true for nan."""
    return ~(x < 0)
