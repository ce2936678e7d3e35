"""``torch.jit``: programs that are saved as text, and run without their original classes.

Programs are captured by running them (see ``docs/capture.md``), so compilation needs no scripting. The results of
``script`` and ``trace`` run as Python, and are captured with any compiled function that calls them. They add ``save``:
the text of the program, in a language that can reach only tensors, is written to a file that ``load`` runs anywhere
(``docs/program-files.md``).

The module itself is a function: ``tracecomp.jit(True)`` compiles modules whose calls repeat, ``tracecomp.jit(False)``
does not (``compiled/hot_modules.py``).
"""

from __future__ import annotations

import builtins
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final, NamedTuple, TypeVar

from tracecomp.base.code_origin import is_pytorchs
from tracecomp.base.errors import type_name
from tracecomp.compiled import hot_modules
from tracecomp.eager.device import check_device, device
from tracecomp.eager.tensor import Tensor
from tracecomp.futures import Future
from tracecomp.jit import files, torchscript
from tracecomp.jit.failures import Error
from tracecomp.jit.language import NotSupportedError
from tracecomp.jit.modules import (
    RecursiveScriptModule,
    ScriptFunction,
    ScriptModule,
    TopLevelTracedModule,
    scripted,
    traced,
)
from tracecomp.jit.trace_graph import get_trace_graph
from tracecomp.serialization.files import faults_of

__all__ = [
    "Attribute",
    "Error",
    "Final",
    "NotSupportedError",
    "RecursiveScriptModule",
    "ScriptFunction",
    "ScriptModule",
    "TopLevelTracedModule",
    "TracerWarning",
    "annotate",
    "export",
    "fork",
    "freeze",
    "ignore",
    "interface",
    "is_scripting",
    "is_tracing",
    "isinstance",
    "load",
    "optimize_for_inference",
    "save",
    "script",
    "script_if_tracing",
    "script_method",
    "set_fusion_strategy",
    "trace",
    "trace_module",
    "unused",
    "wait",
]  # fmt: skip

T = TypeVar("T")


class TracerWarning(Warning):
    """PyTorch's warning of the tracer; capture follows the program, so it is never raised."""


class Attribute(NamedTuple):
    """A value and the type that TorchScript is to see in it."""

    value: Any
    type: Any


def is_scripting() -> bool:
    """False: the code that asks is run by Python."""
    return False


def is_tracing() -> bool:
    """False: recording does not change what a program sees."""
    return False


def annotate(the_type: object, the_value: T) -> T:
    """``the_value``."""
    return the_value


def export(fn: T) -> T:
    """Mark ``fn`` as a method that is saved together with ``forward``."""
    fn._exported = True  # type: ignore[attr-defined]
    return fn


def unused(fn: T) -> T:
    """``fn``, a function that saved programs do without: calling it there is an error."""
    return fn


def ignore(drop: object = False, **kwargs: Any) -> Any:
    """The function decorated, by ``@ignore`` as by ``@ignore()``; as ``unused``."""
    return drop if callable(drop) else unused


def script(
    obj: object, optimize: object = None, _frames_up: int = 0, _rcb: object = None, example_inputs: object = None
) -> Any:  # fmt: skip
    """``obj``, a module or function, as one whose program can be saved.

    It runs as before, shares its parameters with ``obj``, and is read when it is saved: NotSupportedError names what
    the language of scripts does not have (``docs/program-files.md``). Classes, lists and dicts come back as they are.
    TypeError for other objects.
    """
    if not (callable(obj) or builtins.isinstance(obj, list | tuple | dict)) or builtins.isinstance(obj, Tensor):
        raise TypeError(f"script(): obj must be a module, a function or a class, not {type_name(obj)}")
    if is_pytorchs(type(obj)):
        raise TypeError(
            f"script(): {type_name(obj)} is a module of PyTorch. Load its state_dict() into one of tracecomp"
        )
    return scripted(obj)


