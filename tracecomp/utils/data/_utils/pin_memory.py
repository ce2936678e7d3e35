"""Memory from which devices copy quickly; there is no device, so nothing is pinned."""

from __future__ import annotations

from typing import Any


def pin_memory(data: object, device: object = None) -> Any:
    """``data``."""
    return data
