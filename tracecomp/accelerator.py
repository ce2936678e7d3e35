"""The names of ``torch.accelerator`` on a machine without one: queries report that, requests raise RuntimeError."""

from __future__ import annotations

from typing import Any, NoReturn

from tracecomp.base.errors import at_user_line
from tracecomp.base.lazy_names import load_module


def is_available() -> bool:
    """Return False: tensors are on the CPU."""
    return False


def device_count() -> int:
    return 0


def current_accelerator(check_available: bool = False) -> None:
    """Return None: there is none."""


def _refuse() -> NoReturn:
    raise RuntimeError(at_user_line("Cannot access accelerator device when none is available."))


def current_device_index() -> int:
    _refuse()


def set_device_index(device: object, /) -> None:
    _refuse()


def synchronize(device: object = None, /) -> None:
    _refuse()


def get_device_module(device: object = None) -> Any:
    """The module for devices of a kind (a ``device`` or its name): ``cpu`` by default.

    RuntimeError for kinds without a module.
    """
    kind = "cpu" if device is None else str(getattr(device, "type", device)).partition(":")[0]
    if kind not in ("cpu", "cuda", "mps", "mtia", "xpu"):
        raise RuntimeError(f"Device '{kind}' does not have a corresponding module registered as 'torch.{kind}'.")
    return load_module(f"tracecomp.{kind}")
