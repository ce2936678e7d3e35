"""Machine code loaded into this process.

ELF objects for x86-64 are linked here, without LLVM: importing LLVM takes longer than loading most programs. LLVM's
linker loads other objects.
"""

from __future__ import annotations

import atexit
import ctypes
import weakref
from collections.abc import Iterable, Sequence
from functools import cache

from tracecomp.base.errors import CompileError
from tracecomp.codegen.text import native
from tracecomp.runtime.linker import is_linkable, link
from tracecomp_runtime.machine_code import placed

_symbols: dict[str, int] = {}
"""Functions in this process that code may call in addition to the C library's."""


def add_symbol(name: str, address: int) -> None:
    """Let code that is loaded from now on call the function ``name`` of this process."""
    _symbols[name] = address


def add_functions(library: ctypes.CDLL, names: Iterable[str]) -> None:
    """Let code that is loaded from now on call these functions of ``library``; AttributeError if it lacks one."""
    for name in names:
        add_symbol(name, ctypes.cast(library[name], ctypes.c_void_p).value or 0)


class _Placed:
    """Objects linked into one image, and the image in memory."""

    def __init__(self, objects: Sequence[bytes]) -> None:
        linked = link(objects)
        self._symbols = linked.symbols
        self._code = placed(linked.description(), memoryview(linked.contents), _outside)

    def address(self, name: str) -> int:
        """The address of a function; KeyError if it does not exist."""
        return self._code.address + self._symbols[name]

    @property
    def holders(self) -> Sequence[object]:
        """Objects that keep the code in memory while any of them is referenced."""
        return (self._code,)


def _outside(name: str) -> int:
    """The address of a function that code calls."""
    return _symbols[name] if name in _symbols else _in_process(name)


@cache
def _in_process(name: str) -> int:
    try:
        return ctypes.cast(ctypes.CDLL(None)[name], ctypes.c_void_p).value or 0
    except AttributeError as error:
        raise CompileError(f"machine code calls {name}, which this process does not have") from error


class Library:
    """Objects for this machine, loaded, which may call each other; addresses are valid while it lives."""

    def __init__(self, objects: Sequence[bytes]) -> None:
        linkable = all(map(is_linkable, objects))
        self._code = _Placed(objects) if linkable else native.Linked(objects, native.host_target(), _symbols)
        _loaded.add(self)

    def address(self, name: str) -> int:
        """The address of a function; CompileError if it does not exist."""
        try:
            return self._code.address(name)
        except KeyError as error:
            raise CompileError(f"compiled object has no function {name}") from error

    def keep(self) -> None:
        """Never unload this code."""
        for holder in self._code.holders:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(holder))


_loaded: weakref.WeakSet[Library] = weakref.WeakSet()


@atexit.register
def keep_loaded() -> None:
    """Leave loaded code to the end of the process: threads may run it during interpreter shutdown."""
    for library in list(_loaded):
        library.keep()
