"""The Python that runs this process, and what this package relies on in it.

No other module asks for Python's version. Layouts of objects and frames are found by trial, each once per process
(``runtime/object_layout.py``, ``record/frames.py``, ``record/guards/class_versions.py``).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.util import MAGIC_NUMBER

_SUB_INTERPRETER = (
    "tracecomp cannot be imported in a sub-interpreter: its compiled code belongs to the main interpreter. Use threads "
    "or processes (for mod_wsgi: WSGIApplicationGroup %{GLOBAL})"
)
try:
    import ctypes
except ImportError as error:
    # CPython 3.12 does not load ctypes in a sub-interpreter with its own lock.
    raise ImportError(_SUB_INTERPRETER if "subinterpreter" in str(error) else str(error)) from error

BYTECODES: Mapping[int, str] = {3495: "3.11", 3531: "3.12", 3571: "3.13", 3627: "3.14"}
"""Versions of CPython with which this package is tested, by the number of their bytecode (``pyc`` magic number).

The number changes with any change of instructions, also in preliminary releases. Releases of one version have the same.
"""


def require_main_interpreter() -> None:
    """ImportError in a sub-interpreter: native code keeps addresses of the main interpreter's objects."""
    main, own = ctypes.pythonapi.PyInterpreterState_Main, ctypes.pythonapi.PyInterpreterState_Get
    main.restype = own.restype = ctypes.c_void_p
    if main() != own():
        raise ImportError(_SUB_INTERPRETER)


def require_known_headers() -> None:
    """ImportError if objects do not begin with a reference count and a type: native code reads fields behind these.

    Free-threaded builds have larger headers, and other threads may change an object while native code reads it.
    """
    if object.__basicsize__ != 16:
        free_threaded = "t" in getattr(sys, "abiflags", "")
        build = "a free-threaded build" if free_threaded else f"a build with headers of {object.__basicsize__} bytes"
        raise ImportError(
            f"tracecomp cannot be imported in {build} of Python {sys.version.split()[0]}: its compiled code reads "
            f"objects of the default 64-bit build. Use the default build of CPython {supported()}"
        )


def supported() -> str:
    """The supported versions, for messages."""
    first, *_, last = BYTECODES.values()
    return f"{first} to {last}"


def bytecode_is_known() -> bool:
    """Whether this Python has the instructions of a version that is tested."""
    return sys.implementation.name == "cpython" and int.from_bytes(MAGIC_NUMBER[:2], "little") in BYTECODES


def is_tested() -> bool:
    """Whether this Python is a release build of a tested version. Native code reads objects of no other.

    Debug builds add fields to objects and verify reference counts.
    """
    return bytecode_is_known() and not hasattr(sys, "gettotalrefcount")


def _argument_references() -> int:
    local = object()
    return sys.getrefcount(local) - 1


ARGUMENT_REFERENCES = _argument_references()
"""References that ``getrefcount(name)`` adds for its argument: 0 where calls borrow local names, as in Python 3.14."""
