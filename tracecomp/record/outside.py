"""Python functions that read or change the outside world.

A recording would freeze their results: the same random number, the same time in every call. Every call therefore runs
the functions listed here in Python.
"""

from __future__ import annotations

import datetime
import io
import random
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import numpy as np

OWNERS: tuple[type, ...] = (random.Random, np.random.Generator, np.random.RandomState, io.IOBase)
"""Objects whose methods give other values from call to call, or write somewhere."""

MODULES = frozenset({
    "time", "random", "_random", "secrets", "uuid", "socket", "_socket", "select", "subprocess", "tempfile", "shutil",
    "urllib", "http", "sqlite3", "logging", "threading", "_thread", "multiprocessing", "queue", "_queue", "signal",
    "getpass", "glob", "genericpath", "pathlib", "io", "_io", "posix", "nt", "gc",
})  # fmt: skip
"""Modules whose functions do."""

NAMES = frozenset({
    "builtins.open", "builtins.input", "os.urandom", "numpy.random.default_rng", "os.walk", "os.makedirs", "os.popen",
    "posixpath.realpath", "posixpath.expanduser", "posixpath.expandvars", "posixpath.ismount", "posixpath.lexists",
    "posixpath.islink", "posixpath.abspath", "decimal.getcontext", "_decimal.getcontext", "decimal.localcontext",
    "warnings.simplefilter", "warnings.filterwarnings", "warnings.resetwarnings", "warnings.catch_warnings",
    "sys.setrecursionlimit", "sys.getrecursionlimit", "locale.setlocale", "numpy.seterr", "numpy.geterr",
    "numpy.set_printoptions", "numpy.get_printoptions", "numpy.random.seed", "numpy.random.set_bit_generator",
    "tracecomp.eager.rng.initial_seed", "tracecomp.eager.rng.seed", "tracecomp.runtime.threads.get_num_threads",
    "tracecomp.runtime.threads.set_num_threads",
})  # fmt: skip

PURE = frozenset({
    "posix.fspath", "genericpath.commonprefix", "posix.getpid", "os.fspath", "os.getenv", "_thread.get_ident",
    "threading.current_thread",
    "_thread.allocate_lock", "_thread.RLock", "logging.getLogger", "_thread.get_native_id", "threading.get_ident",
    "gc.collect", "gc.get_referrers", "gc.isenabled", "gc.disable", "gc.enable", "random.Random", "pathlib.Path",
    "pathlib.PurePath", "pathlib.PosixPath", "random.getstate", "_thread.lock", "threading.local", "_thread._local",
})  # fmt: skip
"""Functions of those modules that do not."""

_CLOCKS = {"now", "utcnow", "today"}
_STATELESS = {"getstate", "seed", "setstate"}


def is_c_function(fn: object) -> bool:
    """Whether ``fn`` is a function in C, also of a type that Cython or nanobind brings along."""
    return isinstance(fn, BuiltinFunctionType) or type(fn).__name__ in ("cython_function_or_method", "nb_func")


def outside(callee: Any, owner: Any = None) -> str | None:
    """The name of a function that a recording cannot contain, or None. ``owner`` is the object of a method."""
    if isinstance(callee, MethodType):
        callee, owner = callee.__func__, callee.__self__
    elif owner is None or isinstance(callee, BuiltinFunctionType):
        owner = getattr(callee, "__self__", owner)
    name = getattr(callee, "__name__", "")
    if isinstance(owner, OWNERS):
        return f"{type(owner).__name__}.{name}"
    if owner is datetime.datetime or owner is datetime.date:
        return f"{owner.__name__}.{name}" if name in _CLOCKS else None
    module = getattr(callee, "__module__", None)
    if not isinstance(module, str) or not (isinstance(callee, FunctionType | type) or is_c_function(callee)):
        return None
    full = f"{module}.{name}"
    if full in NAMES:
        return full
    if isinstance(callee, type) or full in PURE or module.split(".")[0] not in MODULES:
        return None
    return full
