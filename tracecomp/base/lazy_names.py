"""Names of a package that load their module when first used, so that importing the package stays cheap."""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any

from tracecomp.base.gc_pause import without_collecting


def _nothing() -> Mapping[str, Any]:
    return {}


def load_module(name: str) -> ModuleType:
    """Import a module of the package when a call needs it; OSError says what to do if no file can be opened."""
    try:
        return without_collecting(partial(import_module, name))
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        message = f"the first use of {name} reads its file, and too many files are open. Close some, or raise the limit"
        raise OSError(error.errno, f"{message} (ulimit -n)") from error


def later(
    package: str, where: Mapping[str, str], more: Callable[[], Mapping[str, object]] = _nothing
) -> Callable[[str], Any]:
    """A module's ``__getattr__``: ``where[name]`` is the module below ``package`` that has, or is, ``name``.

    Public names that are not in ``where`` are looked up in the result of ``more``.
    """

    def get(name: str) -> Any:
        if name in where:
            module = load_module(f"{package}.{where[name]}")
            found = module if where[name].rpartition(".")[2] == name else getattr(module, name)
        elif not name.startswith("_") and name in (rest := more()):
            found = rest[name]
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        setattr(sys.modules[package], name, found)
        return found

    return get
