"""``compile``, loaded when it is first called: programs that use modules need not compile anything."""

from __future__ import annotations

from typing import Any

from tracecomp.base.lazy_names import load_module


def compile(model: object, **options: Any) -> Any:
    """As ``tracecomp.compiled.compile``."""
    return load_module("tracecomp.compiled.function").compile(model, **options)
