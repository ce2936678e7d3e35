"""The marks of ``torch.jit``: they say how TorchScript should read a program, and running it means the same without.

Programs are captured by running them (see ``docs/capture.md``), so there is no second language to compile to: what
``script`` is given keeps running as Python, and is captured with whatever compiled function calls it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

__all__ = [
    "Final",
    "annotate",
    "export",
    "freeze",
    "ignore",
    "is_scripting",
    "is_tracing",
    "optimize_for_inference",
    "script",
    "script_if_tracing",
    "trace",
    "trace_module",
    "unused",
]  # fmt: skip

T = TypeVar("T")


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
    args = example_inputs if isinstance(example_inputs, tuple | list) else (example_inputs,)
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


def _overload_method(fn: Callable[..., Any]) -> Callable[..., Any]:
    """``fn``: a signature without a body, replaced by the method that follows it."""
    return fn