_TRACE_OPTIONS = frozenset(
    ("optimize", "check_trace", "check_inputs", "check_tolerance", "strict", "example_kwarg_inputs")
) | {"_force_outplace", "_module_class", "_compilation_unit", "_store_inputs"}
"""Keywords of PyTorch's ``trace``. All but one are for its tracer, and have no effect here."""


def trace(func: Any, example_inputs: Any = None, **options: Any) -> Any:
    """Return ``func``, a module or function, in a form that can be saved; it runs once with ``example_inputs``.

    Its control flow still depends on its inputs. If scripts do not support its text, the graph of ``example_inputs`` is
    saved instead. RuntimeError if ``func`` is neither, or returns anything but tensors and lists, tuples and dicts of
    them.
    """
    _check_options("trace", options, _TRACE_OPTIONS)
    if not callable(func):
        raise RuntimeError(f"trace(): func must be a module or a function, not {type_name(func)}")
    given = options.get("example_kwarg_inputs")
    if example_inputs is None and not builtins.isinstance(given, dict):
        raise RuntimeError(
            f"trace(): pass the arguments as example_inputs, or as a dict example_kwarg_inputs, not {type_name(given)}"
        )
    args = example_inputs if builtins.isinstance(example_inputs, tuple | list) else (example_inputs,)
    args = () if example_inputs is None else tuple(args)
    result = func(*args, **(given or {}))
    if not _has_only_tensors(result):
        raise RuntimeError(
            "trace(): the traced function must return tensors, or lists, tuples or dicts of tensors, not "
            f"{type_name(result)}"
        )
    return traced(func, args)


def _check_options(name: str, options: dict[str, object], known: frozenset[str]) -> None:
    if unknown := options.keys() - known:
        raise TypeError(f"{name}() got an unexpected keyword argument '{min(unknown)}'")


def _has_only_tensors(value: object) -> bool:
    if builtins.isinstance(value, dict):
        return all(map(_has_only_tensors, value.values()))
    if builtins.isinstance(value, list | tuple):
        return all(x is None or _has_only_tensors(x) for x in value)
    return builtins.isinstance(value, Tensor)


def _get_trace_graph(
    f: object, args: Any = (), kwargs: dict[str, object] | None = None, strict: bool = True,
    _force_outplace: bool = False, return_inputs: bool = False, _return_inputs_states: bool = False,
) -> tuple[Any, ...]:  # fmt: skip
    """``(graph, result)`` of a call, and the arguments with ``return_inputs``: a description for tools that count."""
    return get_trace_graph(f, args, kwargs or {}, return_inputs)


def trace_module(mod: object, inputs: dict[str, Any], **options: Any) -> Any:
    """``mod``, whose methods named in ``inputs`` have run once."""
    if not builtins.isinstance(inputs, dict):
        raise AttributeError(f"trace_module(): inputs must be a dict of arguments by method, not {type_name(inputs)}")
    for name, given in inputs.items():
        trace(getattr(mod, name), given)
    return mod


def freeze(mod: T, *args: Any, **options: Any) -> T:
    """``mod``, a module that ``script`` or ``trace`` returned, in evaluation mode; RuntimeError for others."""
    _check_scripted("freeze", mod)
    if getattr(mod, "training", False):
        raise RuntimeError("freeze(): the module is in training mode. Call its method eval() first")
    return mod


def optimize_for_inference(mod: T, *args: Any, **options: Any) -> T:
    """``mod``, a module that ``script`` or ``trace`` returned; RuntimeError for functions and other objects."""
    if not hasattr(mod, "named_modules"):
        _check_scripted("optimize_for_inference", mod)
    return mod


def _check_scripted(name: str, mod: object) -> None:
    if not builtins.isinstance(mod, ScriptModule):
        raise RuntimeError(
            f"{name}(): expected the result of torch.jit.script or torch.jit.trace, not {type_name(mod)}"
        )


def script_if_tracing(fn: T) -> T:
    """``fn``."""
    return fn


