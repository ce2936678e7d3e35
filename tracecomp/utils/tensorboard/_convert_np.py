"""Arrays of what a program logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from tracecomp.eager.tensor import Tensor
from tracecomp.ir.types import bfloat16, float16

__all__ = ["make_np"]
Array = np.ndarray[Any, np.dtype[Any]]
Bins = int | str | list[float] | Array
"""How many bins, their limits, or how numpy's ``histogram`` chooses them."""
Layout = Mapping[str, Mapping[str, Sequence[Any]]]
"""Charts: category -> title -> ("Multiline" or "Margin", tags)."""


class Message(Protocol):
    """A message of protobuf."""

    wall_time: float
    step: int

    def SerializeToString(self) -> bytes: ...


def make_np(x: object) -> Any:
    """Return tensors, arrays and numbers as an array of at least one axis. NotImplementedError for other objects."""
    if isinstance(x, Tensor):
        return (x.to(float16) if x.dtype is bfloat16 else x).detach().cpu().numpy()
    if isinstance(x, np.ndarray):
        return x
    if np.isscalar(x):
        return np.array([x])
    raise NotImplementedError(f"Got {type(x)}, but numpy array or torch tensor are expected.")
