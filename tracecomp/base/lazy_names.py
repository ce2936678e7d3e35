"""Names of a package that load their module when first used, so that importing the package stays cheap."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def later(package: str, where: Mapping[str, str]) -> Callable[[str], Any]:
    """A module's ``__getattr__``: ``where[name]`` is the module below ``package`` that has, or is, ``name``."""

    def get(name: str) -> Any:
        if name not in where:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(f"{package}.{where[name]}")
        found = module if where[name].rpartition(".")[2] == name else getattr(module, name)
        setattr(sys.modules[package], name, found)
        return found

    return get
