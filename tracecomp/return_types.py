"""The classes of named results under the names of ``torch.return_types``."""

from __future__ import annotations

from typing import Any

from tracecomp.functional import named_results


def __getattr__(name: str) -> Any:
    for found in vars(named_results).values():
        if isinstance(found, type) and issubclass(found, tuple) and found.__name__ == name:
            return found
    raise AttributeError(f"module 'torch.return_types' has no attribute {name!r}")
