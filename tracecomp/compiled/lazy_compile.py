"""``compile``, loaded when it is first called: programs that use modules need not compile anything."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def compile(model: object, **options: Any) -> Any:
    """As ``tracecomp.compiled.compile``."""
    return import_module("tracecomp.compiled.function").compile(model, **options)
