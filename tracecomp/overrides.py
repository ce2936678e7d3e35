"""The names of ``torch.overrides``: asking about ``__torch_function__``, and modes that see every call."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from tracecomp.eager import overrides as mechanism
from tracecomp.eager.modes import modes
from tracecomp.eager.overrides import DisableTorchFunction, DisableTorchFunctionSubclass, TorchFunctionMode
from tracecomp.eager.tensor import Tensor
from tracecomp.functional.publish import NAMESPACES

__all__ = [
    "BaseTorchFunctionMode", "DisableTorchFunction", "DisableTorchFunctionSubclass", "TorchFunctionMode",
    "get_default_nowrap_functions", "get_ignored_functions", "get_overridable_functions", "handle_torch_function",
    "has_torch_function", "has_torch_function_unary", "has_torch_function_variadic", "is_tensor_like",
    "is_tensor_method_or_property", "resolve_name", "wrap_torch_function",
]  # fmt: skip

Fn = Callable[..., Any]
F = TypeVar("F", bound=Fn)


class BaseTorchFunctionMode(TorchFunctionMode):
    """A mode that passes every call on unchanged."""

    def __torch_function__(
        self, func: Fn, types: Any, args: tuple[object, ...] = (), kwargs: dict[str, object] | None = None
    ) -> Any:
        return func(*args, **(kwargs or {}))


def has_torch_function(relevant_args: Iterable[object]) -> bool:
    """Whether a mode is active or one of the arguments overrides ``__torch_function__``."""
    if modes.function_modes:
        return True
    return not modes.plain_subclasses and any(mechanism.overrides(type(x)) for x in relevant_args)


def has_torch_function_unary(x: object) -> bool:
    return has_torch_function((x,))


def has_torch_function_variadic(*args: Any) -> bool:
    return has_torch_function(args)


def handle_torch_function(public_api: Fn, relevant_args: Iterable[object], *args: Any, **kwargs: Any) -> Any:
    """Dispatch ``public_api(*args, **kwargs)`` to a mode or an argument; TypeError if none handles it."""
    found = mechanism.override(public_api, args, kwargs, tuple(relevant_args))
    if found is mechanism.NOT_OVERRIDDEN:
        raise TypeError(f"no implementation found for '{public_api.__module__}.{public_api.__name__}'")
    return found


def wrap_torch_function(dispatcher: Callable[..., Iterable[object]]) -> Callable[[F], F]:
    """A decorator: the function asks the objects that ``dispatcher`` picks from its arguments."""

    def decorate(func: F) -> F:
        @functools.wraps(func)
        def run(*args: Any, **kwargs: Any) -> Any:
            relevant = dispatcher(*args, **kwargs)
            if has_torch_function(relevant):
                return handle_torch_function(run, relevant, *args, **kwargs)
            return func(*args, **kwargs)

        return run  # type: ignore[return-value]

    return decorate


def is_tensor_like(inp: object) -> bool:
    """Whether ``inp`` is a tensor or has ``__torch_function__``."""
    return isinstance(inp, Tensor) or hasattr(type(inp), "__torch_function__")


def is_tensor_method_or_property(func: Fn) -> bool:
    """Whether ``func`` is a method or a property's getter of Tensor."""
    return any(m is func or getattr(m, "__get__", None) == func for c in Tensor.__mro__ for m in vars(c).values())


def get_default_nowrap_functions() -> set[Fn]:
    """Functions whose results are not converted to the subclass."""
    return set(mechanism.NOT_WRAPPED)


def get_ignored_functions() -> set[Fn]:
    """Public functions that ask no object: none that is published by name."""
    return set()


def get_overridable_functions() -> dict[Any, list[Fn]]:
    """Namespace -> the functions of it that ask their arguments."""
    return {space: [f for f in names.values() if hasattr(f, "__takes__")] for space, names in NAMESPACES.items()}


def resolve_name(f: Fn) -> str | None:
    """Return ``torch.add`` for that function; None unless it is public."""
    for space, names in NAMESPACES.items():
        for name, value in names.items():
            if value is f:
                return f"torch.{name}" if space == "torch" else f"torch.{space}.{name}"
    return None


def _get_current_function_mode() -> TorchFunctionMode | None:
    return modes.function_modes[-1] if modes.function_modes else None


def _get_current_function_mode_stack() -> list[TorchFunctionMode]:
    return list(modes.function_modes)
