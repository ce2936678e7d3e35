"""The names of ``torch.accelerator`` on a machine without one: queries answer so, requests raise RuntimeError."""

from __future__ import annotations

from typing import NoReturn

from tracecomp.base.errors import at_user_line


def is_available() -> bool:
    """False: tensors live on the CPU."""
    return False


def device_count() -> int:
    return 0


def current_accelerator(check_available: bool = False) -> None:
    """None: there is none."""


def _refuse() -> NoReturn:
    raise RuntimeError(at_user_line("Cannot access accelerator device when none is available."))


def current_device_index() -> int:
    _refuse()


def set_device_index(device: object, /) -> None:
    _refuse()


def synchronize(device: object = None, /) -> None:
    _refuse()
