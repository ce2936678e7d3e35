"""Switches and queries of the torch namespace that are constant here, and small conversions."""

from __future__ import annotations

from typing import Any, Protocol, cast

import numpy as np

from tracecomp.base import switches
from tracecomp.base.errors import type_name
from tracecomp.eager import device as devices
from tracecomp.eager.device import Device
from tracecomp.eager.foreign import array_over, is_foreign
from tracecomp.eager.modes import modes
from tracecomp.eager.process_memory import block_of, share
from tracecomp.eager.size import Size
from tracecomp.eager.tensor import Tensor, wrap_shared
from tracecomp.functional.dtype_support import ALL
from tracecomp.functional.publish import function, publish
from tracecomp.ir.types import DType

_state = switches.register({"deterministic": False, "warn_only": False, "precision": "highest", "warn_always": False})


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Accepted without effect: every algorithm here is deterministic."""
    if not isinstance(mode, bool):
        raise TypeError(f"use_deterministic_algorithms(): argument 'mode' must be bool, not {type_name(mode)}")
    _state["deterministic"], _state["warn_only"] = bool(mode), bool(warn_only)


def are_deterministic_algorithms_enabled() -> bool:
    """The last argument of :func:`use_deterministic_algorithms`."""
    return bool(_state["deterministic"])


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    return bool(_state["warn_only"])


_DEBUG_MODES = ("default", "warn", "error")


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """:func:`use_deterministic_algorithms` by number or word: 0 "default", 1 "warn", 2 "error".

    TypeError for other types, RuntimeError for other values.
    """
    if not isinstance(debug_mode, int | str):
        raise TypeError(f"debug_mode must be str or int, but got {type(debug_mode)}")
    modes_known = _DEBUG_MODES if isinstance(debug_mode, str) else range(3)
    if debug_mode not in modes_known:
        expected = "one of `default`, `warn`, `error`" if isinstance(debug_mode, str) else "0, 1, or 2"
        raise RuntimeError(f"invalid value of debug_mode, expected {expected}, but got {debug_mode}")
    level = _DEBUG_MODES.index(debug_mode) if isinstance(debug_mode, str) else debug_mode
    use_deterministic_algorithms(level > 0, warn_only=level == 1)


def get_deterministic_debug_mode() -> int:
    """The last mode of :func:`set_deterministic_debug_mode`, as a number."""
    return 0 if not _state["deterministic"] else 1 if _state["warn_only"] else 2


def set_float32_matmul_precision(precision: str) -> None:
    """Accepted ("highest", "high", "medium") without effect: products are always computed in float32."""
    if precision not in ("highest", "high", "medium"):
        raise RuntimeError(f"{precision} is not one of 'highest', 'high', 'medium'")
    _state["precision"] = precision


def get_float32_matmul_precision() -> str:
    """The last argument of :func:`set_float32_matmul_precision`."""
    return str(_state["precision"])


def set_warn_always(b: bool) -> None:
    """Set whether every warning is shown; Python's own filters decide the output."""
    _state["warn_always"] = bool(b)


def is_warn_always_enabled() -> bool:
    """The last argument of :func:`set_warn_always`."""
    return bool(_state["warn_always"])


def set_flush_denormal(mode: bool) -> bool:
    """Return False: denormal numbers are kept."""
    return False


def get_default_device() -> devices.device:
    """The device of factories without an explicit device: that of the innermost ``with torch.device(...)``."""
    return modes.default_places[-1] if modes.default_places else devices.CPU


def is_anomaly_enabled() -> bool:
    """Whether backward passes look for the forward line of what fails."""
    return modes.anomaly


def is_anomaly_check_nan_enabled() -> bool:
    """Whether anomaly mode, while it is on, also looks for NaN in gradients."""
    return modes.check_nan


def set_default_device(device: Device) -> None:
    """Set the device of factories without an explicit one, outside of ``with torch.device(...)``; None: the CPU."""
    where = devices.check_device(device)
    if where != devices.CPU:
        devices.use.begin()  # permanently: threads have separate defaults
    modes.default_places = () if where == devices.CPU else (where,)


def typename(obj: object) -> str:
    """``torch.FloatTensor`` for a tensor, the qualified class name for others."""
    if isinstance(obj, Tensor):
        return str(obj.type())
    kind = obj if isinstance(obj, type) else type(obj)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


