"""The mark of functions whose signature other libraries rely on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def compatibility(is_backward_compatible: bool) -> Callable[[T], T]:
    """A decorator that marks a function or class as stable or not; it changes nothing."""
    return lambda fn: fn
