"""Every published function under its torch name: ``from tracecomp.functional import names as T``, ``T.cat(...)``."""

from __future__ import annotations

from typing import Any

from tracecomp.functional.publish import PUBLIC


def __getattr__(name: str) -> Any:
    try:
        return PUBLIC[name]
    except KeyError:
        raise AttributeError(f"no published function {name!r}") from None
