"""Common part of the modules of ``torch.backends``: flags that may be set, also for a block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from tracecomp.base import switches


class Settings:
    """Flags that may be read and set."""

    def __init__(self, **flags: Any) -> None:
        self.__dict__.update(flags)
        switches.register(self.__dict__)


def flags_of(module: dict[str, object]) -> Callable[..., AbstractContextManager[None]]:
    """Return ``flags(enabled=False)`` for a module: a context with other settings."""

    @contextmanager
    def flags(**settings: Any) -> Iterator[None]:
        before = {name: module[name] for name in settings if name in module}
        module.update(settings)
        try:
            yield
        finally:
            module.update(before)

    return flags


def no() -> bool:
    """Return False: the backend is not available."""
    return False
