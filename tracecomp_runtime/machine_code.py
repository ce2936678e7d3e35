"""Machine code in memory: code is written, then made executable, and never both at once."""

from __future__ import annotations

import ctypes
import mmap
import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

_PAGE = mmap.PAGESIZE


class Code:
    """Memory that holds code, and behind it, from a new page on, data."""

    def __init__(self, size: int) -> None:
        # Private: a forked child has its own data.
        flags, access = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ | mmap.PROT_WRITE
        self._memory = mmap.mmap(-1, max(size, 1), flags=flags, prot=access)
        self._bytes = (ctypes.c_char * max(size, 1)).from_buffer(self._memory)
        self.address = ctypes.addressof(self._bytes)

    def put(self, offset: int, data: bytes | memoryview) -> None:
        """Copy ``data`` there, before the code is locked."""
        self._memory[offset : offset + len(data)] = bytes(data)

    def lock(self, size: int) -> None:
        """Make the first ``size`` bytes, whole pages, executable and no longer writable; OSError when forbidden."""
        _show_code(self.address, size)
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        if libc.mprotect(self.address, -(-size // _PAGE) * _PAGE, mmap.PROT_READ | mmap.PROT_EXEC):
            number = ctypes.get_errno()
            raise OSError(number, "this system does not allow executable memory")


_ARM = platform.machine().lower() in ("aarch64", "arm64")


def _show_code(address: int, size: int) -> None:
    """Make code that was just written visible to instruction fetches. x86-64 needs nothing for it.

    Linux also does so when new pages become executable. libgcc and macOS have a function for any memory.
    """
    library: Any = _with_clear_cache() if _ARM else None
    if hasattr(library, "__clear_cache"):
        library.__clear_cache(ctypes.c_void_p(address), ctypes.c_void_p(address + size))
    elif hasattr(library, "sys_icache_invalidate"):
        library.sys_icache_invalidate(ctypes.c_void_p(address), ctypes.c_size_t(size))


@cache
def _with_clear_cache() -> Any:
    """A library with one of these functions; None if there is none."""
    for name in (None, "libgcc_s.so.1"):
        with suppress(OSError):
            library = ctypes.CDLL(name)
            if hasattr(library, "__clear_cache") or hasattr(library, "sys_icache_invalidate"):
                return library
    return None


_DMB = bytes.fromhex("bf3b03d5 c0035fd6")
"""dmb ish; ret"""


def barrier() -> None:
    """Order reads and writes of memory shared with other processes: those before the call come first.

    x86-64 keeps the order of two reads, and of two writes, and then the call does nothing.
    """
    if _ARM:
        ctypes.CFUNCTYPE(None)(_barrier().address)()


@cache
def _barrier() -> Code:
    return executable(_DMB)


def executable(data: bytes) -> Code:
    """Code without data."""
    code = Code(len(data))
    code.put(0, data)
    code.lock(len(data))
    return code


def placed(image: Mapping[str, Any], data: memoryview, address_of: Callable[[str], int] | None = None) -> Code:
    """A linked image in memory: ``text`` bytes of code, data from ``data`` on, and words that depend on the place.

    ``imports`` are words that take the addresses of functions by name, ``absolute`` words to which the image's own
    address is added. ``address_of`` finds functions; without it, those of ``IMPORTS`` alone may be called.
    """
    address_of = address_of or _function
    code = Code(image["size"])
    code.put(0, data[: image["text"]])
    code.put(image["data"], data[image["text"] :])
    words = ctypes.c_uint64 * 1
    for offset in image["absolute"]:
        word = words.from_address(code.address + _inside(offset, image))
        word[0] += code.address
    for name, offset in image["imports"]:
        words.from_address(code.address + _inside(offset, image))[0] = address_of(name)
    code.lock(image["text"])
    return code


def _inside(offset: int, image: Mapping[str, Any]) -> int:
    if not image["data"] <= offset <= image["size"] - 8:
        raise ValueError(f"a word of the image is at {offset}, outside its data")
    return offset


_SIGNALS = ("PyGILState_Ensure", "PyGILState_Release", "PyErr_CheckSignals")
PYTHON = ("PyEval_SaveThread", "PyEval_RestoreThread", "PyLong_FromLongLong", "PyObject_Vectorcall", "PyTuple_New",
          "PyTuple_SetItem", "Py_DecRef", "PyErr_Occurred", *_SIGNALS)  # fmt: skip
LIBC = ("syscall", "clock_gettime", "memcpy", "memmove", "memset", "fma", "fmaf")
IMPORTS: Sequence[str] = (*PYTHON, *LIBC)
"""Everything that a program's code may call."""


def _function(name: str) -> int:
    if name not in IMPORTS:
        raise ValueError(f"the code calls {name!r}, which is not allowed")
    library: Any = ctypes.pythonapi if name in PYTHON else ctypes.CDLL(None)
    return ctypes.cast(library[name], ctypes.c_void_p).value or 0
