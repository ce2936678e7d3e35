"""The result of ``compile(module)``: a module around the compiled one, with its parameters, modes and attributes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sized
from functools import wraps
from types import FunctionType, MethodType
from typing import Any

from tracecomp.compiled import hot_modules
from tracecomp.compiled.function import Compiled
from tracecomp.eager.modes import modes
from tracecomp.nn.module import Module
from tracecomp.record.guards.ownership import is_program_code

_OWN = ("_orig_mod", "_compiled", "__call__", "training")


class OptimizedModule(Module):
    """Call ``_compiled``, whose function is the call of ``_orig_mod`` with its hooks.

    Attributes are read from and written to the original module, so both always agree. Names in ``state_dict`` and
    ``named_parameters`` have the prefix ``_orig_mod.``. Hooks registered here run around the compiled call, in Python.
    The methods of ``Compiled`` (``graphs``, ``explain``, ``profile``, ``reset``) are available here too. Other methods
    of the original module, as ``generate``, run as they are, and their calls of the module are compiled.
    """

    __slots__ = ("__call__",)  # calls without hooks go from CPython to the compiled call directly
    __call__: Callable[..., Any]

    def __init__(self, module: Module, compiled: Compiled) -> None:
        super().__init__()
        hot_modules.forget(module)
        Module.__setattr__(self, "_orig_mod", module)
        self.__dict__["_compiled"] = compiled
        self.__call__ = compiled

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The compiled call."""
        return self._compiled(*args, **kwargs)

    @property
    def training(self) -> bool:
        """The mode of the original module."""
        mode: bool = self._orig_mod.training
        return mode

    @training.setter
    def training(self, value: bool) -> None:
        if "_orig_mod" in self.__dict__.get("_modules", {}):  # not yet in Module.__init__
            self._orig_mod.training = value

    def __getattr__(self, name: str) -> Any:
        modules = self.__dict__.get("_modules", {})
        if name == "_orig_mod" or "_orig_mod" not in modules:
            return super().__getattr__(name)
        try:
            return _with_compiled_calls(modules["_orig_mod"], self._compiled, getattr(modules["_orig_mod"], name))
        except AttributeError:
            if name.startswith("_"):
                raise
            return getattr(self._compiled, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _OWN or "_orig_mod" not in self.__dict__.get("_modules", {}) or hasattr(type(self), name):
            super().__setattr__(name, value)
        else:
            setattr(self._orig_mod, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._orig_mod, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._orig_mod)})

    def __len__(self) -> int:
        if isinstance(self._orig_mod, Sized):
            return len(self._orig_mod)
        raise TypeError(f"{type(self._orig_mod).__name__} does not support len()")

    def __getitem__(self, key: Any) -> Any:
        return self._orig_mod[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._orig_mod)

    def __contains__(self, key: object) -> bool:
        return key in self._orig_mod

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self._orig_mod, self._compiled._alike())

    # hooks need the call that runs them

    def register_forward_pre_hook(self, *args: Any, **kwargs: Any) -> Any:
        self.__call__ = self._call_impl
        return super().register_forward_pre_hook(*args, **kwargs)

    def register_forward_hook(self, *args: Any, **kwargs: Any) -> Any:
        self.__call__ = self._call_impl
        return super().register_forward_hook(*args, **kwargs)

    def register_full_backward_pre_hook(self, *args: Any, **kwargs: Any) -> Any:
        self.__call__ = self._call_impl
        return super().register_full_backward_pre_hook(*args, **kwargs)

    def register_full_backward_hook(self, *args: Any, **kwargs: Any) -> Any:
        self.__call__ = self._call_impl
        return super().register_full_backward_hook(*args, **kwargs)


def _with_compiled_calls(module: Module, compiled: Compiled, found: Any) -> Any:
    """``found`` of a module; a method of the program's own such that its calls of the module are compiled."""
    if not isinstance(found, MethodType) or found.__self__ is not module or found.__name__ == "forward":
        return found
    function = inspect.unwrap(found.__func__)  # under decorators such as ``no_grad``
    if not (isinstance(function, FunctionType) and is_program_code(function.__code__, function.__globals__)):
        return found

    attributes = module.__dict__

    def call(*args: Any, **kwargs: Any) -> Any:
        attributes.pop("_compiled_call_impl", None)  # the compiled function calls the module
        try:
            return compiled(*args, **kwargs)
        finally:
            attributes["_compiled_call_impl"] = call

    @wraps(found)
    def method(*args: Any, **kwargs: Any) -> Any:
        if modes.recorder is not None or module._compiled_call_impl is not None:
            return found(*args, **kwargs)
        attributes["_compiled_call_impl"] = call
        try:
            return found(*args, **kwargs)
        finally:
            attributes.pop("_compiled_call_impl", None)

    return method


def _rebuild(module: Module, compiled: Callable[[object], Compiled]) -> OptimizedModule:
    return OptimizedModule(module, compiled(module))
