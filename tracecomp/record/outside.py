"""Python functions that read or change the outside world.

A recording would freeze their results: the same random number, the same time in every call. Every call therefore runs
the functions listed here in Python.
"""

from __future__ import annotations

import ctypes
import io
import random
import sys
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, MethodType
from typing import Any
from weakref import WeakSet

import numpy as np

from tracecomp.record.c_effects import unlisted
from tracecomp.record.guards.ownership import is_program_code

OWNERS: tuple[type, ...] = (random.Random, np.random.Generator, np.random.RandomState, io.IOBase)
"""Objects whose methods give other values from call to call, or write somewhere."""

MODULES = frozenset({
    "random", "secrets", "uuid", "socket", "subprocess", "tempfile", "shutil", "urllib", "http", "sqlite3", "logging",
    "threading", "multiprocessing", "queue", "signal", "getpass", "glob", "genericpath", "pathlib",
})  # fmt: skip
"""Modules whose functions in Python do."""

NAMES = frozenset({
    "importlib.util.find_spec", "inspect.currentframe", "inspect.stack", "inspect.trace", "traceback.extract_stack",
    "traceback.format_stack", "traceback.print_stack", "traceback.walk_stack", "os.walk", "os.makedirs",
    "os.popen", "posixpath.realpath", "posixpath.expanduser", "posixpath.expandvars", "posixpath.ismount",
    "posixpath.lexists", "posixpath.islink", "posixpath.abspath", "decimal.localcontext", "warnings.simplefilter",
    "warnings.filterwarnings", "warnings.resetwarnings", "warnings.catch_warnings", "locale.setlocale", "numpy.seterr",
    "numpy.geterr", "numpy.set_printoptions", "numpy.get_printoptions", "numpy.random.default_rng",
    "numpy.random.seed", "numpy.random.set_bit_generator", "tracecomp.eager.rng.initial_seed",
    "tracecomp.eager.rng.seed", "tracecomp.runtime.threads.get_num_threads",
    "tracecomp.runtime.threads.set_num_threads",
})  # fmt: skip
"""Other functions and classes that do."""

_OF_FRAMES = frozenset({
    "sys._getframe", "sys._getframemodulename", "sys._current_frames", "inspect.currentframe", "inspect.stack",
    "inspect.trace", "traceback.extract_stack", "traceback.format_stack", "traceback.print_stack",
    "traceback.walk_stack",
})  # fmt: skip
"""Functions among them that inspect frames of callers."""

_C_FUNCTION: type = ctypes._CFuncPtr  # type: ignore[attr-defined]
"""Functions that ctypes calls, which may do anything."""

frame_readers: WeakSet[CodeType] = WeakSet()
"""Code that has inspected frames of its callers, and code that called it. Compiled parts would be other callers."""


def note_frames(name: str, root: FrameType | None) -> None:
    """Note the code of the program that runs inside of ``root``, if the function ``name`` inspects frames."""
    frame = sys._getframe(1) if name in _OF_FRAMES else None
    while frame is not None and frame is not root:
        if is_program_code(frame.f_code, frame.f_globals):
            frame_readers.add(frame.f_code)
        frame = frame.f_back


PURE = frozenset({"genericpath.commonprefix", "threading.current_thread", "logging.getLogger"})
"""Functions of those modules that do not."""


def outside(callee: Any, owner: Any = None, by_library: bool = False) -> str | None:
    """The name of a function that a recording cannot contain, or None. ``owner`` is the object of a method.

    Functions in C are those that ``c_effects`` does not list. ``by_library``: Python's library calls it.
    """
    if isinstance(callee, MethodType):
        callee, owner = callee.__func__, callee.__self__
    elif owner is None or isinstance(callee, BuiltinFunctionType):
        owner = getattr(callee, "__self__", owner)
    name = getattr(callee, "__name__", "")
    if isinstance(callee, _C_FUNCTION):
        return name or "a function of C"
    if isinstance(owner, OWNERS):
        return f"{type(owner).__name__}.{name}"
    found = unlisted(callee, by_library)
    if found is not None:
        return found
    module = getattr(callee, "__module__", None)
    if not isinstance(module, str) or not isinstance(callee, FunctionType | type):
        return None
    full = f"{module}.{name}"
    if full in NAMES:
        return full
    if by_library or isinstance(callee, type) or full in PURE or module.split(".")[0] not in MODULES:
        return None
    return full
