"""The classes that steps over items derive from, and the decorator that makes a step a method of all others."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, TypeVar

from tracecomp.utils.data.dataset import Dataset, IterableDataset

Step = TypeVar("Step", bound=type)


class _Chained:
    """Steps that are registered by name are methods: ``pipe.name(...)`` is ``Step(pipe, ...)``."""

    functions: ClassVar[dict[str, Callable[..., Any]]]

    def __getattr__(self, name: str) -> Any:
        if name in type(self).functions:
            return partial(type(self).functions[name], self)
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    @classmethod
    def register_function(cls, function_name: str, function: Callable[..., object]) -> None:
        cls.functions[function_name] = function

    @classmethod
    def register_datapipe_as_function(cls, function_name: str, cls_to_register: Callable[..., object]) -> None:
        """Exception where the name is taken."""
        if function_name in cls.functions:
            raise Exception(f"Unable to add DataPipe function name {function_name} as it is already taken")
        cls.functions[function_name] = cls_to_register

    def __repr__(self) -> str:
        return type(self).__qualname__

    def reset(self) -> None:
        """Do nothing: each iteration starts from the beginning."""


class IterDataPipe(_Chained, IterableDataset[Any]):
    """A step whose items come in order: subclasses define ``__iter__``."""

    functions: ClassVar[dict[str, Callable[..., Any]]] = {}


class MapDataPipe(_Chained, Dataset[Any]):
    """A step with items by index: subclasses define ``__getitem__``, and ``__len__``."""

    functions: ClassVar[dict[str, Callable[..., Any]]] = {}


def functional_datapipe(name: str) -> Callable[[Step], Step]:
    """Make the decorated class a method called ``name`` of all steps of its kind; other classes are unchanged."""

    def register(cls: Step) -> Step:
        kind = next((kind for kind in (IterDataPipe, MapDataPipe) if issubclass(cls, kind)), None)
        if kind is not None:
            kind.register_datapipe_as_function(name, cls)
        return cls

    return register
