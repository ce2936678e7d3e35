"""Every published function under its torch name: ``from tracecomp.functional import names as T``, ``T.cat(...)``."""

from __future__ import annotations

from typing import Any

from tracecomp.functional.publish import NAMESPACES

_TORCH = NAMESPACES["torch"]


def __getattr__(name: str) -> Any:
    try:
        return _TORCH[name]
    except KeyError:
        raise AttributeError(f"no published function {name!r}") from None
