"""``torch.jit``: programs that are saved as text, and run without their original classes.

Programs are captured by running them (see ``docs/capture.md``), so compilation needs no scripting. The results of
``script`` and ``trace`` run as Python, and are captured with any compiled function that calls them. They add ``save``:
the text of the program, in a language that can reach only tensors, is written to a file that ``load`` runs anywhere
(``docs/program-files.md``).
"""

from __future__ import annotations

import builtins
import os
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

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
    the language of scripts does not have (``docs/program-files.md``). Classes come back as they are.
    """
    return scripted(obj)


def trace(func: Any, example_inputs: Any = None, **options: Any) -> Any:
    """Return ``func``, a module or function, in a form that can be saved; it runs once with ``example_inputs``.

    Its control flow still depends on its inputs. If scripts do not support its text, the graph of ``example_inputs`` is
    saved instead.
    """
    given = options.get("example_kwarg_inputs")
    args = example_inputs if builtins.isinstance(example_inputs, tuple | list) else (example_inputs,)
    args = () if example_inputs is None else tuple(args)
    func(*args, **(given or {}))
    return traced(func, args)


def trace_module(mod: object, inputs: dict[str, Any], **options: Any) -> Any:
    """``mod``, whose methods named in ``inputs`` have run once."""
    for name, given in inputs.items():
        trace(getattr(mod, name), given)
    return mod


def freeze(mod: T, *args: Any, **options: Any) -> T:
    """``mod``."""
    return mod


def optimize_for_inference(mod: T, *args: Any, **options: Any) -> T:
    """``mod``."""
    return mod


def script_if_tracing(fn: T) -> T:
    """``fn``."""
    return fn


def script_method(fn: T) -> T:
    """``fn``."""
    return fn


def interface(obj: T) -> T:
    """``obj``."""
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
    return future.wait()


def save(m: object, f: object, _extra_files: dict[str, Any] | None = None) -> None:
    """Write a result of ``script`` or ``trace`` to a path or open file.

    NotSupportedError names unsupported constructs (``docs/program-files.md``).
    """
    if not builtins.isinstance(m, RecursiveScriptModule | ScriptFunction):
        raise ValueError(f"torch.jit.save expects the result of torch.jit.script or trace, not {type(m).__name__}")
    m.save(f, _extra_files)


def load(f: Any, map_location: Any = None, _extra_files: Any = None, _restore_shapes: bool = False) -> Any:
    """Load the module or function that ``save`` wrote to a path or file, or PyTorch's ``torch.jit.save``.

    It needs none of its original classes and functions. Files may be untrusted. ProgramError describes an invalid file.
    """
    if files.is_program(f):
        return files.load(f, RecursiveScriptModule, _extra_files)
    if builtins.isinstance(f, str | os.PathLike):
        with open(f, "rb") as file:
            return torchscript.load(file, RecursiveScriptModule)
    return torchscript.load(f, RecursiveScriptModule)


def set_fusion_strategy(strategy: object) -> list[Any]:
    """Accept without effect: ``torch.compile`` fuses."""
    return []


def _overload_method(fn: Callable[..., object]) -> Callable[..., Any]:
    """``fn``: a signature without a body, replaced by the method that follows it."""
    return fn
