"""The list of functions in C that recordings may contain, against the modules of Python and numpy that have them."""

from __future__ import annotations

import importlib
import importlib.util
import os
import random
import sys
import time
import types
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

from tracecomp.record.c_effects import BY_LIBRARIES, FUNCTIONS, METHODS, TYPES, is_c_function, unlisted

LEFT_OUT = {"antigravity", "this", "idlelib", "lib2to3", "turtledemo", "tkinter", "turtle", "ensurepip", "__main__"}
"""Modules that do something when they are imported, or need a screen."""

REACH_OUT = {
    "builtins": "breakpoint eval exec globals input open",
    "_functools": "", "functools": "", "itertools": "", "_collections": "", "array": "", "_typing": "", "_weakref":
    "_remove_dead_weakref getweakrefcount getweakrefs", "marshal": "dump load", "_pickle": "dump load", "zlib": "",
    "_hashlib": "get_fips_mode", "posix": "*", "sys": "*", "gc": "*", "_thread": "*", "_ctypes": "*", "_abc": "*",
    "_codecs": "decode encode lookup lookup_error register register_error unregister _unregister_error "
    "_forget_codec lookup_error unicode_escape_decode readbuffer_encode",
    "numpy": "fromfile frompyfunc", "numpy.lib": "", "numpy.lib.array_utils": "", "numpy.char": "",
    "numpy._core.multiarray": "", "numpy._core._multiarray_umath": "_add_newdoc_ufunc _blas_supports_fpe "
    "_get_extobj_dict _get_madvise_hugepage _get_ndarray_c_version _load_from_filelike _make_extobj "
    "_populate_finfo_constants _reload_guard _set_madvise_hugepage _set_numpy_warn_if_no_mem_policy get_handler_name "
    "get_handler_version set_datetimeparse_function set_typeDict _dlpack_registry_replace _finfo_get_realdtype "
    "_is_view_safe_cast _register_dlpack_dtype",
}  # fmt: skip
"""Functions of the listed modules that read or change more than their arguments."""


@cache
def c_functions() -> dict[str, dict[str, Any]]:
    """The functions in C of Python's library and numpy, by the modules that they say to be of."""
    found: dict[str, dict[str, Any]] = {}
    for module in loaded():
        for value in list(vars(module).values()):
            home = getattr(value, "__module__", None)
            if isinstance(value, types.BuiltinFunctionType) and isinstance(home, str):
                found.setdefault(home, {})[value.__name__] = value
    return found


def loaded() -> Iterator[types.ModuleType]:
    for name in sorted(sys.stdlib_module_names - LEFT_OUT):
        if not name.startswith(("_test", "_xx", "test")):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    yield importlib.import_module(name)
                except ImportError:
                    continue  # of another system
    umath = importlib.import_module("numpy._core._multiarray_umath")
    yield from (np, umath, np.lib, np.lib.array_utils, np.lib.stride_tricks, np.char)


@pytest.mark.parametrize("module", [m for m, names in FUNCTIONS.items() if names != "*"])
def test_each_function_in_c_of_a_listed_module_has_been_judged(module: str) -> None:
    judged = {*FUNCTIONS[module].split(), *REACH_OUT[module].split()}
    others = set(c_functions().get(module, {})) - judged
    assert not others or "*" in judged, f"list these in FUNCTIONS or in REACH_OUT: {sorted(others)}"


@pytest.mark.parametrize("module", FUNCTIONS)
def test_listed_names_are_those_of_functions(module: str) -> None:
    if importlib.util.find_spec(module.partition(".")[0]) is None:
        assert module in RENAMED and any(map(importlib.util.find_spec, RENAMED - {module}))
        return
    home = importlib.import_module(module)
    names = set(FUNCTIONS[module].split()) - {"*"}
    known = set(c_functions().get(module, {})) | set(dir(home))
    assert len(names - known) <= VERSIONED.get(module, 0), names - known


RENAMED = {"_sha256", "_sha512", "_sha2"}
"""Modules of the same functions in different versions of Python."""
VERSIONED = {
    "sys": 1,
    "posix": 3,
    "_thread": 2,
    "_ctypes": 2,
    "numpy": 1,
    "numpy.char": 1,
    "numpy._core._multiarray_umath": 8,
}
"""How many of the listed functions some versions of Python or numpy do not have."""


def test_functions_that_reach_out_are_not_listed() -> None:
    out: list[Any] = [time.time, os.stat, os.urandom, open, input, eval, sys.getrecursionlimit, sys._getframe]
    out += [np.fromfile, np.ones(1).tofile, dict.__subclasses__, random.Random().random]
    pure: list[Any] = [abs, sum, np.arange, [].append, "a".upper, {}.get, int.from_bytes]
    assert all(unlisted(fn, False) is not None for fn in out)
    assert all(unlisted(fn, False) is None for fn in pure)


def test_libraries_may_call_more_than_programs() -> None:
    assert all(unlisted(fn, True) is None for fn in (exec, sys._getframe))
    assert unlisted(exec, False) == "builtins.exec"
    assert not set(BY_LIBRARIES) & {"time", "posix", "_io", "_socket", "_random"}


def test_tables_have_no_modules_of_clocks_files_and_random_sources() -> None:
    out = {"time", "_io", "io", "_socket", "socket", "select", "_random", "random", "_sqlite3", "_queue", "mmap"}
    assert not out & ({*FUNCTIONS} | {*TYPES})
    assert all(name.count(".") == 1 for name in METHODS)
    assert is_c_function(len) and not is_c_function(lambda: None)