def script_method(fn: T) -> T:
    """``fn``."""
    return fn


def interface(obj: T) -> T:
    """``obj``, a class; RuntimeError for other objects."""
    if not builtins.isinstance(obj, type):
        raise RuntimeError(f"interface(): expected a class, not {type_name(obj)}")
    return obj


def _overload(fn: Callable[..., object]) -> Callable[..., Any]:
    """``fn``: a signature without a body, replaced by the function that follows it."""
    return fn


_script_if_tracing = script_if_tracing


def isinstance(obj: Any, target_type: Any) -> bool:
    """Python's ``isinstance``."""
    return builtins.isinstance(obj, target_type)


def fork(func: Callable[..., T], *args: Any, **kwargs: Any) -> Future[T]:
    """A future that already has ``func(*args, **kwargs)``: it is run at once."""
    future: Future[T] = Future()
    future.set_result(func(*args, **kwargs))
    return future


def wait(future: Future[T]) -> T:
    """The value of a future."""
    if not builtins.isinstance(future, Future):
        raise TypeError(f"wait(): argument 'future' must be Future, not {type_name(future)}")
    return future.wait()


def save(m: object, f: object, _extra_files: dict[str, Any] | None = None) -> None:
    """Write a result of ``script`` or ``trace`` to a path or open file.

    NotSupportedError names unsupported constructs (``docs/program-files.md``).
    """
    if not builtins.isinstance(m, RecursiveScriptModule | ScriptFunction):
        raise ValueError(f"torch.jit.save expects the result of torch.jit.script or trace, not {type(m).__name__}")
    _check_extra("save", _extra_files)
    m.save(f, _extra_files)


def load(f: Any, map_location: Any = None, _extra_files: Any = None, _restore_shapes: bool = False) -> Any:
    """Load the module or function that ``save`` wrote to a path or file, or PyTorch's ``torch.jit.save``.

    It needs none of its original classes and functions. Files may be untrusted. Errors of invalid files are
    RuntimeErrors. ValueError for a path without a file, and for an unknown ``map_location``.
    """
    if not builtins.isinstance(map_location, str | device | None):
        raise ValueError(f"load(): map_location must be a str, a torch.device or None, not {type_name(map_location)}")
    check_device(map_location)
    _check_extra("load", _extra_files)
    if not hasattr(f, "read"):
        return _load_path(f, _extra_files)
    if files.is_program(f):
        return files.load(f, RecursiveScriptModule, _extra_files)
    return _load_archive(f, getattr(f, "name", "the file"))


def _load_path(f: Any, extra: Any) -> Any:
    if not builtins.isinstance(f, str | os.PathLike):
        raise AttributeError(f"load(): expected a path or an open file, not {type_name(f)}")
    if not os.path.isfile(f):
        raise ValueError(f"load(): {os.fspath(f)} does not exist or is not a file")
    if files.is_program(f):
        return files.load(f, RecursiveScriptModule, extra)
    with open(f, "rb") as file:
        return _load_archive(file, os.fspath(f))


def _load_archive(file: Any, name: str) -> Any:
    with faults_of("jit.load", file, name):
        return torchscript.load(file, RecursiveScriptModule)


def _check_extra(name: str, extra: object) -> None:
    if not (extra is None or builtins.isinstance(extra, dict)):
        raise TypeError(f"{name}(): _extra_files must be a dict of contents by name, not {type_name(extra)}")


def set_fusion_strategy(strategy: object) -> list[Any]:
    """Accept without effect: ``torch.compile`` fuses."""
    return []


def _overload_method(fn: Callable[..., object]) -> Callable[..., Any]:
    """``fn``: a signature without a body, replaced by the method that follows it."""
    return fn


class _Switch(ModuleType):
    """This module, which is called to turn compilation of hot modules on or off."""

    def __call__(self, enabled: bool = True) -> None:
        hot_modules.jit(enabled)


sys.modules[__name__].__class__ = _Switch
