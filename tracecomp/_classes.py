"""``torch.classes``: classes that native libraries register; there are none, and access raises."""

from __future__ import annotations

from typing import NoReturn

__all__ = ["classes"]


class _Namespace:
    """The classes of one library."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise RuntimeError(f"Tried to instantiate class '{self.name}.{name}', but it does not exist!")


class _Classes:
    """Namespaces by name; each name exists."""

    def __init__(self) -> None:
        self.__path__: list[str] = []
        self.loaded_libraries: set[str] = set()

    def __getattr__(self, name: str) -> _Namespace:
        if name.startswith("__"):
            raise AttributeError(name)
        namespace = _Namespace(name)
        setattr(self, name, namespace)
        return namespace

    def load_library(self, path: str) -> NoReturn:
        """Raise OSError: native libraries are written for PyTorch's own memory."""
        raise OSError(f"torch.classes.load_library({path!r}): native class libraries need PyTorch itself")


classes = _Classes()
