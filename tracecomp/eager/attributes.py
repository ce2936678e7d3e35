"""The attributes of a tensor as its ``__dict__`` shows them: those of programs, without the package's."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

from tracecomp.eager.tensor_base import INNER, TensorBase, all_attributes


def own_attributes(t: TensorBase) -> dict[str, Any]:
    """A copy of the attributes that the program has set, those with an underscore too."""
    return {name: value for name, value in all_attributes(t).items() if name not in INNER}


class Attributes(dict[str, Any]):
    """A dictionary that reads and writes a tensor's attributes, and hides the package's.

    Libraries copy this dictionary to other tensors, pickle it and show it. The package's attributes would make the
    other tensor a view of the same memory, and cannot be pickled. C code that reads past the methods finds the
    attributes that the tensor had when ``__dict__`` was read.
    """

    def __init__(self, t: TensorBase) -> None:
        self._tensor, self._real = t, all_attributes(t)
        super().__init__(own_attributes(t))

    def __getitem__(self, name: str) -> Any:
        if name in INNER:
            raise KeyError(name)
        return self._real[name]

    def __setitem__(self, name: str, value: object) -> None:
        """Set an attribute; a name of the package's is ignored, as it describes the memory of another tensor."""
        if name not in INNER:
            self._real[name] = value

    def __delitem__(self, name: str) -> None:
        if name in INNER:
            raise KeyError(name)
        del self._real[name]

    def __iter__(self) -> Iterator[str]:
        return iter(own_attributes(self._tensor))

    def __reversed__(self) -> Iterator[str]:
        return reversed(own_attributes(self._tensor))

    def __len__(self) -> int:
        return len(own_attributes(self._tensor))

    def __repr__(self) -> str:
        return repr(self.copy())

    def copy(self) -> dict[str, Any]:
        """The attributes in a new dictionary."""
        return own_attributes(self._tensor)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __or__(self, other: Mapping[str, object]) -> dict[str, Any]:  # type: ignore[override]
        return self.copy() | dict(other)

    def __ror__(self, other: Mapping[str, object]) -> dict[str, Any]:  # type: ignore[override]
        return dict(other) | self.copy()

    def __ior__(self, other: Mapping[str, object]) -> Attributes:  # type: ignore[override]
        self.update(other)
        return self

    def __reduce__(self) -> Any:
        return dict, (self.copy(),)


# Not as a base class: type checkers take ``dict`` for a subclass of MutableMapping, which cannot come before it.
for _name in (
    "__contains__", "__eq__", "clear", "get", "items", "keys", "pop", "popitem", "setdefault", "update", "values",
):  # fmt: skip
    setattr(Attributes, _name, getattr(MutableMapping, _name))


def replace_attributes(t: TensorBase, value: object) -> None:
    """Replace the program's attributes by those of the dictionary ``value``; TypeError if it is not one."""
    if not isinstance(value, dict):
        raise TypeError(f"__dict__ must be set to a dictionary, not a '{type(value).__name__}'")
    real, new = all_attributes(t), {name: x for name, x in value.items() if name not in INNER}
    for name in own_attributes(t):
        del real[name]
    real.update(new)


def show_own_attributes(root: type, cls: type) -> None:
    """Give a subclass of Tensor (``root``) Tensor's ``__dict__``, also after a base class of Python's.

    Such a base comes before Tensor and has a separate ``__dict__``, which shows all attributes. A class refuses the
    assignment of ``__dict__``, so the entry goes into the namespace behind the proxy ``vars(cls)``.
    """
    first = next(c for c in cls.__mro__ if "__dict__" in vars(c))
    if not issubclass(first, root):
        namespace = gc.get_referents(vars(cls))[0]
        namespace["__dict__"] = vars(root)["__dict__"]
        ctypes.pythonapi.PyType_Modified(ctypes.py_object(cls))
