"""Waiting for objects to be collected, at no more cost than needed."""

from __future__ import annotations

import gc
from collections.abc import Callable


def collected(gone: Callable[[], bool]) -> bool:
    """Whether what is looked for is gone, once cycles are collected: young ones first, for all objects may be many."""
    for generation in range(3):
        if gone():
            return True
        gc.collect(generation)
    return gone()
