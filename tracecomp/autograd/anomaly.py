"""Anomaly detection: the forward line that created a backward step that fails or returns NaN."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tracecomp.base.interrupts import before_of
from tracecomp.base.user_warnings import warn_as_pytorch
from tracecomp.eager.modes import leave_modes, modes
from tracecomp.eager.tensor import Tensor
from tracecomp.eager.tensor_base import Node


class set_detect_anomaly:
    """Turn anomaly detection on or off, now and (as a context manager) until the end of the block."""

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        if not isinstance(mode, bool):
            raise TypeError(f"set_detect_anomaly(): argument 'mode' must be bool, not {type(mode).__name__}")
        before_of(self).update(anomaly=modes.anomaly, check_nan=modes.check_nan)
        modes.anomaly, modes.check_nan = bool(mode), bool(check_nan)

    def __enter__(self) -> None:
        pass

    __exit__ = leave_modes()


class detect_anomaly:
    """A context in which backward steps that fail or return NaN name the forward line that created them."""

    def __init__(self, check_nan: bool = True) -> None:
        self._check_nan = bool(check_nan)

    def __enter__(self) -> None:
        before_of(self).update(anomaly=modes.anomaly, check_nan=modes.check_nan)
        modes.anomaly, modes.check_nan = True, self._check_nan

    __exit__ = leave_modes()


def explain(node: Node) -> None:
    """Warn with the forward line of ``node`` before its error propagates."""
    if modes.anomaly:
        warn_as_pytorch(_where(node, f"Error detected in {node.name()}"))


def check_nan(node: Node, grads: Sequence[Tensor | None]) -> None:
    """RuntimeError when a gradient that ``node`` returned has a NaN."""
    for k, grad in enumerate(grads):
        if grad is not None and np.isnan(grad._data).any():
            warn_as_pytorch(_where(node, f"Error detected in {node.name()}"))
            raise RuntimeError(f"Function '{node.name()}' returned nan values in its {k}th output.")


def _where(node: Node, message: str) -> str:
    if node.source is None:
        return f"{message}. No forward pass information available: enable detect anomaly during the forward pass."
    return f"{message}. Forward call that caused the error: {node.source} in {node.source.function}"
