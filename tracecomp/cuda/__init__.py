"""The names of ``torch.cuda`` on a machine without accelerators: queries answer so, requests are refused."""

from __future__ import annotations

from typing import Any

from tracecomp.cuda import amp as amp
from tracecomp.eager.device import check_device


def is_available() -> bool:
    """False: tensors live on the CPU."""
    return False


def is_initialized() -> bool:
    return False


def device_count() -> int:
    return 0


def is_bf16_supported(including_emulation: bool = True) -> bool:
    return False


def current_device() -> int:
    """AssertionError: there is none."""
    check_device("cuda")
    return 0


def get_device_name(device: Any = None) -> str:
    """AssertionError: there is none."""
    check_device("cuda")
    return ""


def manual_seed(seed: int) -> None:
    """Nothing to seed; ``tracecomp.manual_seed`` seeds the CPU."""


def manual_seed_all(seed: int) -> None:
    """Nothing to seed."""


def empty_cache() -> None:
    """Nothing is cached."""


def synchronize(device: Any = None) -> None:
    """AssertionError: there is no device to wait for."""
    check_device("cuda")


def memory_allocated(device: Any = None) -> int:
    return 0


def max_memory_allocated(device: Any = None) -> int:
    return 0
