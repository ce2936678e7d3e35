"""The Tensor: numpy memory with one aliasing model for gradients, in-place writes and recording.

Every primitive goes through ``Tensor.__tracecomp_apply__``, every write through ``assign_``. Functions and methods
with torch names are attached by ``tracecomp.functional``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracecomp.ir.op import OPS, Op
from tracecomp.ir.types import DType, TensorType, from_numpy_dtype
from tracecomp.modes import (
    enable_grad,
    grad_enabled,
    host,
    inference_mode,
    is_inference_mode_enabled,
    modes,
    no_grad,
    scope,
    set_grad_enabled,
)

__all__ = [
    "Tensor", "assign_", "create", "enable_grad", "grad_enabled", "host", "inference_mode",
    "is_inference_mode_enabled", "no_grad", "scope", "set_grad_enabled", "wrap",
]  # fmt: skip

Array = np.ndarray[Any, Any]
View = tuple[Op, dict[str, Any]]


class Storage:
    """Shared by a tensor and all its views: ``version`` counts writes that autograd sees."""

    __slots__ = ("version",)

    def __init__(self) -> None:
        self.version = 0


class Tensor:
    """An n-dimensional array with PyTorch's interface."""

    _data: Array
    _storage: Storage | None = None
    _base: Tensor | None = None
    _view: View | None = None
    _requires_grad: bool = False
    _grad_fn: Any = None
    _grad: Tensor | None = None

    @staticmethod
    def __tracecomp_apply__(op: Op, operands: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
        arrays = [x._data if isinstance(x, Tensor) else x for x in operands]
        with np.errstate(all="ignore"):
            result = op.impl(*arrays, **attrs)
        if isinstance(result, tuple):
            return tuple(wrap(np.asarray(r)) for r in result)
        return wrap(np.asarray(result))

    @property
    def shape(self) -> tuple[int, ...]:
        return self._data.shape

    @property
    def ndim(self) -> int:
        return self._data.ndim

    @property
    def dtype(self) -> DType:
        return from_numpy_dtype(self._data.dtype)

    @property
    def type_(self) -> TensorType:
        return TensorType(self.dtype, self._data.shape)

    @property
    def requires_grad(self) -> bool:
        return self._requires_grad or self._grad_fn is not None

    def __hash__(self) -> int:
        return id(self)


def wrap(array: Array, cls: type[Tensor] = Tensor) -> Tensor:
    """A new leaf tensor over ``array``'s memory."""
    t = object.__new__(cls)
    t._data = array
    return t


def create(name: str, **attrs: Any) -> Tensor:
    """The result of the primitive ``name`` that has no tensor operands (``full``, ``iota``)."""
    result: Tensor = Tensor.__tracecomp_apply__(OPS[name], (), attrs)
    return result


def assign_(target: Tensor, value: Tensor) -> None:
    """Replace ``target``'s elements by those of ``value``, a fresh result of its shape: the one way to write."""
    np.copyto(target._data, value._data, casting="unsafe")
