"""Common behaviour of the modules ``cuda``, ``xpu``, ``mps`` and ``mtia`` without such a device.

Queries return no, none or nothing; functions that need a device raise AssertionError, as in a PyTorch without it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NoReturn

from tracecomp.eager.device import check_device

_NEED = (
    "current_device current_stream default_stream device_of get_device_capability get_device_name "
    "get_device_properties get_rng_state mem_get_info set_rng_state synchronize"
)
_NOTHING = (
    "empty_cache init ipc_collect manual_seed manual_seed_all reset_accumulated_memory_stats "
    "reset_max_memory_allocated reset_max_memory_cached reset_peak_memory_stats seed seed_all set_stream"
)
_ZERO = (
    "current_allocated_memory device_count driver_allocated_memory max_memory_allocated max_memory_reserved "
    "memory_allocated memory_reserved recommended_max_memory"
)
_FALSE = (
    "_is_compiled _is_in_bad_fork is_available is_bf16_supported is_built is_current_stream_capturing is_initialized"
)


def _answering(name: str, answer: object, doc: str) -> Callable[..., Any]:
    def ask(*args: Any, **kwargs: Any) -> Any:
        return answer() if callable(answer) else answer

    ask.__name__ = ask.__qualname__ = name
    ask.__doc__ = doc
    return ask


class _Needs:
    """Base of classes whose objects belong to a device."""

    kind: str

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        check_device(self.kind)


class _DeviceContext:
    """``with cuda.device(0):`` raises; ``device(None)`` and ``device(-1)`` say that there is nothing to choose."""

    kind: str

    def __init__(self, device: object = None) -> None:
        self.idx = -1 if device is None else device

    def __enter__(self) -> None:
        if self.idx != -1:
            check_device(self.kind)

    def __exit__(self, *error: object) -> None:
        return None


def names_of(kind: str) -> dict[str, Any]:
    """The names of the module for devices of ``kind``."""

    def refuse() -> NoReturn:
        check_device(kind)
        raise AssertionError(kind)

    def set_device(device: object) -> None:
        """AssertionError unless ``device`` is negative, which chooses none."""
        if not (isinstance(device, int) and device < 0):
            check_device(kind)

    def stream(stream: object = None) -> AbstractContextManager[None]:
        """Nothing for no stream; there are none."""
        return nullcontext() if stream is None else refuse()

    named: dict[str, Any] = {"set_device": set_device, "stream": stream}
    for names, answer, doc in (
        (_NEED, refuse, "AssertionError: there is no such device."), (_NOTHING, None, "Nothing: there is no device."),
        (_ZERO, 0, "0: there is no device."), (_FALSE, False, "False: there is no device."),
        ("memory_stats memory_snapshot", dict, "Empty: there is no device."),
        ("get_arch_list get_rng_state_all", list, "Empty: there is no device."),
        ("memory_summary", "", "Empty: there is no device."),
        ("set_rng_state_all", None, "Nothing: there is no device."),
    ):  # fmt: skip
        named |= {name: _answering(name, answer, doc) for name in names.split()}
    for name in ("Stream", "Event"):
        named[name] = type(name, (_Needs,), {"kind": kind, "__doc__": "Needs a device, and there is none."})
    named["device"] = type("device", (_DeviceContext,), {"kind": kind, "__doc__": _DeviceContext.__doc__})
    return named
