"""Names that libraries import from ``torch._jit_internal``: marks for TorchScript, which have no effect in Python."""

from __future__ import annotations

from typing import Any, Final, TypeVar

from tracecomp.jit import _overload_method, export, ignore, is_scripting, unused

__all__ = [
    "Final", "_copy_to_script_wrapper", "_overload", "_overload_method", "boolean_dispatch", "export", "ignore",
    "is_scripting", "unused",
]  # fmt: skip

F = TypeVar("F")


def _copy_to_script_wrapper(fn: F) -> F:
    """Return ``fn``."""
    return fn


def _overload(fn: F) -> F:
    """Return ``fn``: a signature without a body, which the following function replaces."""
    return fn


def boolean_dispatch(
    arg_name: str, arg_index: int, default: bool, if_true: Any, if_false: Any, module_name: str, func_name: str
) -> Any:
    """Return a function that calls ``if_true`` or ``if_false``, by one of its arguments."""

    def run(*args: Any, **kwargs: Any) -> Any:
        chosen = args[arg_index] if arg_index < len(args) else kwargs.get(arg_name, default)
        return (if_true if chosen else if_false)(*args, **kwargs)

    run.__name__, run.__module__ = func_name, module_name
    return run
