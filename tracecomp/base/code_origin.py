"""Ownership of code: this package's, Python's, PyTorch's, or the program's with the libraries it uses.

Files decide. Names do not suffice: ``functools.wraps`` copies ``__module__`` from the function that it wraps, and a
program may have a module ``tracecomp_tools``.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, MethodType
from typing import Any

_NAME = __name__.partition(".")[0]
_PACKAGE = tuple(f"{Path(__file__).parents[1]}{end}{os.sep}" for end in ("", "_runtime"))
_STANDARD = {os.path.dirname(os.__file__), *map(sysconfig.get_path, ("stdlib", "platstdlib"))}
_STANDARD_FOLDERS = tuple(sorted({f"{path}{os.sep}" for at in _STANDARD for path in (at, os.path.realpath(at))}))
_IMPORTED = frozenset({"numpy", "llvmlite", "networkx"})
"""Libraries that this package imports: a module of that name is the library in any folder."""
_AROUND = {
    **{name: name for name in (*_IMPORTED, "scipy", "setuptools", "pytest", "pluggy", "hypothesis", "coverage")},
    "_distutils_hack": "setuptools", "pkg_resources": "setuptools", "_pytest": "pytest", "IPython": "ipython",
}  # fmt: skip
"""Libraries that are not part of a program: their work depends on their arguments, or they run programs.

The distribution of each top-level module. A module of the same name that is not from there belongs to the program.
"""
_METADATA = (".dist-info", ".egg-info")
"""Endings of folders with metadata of distributions. Tools other than pip write the second kind."""


def is_own(value: object) -> bool:
    """Whether a class or function is this package's; for other objects, whether their ``__module__`` is.

    A function that wraps a second one is this package's if both are: ``no_grad`` decorates functions of the program,
    and programs wrap functions of this package.
    """
    held: Any = value.__func__ if isinstance(value, MethodType) else value
    while isinstance(held, FunctionType):
        if not is_own_file(file_of(held.__code__, held.__globals__)):
            return False
        inner = held.__dict__.get("__wrapped__")
        if inner is None:
            return True
        held = inner.__func__ if isinstance(inner, MethodType) else inner
    return is_own_module(getattr(held, "__module__", None))


def is_own_module(name: object) -> bool:
    """Whether a module of that name is this package's. ``tracecomp.as_torch()`` gives them PyTorch's names, too."""
    if not isinstance(name, str):
        return False
    top = name.partition(".")[0]
    if top == "torch":
        return is_own_file(str(getattr(sys.modules.get(name), "__file__", None)))
    return top == _NAME


def is_pytorchs(value: object) -> bool:
    """Whether a class or function is PyTorch's."""
    if isinstance(value, FunctionType):
        module = value.__globals__.get("__name__")
    else:
        module = getattr(value, "__module__", None) or getattr(getattr(value, "__objclass__", None), "__module__", None)
    return isinstance(module, str) and module.partition(".")[0] == "torch" and not is_own_module(module)


def is_pythons_module(name: object) -> bool:
    """Whether a module of that name is Python's own, or numpy's."""
    top = name.partition(".")[0] if isinstance(name, str) else ""
    return top == "numpy" or (top in sys.stdlib_module_names and top != "__main__")


def torch_name(module: str) -> str:
    """Return the name that PyTorch's programs use for a module: ``torch.nn`` for ``tracecomp.nn``."""
    return f"torch{module.removeprefix(_NAME)}" if module.partition(".")[0] == _NAME else module


def own_name(module: str) -> str:
    """Return the name of this package's module that PyTorch's programs call ``module``."""
    return f"{_NAME}{module.removeprefix('torch')}" if module.partition(".")[0] == "torch" else module


def file_of(code: CodeType, space: Mapping[str, object]) -> str:
    """Return the file of a function's code; code generated at run time belongs to its module."""
    module = space.get("__file__")
    return module if code.co_filename.startswith("<") and isinstance(module, str) else code.co_filename


@cache
def is_own_file(name: str) -> bool:
    """Whether the file ``name`` is this package's."""
    return name.startswith(_PACKAGE)


@cache
def is_user_file(name: str) -> bool:
    """Whether code from the file ``name`` is neither this package's nor frozen into Python."""
    return not is_own_file(name) and not name.startswith("<frozen")


@cache
def is_program_file(name: str) -> bool:
    """Whether code in the file ``name`` is the program's: not this package's, Python's own, or what runs programs.

    Other libraries are part of the program: they keep counters and settings as programs do.
    """
    return is_user_file(name) and not (name.endswith((".so", ".pyd")) or _is_pythons(name) or _is_around(name))


def _is_pythons(name: str) -> bool:
    """Whether a file is of Python's library, in whose folder other libraries may be installed."""
    for folder in _STANDARD_FOLDERS:
        if name.startswith(folder):
            return name[len(folder) :].partition(os.sep)[0].partition(".")[0] in sys.stdlib_module_names
    return False


def _is_around(name: str) -> bool:
    """Whether a file is of a loaded library around programs."""
    for top, distribution in _AROUND.items():
        module = sys.modules.get(top)
        home = getattr(module, "__file__", None)
        if isinstance(home, str) and (name == home or name.startswith(_folder(home))):
            folder = os.path.dirname(_folder(home)[:-1])
            return top in _IMPORTED or bool({(distribution, end) for end in _METADATA} & _distributions(folder))
    return False


def _folder(home: str) -> str:
    """The folder of a top-level module's package, and its separator; the file itself if it is not a package."""
    folder, file = os.path.split(home)
    return f"{folder if file.startswith('__init__.') else home}{os.sep}"


@cache
def _distributions(folder: str) -> frozenset[tuple[str, str]]:
    """The distributions whose metadata is in ``folder``, in lower case, and its kind. Modules are next to it."""
    try:
        names = os.listdir(folder)
    except OSError:  # such as a ZIP file
        return frozenset()
    return frozenset(
        (n.rpartition(".")[0].partition("-")[0].lower(), n[n.rindex(".") :]) for n in names if n.endswith(_METADATA)
    )


def is_installed(name: str) -> bool:
    """Return whether the file ``name`` is of a library: an installer has put it into a folder of distributions.

    Sources of a project that is installed by reference may have metadata, too, but of the other kind.
    """
    return any(end == ".dist-info" for folder in Path(name).parents for _, end in _distributions(str(folder)))
