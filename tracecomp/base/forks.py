"""Work that a forked child does first: it has the memory of its parent, and only the thread that forked."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

Work = TypeVar("Work", bound=Callable[[], Any])


def in_child(work: Work) -> Work:
    """Call ``work`` in every forked child, where processes can fork; also a decorator."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=work)
    return work
