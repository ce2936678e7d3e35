"""``Tensor(...)`` called as a class, and the typed constructors ``FloatTensor``, ``LongTensor``, ..."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracecomp.base.errors import refuse_too_large
from tracecomp.eager.device import Device
from tracecomp.eager.device import device as Place
from tracecomp.eager.size import Size
from tracecomp.eager.tensor import Tensor
from tracecomp.functional.creation.creation import constant, tensor_of
from tracecomp.functional.default_dtype import default_dtype
from tracecomp.functional.dims import new_shape
from tracecomp.functional.promotion import cast
from tracecomp.functional.publish import publish
from tracecomp.ir import types
from tracecomp.ir.types import DType


def legacy_tensor(dtype: DType, args: tuple[object, ...], device: Device = None) -> Tensor:
    """Create an unset tensor from sizes, or a tensor from a sequence or array; share a tensor. Only on the CPU."""
    if device is not None and Place(device).type != "cpu":
        raise RuntimeError(
            f"legacy constructor expects device type: cpu but device type: {Place(device).type} was passed"
        )
    if not args:
        return constant((0,), 0, dtype)
    first = args[0]
    if len(args) == 1 and isinstance(first, Tensor):
        return cast(first.detach(), dtype)
    if isinstance(first, Size) or all(isinstance(a, int | np.integer) for a in args):
        try:
            return constant(new_shape(args), 0, dtype)
        except (MemoryError, ValueError) as error:
            refuse_too_large("new", error)
            raise
    if len(args) > 1 or isinstance(first, float | str):
        raise TypeError(f"new(): data must be a sequence (got {type(first).__name__})")
    return tensor_of(first, dtype)


def _new(cls: type[Tensor], *args: Any, device: Device = None, **kwargs: Any) -> Tensor:
    made = legacy_tensor(default_dtype(), args, device)
    made.__class__ = cls
    return made


Tensor.__new__ = staticmethod(_new)  # type: ignore[assignment, method-assign]


class _TypedMeta(type):
    """``isinstance(x, FloatTensor)`` tests the dtype; a call creates a tensor."""

    dtype: DType

    def __instancecheck__(cls, x: object) -> bool:
        return isinstance(x, Tensor) and x.dtype is cls.dtype

    def __call__(cls, *args: Any, device: Device = None) -> Tensor:
        return legacy_tensor(cls.dtype, args, device)


for _dtype in (t for t in types.DTYPES if not t.is_complex):
    _name = f"{types.type_word(_dtype)}Tensor"
    _fields = {"dtype": _dtype, "__doc__": f"Constructor of {_dtype.name} tensors."}
    publish(_TypedMeta(_name, (), _fields), f"torch.{_name}")