for _setting in (
    use_deterministic_algorithms, are_deterministic_algorithms_enabled, is_deterministic_algorithms_warn_only_enabled,
    set_float32_matmul_precision, get_float32_matmul_precision, set_flush_denormal, set_warn_always,
    is_warn_always_enabled, set_deterministic_debug_mode, get_deterministic_debug_mode, get_default_device,
    set_default_device, typename, is_anomaly_enabled, is_anomaly_check_nan_enabled,
):  # fmt: skip
    publish(_setting, f"torch.{_setting.__name__}")


class _HasDLPack(Protocol):
    def __dlpack__(self, *, stream: None = None) -> Any: ...


@function(to="torch")
def from_dlpack(ext_tensor: _HasDLPack, *, device: Device = None, copy: bool | None = None) -> Tensor:
    """A tensor over the memory of any object with ``__dlpack__``, or over a copy if ``copy`` is true.

    BufferError for tensors that require gradients, and for a ``device`` other than the CPU.
    """
    if devices.check_device(device).type != "cpu":
        raise BufferError(f"from_dlpack(): device must be cpu, got {device}")
    if getattr(ext_tensor, "requires_grad", False) is True:
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
    if not hasattr(type(ext_tensor), "__dlpack__"):
        raise TypeError(f"from_dlpack(): argument 'ext_tensor' must have __dlpack__, got {type_name(ext_tensor)}")
    array = array_over(ext_tensor) if is_foreign(type(ext_tensor)) else np.from_dlpack(ext_tensor)
    return wrap_shared(array.copy() if copy else array)


@function(to="torch")
def frombuffer(
    buffer: bytes | bytearray | memoryview | np.ndarray[Any, Any], *, dtype: DType, count: int = -1, offset: int = 0,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """A 1-d tensor that shares the memory of a buffer."""
    if count == 0 or memoryview(cast("bytes", buffer)).nbytes == 0:
        raise ValueError("both buffer length and count must not be 0")
    shared = wrap_shared(np.frombuffer(buffer, dtype.numpy, count, offset))
    return shared.requires_grad_(True) if requires_grad else shared


@function(to="torch", takes=ALL)
def detach(input: Tensor) -> Tensor:
    """``input`` without history, sharing its memory."""
    return input.detach()


@function(takes=ALL)
def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether both have one shape."""
    return tuple(input.shape) == tuple(other.shape)


@function(to="Tensor", takes=ALL)
def is_nonzero(input: Tensor) -> bool:
    """The truth of a one-element tensor."""
    return bool(input)


@function(to="Tensor", takes=ALL)
def share_memory__(input: Tensor) -> Tensor:
    """Move the memory of ``input`` and its views to where other processes can read and write it.

    Forked processes, and tensors sent through ``multiprocessing``, then refer to the same elements. Arrays of
    ``numpy()`` keep the former memory.
    """
    share([input])
    return input


@function(to="Tensor", takes=ALL)
def is_shared(input: Tensor) -> bool:
    """Whether other processes can refer to the memory: after ``share_memory_``."""
    return block_of(input._data) is not None


@function(to="Tensor", takes=ALL)
def to_dense(input: Tensor, dtype: DType | None = None) -> Tensor:
    """Return ``input``: tensors are dense."""
    return input if dtype is None else input.to(dtype)


@function(to="Tensor", takes=ALL)
def new(input: Tensor, *args: Any) -> Tensor:
    """A tensor of ``input``'s dtype: of a shape (integers or a ``torch.Size``), or of data."""
    sized = bool(args) and isinstance(args[0], int | Size)
    return input.new_empty(*args) if sized else input.new_tensor(*(args or ([],)))


def _contains(self: Tensor, element: object) -> bool:
    if not isinstance(element, Tensor | bool | int | float | complex):
        raise RuntimeError(
            f"Tensor.__contains__ only supports Tensor or scalar, but you passed in a {type_name(element)}."
        )
    return bool((self == element).any())


def _reversed(self: Tensor) -> Tensor:
    return self.flip(0) if self.ndim else self


publish(_contains, "Tensor.__contains__")
publish(_reversed, "Tensor.__reversed__")


def _never(self: Tensor) -> bool:
    """Return False: tensors are dense and on the CPU."""
    return False


for _name in ("is_xpu", "is_vulkan", "is_sparse_csr", "is_mtia", "is_ipu", "is_xla"):
    publish(property(_never, doc=_never.__doc__), f"Tensor.{_name}")
