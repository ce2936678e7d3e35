"""The marks of ``torch.jit``: they say how TorchScript should read a program, and running it means the same without.

Programs are captured by running them (see ``docs/capture.md``), so there is no second language to compile to: what
``script`` is given keeps running as Python, and is captured with whatever compiled function calls it.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

from tracecomp import serialization
from tracecomp.futures import Future
from tracecomp.nn.module import Module

__all__ = [
    "Attribute",
    "Error",
    "Final",
    "RecursiveScriptModule",
    "ScriptFunction",
    "ScriptModule",
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
    """What PyTorch's tracer warns with; capture follows what a program does, so there is nothing to warn of."""


class ScriptModule(Module):
    """Base of modules written for TorchScript: a module, run by Python."""


class RecursiveScriptModule(ScriptModule):
    """What PyTorch's ``script`` makes of a module; nothing here is one."""


class ScriptFunction:
    """What PyTorch's ``script`` makes of a function; nothing here is one."""


class Attribute(NamedTuple):
    """A value and the type that TorchScript is to see in it."""

    value: Any
    type: Any


Error = RuntimeError


def is_scripting() -> bool:
    """False: the code that asks is run by Python."""
    return False


def is_tracing() -> bool:
    """False: recording does not change what a program sees."""
    return False


def annotate(the_type: Any, the_value: T) -> T:
    """``the_value``."""
    return the_value


def export(fn: T) -> T:
    """``fn``."""
    return fn


def unused(fn: T) -> T:
    """``fn``."""
    return fn


def ignore(drop: Any = False, **kwargs: Any) -> Any:
    """The function decorated, by ``@ignore`` as by ``@ignore()``."""
    return drop if callable(drop) else export


def script(
    obj: T, optimize: Any = None, _frames_up: int = 0, _rcb: Any = None, example_inputs: Any = None
) -> T:  # fmt: skip
    """``obj``."""
    return obj


def trace(func: Callable[..., Any], example_inputs: Any = None, **options: Any) -> Any:
    """``func``, which has run once with ``example_inputs``. It goes on taking the paths that its inputs ask for."""
    given = options.get("example_kwarg_inputs")
    args = example_inputs if builtins.isinstance(example_inputs, tuple | list) else (example_inputs,)
    func(*(() if example_inputs is None else args), **(given or {}))
    return func


def trace_module(mod: Any, inputs: dict[str, Any], **options: Any) -> Any:
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


def _overload(fn: Callable[..., Any]) -> Callable[..., Any]:
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


def save(m: Any, f: Any, _extra_files: Any = None) -> None:
    """Write a module or function to a path or file: a pickle, as ``torch.save`` writes it."""
    serialization.save(m, f)


def load(f: Any, map_location: Any = None, _extra_files: Any = None, _restore_shapes: bool = False) -> Any:
    """What ``save`` wrote; archives of PyTorch's TorchScript cannot be read."""
    return serialization.load(f, map_location=map_location, weights_only=False)


def set_fusion_strategy(strategy: Any) -> list[Any]:
    """Noted by nobody: ``torch.compile`` fuses."""
    return []


def _overload_method(fn: Callable[..., Any]) -> Callable[..., Any]:
    """``fn``: a signature without a body, replaced by the method that follows it."""
    return fn
