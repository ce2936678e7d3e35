"""Names that libraries import from ``torch._utils``."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from typing import Any

from tracecomp.eager.device import device as _device
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.functional.storage import TypedStorage
from tracecomp.ir.types import DType

__all__ = ["ExceptionWrapper"]


def _get_device_index(device: object, optional: bool = False, allow_cpu: bool = False) -> int:
    """The number of a device; -1 for the CPU if that is allowed. ValueError if it has no number."""
    if isinstance(device, int):
        return device
    found = _device(device) if isinstance(device, str) else device
    if isinstance(found, _device) and found.type == "cpu":
        if allow_cpu:
            return -1
        raise ValueError(f"Expected a non cpu device, but got: {found}")
    if isinstance(found, _device) and found.index is not None:
        return found.index
    if optional:
        return 0
    raise ValueError(f"Expected a torch.device with a specified index or an integer, but got: {device}")


def _get_available_device_type() -> None:
    """Return None: there is no accelerator."""


def _element_size(dtype: DType) -> int:
    """Bytes of an element."""
    return dtype.itemsize


def _flatten_dense_tensors(tensors: Sequence[Tensor]) -> Tensor:
    """Concatenate all elements."""
    return T.cat([t.contiguous().view(-1) for t in tensors])


def _unflatten_dense_tensors(flat: Tensor, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Views of ``flat`` with the shapes of ``tensors``, one after the other."""
    parts = flat.split([t.numel() for t in tensors])
    return tuple(part.view(t.shape) for part, t in zip(parts, tensors, strict=True))


def _rebuild_tensor(storage: TypedStorage, storage_offset: int, size: Sequence[int], stride: Sequence[int]) -> Tensor:
    """The tensor of these sizes and strides in ``storage``."""
    return T.empty(0, dtype=storage.dtype).set_(storage, storage_offset, size, stride)


def _rebuild_tensor_v2(
    storage: TypedStorage, storage_offset: int, size: Sequence[int], stride: Sequence[int], requires_grad: bool,
    backward_hooks: object, metadata: object = None,
) -> Tensor:  # fmt: skip
    """``_rebuild_tensor`` for tensors that may need gradients."""
    return _rebuild_tensor(storage, storage_offset, size, stride).requires_grad_(requires_grad)


def _get_device_module(device_type: str) -> Any:
    """The module of a kind of device, such as ``torch.cuda``."""
    module = getattr(sys.modules["tracecomp"], device_type, None)
    if module is None:
        raise RuntimeError(
            f"Device '{device_type}' does not have a corresponding module registered as 'torch.{device_type}'."
        )
    return module


class ExceptionWrapper:
    """An exception and its traceback as text, for re-raising in another thread or process."""

    def __init__(self, exc_info: Any = None, where: str = "in background") -> None:
        kind, value, trace = sys.exc_info() if exc_info is None else exc_info
        self.exc_type: Any = kind
        self.exc_msg = "".join(traceback.format_exception(kind, value, trace))
        self.where = where

    def reraise(self) -> None:
        """Raise it; RuntimeError if its class cannot be constructed from a message."""
        message = f"Caught {self.exc_type.__name__} {self.where}.\nOriginal {self.exc_msg}"
        try:
            error = self.exc_type(message)
        except Exception:  # constructors of exceptions may have any arguments; only the text matters
            raise RuntimeError(message) from None
        raise error
