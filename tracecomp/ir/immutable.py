"""Classes whose objects are equal when their contents are, and never change."""

from __future__ import annotations

from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def immutable(cls: type[T]) -> type[T]:
    """Make a dataclass with slots, compared and hashed by content; the type checker rejects assignments.

    Fields with ``compare=False`` are not part of the content. A class for which field equality is too coarse, because
    Python equates different values, has a method ``_content``.

    The methods other than ``__init__`` are shared code, and nothing checks assignments at run time: importing defines
    dozens of such classes, and compiling creates many thousands of such objects.
    """
    cls = dataclass(eq=False, repr=False, slots=True)(cls)
    names = [f.name for f in fields(cls)]  # type: ignore[arg-type]
    compared = [f.name for f in fields(cls) if f.compare]  # type: ignore[arg-type]
    contents: Any = getattr(cls, "_content", None) or (attrgetter(*compared) if compared else lambda _: ())

    def equal(self: T, other: object) -> Any:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return contents(self) == contents(other)

    def show(self: T) -> str:
        return f"{cls.__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    cls.__eq__ = equal  # type: ignore[assignment]
    cls.__hash__ = lambda self: hash(contents(self))  # type: ignore[method-assign]
    if cls.__repr__ is object.__repr__:
        cls.__repr__ = show  # type: ignore[assignment]
    return cls
