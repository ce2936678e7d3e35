"""Modules and functions as ``torch.jit`` gives them back: they run as Python, and can be saved without it."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from tracecomp.compiled import trace as recorded
from tracecomp.jit import files
from tracecomp.jit.collect import Collector
from tracecomp.jit.failures import of_script
from tracecomp.jit.guard import Scripted
from tracecomp.nn.module import Module

Target = Any  # a path, or a file that is open for writing


def _raise(error: Exception) -> NoReturn:
    """Raise ``error`` as scripts raise it."""
    raised = of_script(error)
    if raised is error:
        raise error
    raise raised from error


class ScriptModule(Module):
    """Base of modules that ``script``, ``trace`` and ``load`` give back."""


class RecursiveScriptModule(ScriptModule):
    """A module whose program can be saved. It shares parameters and all attributes with the module it was made from."""

    @property
    def original_name(self) -> str:
        """The name of the class that the program was written as."""
        return type(self).__name__

    @property
    def code(self) -> str:
        """The text of ``forward``. NotSupportedError where it is not supported in scripts."""
        found = Collector().description(self)["functions"]
        return str(next((f["text"] for f in found if f["name"].endswith(".forward")), ""))

    def save(self, f: Target, _extra_files: dict[str, Any] | None = None) -> None:
        """Write the program with its state to a path or file, for ``torch.jit.load``."""
        files.save(self, f, _extra_files)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().__call__(*args, **kwargs)
        except Exception as error:  # of whatever kind: `of_script` says which are others in scripts
            _raise(error)

    def __deepcopy__(self, memo: dict[int, object]) -> Any:
        return copied(self, memo)


class TopLevelTracedModule(RecursiveScriptModule):
    """A module that ``trace`` gave back; it remembers the arguments it was traced with."""

    _examples: Sequence[Any]

    @property
    def graph(self) -> Any:
        """The computation of the module for its traced arguments, as a graph."""
        return recorded(self.forward, *self._examples)

    def save(self, f: Target, _extra_files: dict[str, Any] | None = None) -> None:
        """Write the program with its state to a path or file, for ``torch.jit.load``."""
        files.save(self, f, _extra_files, self._examples)


class ScriptFunction:
    """A function whose program can be saved."""

    def __init__(self, fn: Callable[..., Any], examples: Sequence[Any] | None = None) -> None:
        functools.update_wrapper(self, fn)
        self._fn = fn
        self._examples = examples

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return self._fn(*args, **kwargs)
        except Exception as error:  # of whatever kind: `of_script` says which are others in scripts
            _raise(error)

    def __repr__(self) -> str:
        return f"<torch.jit.ScriptFunction {self.name}>"

    def __get__(self, instance: object, owner: object = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __reduce__(self) -> Any:
        return type(self), (self._fn, self._examples)

    @property
    def name(self) -> str:
        """The function's name."""
        return getattr(self._fn, "__name__", type(self._fn).__name__)

    @property
    def code(self) -> str:
        """The text of the function. NotSupportedError where it is not supported in scripts."""
        return str(Collector().description(self._fn)["functions"][0]["text"])

    @property
    def graph(self) -> Any:
        """The computation of the function for its traced arguments, as a graph."""
        if self._examples is None:
            raise RuntimeError(f"{self.name} was scripted, not traced: use torch.trace(fn, *args) for a graph")
        return recorded(self._fn, *self._examples)

    def save(self, f: Target, _extra_files: Mapping[str, object] | None = None) -> None:
        """Write the program to a path or file, for ``torch.jit.load``."""
        files.save(self._fn, f, _extra_files, self._examples)


def scripted(value: object) -> Any:
    """A module or function whose program can be saved; classes and scripted values are returned unchanged."""
    if isinstance(value, ScriptFunction | RecursiveScriptModule | Scripted | type):
        return value
    if isinstance(value, Module):
        return _sharing(value, RecursiveScriptModule)
    return ScriptFunction(value) if inspect.isroutine(value) else value


def traced(value: Any, examples: Sequence[Any]) -> Any:
    """As ``scripted``, with the arguments that it was traced with."""
    if isinstance(value, TopLevelTracedModule | Scripted):
        return value
    if not isinstance(value, Module):
        return ScriptFunction(getattr(value, "_fn", value), tuple(examples))
    made = _sharing(value, TopLevelTracedModule)
    object.__setattr__(made, "_examples", tuple(examples))
    return made


def _sharing(module: Module, kind: type[RecursiveScriptModule]) -> Any:
    """``module`` as one of ``kind``: another object with the same attributes, so changes here are changes there."""
    own = next(c for c in type(module).__mro__ if not issubclass(c, RecursiveScriptModule))
    slots = ("_examples",) if kind is TopLevelTracedModule else ()
    made: Any = object.__new__(type(own.__name__, (kind, own), {"__slots__": slots, "__module__": kind.__module__}))
    object.__setattr__(made, "__dict__", vars(module))
    return made


def copied(module: RecursiveScriptModule, memo: dict[int, Any]) -> Any:
    """A copy of a scripted module, which shares nothing with it."""
    made = object.__new__(type(module))
    memo[id(module)] = made
    object.__setattr__(made, "__dict__", copy.deepcopy(vars(module), memo))
    if isinstance(module, TopLevelTracedModule):
        object.__setattr__(made, "_examples", module._examples)
    return made
